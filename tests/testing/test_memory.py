from __future__ import annotations

import threading
from typing import Any

import pytest

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.testing.memory import pair


def test_what_is_sent_is_copied(blobs: Any) -> None:
    one, two = pair(blobs(), blobs())
    array = bytearray(b"before")
    one.send(array)
    array[:] = b"after!"
    assert bytes(two.receive()) == b"before"


def test_without_a_message_it_does_not_wait(blobs: Any) -> None:
    one, _two = pair(blobs(), blobs())
    with pytest.raises(DeadlineExceeded, match=r"two: no message began within idle=0\.0 s$"):
        one.receive()
    one._incoming.append(memoryview(blobs.frame(b"x" * 10)[:25]))
    with pytest.raises(
        DeadlineExceeded, match=r"25 of 30 bytes of a message came within read=0\.0 s$"
    ):
        one.receive()


def test_two_threads(blobs: Any) -> None:
    one, two = pair(blobs(), blobs(), idle=5)

    def echo() -> None:
        for _ in range(100):
            two.send(bytes(two.receive()))

    thread = threading.Thread(target=echo)
    thread.start()
    for number in range(100):
        one.send(b"%d" % number)
        assert bytes(one.receive()) == b"%d" % number
    thread.join()


def test_close_wakes_the_other_end(blobs: Any) -> None:
    one, two = pair(blobs(), blobs(), idle=None)
    timer = threading.Timer(0.05, one.close)
    timer.start()
    with pytest.raises(ConnectionClosed, match="closed by the peer"):
        two.receive()
    timer.join()
    with pytest.raises(ConnectionClosed, match="closed on this side"):
        one.send(b"x")
    with pytest.raises(ConnectionClosed, match="closed by the peer"):
        two.send(b"x")
    assert one.closed
    assert not two.closed


def test_what_was_sent_before_the_close_arrives(blobs: Any) -> None:
    one, two = pair(blobs(), blobs())
    with one:
        one.send(b"last")
    assert bytes(two.receive()) == b"last"
    with pytest.raises(ConnectionClosed):
        two.receive()


def test_errors_of_the_peer(blobs: Any) -> None:
    one, two = pair(blobs(), blobs())
    one.send(b"turn")
    with pytest.raises(RemoteProtocolError) as out_of_turn:
        two.receive()
    two.refuse(out_of_turn.value)
    assert bytes(one.receive()) == b"refused: not now"
    two._incoming.append(memoryview(b"\xff"))
    with pytest.raises(DecodeError) as broken:
        two.receive()
    two.refuse(broken.value)
    assert two.closed
    assert bytes(one.receive()).startswith(b"refused: no frame")
    with pytest.raises(ConnectionClosed):
        one.receive()


def test_each_end_needs_its_own_session(blobs: Any) -> None:
    session = blobs()
    with pytest.raises(LocalProtocolError):
        pair(session, session)
