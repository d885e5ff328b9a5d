"""gRPC's sessions over sockets: our server in threads and on loops, our client, and grpcio's."""

import queue
import socket
import threading
import time
from concurrent import futures
from contextlib import contextmanager
from types import SimpleNamespace

import grpc
import pytest

from rlwire.codecs.http2 import frames
from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.limits import Limits
from rlwire.sessions.grpc import CallEnded, CallStatus, GrpcClientSession
from rlwire.sessions.grpc.server import BEGUN, GrpcServerSession, ServedCall
from rlwire.streams import NOTHING
from rlwire.transports import tcp
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tls import ClientTLS, ServerTLS
from tests.raising import raised
from tests.sessions.http2.peers import METHOD, RawMessages, begin, block, message
from tests.transports.drivers import Echo, drivers, meanwhile, serving
from tests.waiting import eventually

BIG = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
SIZES = (0, 1, 4096, 100_000, 5_000_000)
HUGE = (*SIZES, 64 * 2**20)


class Room:
    """What responders share: those that wait for each other, and those that were made."""

    def __init__(self):
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self.later_gate, self.later_waiting = threading.Event(), threading.Event()
        self.made = []
        self.meeting = []

    def closed(self, number):
        return eventually(
            lambda: len(self.made) == number and all(m.closed == 1 for m in self.made)
        )


class Responder(Echo):
    def __init__(self, room, connection):
        super().__init__(connection)
        self.room = room
        room.made.append(self)

    def answer(self, event):
        word = bytes(event[:20])
        if word == b"boom":
            raise ValueError("boom")
        if word == b"wait":
            self.room.waiting.set()
            assert self.room.gate.wait(60)
        if word == b"later":
            self.room.later_waiting.set()
            assert self.room.later_gate.wait(60)
        if word == b"open":
            self.room.gate.set()
        if word == b"meet":
            return self.meet()
        return 5 if word == b"cannot" else event

    def meet(self):
        """A reply that is there when two have asked for one."""
        reply = DeferredReply()
        self.room.meeting.append(reply)
        if len(self.room.meeting) == 2:
            for each in self.room.meeting:
                each.set(b"met")
            self.room.meeting.clear()
        return reply


@contextmanager
def served(kind, room, **options):

    def respond(connection):
        def admit(call):
            if call.method != METHOD:
                return CallStatus("UNIMPLEMENTED", f"no method {call.method}")
            return RawMessages(), Responder(room, connection)

        return GrpcHandler(connection, admit)

    with serving(
        kind, "localhost:0", lambda: GrpcServerSession(max_streams=1000), make_handler=respond,
        **options,
    ) as server:  # fmt: skip
        yield f"localhost:{server.address.port}"


@pytest.fixture(params=["threads", "asyncio"])
def workers(request):
    return str(request.param)


@pytest.fixture
def room():
    return Room()


def session(method=METHOD, **options):
    return GrpcClientSession(RawMessages(), method, **options)


def connected(address, *arguments, **options):
    return tcp.connect(address, session(*arguments, **options))


