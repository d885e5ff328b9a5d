"""The blocking client against the blocking server, each in both of its kinds."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.limits import Limits
from rlwire.transports import grpc_client, grpc_client_streams, grpc_server, grpc_watchdog
from rlwire.transports.grpc_client import GrpcConnection
from rlwire.transports.grpc_server import GrpcServer
from rlwire.transports.sockets import Backoff, Timeouts


def load_echo() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "grpc_echo", Path(__file__).with_name("grpc_echo.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


echo = load_echo()
METHOD = echo.METHOD
QUICK = Timeouts(connect=5, read=5, write=5, idle=10)


@pytest.fixture(params=["direct", "public"])
def engine(request: pytest.FixtureRequest) -> str:
    """The client's kind."""
    return str(request.param)


@pytest.fixture(params=["direct", "public"])
def server_engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serve(server_engine: str) -> Iterator[Callable[..., GrpcServer]]:
    servers = []
    echo.Responder.reset()

    def make(address: Any = "127.0.0.1:0", **options: Any) -> GrpcServer:
        options = {"engine": server_engine, "timeouts": QUICK} | options
        servers.append(GrpcServer(address, METHOD, echo.Session, echo.Responder, **options).start())
        return servers[-1]

    yield make
    echo.Responder.go_on.set()
    for server in servers:
        server.stop(grace=4)
    assert echo.Responder.all_closed()


