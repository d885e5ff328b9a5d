"""The extended clipboard's payloads, against bytes put together here."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest

from rlwire.codecs.rfb.clipboard import (
    ACTIONS,
    CAPS,
    NOTIFY,
    PROVIDE,
    REQUEST,
    TEXT,
    ClientClipboard,
    Clipboard,
    ServerClipboard,
    decode_clipboard,
    encode_clipboard,
    plain_text,
)
from rlwire.codecs.rfb.messages import decode_client_message, decode_server_message, encode
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits

TEXTS = ["", "a", "日本\nà", "\U0001f600" * 300]


def provided(*texts: bytes, flags: int = PROVIDE | TEXT) -> bytes:
    data = b"".join(struct.pack(">I", len(text)) + text for text in texts)
    return struct.pack(">I", flags) + zlib.compress(data)


@pytest.mark.each("text", TEXTS)
def test_a_text_is_utf_8_with_a_zero_and_two_characters_to_a_lines_end(text: str) -> None:
    said = Clipboard(PROVIDE | TEXT, text=text)
    payload = encode_clipboard(said)
    flags, data = payload[:4], zlib.decompress(payload[4:])
    assert flags == bytes((16, 0, 0, 1))
    plain = text.replace("\n", "\r\n").encode() + b"\0"
    assert data == struct.pack(">I", len(plain)) + plain
    assert decode_clipboard(Clipboard, payload) == said


def test_messages() -> None:
    assert encode(ClientClipboard(REQUEST | TEXT)).hex() == "06000000fffffffc02000001"
    assert encode(ServerClipboard(NOTIFY)).hex() == "03000000fffffffc08000000"
    caps = ServerClipboard(ACTIONS | TEXT | 4, (7, 9))
    assert encode(caps).hex() == "03000000fffffff41f0000050000000700000009"
    assert decode_server_message(encode(caps)) == caps
    mine = ClientClipboard(PROVIDE | TEXT, text="é\n")
    assert decode_client_message(encode(mine)) == mine


def test_what_others_write() -> None:
    read = decode_clipboard(
        Clipboard, provided("é\r\n".encode() + b"\0", b"<p>", flags=PROVIDE | 5)
    )
    assert read.text == "é\n"
    assert decode_clipboard(Clipboard, provided(b"no zero")).text == "no zero"
    assert decode_clipboard(Clipboard, provided(b"<p>", flags=PROVIDE | 4)).text is None
    # What is behind the sizes is somebody's extension.
    read = decode_clipboard(Clipboard, struct.pack(">III", CAPS | TEXT, 5, 6))
    assert read == Clipboard(CAPS | TEXT, (5,))


@pytest.mark.each(
    "payload",
    [
        b"\1\0\0",
        struct.pack(">II", CAPS | 3, 5),
        struct.pack(">I", PROVIDE | TEXT),
        struct.pack(">I", PROVIDE | TEXT) + b"no zlib",
        struct.pack(">I", PROVIDE | TEXT) + zlib.compress(b"\0\0"),
        struct.pack(">I", PROVIDE | TEXT) + zlib.compress(b"\0\0\0\5four"),
        provided(b"abc\0")[:-9],
        provided(b"\xff\0"),
    ],
)
def test_bad_ones(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_clipboard(Clipboard, payload)


def test_a_bomb_is_refused_before_it_goes_off() -> None:
    bomb = zlib.compress(struct.pack(">I", 1 << 26) + bytes(1 << 26), 9)
    payload = struct.pack(">I", PROVIDE | TEXT) + bomb
    lying = struct.pack(">I", PROVIDE | TEXT) + zlib.compress(b"\0\0\0\4abc\0" + bytes(1 << 24), 9)
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match="string=1000"):
            decode_clipboard(Clipboard, payload, Limits(string=1000))
        assert decode_clipboard(Clipboard, lying, Limits(string=1000)).text == "abc"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_half_a_pair_is_no_text() -> None:
    with pytest.raises(EncodeError, match="UTF-8"):
        plain_text("\ud800")
