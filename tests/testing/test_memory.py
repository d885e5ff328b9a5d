from __future__ import annotations

import threading
from typing import Any

import pytest

from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError
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


def test_each_end_needs_its_own_session(blobs: Any) -> None:
    session = blobs()
    with pytest.raises(LocalProtocolError):
        pair(session, session)
