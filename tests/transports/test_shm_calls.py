"""Rings by themselves: two ends of one in this process."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from rlwire.transports.shm_calls import AVAILABLE, RING, WORDS, Rings, ask

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="shared memory needs Linux")

Ends = tuple[Rings, Rings]
SIZES = ((1, 0, 4096), (5000, 0, 8192), (1 << 30, 0, RING), (RING, 4096, 4096))


@pytest.fixture
def ends() -> Iterator[Ends]:
    one, other = socket.socketpair()
    with one, other:
        ask(one.fileno(), 4096)
        server, client = Rings(), Rings()
        server.answer(other.fileno(), other.recv(WORDS))
        client.meet(one.fileno())
        yield client, server
        client.close()
        server.close()


def test_sizes_are_bounded() -> None:
    one, other = socket.socketpair()
    with one, other:
        for asked, most, given in SIZES:
            ask(one.fileno(), asked)
            rings = Rings()
            rings.answer(other.fileno(), other.recv(WORDS), most)
            words, files, _, _ = socket.recv_fds(one, WORDS, 2)
            assert struct.unpack("=8I", words)[2:5] == (given, given, 0)
            assert len(files) == 2
            for file in files:
                os.close(file)
            rings.close()


def test_what_is_asked_has_one_size() -> None:
    one, other = socket.socketpair()
    with one, other:
        with pytest.raises(OSError, match="makes no sense") as caught:
            Rings().answer(other.fileno(), b"short")
        assert caught.value.errno == errno.EPROTO
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            Rings().meet(one.fileno())
        other.close()
        with pytest.raises(ConnectionResetError):
            Rings().meet(one.fileno())


def test_nothing_before_they_meet() -> None:
    rings = Rings()
    assert rings.readable()
    assert rings.poll_in()
    with pytest.raises(OSError, match="Bad file descriptor"):
        rings.recv_into(bytearray(1))
    rings.end()
    rings.stop()
    rings.forget()
    rings.close()
    rings.close()


def test_times_and_ends(ends: Ends) -> None:
    client, server = ends
    client.reading = 0.02
    with pytest.raises(BlockingIOError):
        client.recv_into(bytearray(1))
    with pytest.raises(BlockingIOError):
        client.recv_into(bytearray(1), wait=False)
    assert not client.readable()
    server.end()
    assert client.readable()
    assert client.recv_into(bytearray(1)) == 0
    server.close()
    assert client.poll_out()


def test_bytes_of_ones_own_go_and_come(ends: Ends) -> None:
    client, server = ends
    assert client.send_from(b"hello") == 5
    data = bytearray(5)
    assert server.recv_into(data, whole=True, spin=1e-5) == 5
    assert data == b"hello"
    server.writing = 0
    assert server.send_from(bytes(5000)) == 4096  # all that there is room for
    with pytest.raises(BlockingIOError):
        server.send_from(b"more")
    server.close()
    assert client.recv_into(bytearray(4096), whole=True) == 4096
    assert client.recv_into(bytearray(1), spin=1e-5) == 0
