from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.buffers import Block
from rlwire.codecs import netstring
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import DEFAULT


@pytest.mark.parametrize(
    ("body", "encoded"),
    [
        (b"", b"0:,"),
        (b"hello", b"5:hello,"),
        (b"hello world!", b"12:hello world!,"),  # Bernstein's own example
        (b",:0", b"3:,:0,"),
        (b"x" * 1000, b"1000:" + b"x" * 1000 + b","),
    ],
)
def test_both_ways(body: bytes, encoded: bytes) -> None:
    for feed in (bytes, bytearray, memoryview):
        assert netstring.encode(feed(body)) == encoded
        assert netstring.decode(feed(encoded)) == (body, len(encoded))
    assert netstring.decode(b"??" + encoded + b"??", 2) == (body, len(encoded) + 2)
    block = Block(len(encoded))
    memoryview(block)[:] = encoded
    assert netstring.decode(block) == (body, len(encoded))
    assert netstring.encode(block) == b"%d:%b," % (len(encoded), encoded)


@given(bodies=st.lists(st.binary(max_size=200), max_size=8), junk=st.binary(max_size=5))
def test_several_in_a_row(bodies: list[bytes], junk: bytes) -> None:
    stream = junk + b"".join(map(netstring.encode, bodies))
    at, found = len(junk), []
    while at < len(stream):
        body, at = netstring.decode(stream, at)
        found.append(body)
    assert found == bodies


@given(st.binary(max_size=300))
def test_a_prefix_says_how_much_is_missing_at_least(body: bytes) -> None:
    encoded = netstring.encode(body)
    for cut in range(len(encoded)):
        nothing, missing = netstring.decode(encoded[:cut])
        assert nothing is None
        if cut > encoded.index(b":"):
            assert missing == len(encoded) - cut
        else:
            assert missing == 1


BAD = [
    pytest.param(b":", 0, "0x3a", id="no digits"),
    pytest.param(b"05:hello,", 0, "0x35", id="leading zero"),
    pytest.param(b"00:,", 0, "0x30", id="two zeros"),
    pytest.param(b"+5:hello,", 0, "0x2b", id="plus"),
    pytest.param(b"-5:hello,", 0, "0x2d", id="minus"),
    pytest.param(b" 5:hello,", 0, "0x20", id="space"),
    pytest.param(b"5 :hello,", 0, "0x20", id="space after"),
    pytest.param(b"5;hello,", 0, "0x3b", id="semicolon"),
    pytest.param(b"hello", 0, "0x68", id="letters"),
    pytest.param(b"5:hello;", 7, "0x3b", id="no comma"),
    pytest.param(b"4:hello,", 6, "0x6f", id="too short"),
    pytest.param(b"0:x", 2, "0x78", id="empty without comma"),
]


@pytest.mark.parametrize(("encoded", "offset", "byte"), BAD)
def test_bad_ones(encoded: bytes, offset: int, byte: str) -> None:
    for before in (b"", b"1:x,"):
        with pytest.raises(DecodeError, match=f"got byte {byte}") as caught:
            netstring.decode(before + encoded, len(before))
        assert caught.value.offset == len(before) + offset
        assert caught.value.path == ""


def test_the_limit_holds_before_the_body_comes() -> None:
    assert netstring.decode(b"5:hello,", limit=5) == (b"hello", 8)
    assert netstring.decode(b"0:,", limit=0) == (b"", 3)
    for encoded in (b"6", b"6:", b"10:", b"1000000000000:", b"9" * 5000):
        with pytest.raises(LimitExceeded) as caught:
            netstring.decode(b"?" + encoded, 1, limit=5)
        assert (caught.value.limit, caught.value.maximum, caught.value.offset) == ("limit", 5, 1)
    assert netstring.decode(b"%d:" % DEFAULT.message) == (None, DEFAULT.message + 1)
    with pytest.raises(LimitExceeded):
        netstring.decode(b"%d:" % (DEFAULT.message + 1))


def test_arguments_are_checked() -> None:
    for offset in (-1, 9):
        with pytest.raises(ValueError, match="no offset"):
            netstring.decode(b"5:hello,", offset)
    assert netstring.decode(b"5:hello,", 8) == (None, 1)
    with pytest.raises(ValueError, match="2\\*\\*60"):
        netstring.decode(b"5:hello,", limit=2**60)
    with pytest.raises((OverflowError, ValueError)):
        netstring.decode(b"5:hello,", limit=-1)
    for wrong in ("text", None, 5):
        with pytest.raises(TypeError):
            netstring.decode(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            netstring.encode(wrong)  # type: ignore[arg-type]
    with pytest.raises((BufferError, ValueError)):
        netstring.encode(memoryview(b"abcd")[::2])
