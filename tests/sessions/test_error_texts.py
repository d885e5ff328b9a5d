"""What a peer wrote into a message reaches no log as more than a short, printable line."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgpack as original
import pytest

from rlwire.codecs import msgpack, rlx
from rlwire.errors import RlwireError
from rlwire.sessions import rlx as rlx_sessions
from rlwire.sessions import websocket

FORGED = "a\n2026-01-01 INFO all is well\x1b[2J\u2028\u202e"
LONG = "k" * 16_000_000


def packed_rlx(key: str) -> bytes:
    """A dictionary whose value is of no type, under the key."""
    good = rlx.encode({key: 1})
    return good[: good.index(key.encode()) + len(key.encode())] + b"\xff"


def out_of_turn(key: str) -> None:
    rlx_sessions.RLXServerSession().receive(rlx.encode({"command": key}, framed=True))


def page_of(key: str) -> None:
    head = (
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"Origin: {key}\r\n\r\n"
    )
    websocket.WebSocketServerSession(None).receive(head.encode("latin-1"))


DECODERS: dict[str, Callable[[str], Any]] = {
    "rlx": lambda key: rlx.decode(packed_rlx(key)),
    "msgpack": lambda key: msgpack.decode(original.packb({key: 0})[:-1] + b"\xc1"),
    "msgpack dtype": lambda key: msgpack.decode(
        original.packb(
            {b"nd": True, b"type": key, b"kind": b"", b"shape": [], b"data": b"12345678"}
        )
    ),
    "rlx session": out_of_turn,
}


@pytest.mark.parametrize("name", DECODERS)
def test_a_key_forges_no_line(name: str) -> None:
    key = FORGED
    with pytest.raises(RlwireError) as caught:
        DECODERS[name](key)
    text = str(caught.value)
    assert text.isprintable()
    assert "all is well" in text


@pytest.mark.parametrize("name", DECODERS)
def test_a_key_of_megabytes_makes_no_text_of_megabytes(name: str) -> None:
    key = LONG[: 1 << 20] if name == "rlx session" else LONG
    with pytest.raises(RlwireError) as caught:
        DECODERS[name](key)
    assert len(str(caught.value)) < 2500


def test_a_key_of_megabytes_is_not_copied_into_a_path() -> None:
    """What the error costs beside the key itself, which a decoder makes before it is wrong."""
    message = original.packb({LONG: 0})[:-1] + b"\xc1"
    tracemalloc.start()
    try:
        with pytest.raises(RlwireError):
            msgpack.decode(message)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * len(LONG)


def test_an_origin_forges_no_line() -> None:
    with pytest.raises(RlwireError) as caught:
        page_of("https://a\x85forged\x1b".replace("\x1b", "\x9b") + "b" * 4000)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1500
