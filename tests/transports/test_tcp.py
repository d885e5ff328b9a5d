from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlwire.errors import ConnectionClosed, DeadlineExceeded
from rlwire.transports import tcp
from rlwire.transports.address import Address, parse
from rlwire.transports.server import ThreadServer
from rlwire.transports.sockets import Backoff, Timeouts


@pytest.fixture
def dial(blobs: Any) -> Iterator[Callable[..., tcp.Connection]]:
    opened = []

    def connect(server: ThreadServer, **options: Any) -> tcp.Connection:
        opened.append(tcp.connect(server.address, blobs(), **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()
    opened.clear()  # the debug build counts the blocks that connections keep


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "localhost:0", "unix"])
def test_there_and_back(serve: Any, dial: Any, address: str, tmp_path: Path) -> None:
    if address == "unix":
        address = f"unix:{tmp_path / 'socket'}"
    server = serve(address=address)
    assert "'" not in str(server.address)
    connection = dial(server)
    assert connection.peer == str(server.address)
    for body in (b"small", bytes(5_000), bytes(3_000_000), b"small again"):
        connection.send(body)
        assert connection.receive() == body
    server.stop()
    assert not (tmp_path / "socket").exists()


def test_both_ends_send_at_once(serve: Any, dial: Any) -> None:
    seen = []

    def handler(connection: tcp.Connection) -> None:
        seen.append(connection._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    connection = dial(serve(handler))
    assert connection._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    with pytest.raises(ConnectionClosed):
        connection.receive()
    assert seen[0]


# --- connecting ---


@pytest.fixture
def deaf() -> Iterator[Address]:
    """An address that nobody listens on, nor can, since its port is taken."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield parse(sock.getsockname())


def test_nobody_listens(blobs: Any, deaf: Address) -> None:
    with pytest.raises(ConnectionRefusedError, match=rf"cannot connect to {deaf} \(1 attempt"):
        tcp.connect(deaf, blobs())


def test_attempts_are_counted_and_logged(blobs: Any, deaf: Address, log: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(ConnectionRefusedError, match="3 attempts"):
        tcp.connect(deaf, blobs(), backoff=Backoff(attempts=3, first=0.05))
    assert time.monotonic() - begun >= 0.07
    assert "attempt 2 of 3 failed" in log.text


def test_the_deadline_ends_the_attempts(blobs: Any, deaf: Address) -> None:
    begun = time.monotonic()
    # On a slow machine the last attempt has no time left.
    with pytest.raises((ConnectionRefusedError, DeadlineExceeded)):
        tcp.connect(deaf, blobs(), backoff=Backoff(attempts=100, first=0.05, deadline=0.3))
    assert time.monotonic() - begun < 10


def test_a_server_that_starts_late_is_found(serve: Any, blobs: Any, tmp_path: Path) -> None:
    address = parse(f"unix:{tmp_path / 's'}")
    timer = threading.Timer(0.1, lambda: serve(address=address))
    timer.start()
    with tcp.connect(address, blobs(), backoff=Backoff(attempts=50, longest=0.1)) as connection:
        connection.send(b"here")
        assert connection.receive() == b"here"
    timer.join()


def test_an_attempt_has_its_own_time(blobs: Any) -> None:
    # A listener whose queue is full does not answer.
    with socket.socket() as listener, socket.socket() as one, socket.socket() as two:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (one, two):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        begun = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="cannot connect to"):
            tcp.connect(listener.getsockname(), blobs(), timeouts=Timeouts(connect=0.2))
        assert 0.1 < time.monotonic() - begun < 3


def test_an_address_that_makes_no_sense(blobs: Any) -> None:
    with pytest.raises(ValueError, match="not an address"):
        tcp.connect("nowhere", blobs())


# --- a server's peers do not disturb each other ---


def test_a_malformed_frame_ends_its_own_connection_only(
    serve: Any, dial: Any, raw: Any, read_frame: Any, log: Any
) -> None:
    server = serve()
    good, bad = dial(server), raw(server.address)
    good.send(b"one")
    assert good.receive() == b"one"
    bad.sendall(b"\xff garbage" * 100)
    assert read_frame(bad) == b"refused: no frame begins with ff - at byte 0"
    assert read_frame(bad) == b""
    good.send(b"two")
    assert good.receive() == b"two"
    (record,) = [r for r in log.records if r.levelno == logging.WARNING]
    assert str(parse(bad.getsockname())) in record.message
    assert "no frame begins with ff" in record.message


@pytest.mark.parametrize(
    ("data", "reply"),
    [(b"\x7f" + bytes(10), b"over the limit received="), (b"turn", b"not now")],
    ids=["a lying length", "out of turn"],
)
def test_what_the_handler_lets_out_is_told_to_the_peer(
    serve: Any, raw: Any, blobs: Any, read_frame: Any, data: bytes, reply: bytes
) -> None:
    bad = raw(serve().address)
    bad.sendall(blobs.frame(data) if data == b"turn" else data)
    assert reply in read_frame(bad)
    assert read_frame(bad) == b""


def test_a_peer_that_leaves_inside_a_message_is_logged(
    serve: Any, raw: Any, blobs: Any, log: Any, eventually: Any
) -> None:
    server = serve()
    for data, level in ((blobs.frame(b"whole")[:-1], "WARNING"), (b"", "DEBUG")):
        log.clear()
        peer = raw(server.address)
        eventually(lambda: server.connections == 1)
        peer.sendall(data)
        peer.close()
        eventually(lambda: server.connections == 0)
        (record,) = [r for r in log.records if "closed by the peer" in r.message]
        assert record.levelname == level


def test_a_handler_that_fails_is_logged(serve: Any, dial: Any, log: Any) -> None:
    def handler(connection: tcp.Connection) -> None:
        if connection.receive() == b"fail":
            raise ZeroDivisionError("one of those days")
        connection.send(b"fine")

    server = serve(handler)
    unlucky, lucky = dial(server), dial(server)
    unlucky.send(b"fail")
    with pytest.raises(ConnectionClosed):
        unlucky.receive()
    lucky.send(b"x")
    assert lucky.receive() == b"fine"
    assert "one of those days" in log.text


def test_an_idle_peer_is_told_and_closed(serve: Any, raw: Any, read_frame: Any, log: Any) -> None:
    peer = raw(serve(timeouts=Timeouts(idle=0.1)).address)
    assert b"no message began within idle=0.1 s" in read_frame(peer)
    assert read_frame(peer) == b""
    assert "closed, too slow" in log.text


def test_a_dribbling_peer_is_closed(
    serve: Any, dial: Any, raw: Any, blobs: Any, log: Any, eventually: Any
) -> None:
    server = serve(timeouts=Timeouts(read=0.2))
    slow, good = raw(server.address), dial(server)
    for byte in blobs.frame(bytes(100))[:8]:
        slow.sendall(bytes([byte]))
        good.send(b"x")
        assert good.receive() == b"x"
    eventually(lambda: server.connections == 1)
    assert "8 of 120 bytes of a message came within read=0.2 s" in log.text


def test_connections_over_the_limit_are_refused(
    serve: Any, dial: Any, raw: Any, read_frame: Any, log: Any, eventually: Any
) -> None:
    server = serve(max_connections=2)
    first, second = dial(server), dial(server)
    for connection in (first, second):
        connection.send(b"x")
        assert connection.receive() == b"x"
    third = raw(server.address)
    assert b"3 is over the limit max_connections=2" in read_frame(third)
    assert read_frame(third) == b""
    assert "refused, 3 is over the limit" in log.text
    first.close()
    eventually(lambda: server.connections == 1)
    fourth = dial(server)
    fourth.send(b"x")
    assert fourth.receive() == b"x"


def test_a_server_needs_room_for_one(blobs: Any, echo: Any) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ThreadServer("127.0.0.1:0", blobs, echo, max_connections=0)


class Listener:
    """A listening socket whose accept() fails at first."""

    def __init__(self, sock: socket.socket, errors: list[int]) -> None:
        self._sock = sock
        self._errors = errors

    def accept(self) -> Any:
        if self._errors:
            raise OSError(self._errors.pop(0), "as the test wants it")
        return self._sock.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def test_accept_errors_are_survived(blobs: Any, echo: Any, dial: Any, log: Any) -> None:
    server = ThreadServer("127.0.0.1:0", blobs, echo)
    server._listener = Listener(server._listener, [errno.EMFILE, errno.ECONNABORTED, errno.EMFILE])
    with server:
        connection = dial(server)
        connection.send(b"x")
        assert connection.receive() == b"x"
    assert log.text.count("cannot accept a connection") == 3


def test_without_threads_a_connection_is_closed(
    serve: Any, dial: Any, log: Any, monkeypatch: Any
) -> None:
    server = serve()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        connection = dial(server)
        with pytest.raises(ConnectionClosed):
            connection.receive()
    assert "no thread for it" in log.text
    connection = dial(server)
    connection.send(b"x")
    assert connection.receive() == b"x"


# --- stopping ---


def test_stop_while_clients_are_connected(serve: Any, dial: Any) -> None:
    server = serve()
    connections = [dial(server) for _ in range(5)]
    for connection in connections:
        connection.send(b"x")
        assert connection.receive() == b"x"
    begun = time.monotonic()
    server.stop(grace=10)
    assert time.monotonic() - begun < 5
    assert server.connections == 0
    assert server.wait(0)
    for connection in connections:
        with pytest.raises(ConnectionClosed):
            connection.receive()
    server.stop()


def test_stop_lets_a_handler_send_its_answer(serve: Any, dial: Any, eventually: Any) -> None:
    working = threading.Event()

    def handler(connection: tcp.Connection) -> None:
        while True:
            event = connection.receive()
            working.set()
            time.sleep(0.2)
            connection.send(bytes(event))

    server = serve(handler)
    connection = dial(server)
    connection.send(b"work")
    assert working.wait(5)
    stopper = threading.Thread(target=server.stop)
    stopper.start()
    assert connection.receive() == b"work"
    connection.send(b"more")
    with pytest.raises(ConnectionClosed):
        connection.receive()
    stopper.join()


def test_stop_leaves_a_stuck_handler_behind(serve: Any, dial: Any, log: Any) -> None:
    release, stuck = threading.Event(), threading.Event()

    def handler(connection: tcp.Connection) -> None:
        stuck.set()
        release.wait(10)

    server = serve(handler)
    dial(server)
    assert stuck.wait(5)
    begun = time.monotonic()
    server.stop(grace=0.2)
    assert time.monotonic() - begun < 5
    assert "did not end within 0.2 s and is left behind" in log.text
    release.set()


def test_a_handler_may_stop_the_server(serve: Any, dial: Any) -> None:
    server = None

    def handler(connection: tcp.Connection) -> None:
        connection.receive()
        assert server is not None
        server.stop(grace=1)
        connection.send(b"stopped")

    server = serve(handler)
    connection = dial(server)
    connection.send(b"please")
    assert server.wait(5)


def test_a_server_starts_once(serve: Any) -> None:
    server = serve()
    with pytest.raises(RuntimeError, match="starts once"):
        server.start()


def test_a_server_that_never_started_can_be_stopped(blobs: Any, echo: Any) -> None:
    ThreadServer("127.0.0.1:0", blobs, echo).stop()


def test_servers_may_share_a_listener(blobs: Any, echo: Any, dial: Any) -> None:
    with tcp.listen("127.0.0.1:0") as listener:
        with ThreadServer(listener, blobs, echo) as one, ThreadServer(listener, blobs, echo) as two:
            assert one.address == two.address
            connections = [dial(one) for _ in range(20)]
            for connection in connections:
                connection.send(b"x")
                assert connection.receive() == b"x"
            assert one.connections + two.connections == 20
        assert listener.fileno() != -1, "it belongs to the caller"
