"""gRPC's sessions over sockets: our server in threads and on loops, our client, and grpcio's."""

import asyncio
import queue
import socket
import threading
from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest

from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.sessions.grpc import CallEnded, CallStatus, GrpcClientSession, GrpcRawMessages
from rlwire.sessions.grpc.server import GrpcServerSession
from rlwire.transports import tcp
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tls import ClientTLS, ServerTLS
from tests.transports.drivers import drivers, serving
from tests.waiting import eventually

METHOD = "/rlwire.test.Echo/Talk"
BIG = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
WORKERS = ["threads", "asyncio"]


class Room:
    """What responders share: those that wait for each other, and those that were made."""

    def __init__(self):
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self.made = []
        self.meeting = []

    def closed(self, number):
        return eventually(
            lambda: len(self.made) == number and all(m.closed == 1 for m in self.made)
        )


class Responder:
    """Echoes, but for some words."""

    def __init__(self, room, loop):
        self.room = room
        self.loop = loop
        self.closed = 0
        room.made.append(self)

    def answer(self, event):
        word = bytes(event[:20])
        if word == b"boom":
            raise ValueError("boom")
        if word == b"wait":
            self.room.waiting.set()
            assert self.room.gate.wait(60)
        if word == b"open":
            self.room.gate.set()
        if word == b"meet":
            return self.meet()
        if word == b"cannot":
            return 5
        return event

    def meet(self):
        """A reply that is there when two have asked for one."""
        reply = DeferredReply()
        self.room.meeting.append(reply)
        if len(self.room.meeting) == 2:
            for each in self.room.meeting:
                each.set(b"met")
            self.room.meeting.clear()
        return reply

    def failure(self, event, error):
        return f"failure: {type(error).__name__}".encode()

    def close(self):
        self.closed += 1


@contextmanager
def served(kind, room, **options):
    """Our server."""
    session = options.pop("session", {})
    where = options.pop("where", "127.0.0.1:0")

    def respond(connection):
        loop = None if kind == "threads" else asyncio.get_running_loop()

        def admit(call):
            if call.method != METHOD:
                return CallStatus("UNIMPLEMENTED", f"no method {call.method}")
            return GrpcRawMessages(), Responder(room, loop)

        return GrpcHandler(connection, admit)

    with serving(
        kind, where, lambda: GrpcServerSession(**session), make_handler=respond, **options
    ) as it:
        yield str(it.address)


@pytest.fixture(params=WORKERS)
def workers(request):
    return str(request.param)


@pytest.fixture
def room():
    return Room()


@contextmanager
def connected(address, method=METHOD, **options):
    with tcp.connect(address, GrpcClientSession(GrpcRawMessages(), method, **options)) as found:
        yield found


class Stream:
    """A stream of grpcio's client."""

    def __init__(self, channel, method=METHOD, **options):
        self._queue = queue.SimpleQueue()
        self.call = channel.stream_stream(method)(iter(self._queue.get, None), **options)

    def send(self, message):
        self._queue.put(message)

    def exchange(self, message):
        self.send(message)
        return next(self.call)

    def close(self):
        self.send(None)
        assert list(self.call) == []
        return self.call.code()


# Ours at both ends.


@pytest.mark.parametrize("client", ["blocking", "asyncio"])
def test_client_and_server_of_ours_exchange_messages(workers, client, room):
    with served(workers, room) as address, drivers(client) as driver:
        with driver.connect(address, GrpcClientSession(GrpcRawMessages(), METHOD)) as connection:
            for size in (0, 1, 4096, 100_000, 5_000_000, 64 * 2**20):
                assert len(connection.exchange(bytes(size))) == size
            assert connection.exchange(b"cannot") == b"failure: EncodeError"
        assert room.closed(1)
        with (
            driver.connect(address, GrpcClientSession(GrpcRawMessages(), METHOD)) as connection,
            pytest.raises(CallEnded, match="INTERNAL: the server failed to answer"),
        ):
            connection.exchange(b"boom")
        assert room.closed(2)