def dialled(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def exchange_sizes(*peers, sizes=SIZES):
    for size in sizes:
        for peer in peers:
            assert len(peer.exchange(bytes(size))) == size


# Ours at both ends.


@pytest.mark.parametrize("client", ["blocking", "asyncio"])
def test_rlwire_client_and_server_exchange_messages(workers, client, room):
    with served(workers, room) as address, drivers(client) as driver:
        with driver.connect(address, session()) as connection:
            exchange_sizes(connection, sizes=HUGE)
            assert connection.exchange(b"cannot") == b"cannot: EncodeError"
        assert room.closed(1)
        with driver.connect(address, session()) as connection:
            ended = raised(CallEnded, connection.exchange, b"boom")
            assert "INTERNAL: the server failed to answer" in str(ended)
        assert room.closed(2)


def vanish(connection):
    connection.core.abort()
    connection.close()


def test_lost_client_closes_its_responders(workers, room):
    with served(workers, room) as address:
        connection = connected(address)
        connection.exchange(b"x")
        connection.send(b"meet")
        assert eventually(lambda: bool(room.meeting))
        vanish(connection)
        if workers == "threads":
            room.meeting[0].cancel()
        assert room.closed(1)


def test_client_can_close_while_its_responder_blocks(room):
    with served("threads", room) as address:
        connection = connected(address)
        connection.send(b"wait")
        assert room.waiting.wait(60)
        vanish(connection)
        with connected(address) as another:
            assert another.exchange(b"open") == b"open"
        assert room.closed(2)


def test_handler_that_outlives_its_call_leaves_the_connection_to_the_next_call(room):
    with served("threads", room) as address, dialled(address) as sock:
        sock.sendall(frames.PREFACE + frames.settings({}) + begin(1) + data(1, b"wait"))
        assert room.waiting.wait(60)
        sock.sendall(frames.reset(1, frames.CANCEL) + begin(3) + data(3, b"later"))
        assert room.later_waiting.wait(60)  # in the thread that has taken over
        room.gate.set()
        eventually(lambda: room.made[0].closed)
        room.later_gate.set()
        sock.settimeout(60)
        received = b""
        while data(3, b"later") not in received:
            received += sock.recv(4096)


def data(stream, body):
    return frames.frame(frames.DATA, 0, stream, message(body))


# grpcio's client, our server.


class Stream:
    def __init__(self, channel, **options):
        self._queue = queue.SimpleQueue()
        self.call = channel.stream_stream(METHOD)(iter(self._queue.get, None), **options)

    def send(self, message):
        self._queue.put(message)

    def exchange(self, message):
        self.send(message)
        return next(self.call)

    def close(self):
        self.send(None)
        assert list(self.call) == []
        return self.call.code()


@pytest.fixture(params=["threads", "asyncio", "threads TLS", "asyncio TLS"])
def channel(request, room):
    kind, _, tls = request.param.partition(" ")
    if not tls:
        with served(kind, room) as address, grpc.insecure_channel(address, options=BIG) as made:
            yield made
        return
    files = request.getfixturevalue("files")
    trusted = grpc.ssl_channel_credentials(files.ca.read_bytes())
    with (
        served(kind, room, tls=with_alpn(ServerTLS(files.server))) as address,
        grpc.secure_channel(address, trusted, options=BIG) as made,
    ):
        yield made


def with_alpn(tls):
    context = tls()
    context.set_alpn_protocols(["h2"])
    return context


def close_both(one, two):
    assert one.close() is two.close() is grpc.StatusCode.OK


@pytest.mark.parametrize("channel", ["threads", "threads TLS"], indirect=True)
def test_blocked_responder_does_not_block_another_call(channel, room):
    for number in (1, 2, 3):
        one = Stream(channel)
        one.send(b"wait")
        assert room.waiting.wait(60)
        two = Stream(channel)
        assert two.exchange(b"open") == b"open"
        assert next(one.call) == b"wait"
        assert one.exchange(b"x") == b"x"
        close_both(one, two)
        assert room.closed(2 * number)
        room.gate.clear()
        room.waiting.clear()


def test_server_answers_grpcio_calls_and_errors(channel, room):
    one = Stream(channel, metadata=(("a", "b"), ("c-bin", b"\0\xff")))
    two = Stream(channel)
    exchange_sizes(one, two, sizes=HUGE)
    close_both(one, two)
    assert room.closed(2)
    ask = channel.unary_unary(METHOD)
    assert ask(b"unary") == b"unary"
    for call, arguments, code in (
        (channel.unary_unary("/no/Method"), {"request": b""}, "UNIMPLEMENTED"),
        (ask, {"request": b"meet", "timeout": 0.2}, "DEADLINE_EXCEEDED"),
        (ask, {"request": b"x" * 1000, "compression": grpc.Compression.Gzip}, "UNIMPLEMENTED"),
        (ask, {"request": b"boom"}, "INTERNAL"),
    ):
        failed = raised(grpc.RpcError, call, **arguments)
        assert failed.code() is grpc.StatusCode[code]
    assert "failed to answer" in failed.details()
    # The call of 0.2 s may end before it is sent, but never arrives after those that follow it.
    assert len(room.made) in (4, 5)
    assert room.closed(len(room.made))


def test_concurrent_streams_do_not_block_each_other(channel):
    one, two = Stream(channel), Stream(channel)
    assert one.exchange(b"1") == b"1"
    for _ in range(20):
        one.send(b"meet")
        one.send(b"tail")
        assert two.exchange(b"meet") == b"met"
        assert next(one.call) == b"met"
        assert next(one.call) == b"tail"
    close_both(one, two)


def test_cancelled_grpcio_call_closes_only_its_responder(channel, room):
    one, two = Stream(channel), Stream(channel)
    one.exchange(b"1")
    one.call.cancel()
    assert eventually(lambda: sum(made.closed for made in room.made) == 1)
    assert two.exchange(b"2") == b"2"


def test_server_answers_1000_concurrent_grpcio_calls(channel, room):
    ask = channel.unary_unary(METHOD)
    waiting = [ask.future(b"%d" % number) for number in range(1000)]
    assert [each.result(60) for each in waiting] == [b"%d" % number for number in range(1000)]
    assert room.closed(1000)


# Our client, grpcio's server.


@contextmanager
def grpcio_server(credentials=None, options=()):
    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method != METHOD:
                return None
            metadata = dict(details.invocation_metadata)

            def talk(messages, context):
                if "greet" in metadata:
                    context.send_initial_metadata((("greeting", metadata["greet"]),))
                context.set_trailing_metadata((("last-bin", b"\0\1"),))
                for words in messages:
                    if words == b"abort":
                        context.abort(grpc.StatusCode.ABORTED, "50 % done: ü")
                    yield words

            return grpc.stream_stream_rpc_method_handler(talk)

    server = grpc.server(futures.ThreadPoolExecutor(4), options=[*BIG, *options])
    server.add_generic_rpc_handlers((Handler(),))
    if credentials is None:
        port = server.add_insecure_port("localhost:0")
    else:
        port = server.add_secure_port("localhost:0", credentials)
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None).wait()


