"""What servers do whatever carries their connections: why they ended, and at which pace they come.

Of what each kind does by itself are `test_tcp.py`, `test_tcp_asyncio.py` and `test_crowds.py`.
"""

from __future__ import annotations

import logging
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlwire.adapters.serving import LoopThread
from rlwire.transports.server import ThreadServer
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Timeouts, listen, local_address

LOOPBACK = "127.0.0.1:0"


def handle(connection: Any) -> None:
    while True:
        body = bytes(connection.receive())
        connection.send(body if body != b"fail" else 1 // 0)


async def handle_on_a_loop(connection: Any) -> None:
    while True:
        body = bytes(await connection.receive())
        await connection.send(body if body != b"fail" else 1 // 0)


@pytest.fixture(params=["threads", "loop"])
def start(request: Any, blobs: Any) -> Iterator[Callable[..., Any]]:
    """Start a server that answers by a handler, or as the options say."""
    stops = []

    def make(make_session: Any = blobs, listener: Any = LOOPBACK, **options: Any) -> Any:
        if request.param == "threads":
            options = options or {"handler": handle}
            server: Any = ThreadServer(listener, make_session, **options).start()
            stops.append(server.stop)
        else:
            options = options or {"handler": handle_on_a_loop}
            server = LoopServer(listener, make_session, **options)
            thread = LoopThread(lambda: server, None, "an echo")
            stops.append(lambda: thread.stop(2.0))
        return server

    yield make
    for stop in stops:
        stop()


@pytest.fixture(params=["handler", "responder"])
def server(request: Any, start: Any, responder: Any) -> Any:
    return start() if request.param == "handler" else start(make_responder=responder)


def reset(sock: socket.socket) -> None:
    """Close without a farewell of TCP's."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_why_connections_ended(
    server: Any, raw: Any, blobs: Any, read_frame: Any, log: Any, eventually: Any
) -> None:
    def connect(data: bytes = b"") -> socket.socket:
        sock: socket.socket = raw(server.address)
        sock.sendall(data)
        return sock

    def talk() -> None:
        with connect(hello) as sock:
            assert read_frame(sock) == b"x"

    hello = blobs.frame(b"x")
    ends = [
        ("left", lambda: connect().close(), logging.DEBUG),
        ("left", talk, logging.DEBUG),
        ("lost", lambda: connect(hello[:-1]).close(), logging.WARNING),
        ("fault", lambda: connect(b"\xff garbage"), logging.WARNING),
        ("failed", lambda: connect(blobs.frame(b"fail")), logging.ERROR),
    ]
    expected: dict[str, int] = {}
    for why, end, level in ends:
        log.clear()
        end()
        expected[why] = expected.get(why, 0) + 1
        eventually(lambda: server.statistics().ended == expected)
        eventually(lambda: server.connections == 0)
        assert max(record.levelno for record in log.records) == level
    statistics = server.statistics()
    assert (statistics.open, statistics.refused) == (0, 0)
    with connect(hello) as sock:
        assert read_frame(sock) == b"x"
        assert server.statistics().open == 1
        assert len(server.open_connections) == 1


def test_one_that_is_too_slow(
    start: Any, responder: Any, raw: Any, read_frame: Any, eventually: Any
) -> None:
    server = start(make_responder=responder, timeouts=Timeouts(first=0.1))
    assert b"first=0.1" in read_frame(raw(server.address))
    eventually(lambda: server.statistics().ended == {"late": 1})


def test_refused_ones_are_counted(start: Any, responder: Any, raw: Any, read_frame: Any) -> None:
    server = start(make_responder=responder, max_connections=1)
    raw(server.address)
    for count in (1, 2):
        assert b"max_connections=1" in read_frame(raw(server.address))
        assert server.statistics().refused == count


def test_a_reset_of_who_never_spoke_is_no_warning(
    server: Any, raw: Any, blobs: Any, read_frame: Any, log: Any, eventually: Any
) -> None:
    for data, level in ((b"", "DEBUG"), (blobs.frame(b"x"), "WARNING")):
        log.clear()
        sock = raw(server.address)
        sock.sendall(data)
        assert not data or read_frame(sock) == b"x"
        eventually(lambda: server.connections == 1)
        reset(sock)
        eventually(lambda: server.connections == 0)
        (record,) = [record for record in log.records if "lost: " in record.message]
        assert record.levelname == level


def test_a_session_that_cannot_be_made_ends_its_own_connection_only(
    start: Any, responder: Any, raw: Any, blobs: Any, read_frame: Any, log: Any, eventually: Any
) -> None:
    failing = [False]

    def make_session() -> Any:
        if failing[0]:
            raise ZeroDivisionError("one of those days")
        return blobs()

    server = start(make_session, make_responder=responder, max_connections=2)
    good = raw(server.address)
    for wanted in ("admitted", "refused"):
        failing[0] = False
        good.sendall(blobs.frame(b"x"))
        assert read_frame(good) == b"x"
        failing[0] = True
        if wanted == "refused":
            eventually(lambda: server.connections == 1)
            server._admission.enter("192.0.2.1")
        assert read_frame(raw(server.address)) == b""
        assert log.text.count("a session failed") == (1 if wanted == "admitted" else 2)


def test_a_responder_says_what_else_when_its_reply_cannot_be_written(
    start: Any, responder: Any, raw: Any, blobs: Any, read_frame: Any, eventually: Any
) -> None:
    made: list[Any] = []

    def make(connection: Any) -> Any:
        made.append(responder(connection))
        return made[-1]

    server = start(make_responder=make)
    with raw(server.address) as sock:
        for body, reply in ((b"number", b"number: TypeError"), (b"turn", b"refused: not now")):
            sock.sendall(blobs.frame(body))
            assert read_frame(sock) == reply
        sock.sendall(blobs.frame(b"x"))
        assert read_frame(sock) == b"x", "it goes on"
    eventually(lambda: [one.closed for one in made] == [1])


def test_whoever_comes_for_nothing_makes_the_next_wait(server: Any, raw: Any) -> None:
    """A breath for each, but no more than some: a good one is taken in soon."""
    assert server._breath() == 0.0
    for vain, breaths in ((1, 1), (3, 3), (1000, 20)):
        server._vain = vain
        assert server._breath() == pytest.approx(breaths * 0.001)
        assert server._breath() == 0.0, "once"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a listener is not shut down")
def test_a_listener_that_is_gone_ends_no_connection(
    start: Any, responder: Any, raw: Any, blobs: Any, read_frame: Any, log: Any, eventually: Any
) -> None:
    with listen(LOOPBACK) as listener:
        server = start(listener=listener, make_responder=responder)
        good = raw(server.address)
        for body in (b"before", b"after"):
            good.sendall(blobs.frame(body))
            assert read_frame(good) == body
            if body == b"before":
                listener.shutdown(socket.SHUT_RDWR)
                eventually(lambda: "cannot accept any more" in log.text)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it may not come to be accepted")
def test_whoever_hung_up_before_it_is_refused(
    start: Any, responder: Any, raw: Any, blobs: Any, read_frame: Any, log: Any, eventually: Any
) -> None:
    with listen(LOOPBACK) as listener:
        good = raw(local_address(listener))
        reset(raw(local_address(listener)))  # behind the good one in the system's queue
        server = start(listener=listener, make_responder=responder, max_connections_per_address=1)
        eventually(lambda: server.statistics().refused == 1)
        good.sendall(blobs.frame(b"x"))
        assert read_frame(good) == b"x"
        assert "a session failed" not in log.text