def test_a_client_that_vanishes_closes_its_responders(workers, room):
    with served(workers, room) as address:
        connection = tcp.connect(address, GrpcClientSession(GrpcRawMessages(), METHOD))
        connection.exchange(b"x")
        connection.send(b"meet")
        assert eventually(lambda: bool(room.meeting))
        connection.core.abort()
        connection.close()
        assert eventually(lambda: len(room.made) == 1)
        room.meeting[0].cancel() if workers == "threads" else None
        assert room.closed(1)


def test_client_may_close_while_its_world_blocks(room):
    with served("threads", room) as address:
        connection = tcp.connect(address, GrpcClientSession(GrpcRawMessages(), METHOD))
        connection.send(b"wait")
        assert room.waiting.wait(60)
        connection.core.abort()
        connection.close()
        with connected(address) as another:
            assert another.exchange(b"open") == b"open"
        assert room.closed(2)


# grpcio's client, our server.


@pytest.mark.parametrize("how", ["plain", "tls"])
def test_grpcio_meets_a_world_that_blocks(how, room, files):
    tls = {"tls": ServerTLS(files.server)()} if how == "tls" else {}
    if tls:
        tls["tls"].set_alpn_protocols(["h2"])
    with served("threads", room, **tls) as address:
        trusted = grpc.ssl_channel_credentials(files.ca.read_bytes())
        where = f"localhost:{address.rpartition(':')[2]}"
        with (
            grpc.secure_channel(where, trusted, options=BIG)
            if tls
            else grpc.insecure_channel(address, options=BIG)
        ) as channel:
            for number in (1, 2, 3):
                one = Stream(channel)
                one.send(b"wait")
                assert room.waiting.wait(60)
                two = Stream(channel)
                assert two.exchange(b"open") == b"open"
                assert next(one.call) == b"wait"
                assert one.exchange(b"x") == b"x"
                assert one.close() is two.close() is grpc.StatusCode.OK
                assert room.closed(2 * number)
                room.gate.clear()
                room.waiting.clear()


def test_grpcio_is_served(workers, room):
    with served(workers, room) as address, grpc.insecure_channel(address, options=BIG) as channel:
        stream = Stream(channel, metadata=(("a", "b"), ("c-bin", b"\0\xff")))
        for size in (0, 1, 4096, 100_000, 5_000_000, 64 * 2**20):
            assert len(stream.exchange(bytes(size))) == size
        assert stream.close() is grpc.StatusCode.OK
        assert room.closed(1)
        assert channel.unary_unary(METHOD)(b"unary") == b"unary"
        with pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary("/no/Method")(b"")
        assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary(METHOD)(b"boom")
        assert failed.value.code() is grpc.StatusCode.INTERNAL
        assert "failed to answer" in failed.value.details()
        with pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary(METHOD)(b"meet", timeout=0.2)
        assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        with pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary(METHOD)(b"x" * 1000, compression=grpc.Compression.Gzip)
        assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert room.closed(4)


def test_tls_and_alpn_with_grpcio(workers, room, files):
    server_side, client_side = ServerTLS(files.server)(), ClientTLS(files.ca)()
    for context in (server_side, client_side):
        context.set_alpn_protocols(["h2"])
    trusted = grpc.ssl_channel_credentials(files.ca.read_bytes())
    with served(workers, room, tls=server_side) as address:
        port = address.rpartition(":")[2]
        with grpc.secure_channel(f"localhost:{port}", trusted, options=BIG) as channel:
            one, two = Stream(channel), Stream(channel)
            for size in (0, 1, 100_000, 5_000_000):
                assert len(one.exchange(bytes(size))) == size
                assert len(two.exchange(bytes(size))) == size
            one.send(b"meet")
            assert two.exchange(b"meet") == b"met"
            assert next(one.call) == b"met"
            assert one.close() is two.close() is grpc.StatusCode.OK
        session = GrpcClientSession(GrpcRawMessages(), METHOD, secure=True)
        with tcp.connect(f"localhost:{port}", session, tls=client_side) as connection:
            for size in (0, 1, 100_000, 5_000_000):
                assert len(connection.exchange(bytes(size))) == size
    pair = grpc.ssl_server_credentials([(files.server.read_bytes(), files.server.read_bytes())])
    with grpcio_server(pair) as address:
        port = address.rpartition(":")[2]
        session = GrpcClientSession(GrpcRawMessages(), METHOD, secure=True)
        with tcp.connect(f"localhost:{port}", session, tls=client_side) as connection:
            for size in (0, 1, 100_000, 5_000_000):
                assert len(connection.exchange(bytes(size))) == size