def test_client_calls_a_grpcio_server():
    with grpcio_server() as address:
        with connected(address, metadata=(("greet", "you"),)) as connection:
            exchange_sizes(connection, sizes=HUGE)
            call = connection.session.call
            assert ("greeting", "you") in call.metadata
        assert call.status.code == "OK"
        assert call.status.metadata == (("last-bin", b"\0\1"),)
        with connected(address) as connection:
            assert connection.exchange(b"x") == b"x"
            ended = raised(CallEnded, connection.exchange, b"abort")
            assert "ABORTED: 50 % done: ü" in str(ended)
            assert ended.status.metadata == (("last-bin", b"\0\1"),)
        with connected(address, "/no/Method") as connection:
            assert "UNIMPLEMENTED" in str(raised(CallEnded, connection.exchange, b"x"))


def test_client_uses_tls_with_rlwire_and_grpcio_servers(workers, room, files):
    pem = files.server.read_bytes()
    for server in (
        served(workers, room, tls=with_alpn(ServerTLS(files.server))),
        grpcio_server(grpc.ssl_server_credentials([(pem, pem)])),
    ):
        tls = with_alpn(ClientTLS(files.ca))
        with server as address, tcp.connect(address, session(secure=True), tls=tls) as connection:
            exchange_sizes(connection)


def test_grpcio_goaway_lets_the_client_finish_its_call():
    aging = [("grpc.max_connection_age_ms", 50)]
    with grpcio_server(options=aging) as address, connected(address) as connection:
        session = connection.session
        assert eventually(lambda: connection.exchange(b"x") == b"x" and session._goaway)
        exchange_sizes(connection)
        assert not session.closed


# Times, and a peer that asks and never reads.


@pytest.mark.parametrize("half", ["nothing", "message", "block", "unknown"])
def test_incomplete_http2_input_times_out(workers, room, half):
    hello = frames.PREFACE + frames.settings({})
    timeout = Timeouts(first=0.3) if half == "nothing" else Timeouts(read=0.3)
    wire, between = {
        "nothing": (b"", b""),
        "message": (
            hello + begin(1) + frames.frame(frames.DATA, 0, 1, b"\0\0\0\0\x09some"),
            frames.ping(),
        ),
        "block": (hello + frames.frame(frames.HEADERS, 0, 1, block()[:9]), b""),
        "unknown": (hello + frames.frame(77, 0, 0, bytes(90_000))[:80_000], b"x"),
    }[half]
    with served(workers, room, timeout=timeout) as address, dialled(address) as sock:
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


def test_queued_empty_messages_are_limited():
    class Waits(Responder):
        def answer(self, event):
            return DeferredReply()

    session = GrpcServerSession(limits=Limits(received=12_800))
    connection = SimpleNamespace(session=session, peer="it", defer=lambda reply: reply)
    answers = GrpcHandler(connection, lambda call: (RawMessages(), Waits(Room(), None)))
    call = ServedCall(1)
    session.core.add(call)
    replies = [answers.answer((call, word)) for word in (BEGUN, b"asks", *[b""] * 100)]
    assert set(replies) == {NOTHING}
    _, last = answers.answer((call, b""))
    assert last.status.code == "RESOURCE_EXHAUSTED"


def ask_and_never_read(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.sendall(
        frames.PREFACE
        + frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31 - 1})
        + frames.window_update(0, 2**31 - 65_536)
        + begin(1)
    )
    body = message(bytes(1_000_000))
    question = b"".join(
        frames.frame(frames.DATA, 0, 1, body[at : at + 16_384])
        for at in range(0, len(body), 16_384)
    )
    sock.settimeout(0.3)
    for _ in range(300):
        sock.sendall(question)


def test_server_stops_reading_from_a_client_that_never_reads(workers, room):
    with (
        served(workers, room) as address,
        connected(address) as good,
        dialled(address) as silent,
        meanwhile(raised, OSError, ask_and_never_read, silent) as thread,
    ):
        waiting = True
        while waiting:  # once more behind its timeout: the server still does not read
            waiting = thread.is_alive()
            assert good.exchange(b"meanwhile") == b"meanwhile"
        silent.close()
        assert good.exchange(b"last") == b"last"
