"""A small session of its own, so that transports are tested without any real protocol."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlwire.errors import DecodeError, LimitExceeded, RemoteProtocolError, RlwireError
from rlwire.transports import tcp
from rlwire.transports.interface import Buffer

HEADER = 20  # so that what follows is not aligned by itself


class Blobs:
    """Frames of a 4-byte size (of the whole frame), 16 bytes of padding, and a body.

    Bodies are bytes on the way out and owned buffers on the way in. A first byte 0xff is a broken
    frame, the body ``b"turn"`` is out of turn, ``b"end"`` ends the session.
    """

    limit = 2**26

    def __init__(self) -> None:
        self.closed = False
        self.refused: list[RlwireError] = []

    def next_deadline(self) -> float | None:
        return None

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        if end > start and buffer[start] == 0xFF:
            raise DecodeError("no frame begins with ff", offset=start)
        if end - start < 4:
            return 0
        size = int.from_bytes(buffer[start : start + 4], "big")
        if size > self.limit:
            raise LimitExceeded("received", self.limit, size, offset=start)
        return size

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        try:
            if not size or self.frame_size(buffer, 0, size) != size:
                return None
        except (DecodeError, LimitExceeded):
            return None
        return self.receive(bytes(buffer[:size]))

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        return HEADER if end - start >= HEADER else 0

    def receive(self, message: Buffer) -> list[Any]:
        body = memoryview(message)[HEADER:]
        word = bytes(body[:10])
        if word == b"turn":
            raise RemoteProtocolError("not now")
        if word == b"nothing":
            return []
        if word == b"twice":
            return [b"one", b"two"]
        self.closed = self.closed or word == b"end"
        return [body]

    def send(self, event: Any) -> list[Buffer]:
        parts = event if isinstance(event, list) else [event]
        return [self.header(sum(map(len, parts))), *parts] if parts != [b""] else [self.header(0)]

    def refuse(self, error: RlwireError) -> list[Buffer]:
        self.refused.append(error)
        self.closed = not isinstance(error, RemoteProtocolError)
        return [self.frame(f"refused: {error}".encode())]

    @staticmethod
    def header(size: int) -> bytes:
        return (size + HEADER).to_bytes(4, "big") + bytes(HEADER - 4)

    @classmethod
    def frame(cls, body: bytes) -> bytes:
        return cls.header(len(body)) + body


@pytest.fixture
def blobs() -> type[Blobs]:
    return Blobs


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
def read_frame() -> Callable[[socket.socket], bytes]:
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
        header = exactly(sock, HEADER)
        return exactly(sock, int.from_bytes(header[:4], "big") - HEADER) if header else b""

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