def test_no_stream_waits_for_another(workers, room):
    with served(workers, room) as address, grpc.insecure_channel(address, options=BIG) as channel:
        one, two = Stream(channel), Stream(channel)
        assert one.exchange(b"1") == b"1"
        for _ in range(20):
            one.send(b"meet")
            one.send(b"tail")
            assert two.exchange(b"meet") == b"met"
            assert next(one.call) == b"met"
            assert next(one.call) == b"tail"
        assert one.close() is two.close() is grpc.StatusCode.OK


def test_grpcio_cancels(workers, room):
    with served(workers, room) as address, grpc.insecure_channel(address, options=BIG) as channel:
        one, two = Stream(channel), Stream(channel)
        one.exchange(b"1")
        one.call.cancel()
        assert eventually(lambda: sum(made.closed for made in room.made) == 1)
        assert two.exchange(b"2") == b"2"


def test_many_streams_of_grpcio(workers, room):
    with (
        served(workers, room, session={"max_streams": 1000}) as address,
        grpc.insecure_channel(address, options=BIG) as channel,
    ):
        ask = channel.unary_unary(METHOD)
        waiting = [ask.future(b"%d" % number) for number in range(1000)]
        assert [each.result(60) for each in waiting] == [b"%d" % number for number in range(1000)]
        assert room.closed(1000)


# Our client, grpcio's server.


@contextmanager
def grpcio_server(credentials=None):
    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method != METHOD:
                return None
            metadata = dict(details.invocation_metadata)

            def talk(messages, context):
                if "greet" in metadata:
                    context.send_initial_metadata((("greeting", metadata["greet"]),))
                context.set_trailing_metadata((("last-bin", b"\0\1"),))
                for message in messages:
                    if message == b"abort":
                        context.abort(grpc.StatusCode.ABORTED, "50 % done: ü")
                    yield message

            return grpc.stream_stream_rpc_method_handler(talk)

    server = grpc.server(futures.ThreadPoolExecutor(4), options=BIG)
    server.add_generic_rpc_handlers((Handler(),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_grpcio_serves_us():
    with grpcio_server() as address:
        with connected(address, metadata=(("greet", "you"),)) as connection:
            for size in (0, 1, 4096, 100_000, 5_000_000, 64 * 2**20):
                assert len(connection.exchange(bytes(size))) == size
            call = connection.session.call
            assert ("greeting", "you") in call.metadata
        assert call.status.code == "OK"
        assert call.status.metadata == (("last-bin", b"\0\1"),)
        with connected(address) as connection:
            assert connection.exchange(b"x") == b"x"
            with pytest.raises(CallEnded, match="ABORTED: 50 % done: ü") as ended:
                connection.exchange(b"abort")
            assert ended.value.status.metadata == (("last-bin", b"\0\1"),)
        with (
            connected(address, "/no/Method") as connection,
            pytest.raises(CallEnded, match="UNIMPLEMENTED"),
        ):
            connection.exchange(b"x")


# Times and ends.


def test_a_server_of_another_protocol_is_named(room):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            with listener.accept()[0] as sock:
                sock.recv(4096)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ValueError, match="HTTP/1"):
            tcp.connect(listener.getsockname()[:2], GrpcClientSession(GrpcRawMessages(), METHOD))
        thread.join()


def test_silent_client_is_disconnected(workers, room):
    with served(workers, room, timeout=Timeouts(first=0.1)) as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.settimeout(20)
            while sock.recv(4096):
                pass
            assert sock.recv(1) == b""
