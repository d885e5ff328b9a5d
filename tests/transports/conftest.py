"""What tests of transports share: plain sockets, waiting for conditions."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlwire.transports import tcp


@pytest.fixture
def echo() -> Callable[[tcp.Connection], None]:
    def handler(connection: tcp.Connection) -> None:
        while True:
            connection.send(bytes(connection.receive()))

    return handler


@pytest.fixture
def raw() -> Iterator[Callable[[Any], socket.socket]]:
    """Connect a plain socket to an address; all are closed after the test."""
    opened = []

    def connect(address: Any) -> socket.socket:
        family, sockaddr = address.resolve()[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(10)
        sock.connect(sockaddr)
        opened.append(sock)
        return sock

    yield connect
    for sock in opened:
        sock.close()


@pytest.fixture
def from_address() -> Iterator[Callable[[str, Any], socket.socket]]:
    """Connect a plain socket from one of loopback's addresses; all are closed after the test."""
    opened = []

    def connect(source: str, address: Any) -> socket.socket:
        try:
            sock = socket.create_connection(
                (address.host, address.port), timeout=10, source_address=(source, 0)
            )
        except OSError as error:  # such as macOS, which has 127.0.0.1 only
            pytest.skip(f"no connection from {source} here: {error}")
        opened.append(sock)
        return sock

    yield connect
    for sock in opened:
        sock.close()


@pytest.fixture
def read_frame(blobs: Any) -> Callable[[socket.socket], bytes]:
    """Read the body of one `Blobs` frame from a plain socket; b"" at the end of the stream."""

    def exactly(sock: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = sock.recv(count - len(data))
            if not more:
                return b""
            data += more
        return data

    def read(sock: socket.socket) -> bytes:
        header = exactly(sock, blobs.header_size)
        size = int.from_bytes(header[:4], "big")
        return exactly(sock, size - blobs.header_size) if header else b""

    return read


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], None]:
    """Wait for something that another thread does soon."""

    def wait(condition: Callable[[], Any]) -> None:
        until = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < until, "it did not happen within 10 s"
            time.sleep(0.005)

    return wait


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="rlwire")
    return caplog


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    until = time.monotonic() + 5
    while left := [
        t for t in threading.enumerate() if t not in before and t.name.startswith("rlwire")
    ]:
        assert time.monotonic() < until, f"threads left behind: {left}"
        time.sleep(0.005)