@pytest.fixture
def dial(engine: str) -> Iterator[Callable[..., GrpcConnection]]:
    opened = []

    def connect(server: Any, **options: Any) -> GrpcConnection:
        options = {"engine": engine, "timeouts": QUICK} | options
        address = getattr(server, "address", server)
        opened.append(grpc_client.connect(address, METHOD, echo.Session(), **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


BODIES = [b"small", echo.noise(5_000), echo.noise(2_000_000), b"", b"small again"]


def test_there_and_back(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    for body in BODIES:
        connection.send([body[:3], memoryview(body)[3:], bytearray(b"!")])
        assert connection.pending == 1
        assert connection.receive() == body + b"!"
        assert connection.pending == 0
        assert connection.exchange(body) == body
    assert connection.peer.startswith("127.0.0.1:")
    assert connection.status is None
    assert not connection.closed
    connection.close()
    assert connection.closed
    assert connection.status.code == "OK"
    connection.close()
    with pytest.raises(ConnectionClosed, match="closed on this side"):
        connection.send(b"x")
    with pytest.raises(ConnectionClosed, match="closed on this side"):
        connection.receive()


def test_an_orderly_end_is_no_trouble(serve: Any, dial: Any, log: Any, eventually: Any) -> None:
    server = serve()
    with dial(server) as connection:
        connection.exchange(b"x")
        assert server.connections == 1
    eventually(lambda: server.connections == 0)
    assert [record for record in log.records if record.levelname not in ("DEBUG", "INFO")] == []
    assert "closed by the peer" in log.text


def test_many_requests_before_the_first_reply(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    for number in range(3000):
        connection.send(b"%d" % number)
    assert connection.pending == 3000
    for number in range(3000):
        assert connection.receive() == b"%d" % number
    assert connection.pending == 0
    assert connection.exchange(b"x") == b"x"


def test_large_requests_with_large_replies_do_not_jam(serve: Any, dial: Any) -> None:
    # 40 MB each way, with nobody receiving: more than any window or buffer of the system.
    connection = dial(serve())
    body = echo.noise(400_000)
    for number in range(100):
        connection.send(b"%03d" % number + body)
    for number in range(100):
        assert connection.receive() == b"%03d" % number + body


def test_too_much_to_receive(serve: Any, dial: Any) -> None:
    connection = dial(serve(), backlog=1_000_000)
    sent = 0

    def send_on() -> None:
        nonlocal sent
        while sent < 1000:
            connection.send(b"x" * 100_000)
            sent += 1

    with pytest.raises(LimitExceeded) as caught:
        send_on()
    assert caught.value.limit == "backlog"
    assert sent >= 5
    assert connection.pending == sent
    for _ in range(sent):
        assert len(connection.receive()) == 100_000
    assert connection.exchange(b"again") == b"again"


def test_events_that_are_not_one_a_message(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    # Our session gives two events for one message, and none for another.
    assert connection.exchange(b"larger") == b"larger"
    connection.session.receive = None  # never called: what is under test looked it up already
    connection.send(b"twice")  # the server's session makes two events of it
    assert [connection.receive(), connection.receive()] == [b"one", b"two"]


def test_session_errors_on_this_side(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    with pytest.raises(EncodeError):
        connection.send(b"cannot")
    with pytest.raises(LocalProtocolError):
        connection.exchange(None)
    assert not connection.closed
    assert connection.pending == 0
    assert connection.exchange(b"x") == b"x"


def test_a_wrong_message_closes(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    connection._session_receive = wrong
    with pytest.raises(DecodeError):
        connection.exchange(b"x")
    assert connection.closed
    with pytest.raises(ConnectionClosed):
        connection.receive()


def wrong(message: bytes) -> list[Any]:
    raise DecodeError("wrong")


def not_now(message: bytes) -> list[Any]:
    raise RemoteProtocolError("not now")


def test_a_message_out_of_turn_does_not_close(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    right = connection._session_receive
    connection._session_receive = not_now
    for step in (lambda: connection.exchange(b"x"), lambda: talk(connection, b"x")):
        with pytest.raises(RemoteProtocolError) as caught:
            step()
        if sys.version_info >= (3, 11):
            assert "127.0.0.1" in caught.value.__notes__[0]
    connection._session_receive = right
    assert connection.exchange(b"x") == b"x"
    assert connection.pending == 0


def talk(connection: Any, event: Any) -> Any:
    connection.send(event)
    return connection.receive()


def test_the_server_refuses_and_goes_on(serve: Any, dial: Any, log: Any) -> None:
    connection = dial(serve())
    assert connection.exchange(b"turn") == b"refused: not now"
    assert connection.exchange(b"x") == b"x"
    assert "it sent what is not allowed: not now" in log.text


def test_the_server_refuses_and_ends(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    assert connection.exchange(b"\xff").startswith(b"refused: no message")
    with pytest.raises(ConnectionClosed, match="INVALID_ARGUMENT: no message begins with ff"):
        connection.receive()
    assert connection.closed
    assert connection.status.code == "INVALID_ARGUMENT"


def test_the_session_ends_the_stream(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    connection.session.receive = None
    assert connection.exchange(b"end") == b"end"
    with pytest.raises(ConnectionClosed, match="closed by the peer"):
        connection.receive()
    assert connection.status.code == "OK"


def test_answers_that_cannot_be_encoded(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    assert connection.exchange(b"cannot be") == b"failure: cannot be encoded"
    assert connection.exchange(b"x") == b"x"


def test_a_responder_that_raises(serve: Any, dial: Any, log: Any) -> None:
    server = serve()
    other = dial(server)
    other.exchange(b"x")
    connection = dial(server)
    with pytest.raises(ConnectionClosed, match="INTERNAL: the server failed to answer"):
        connection.exchange(b"boom")
    assert "its responder failed" in log.text
    assert "ValueError: boom" in log.text
    assert other.exchange(b"y") == b"y"
    # What raised is the server's own affair.
    assert "boom" not in str(connection.status)


@pytest.mark.parametrize(("what", "reply"), [(b"now", b"now"), (b"0.1", b"later")])
def test_answers_may_be_futures(serve: Any, dial: Any, what: bytes, reply: bytes) -> None:
    connection = dial(serve())
    assert connection.exchange(b"future " + what) == reply
    connection.send(b"future " + what)
    connection.send(b"x")
    assert [connection.receive(), connection.receive()] == [reply, b"x"]


def test_a_future_that_fails(serve: Any, dial: Any, log: Any) -> None:
    server = serve()
    # Errors of ours, too, are not taken for the stream's when a responder raises them.
    for word in (b"future fails", b"future cancelled", b"lost "):
        with pytest.raises(ConnectionClosed, match="INTERNAL"):
            dial(server).exchange(word)
    assert "the future failed" in log.text
    assert "the parameter server is lost" in log.text
    assert log.text.count("its responder failed") == 3


def test_a_future_is_cancelled_when_the_client_goes(serve: Any, dial: Any, eventually: Any) -> None:
    server = serve()
    connection = dial(server)
    connection.send(b"future never")
    eventually(lambda: echo.Responder.all and echo.Responder.all[0].future)
    connection.close()
    eventually(lambda: server.connections == 0)
    assert echo.Responder.all[0].future.cancelled()


def test_metadata_reaches_the_responder(serve: Any, dial: Any) -> None:
    connection = dial(serve(), metadata=[("agent", "seven"), ("raw-bin", b"\x00\xff")])
    connection.exchange(b"x")
    caller = echo.Responder.all[0].caller
    assert ("agent", "seven") in caller.metadata
    assert ("raw-bin", b"\x00\xff") in caller.metadata
    assert caller.peer.startswith("127.0.0.1:")
    assert isinstance(caller.session, echo.Session)


def test_a_token(serve: Any, dial: Any, log: Any) -> None:
    server = serve(token="secret-word")
    assert dial(server, token="secret-word").exchange(b"x") == b"x"
    for given in ("wrong", "secret-wor", "secret-word2", None):
        connection = dial(server, token=given)
        why = "the token is wrong" if given else "a token is needed, and none was sent"
        with pytest.raises(ConnectionClosed, match=f"UNAUTHENTICATED: {why}"):
            connection.exchange(b"x")
        assert connection.status.code == "UNAUTHENTICATED"
    assert "refused, the token is wrong" in log.text
    assert "refused, a token is needed, and none was sent" in log.text
    assert "secret" not in log.text
    assert len(echo.Responder.all) == 1


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="nothing forks here")
def test_a_connection_of_a_parent_process_is_not_used(serve: Any, dial: Any) -> None:
    """gRPC is not one to fork under a test, so what follows a fork is called by hand."""
    server = serve()
    connection = dial(server)
    assert connection.exchange(b"1") == b"1"
    stream, owner = connection._stream, connection._owner
    connection.disown()
    for call in (
        lambda: connection.send(b"2"),
        connection.receive,
        lambda: connection.exchange(b"2"),
    ):
        with pytest.raises(LocalProtocolError, match="is the parent process's, from before a fork"):
            call()
    connection.cancel()
    connection.close()
    assert connection.closed
    # As it is in the parent, which saw none of it.
    connection._owner, connection._closed = owner, False
    assert stream.status is None
    assert connection.exchange(b"3") == b"3"


@pytest.mark.parametrize("name", ["max_connections", "max_connections_per_address"])
def test_one_connection_too_many(
    serve: Any, dial: Any, log: Any, eventually: Any, name: str
) -> None:
    server = serve(**{name: 2})
    first, second = dial(server), dial(server)
    assert first.exchange(b"1") + second.exchange(b"2") == b"12"
    for _ in range(5):
        begun = time.monotonic()
        third = dial(server)
        with pytest.raises(ConnectionClosed, match=rf"RESOURCE_EXHAUSTED.*{name}=2"):
            third.exchange(b"3")
        assert time.monotonic() - begun < 8
    assert f"refused, 3 is over the limit {name}=2" in log.text
    assert first.exchange(b"1") + second.exchange(b"2") == b"12"
    first.close()
    eventually(lambda: server.connections == 1)
    assert dial(server).exchange(b"4") == b"4"


def test_another_method_is_refused(serve: Any, engine: str) -> None:
    address = serve().address
    with grpc_client.connect(address, "/other/Method", echo.Session(), engine=engine) as other:
        with pytest.raises(ConnectionClosed, match="UNIMPLEMENTED"):
            other.exchange(b"x")
        assert other.status.code == "UNIMPLEMENTED"


# Limits.

SMALL = Limits(received=1000)


def test_a_request_over_the_servers_limit(serve: Any, dial: Any, log: Any) -> None:
    server = serve(limits=SMALL)
    other = dial(server)
    connection = dial(server)
    assert connection.exchange(b"x" * 1000) == b"x" * 1000
    with pytest.raises(LimitExceeded, match="1001 is over the limit received=1000") as caught:
        connection.exchange(b"x" * 1001)
    assert (caught.value.limit, caught.value.maximum, caught.value.size) == ("received", 1000, 1001)
    assert re.search(r"(the server|a message from or to) 127\.0\.0\.1", str(caught.value))
    assert connection.closed
    assert other.exchange(b"x") == b"x"
    other.close()
    server.stop()
    warnings = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "over the limit received=1000" in warnings[0]
    assert warnings[0].startswith("127.0.0.1:")


def test_a_reply_over_the_clients_limit(serve: Any, dial: Any) -> None:
    connection = dial(serve(), limits=SMALL)
    assert len(connection.exchange(b"large 1000")) == 1000
    with pytest.raises(LimitExceeded, match="1001 is over the limit received=1000") as caught:
        connection.exchange(b"large 1001")
    assert re.search(r"a message (of|from or to) 127\.0\.0\.1", str(caught.value))
    assert connection.closed


def test_a_reply_over_the_servers_limit(serve: Any, dial: Any, log: Any) -> None:
    connection = dial(serve(max_sent=1000))
    assert len(connection.exchange(b"large 1000")) == 1000
    with pytest.raises(LimitExceeded, match="1001 is over the limit max_sent=1000") as caught:
        connection.exchange(b"large 1001")
    assert caught.value.limit == "max_sent"
    assert "the server 127.0.0.1" in str(caught.value)
    assert "the answer is too long: 1001 is over the limit max_sent=1000" in log.text


def test_a_request_over_our_limit(serve: Any, dial: Any, eventually: Any) -> None:
    server = serve()
    connection = dial(server, max_sent=1000)
    assert connection.exchange(b"x" * 1000) == b"x" * 1000
    connection.close()
    for size in (1001, 100_000):
        for step in ("exchange", "send"):
            connection = dial(server, max_sent=1000)
            with pytest.raises(LimitExceeded, match=f"{size} is over the limit max_sent=1000"):
                getattr(connection, step)(b"x" * size)
            # It never got there, and the session that counted it is of no more use.
            assert connection.closed
            assert connection.status.code == "OK"
    eventually(lambda: server.connections == 0)
    assert all(len(word) <= 1000 for made in echo.Responder.all for word in made.answered)


def test_compressed_messages_are_refused(serve: Any) -> None:
    # gRPC would unpack them before it knows their size.
    address = str(serve().address)
    with grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as channel:
        call = channel.stream_stream(METHOD)(iter([b"x" * 1000]))
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


# Times and ends.


def test_no_reply_in_time(serve: Any, dial: Any) -> None:
    connection = dial(serve(), timeouts=Timeouts(idle=0.3))
    assert connection.exchange(b"x") == b"x"
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"no message came within idle=0\.3 s"):
        connection.exchange(b"stuck")
    assert time.monotonic() - begun > 0.29
    echo.Responder.go_on.set()
    assert connection.closed
    with pytest.raises(ConnectionClosed):
        connection.send(b"x")


def test_a_time_limit_is_for_each_wait(serve: Any, dial: Any) -> None:
    connection = dial(serve(), timeouts=Timeouts(idle=0.8))
    for _ in range(3):
        assert connection.exchange(b"sleep 0.3") == b"sleep 0.3"
    time.sleep(0.85)
    assert connection.exchange(b"x") == b"x"


def test_no_time_limits(serve: Any, dial: Any, eventually: Any) -> None:
    never = Timeouts(connect=None, read=None, write=None, idle=None)
    connection = dial(serve(timeouts=never), timeouts=never)
    assert connection.exchange(b"x") == b"x"
    # That of earlier streams may be on its way out still; one that watched this would stay.
    eventually(
        lambda: "rlwire grpc watchdog" not in [thread.name for thread in threading.enumerate()]
    )


def test_the_server_waits_not_for_ever(serve: Any, dial: Any, log: Any, eventually: Any) -> None:
    server = serve(timeouts=Timeouts(idle=0.2))
    connection = dial(server)
    assert connection.exchange(b"x") == b"x"
    eventually(lambda: server.connections == 0)
    assert "closed, too slow" in log.text
    assert "no message came within idle=0.2 s" in log.text
    with pytest.raises(ConnectionClosed):
        connection.exchange(b"x")
    assert dial(server).exchange(b"x") == b"x"


def test_a_client_that_does_not_read(
    serve: Any, log: Any, eventually: Any, server_engine: str
) -> None:
    if server_engine == "public":
        pytest.skip("grpcio's own server waits for ever for a client that does not read")
    server = serve(timeouts=Timeouts(write=0.3, idle=10))
    with grpc.insecure_channel(str(server.address)) as channel:
        call = channel.stream_stream(METHOD)(iter([b"large 30000000"] * 3))
        eventually(lambda: "did not take a message within write=0.3 s" in log.text)
        eventually(lambda: server.connections == 0)
        call.cancel()


def test_a_server_that_does_not_read(serve: Any, dial: Any, engine: str) -> None:
    connection = dial(serve(), timeouts=Timeouts(write=0.3, idle=10), backlog=2**30)
    connection.send(b"stuck")
    if engine == "public":
        send_many(connection)  # to a queue
        connection.cancel()
        with pytest.raises(ConnectionClosed):
            connection.receive()
        return
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"did not take a message within write=0\.3 s"):
        send_many(connection)
    assert time.monotonic() - begun < 3
    assert connection.closed


def send_many(connection: GrpcConnection) -> None:
    for _ in range(300):
        connection.send(b"x" * 1_000_000)


def test_cancel_from_another_thread(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    connection.exchange(b"x")
    threading.Timer(0.2, connection.cancel).start()
    begun = time.monotonic()
    with pytest.raises(ConnectionClosed, match="closed on this side"):
        connection.exchange(b"stuck")
    assert time.monotonic() - begun < 10
    assert connection.closed


def test_close_from_another_thread(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    connection.exchange(b"x")
    closer = threading.Timer(0.2, connection.close)
    closer.start()
    with pytest.raises(ConnectionClosed, match="closed on this side"):
        connection.exchange(b"stuck")
    closer.join()
    connection.close()


def test_close_from_many_threads_at_once(serve: Any, dial: Any) -> None:
    server = serve()
    for _ in range(20):
        connection = dial(server)
        threads = [threading.Thread(target=connection.close) for _ in range(4)]
        connection.send(b"x")
        for thread in threads:
            thread.start()
        with contextlib.suppress(ConnectionClosed):
            for _ in range(1000):
                connection.exchange(b"x")
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()


def test_it_belongs_to_one_thread(serve: Any, dial: Any) -> None:
    connection = dial(serve())
    connection.exchange(b"x")
    errors = []

    def other() -> None:
        for step in (connection.exchange, connection.send, lambda _: connection.receive()):
            try:
                step(b"y")
            except LocalProtocolError as error:
                errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(errors) == 3
    assert connection.exchange(b"z") == b"z"


def test_a_lost_stream_is_collected(serve: Any, engine: str, eventually: Any) -> None:
    server = serve()
    held = [grpc_client.connect(server.address, METHOD, echo.Session(), engine=engine)]
    held[0].exchange(b"x")
    stream = weakref.ref(held[0]._stream)
    with pytest.warns(ResourceWarning, match="unclosed <GrpcConnection to 127"):
        held.clear()
    eventually(lambda: server.connections == 0)
    gc.collect()
    eventually(lambda: gc.collect() is not None and stream() is None)


# Connecting.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def test_nobody_listens(dial: Any) -> None:
    port = free_port()
    begun = time.monotonic()
    with pytest.raises(ConnectionRefusedError, match=rf"cannot connect to 127.0.0.1:{port} \(1 at"):
        dial(f"127.0.0.1:{port}")
    assert time.monotonic() - begun < 8
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        dial("unix:/nonexistent/nothing-here")


def test_nobody_answers(dial: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="timed out"):
            dial(silent.getsockname(), timeouts=Timeouts(connect=0.3))
        assert 0.29 < time.monotonic() - begun < 8
        with pytest.raises(DeadlineExceeded, match="timed out"):
            dial(silent.getsockname(), timeouts=Timeouts(connect=0.1, write=None, idle=None))
        begun = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="timed out"):
            dial(silent.getsockname(), backoff=Backoff(attempts=99, deadline=0.3))
        assert time.monotonic() - begun < 8


def test_something_else_answers(dial: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def answer() -> None:
            peer, _ = web.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
                time.sleep(0.3)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="cannot connect"):
            dial(web.getsockname(), timeouts=Timeouts(connect=2))
        thread.join()


def test_a_server_that_comes_later(serve: Any, dial: Any, log: Any) -> None:
    port = free_port()
    timer = threading.Timer(0.4, serve, (f"127.0.0.1:{port}",))
    timer.start()
    connection = dial(f"127.0.0.1:{port}", backoff=Backoff(attempts=50, first=0.05, longest=0.1))
    timer.join()
    assert connection.exchange(b"x") == b"x"
    assert "attempt 1 of 50 failed" in log.text


def test_the_last_attempt_fails(dial: Any) -> None:
    with pytest.raises(ConnectionRefusedError, match=r"\(3 attempts in"):
        dial(f"127.0.0.1:{free_port()}", backoff=Backoff(attempts=3, first=0.01, longest=0.02))
    begun = time.monotonic()
    with pytest.raises((ConnectionRefusedError, DeadlineExceeded)):
        dial(f"127.0.0.1:{free_port()}", backoff=Backoff(attempts=1000, deadline=0.3))
    assert time.monotonic() - begun < 10


def test_arguments_that_make_no_sense(engine: str) -> None:
    def connect(address: Any = "127.0.0.1:1", method: str = METHOD, **options: Any) -> None:
        grpc_client.connect(address, method, echo.Session(), **({"engine": engine} | options))

    with pytest.raises(ValueError, match="not an address"):
        connect("127.0.0.1")
    with pytest.raises(ValueError, match="not a gRPC method"):
        connect(method="Talk")
    with pytest.raises(ValueError, match="a token has"):
        connect(token="two words")
    with pytest.raises(ValueError, match="max_sent must be"):
        connect(max_sent=0)
    with pytest.raises(ValueError, match="less than 2 GiB"):
        connect(limits=Limits(received=2**31, message=2**32))
    with pytest.raises(ValueError, match="engine must be"):
        connect(engine="steam")


def test_grpcio_without_what_is_private(
    serve: Any, log: Any, monkeypatch: pytest.MonkeyPatch, server_engine: str
) -> None:
    server = serve()
    monkeypatch.setattr(grpc_client, "direct_missing", lambda channel: "no segregated_call")
    monkeypatch.setattr(grpc_server, "direct_missing", lambda: "no CompletionQueue")
    with grpc_client.connect(server.address, METHOD, echo.Session()) as connection:
        assert isinstance(connection._stream, grpc_client_streams.PublicStream)
        assert connection.exchange(b"x") == b"x"
    assert "public streams are used: no segregated_call" in log.text
    with pytest.raises(ValueError, match="cannot be had with this grpcio: no segregated_call"):
        grpc_client.connect(server.address, METHOD, echo.Session(), engine="direct")
    with pytest.raises(ValueError, match="cannot be had with this grpcio: no CompletionQueue"):
        GrpcServer("127.0.0.1:0", METHOD, echo.Session, echo.Responder, engine="direct")


def test_the_direct_way_is_the_usual_one(serve: Any) -> None:
    with grpc_client.connect(serve().address, METHOD, echo.Session()) as connection:
        assert isinstance(connection._stream, grpc_client_streams.DirectStream)


# A server in another process.

SERVER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("grpc_echo", {echo!r})
echo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(echo)
from rlwire.transports.grpc_server import GrpcServer
server = GrpcServer({address!r}, echo.METHOD, echo.Session, echo.Responder, engine={engine!r})
print(server.start().address, flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def process(server_engine: str) -> Iterator[Callable[..., tuple[Any, str]]]:
    started = []

    def start(address: str = "127.0.0.1:0") -> tuple[Any, str]:
        program = SERVER.format(
            echo=str(Path(__file__).with_name("grpc_echo.py")),
            address=address,
            engine=server_engine,
        )
        done = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(done)
        assert done.stdout is not None
        return done, done.stdout.readline().decode().strip()

    yield start
    for done in started:
        done.kill()
        done.wait()
        for pipe in (done.stdin, done.stdout):
            assert pipe is not None
            pipe.close()


def test_a_killed_server_is_noticed_at_once(process: Any, dial: Any) -> None:
    server, address = process()
    connection, idle = dial(address), dial(address)
    connection.exchange(b"x")
    idle.exchange(b"x")
    threading.Timer(0.2, os.kill, (server.pid, signal.SIGKILL)).start()
    begun = time.monotonic()
    with pytest.raises(ConnectionClosed, match=f"{address} is lost: UNAVAILABLE: .*"):
        connection.exchange(b"stuck")
    assert time.monotonic() - begun < 8
    assert connection.closed
    server.wait()
    begun = time.monotonic()
    with pytest.raises(ConnectionClosed, match="is lost: UNAVAILABLE"):
        idle.exchange(b"x")
    assert time.monotonic() - begun < 1
    with pytest.raises(ConnectionClosed, match="is lost: UNAVAILABLE"):
        idle.receive()


def test_a_server_that_came_back_is_connected_to(process: Any, dial: Any) -> None:
    server, address = process()
    connection = dial(address)
    connection.exchange(b"x")
    server.kill()
    server.wait()
    with pytest.raises(ConnectionClosed):
        connection.exchange(b"x")
    _, again = process(address)
    assert again == address
    fresh = dial(address, backoff=Backoff(attempts=20, first=0.1))
    assert fresh.exchange(b"y") == b"y"


def test_a_server_process_ends_cleanly(process: Any, dial: Any) -> None:
    server, address = process()
    connection = dial(address)
    connection.exchange(b"x")
    server.stdin.close()
    with pytest.raises(ConnectionClosed):
        connection.receive()
    assert server.wait(10) == 0


CLIENT = """
import importlib.util, os, signal, sys, threading, time
spec = importlib.util.spec_from_file_location("grpc_echo", {echo!r})
echo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(echo)
from rlwire.errors import RlwireError
from rlwire.transports import grpc_client
def connect():
    return grpc_client.connect({address!r}, echo.METHOD, echo.Session(), engine={engine!r})
"""


def run_client(address: Any, engine: str, program: str) -> subprocess.CompletedProcess[str]:
    head = CLIENT.format(
        echo=str(Path(__file__).with_name("grpc_echo.py")), address=str(address), engine=engine
    )
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", head + program],
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_ctrl_c_while_it_waits(serve: Any, engine: str, eventually: Any) -> None:
    server = serve()
    times = 30 if engine == "direct" else 0
    done = run_client(
        server.address,
        engine,
        """
for number in range(5):
    connection = connect()
    connection.exchange(b"x")
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    try:
        connection.exchange(b"future never")
    except KeyboardInterrupt:
        assert time.monotonic() - begun < 10
        assert connection.closed
    connection.close()
    with connect() as fresh:
        assert fresh.exchange(b"y") == b"y"
# And while it is busy, wherever the signal comes. grpcio's public streams do not survive that.
interrupted = 0
for number in range(TIMES):
    connection = connect()
    signal.setitimer(signal.ITIMER_REAL, 0.001 + number * 0.0005)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while True:
            connection.exchange(b"z")
    except KeyboardInterrupt:
        interrupted += 1
    connection.close()
with connect() as fresh:
    assert fresh.exchange(b"y") == b"y"
print("interrupted", interrupted)
""".replace("TIMES", str(times)),
    )
    assert done.stderr == ""
    assert done.stdout == f"interrupted {times}\n"
    assert done.returncode == 0
    eventually(lambda: server.connections == 0)


def test_ctrl_c_at_each_step_of_an_exchange(serve: Any, eventually: Any) -> None:
    # A signal is taken where a function begins and where a C function has returned: at each of
    # these places in turn, the exchange is interrupted.
    server = serve()
    done = run_client(
        server.address,
        "direct",
        """
def exchange(connection, place):
    def interrupt(frame, event, argument):
        nonlocal place
        if event in ("call", "c_return") and "rlwire" in frame.f_code.co_filename:
            place -= 1
            if not place:
                sys.setprofile(None)
                raise KeyboardInterrupt
    sys.setprofile(interrupt)
    try:
        connection.exchange(b"z")
    finally:
        sys.setprofile(None)

for place in range(1, 100):
    connection = connect()
    connection.exchange(b"x")
    try:
        exchange(connection, place)
    except KeyboardInterrupt:
        connection.close()
        assert connection.closed
    else:
        break
assert connection.exchange(b"y") == b"y"
connection.close()
print("places", place - 1)
""",
    )
    assert done.stderr == ""
    assert int(done.stdout.removeprefix("places ")) > 8
    assert done.returncode == 0
    eventually(lambda: server.connections == 0)


def test_a_program_may_end_without_closing(serve: Any, engine: str, eventually: Any) -> None:
    server = serve()
    done = run_client(
        server.address,
        engine,
        """
import warnings
warnings.simplefilter("ignore", ResourceWarning)
connection = connect()
connection.exchange(b"x")
connection.send(b"stuck")
print("bye")
""",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "bye\n", "")
    echo.Responder.go_on.set()
    eventually(lambda: server.connections == 0)


@pytest.mark.parametrize("size", [100, 200_000])
def test_messages_are_freed(serve: Any, dial: Any, size: int) -> None:
    connection = dial(serve())
    body = b"x" * size
    rounds = 50 if size < 1000 else 5

    def work() -> int:
        for _ in range(6 * rounds):
            connection.exchange(body)
        for _ in range(rounds):
            for _ in range(6):
                connection.send(body)
            for _ in range(6):
                connection.receive()
        gc.collect()
        return memory()

    # The allocators take a while to have enough; what is not freed grows for ever, by 120 KB or
    # 12 MB each time.
    sizes = [work()]
    while len(sizes) < 30:
        sizes.append(work())
        if len(sizes) >= 4 and max(sizes[-4:]) - sizes[-4] <= 200_000:
            return
    pytest.fail(f"it grows: {sizes}")


def memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if not sys.platform.startswith("linux"):
    del test_messages_are_freed


def test_connections_are_freed(serve: Any, dial: Any, eventually: Any) -> None:
    server = serve()

    def work() -> int:
        for _ in range(20):
            with grpc_client.connect(server.address, METHOD, echo.Session()) as connection:
                connection.exchange(b"x")
        eventually(lambda: server.connections == 0)
        return len(os.listdir("/proc/self/fd"))

    if not sys.platform.startswith("linux"):
        pytest.skip("/proc is Linux's")
    work()
    before = work()
    eventually(lambda: work() <= before + 3)


def test_the_watchdog_sleeps_and_ends(serve: Any, dial: Any, eventually: Any) -> None:
    connection = dial(serve(), timeouts=Timeouts(idle=1000))
    connection.exchange(b"x")
    assert grpc_watchdog._thread is not None
    connection.close()
    eventually(lambda: grpc_watchdog._thread is None or grpc_watchdog._watched)
