"""gRPC's sessions over sockets: halves, GOAWAY amid calls, and a peer that asks and never reads.

Calls one by one are in `test_grpc_calls.py`.
"""

import runpy
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.headers import Headers
from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.limits import Limits
from rlwire.sessions.grpc import GrpcRawMessages
from rlwire.sessions.grpc.server import BEGUN, GrpcServerSession, ServedCall
from rlwire.streams import NOTHING
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.server import ThreadServer
from rlwire.transports.sockets import Timeouts
from tests.waiting import eventually

calls = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("test_grpc_calls.py"))))
BIG, METHOD, WORKERS = calls.BIG, calls.METHOD, calls.WORKERS
Room, Stream = calls.Room, calls.Stream
served, connected, grpcio_server = calls.served, calls.connected, calls.grpcio_server
SIZES = (0, 1, 4096, 100_000, 5_000_000)


@pytest.fixture(params=WORKERS)
def workers(request):
    return str(request.param)


@pytest.fixture
def room():
    return Room()


# Halves.


@pytest.mark.parametrize("half", ["message", "block", "unknown"])
def test_half_of_something_has_its_time(workers, room, half):
    fields = [
        (":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", METHOD),
        ("te", "trailers"), ("content-type", "application/grpc"),
    ]  # fmt: skip
    block, between = Headers().encode(fields), frames.ping()
    wire = frames.PREFACE + frames.settings({})
    if half == "message":
        wire += frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
        wire += frames.frame(frames.DATA, 0, 1, b"\0\0\0\0\x09some")
    elif half == "block":
        wire, between = wire + frames.frame(frames.HEADERS, 0, 1, block[:9]), b""
    else:
        wire, between = wire + frames.frame(77, 0, 0, bytes(90_000))[:80_000], b"x"
    with (
        served(workers, room, timeout=Timeouts(read=0.3)) as address,
        socket.create_connection((address.split(":")[0], int(address.split(":")[1]))) as sock,
    ):
        sock.settimeout(0.05)
        sock.sendall(wire)

        def closed():
            time.sleep(0.02)  # so few pings are not too many
            try:
                sock.sendall(between)
                return not sock.recv(65536)
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        eventually(closed)


def test_empty_messages_that_wait_are_bounded_too():
    class Waits(calls.Responder):
        def answer(self, event):
            return DeferredReply()

    session = GrpcServerSession(limits=Limits(received=12_800))
    connection = SimpleNamespace(session=session, peer="it", defer=lambda reply: reply)
    answers = GrpcHandler(connection, lambda call: (GrpcRawMessages(), Waits(Room(), None)))
    call = ServedCall(1)
    session.core.add(call)
    replies = [answers.answer((call, word)) for word in (BEGUN, b"asks", *[b""] * 100)]
    assert set(replies) == {NOTHING}
    _, last = answers.answer((call, b""))
    assert last.status.code == "RESOURCE_EXHAUSTED"


# GOAWAY amid calls (section 6.8).


def test_goaway_of_ours_lets_grpcio_end_its_calls_and_start_others(room):
    drain = []

    class Draining(calls.Responder):
        def answer(self, event):
            if bytes(event[:20]) == b"drain":
                drain[0]()
            return super().answer(event)

    def respond(connection):
        drain.append(connection.session.drain)
        return calls.GrpcHandler(connection, lambda call: (GrpcRawMessages(), Draining(room, None)))

    with (
        ThreadServer("127.0.0.1:0", calls.GrpcServerSession, make_handler=respond) as server,
        grpc.insecure_channel(str(server.address), options=BIG) as channel,
    ):
        one = Stream(channel)
        assert one.exchange(b"drain") == b"drain"
        for size in SIZES:
            assert len(one.exchange(bytes(size))) == size
        assert channel.unary_unary(METHOD)(b"on another connection", wait_for_ready=True)
        assert len(drain) == 2
        assert one.exchange(b"still") == b"still"
        assert one.close() is grpc.StatusCode.OK


def test_grpcios_goaway_lets_us_end_our_call():
    old = [*BIG, ("grpc.max_connection_age_ms", 50)]
    before, BIG[:] = list(BIG), old
    try:
        with grpcio_server() as address, connected(address) as connection:
            session = connection.session
            assert eventually(lambda: connection.exchange(b"x") == b"x" and session._goaway)
            for size in SIZES:
                assert len(connection.exchange(bytes(size))) == size
            assert not session.closed
    finally:
        BIG[:] = before


# A good client beside others.


def silent(address):
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", METHOD), (":authority", "a"),
        ("te", "trailers"), ("content-type", "application/grpc"),
    ]  # fmt: skip
    sock.sendall(
        frames.PREFACE
        + frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31 - 1})
        + frames.window_update(0, 2**31 - 65_536)
        + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, Headers().encode(fields))
    )
    body = b"\0" + (1_000_000).to_bytes(4, "big") + bytes(1_000_000)
    question = b"".join(
        frames.frame(frames.DATA, 0, 1, body[at : at + 16_384])
        for at in range(0, len(body), 16_384)
    )
    sock.settimeout(0.3)
    try:
        for _ in range(300):
            sock.sendall(question)
    except OSError:
        return sock
    raise AssertionError("300 MB were taken, and nothing was read")


def test_client_that_never_reads_is_not_read(workers, room):
    with served(workers, room) as address, connected(address) as good:
        socks = []
        thread = threading.Thread(target=lambda: socks.append(silent(address)))
        thread.start()
        count = 0
        while thread.is_alive():
            assert good.exchange(b"%d" % count) == b"%d" % count
            count += 1
        thread.join()
        assert count
        assert socks
        socks[0].close()
        assert good.exchange(b"last") == b"last"
