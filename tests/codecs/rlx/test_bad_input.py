"""Broken and hostile messages: the named error at the right byte, and no memory for lies."""

import struct
from functools import partial

import numpy as np
import pytest

from rlwire.codecs import rlx
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits
from tests.memory import at_most
from tests.raising import raised

VERSION = b"\1\0\0\0"
START = 9  # where the value of message(value) begins: version, key "k"
KEY = b"\1\0\0\0k"


def u32(number):
    return struct.pack("<I", number)


def text(content):
    return u32(len(content)) + content


def message(value, after=b""):
    """A message with one entry, ``k``."""
    return VERSION + KEY + value + after


def array(dtype, shape, size, data=b""):
    return b"\7" + text(dtype) + u32(len(shape)) + b"".join(map(u32, shape)) + u32(size) + data


def image(mode, width, height, size, data=b""):
    return b"\6" + text(mode) + u32(width) + u32(height) + u32(size) + data


INT = b"\2\1\0\0\0"
NULL = b"\1"


def at(offset, *spot):
    """An offset counted from the value's type byte."""
    return START + offset


# name, message, words of the error, offset, path
BAD = [
    ("empty", b"", "ends inside a field: 4 bytes needed, 0 left", 0, "$"),
    ("half a version", b"\1\0\0", "4 bytes needed, 3 left", 0, "$"),
    ("version 0", b"\0\0\0\0", "version: got 0, expected 1", 0, "$"),
    ("key too long", VERSION + u32(2) + b"k", "2 bytes needed, 1 left", 8, "$"),
    ("key of 4 GiB", VERSION + u32(2**32 - 1) + b"k", "string=", 4, "$"),
    ("no value", VERSION + KEY, "1 bytes needed, 0 left", 9, "$.k"),
    ("type 12", message(b"\x0c"), "unknown type byte: got byte 0x0c", at(0), "$.k"),
    ("type in a list", message(b"\x08" + u32(2) + NULL + b"\x63"), "0x63", at(6), "$.k[1]"),
    ("type in a dict", message(b"\x0b" + u32(1) + KEY + b"\x63"), "0x63", at(10), "$.k.k"),
    ("boolean 2", message(b"\5\2"), "neither 0 nor 1: got byte 0x02", at(1), "$.k"),
    ("int4 cut", message(b"\2\1\0\0"), "4 bytes needed, 3 left", at(1), "$.k"),
    ("string cut", message(b"\3" + u32(5) + b"four"), "5 bytes needed, 4 left", at(5), "$.k"),
    ("UTF-8 in a key", VERSION + text(b"ab\xff") + NULL, "not UTF-8", 10, "$"),
    ("UTF-8 in a value", message(b"\3" + text(b"caf\xe9")), "not UTF-8", at(8), "$.k"),
    ("UTF-8 surrogate", message(b"\3" + text(b"\xed\xa0\x80")), "not UTF-8", at(5), "$.k"),
    ("key twice", VERSION + KEY + NULL + KEY + INT, "'k' is repeated", 10, "$"),
    ("empty key twice", VERSION + 2 * (text(b"") + NULL), "'' is repeated", 9, "$"),
    ("inner key twice", message(b"\x0b" + u32(2) + 2 * (KEY + NULL)), "'k' is", at(11), "$.k"),
    ("list count", message(b"\x08" + u32(3) + NULL * 2), "3 announced", at(1), "$.k"),
    ("dict count", message(b"\x0b" + u32(2) + b"\0" * 9), "2 announced", at(1), "$.k"),
    ("dict of 2**32-1", message(b"\x0b" + u32(2**32 - 1) + NULL), "at most 0", at(1), "$.k"),
    ("dims cut", message(b"\7" + text(b"int8") + u32(3) + b"\0" * 11), "12 bytes", at(13), "$.k"),
    ("no dims", message(b"\7" + text(b"int8")), "4 bytes needed, 0 left", at(9), "$.k"),
    ("no size", message(array(b"int8", [1], 1)[:-4]), "4 bytes needed, 0 left", at(17), "$.k"),
    ("data cut", message(array(b"int16", [2], 4, b"abc")), "4 bytes needed, 3 left", at(22), "$.k"),
    ("size too large", message(array(b"int8", [2], 3, b"abc")), "3 bytes", at(17), "$.k"),
    ("size of a scalar", message(array(b"int8", [], 0)), "0 bytes", at(13), "$.k"),
    ("product overflows", message(array(b"uint8", [2**32 - 1] * 2, 1)), "overflows", at(14), "$.k"),
    ("product is 2**64", message(array(b"uint8", [2**16] * 4, 0)), "overflows", at(14), "$.k"),
    ("bytes overflow", message(array(b"f8", [2**30, 2**30], 0)), "overflows", at(11), "$.k"),
    ("zero and overflow", message(array(b"i1", [0] + [2**31] * 3, 0)), "overflows", at(11), "$.k"),
    ("2**62 of nothing", message(array(b"i1", [2**31] * 2, 0)), "0 bytes announced", at(19), "$.k"),
    ("mode cut", message(b"\6" + u32(3) + b"RG"), "3 bytes needed, 2 left", at(5), "$.k"),
    ("mode unknown", message(image(b"XYZ", 1, 1, 3, b"abc")), "unknown image mode", at(5), "$.k"),
    ("mode long", message(image(b"RGBA\0\0\0\0", 1, 1, 4, b"abcd")), "image mode", at(5), "$.k"),
    ("no height", message(b"\6" + text(b"L") + u32(1)), "4 bytes needed, 0 left", at(10), "$.k"),
    ("image cut", message(image(b"L", 2, 2, 4, b"abc")), "4 bytes needed, 3 left", at(18), "$.k"),
    ("image too small", message(image(b"RGB", 2, 2, 4, b"abcd")), "4 bytes", at(16), "$.k"),
    ("image of bits", message(image(b"1", 9, 2, 3, b"abc")), "3 bytes announced, 4", at(14), "$.k"),
    ("after a message", message(NULL, b"x"), "4 bytes needed, 1 left", at(1), "$"),
]

# What test_properties.py does not draw.
NO_DTYPES = """
    object void void64 <f4,<f4 f4,f4 (2,)f4 (2,2)<f4 2f4 [('a','<f4')] {'names':['a']} f4:name str
    bytes str96 bytes8 boolean bool_ int-8 int4294967304 long double half intp int_ intc longdouble
    bfloat16 f-4 !f4 @f4 S-1 S+1 U1000000000 S1000000000 U18446744073709551617 S4294967297 a10 p P g
    d e l L q Q h H B M8[xs] M8[nss] M8[ns M8ns] M8[|] M8[|s] M8[s|] M8[0s] M8[01s] M8[-1s]
    M8[12345678901s] M8[s/10] M8[s][s] M8[s]x M8[NS] datetime64[ datetime64[] datetime64[us][us]
    datetime64ns timedelta64[B] datetime64[generic] FLOAT32 float32x xfloat32 float_32 numpy.float32
    torch.float32 StringDType() object_ f+4 <float32 =bool timedelta64[s/2] U1073741824
    {'names':['a'],'formats':['O']} [('a','O')]
"""
BAD_DTYPES = [
    *NO_DTYPES.split(),
    *["", " ", "i4, i4", "f4 ", " f4", "f4\n", "float3 ", "é", "f4" * 40, "float32\n", "float96 "],
    *["\uff464", "f\uff14", "\0", "f4\0", "float32\0", "\0float32", "bool\0", "M8[s\0]"],
]


@pytest.mark.each(
    ("data", "words", "offset", "path"), [pytest.param(*case, id=name) for name, *case in BAD]
)
@pytest.mark.each("framed", [False, True])
def test_malformed_messages_fail_at_their_offset_and_path(data, words, offset, path, framed):
    if framed:
        prefix = b"%d:" % len(data)
        data, offset = prefix + data + b",", offset + len(prefix)
    caught = []
    for copy in (True, False, None):
        for images in ("array", "float32"):
            for feed in (bytes, bytearray, memoryview):
                with pytest.raises((DecodeError, LimitExceeded)) as problem:
                    rlx.decode(feed(data), copy=copy, images=images, framed=framed)
                caught.append(problem.value)
    assert len({str(problem) for problem in caught}) == 1
    (first, *_) = caught
    assert isinstance(first, LimitExceeded if "=" in words else DecodeError)
    assert words in str(first)
    assert (first.offset, first.path) == (offset, path)
    assert f"byte {offset}" in str(first)


@pytest.mark.each("name", BAD_DTYPES)
def test_invalid_dtype_error_has_offset_and_path(name):
    for size in (0, 1, 8):
        data = message(array(name.encode(), [size], size * 8, bytes(size * 8)))
        for copy in (True, False, None):
            caught = raised(DecodeError, rlx.decode, data, copy=copy)
            assert (caught.offset, caught.path) == (at(5), "$.k")


def test_long_double_dtype_of_another_platform_is_rejected():
    name = {16: b"float96", 12: b"float128"}.get(np.dtype("g").itemsize, b"float128")
    size = int(name[5:]) // 8
    caught = raised(DecodeError, rlx.decode, message(array(name, [1], size, bytes(size))))
    assert (caught.offset, caught.path) == (at(5), "$.k")


BODY = message(NULL)  # 10 bytes
FRAMES = [
    pytest.param(b"10:" + BODY + b",x", "1 of them", 14, id="a byte after it"),
    pytest.param(b"10:" + BODY + b",10:" + BODY + b",", "14 of them", 14, id="two frames"),
    pytest.param(b"10:" + BODY + b";", "comma: got byte 0x3b", 13, id="semicolon"),
    pytest.param(b"9:" + BODY + b",", "comma: got byte 0x01", 11, id="too short"),
    pytest.param(b"11:" + BODY + b",", "15 bytes needed, 14 left", 0, id="too long"),
    pytest.param(b"10:" + BODY, "14 bytes needed, 13 left", 0, id="no comma"),
    pytest.param(b"", "1 bytes needed, 0 left", 0, id="nothing"),
    pytest.param(b"10", "3 bytes needed, 2 left", 0, id="no colon"),
    pytest.param(b"010:" + BODY + b",", "leading zero: got byte 0x31", 0, id="leading zero"),
    pytest.param(b"+10:" + BODY + b",", "got byte 0x2b", 0, id="plus"),
    pytest.param(b" 10:" + BODY + b",", "got byte 0x20", 0, id="space"),
    pytest.param(b":" + BODY + b",", "got byte 0x3a", 0, id="no digits"),
    pytest.param(b"0:,", "4 bytes needed, 0 left", 2, id="empty"),
]


@pytest.mark.parametrize(("frame", "words", "offset"), FRAMES)
def test_malformed_frames_fail_at_their_offset(frame, words, offset):
    for feed in (bytes, bytearray):
        caught = raised(DecodeError, rlx.decode, feed(frame), framed=True)
        assert words in str(caught)
        assert caught.offset == offset


def nest(levels, kind=b"\x08"):
    opened = {b"\x08": b"\x08" + u32(1), b"\x0b": b"\x0b" + u32(1) + text(b"d")}[kind]
    return message(opened * levels + NULL)


# limits, a message that fits, one that does not, size, offset of the fault, path
OVER = [
    ({"depth": 3}, nest(3), nest(4), 4, at(15), "$.k[0][0][0]"),
    ({"depth": 2}, nest(2, b"\x0b"), nest(3, b"\x0b"), 3, at(20), "$.k.d.d"),
    (
        {"items": 4}, message(b"\x08" + u32(3) + NULL * 3), message(b"\x08" + u32(4) + NULL * 4), 5,
        at(1), "$.k",
    ),
    ({"items": 1}, message(NULL), message(NULL, text(b"b") + NULL), 2, at(1), "$"),
    ({"items": 3}, nest(2), nest(3), 4, at(11), "$.k[0][0]"),
    (
        {"dims": 2}, message(array(b"i1", [1] * 2, 1, b"a")),
        message(array(b"i1", [1] * 3, 1, b"a")), 3, at(7), "$.k",
    ),
    (
        {"string": 4}, message(b"\3" + text("éé".encode())), message(b"\3" + text(b"abcde")), 5,
        at(1), "$.k",
    ),
    ({"string": 1}, message(NULL), VERSION + text(b"kk") + NULL, 2, 4, "$"),
    (
        {"pixels": 6}, message(image(b"L", 2, 3, 6, b"abcdef")),
        message(image(b"1", 7, 1, 1, b"a")), 7, at(6), "$.k",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "fits", "over", "size", "offset", "path"), OVER)
def test_limit_error_has_limit_size_offset_and_path(limit, fits, over, size, offset, path):
    limits = Limits(**limit)
    ((name, maximum),) = limit.items()
    rlx.decode(fits, limits=limits)
    rlx.decode(over)
    for call in (rlx.RLXDecoder(limits=limits).decode, partial(rlx.decode, limits=limits)):
        problem = raised(LimitExceeded, call, over)
        assert (problem.limit, problem.maximum, problem.size) == (name, maximum, size)
        assert (problem.offset, problem.path) == (offset, path)


def test_message_limit_excludes_the_frame():
    limits = Limits(message=10)
    assert rlx.decode(BODY, limits=limits) == {"k": None}
    assert rlx.decode(b"10:" + BODY + b",", framed=True, limits=limits) == {"k": None}
    longer = message(b"\5\1")
    for data, framed in [(longer, False), (b"11:" + longer + b",", True)]:
        caught = raised(LimitExceeded, rlx.decode, data, framed=framed, limits=limits)
        assert (caught.limit, caught.size, caught.offset) == ("message", 11, 0)


LIES = [
    pytest.param(message(b"\x08" + u32(2**32 - 1) + NULL * 1000), id="list"),
    pytest.param(message(b"\x0b" + u32(2**32 - 1) + NULL * 1000), id="dict"),
    pytest.param(message(b"\3" + u32(2**24) + b"x" * 1000), id="string"),
    pytest.param(message(array(b"u1", [2**32 - 1], 2**32 - 1, bytes(1000))), id="array"),
    pytest.param(message(array(b"U99999999", [10], 2**32 - 1, bytes(1000))), id="text array"),
    pytest.param(message(image(b"RGBA", 8000, 8000, 4 * 8000 * 8000, bytes(1000))), id="image"),
    pytest.param(b"999999999:" + message(NULL), id="frame"),
]


@pytest.mark.parametrize("data", LIES)
def test_false_sizes_allocate_no_memory(data):
    for images in ("array", "float32"):
        decoder = rlx.RLXDecoder(images=images, framed=data[:1] == b"9")
        with at_most(100_000), pytest.raises((DecodeError, LimitExceeded)):
            decoder.decode(data)


def test_nested_lists_with_false_sizes_allocate_bounded_memory():
    """Each list says that all bytes left are its items; all together stay under the limit."""
    rest, opened = 200_000, b""
    for level in range(60):
        opened += b"\x08" + u32(rest + 5 * (59 - level))
    with at_most(9 * 2**20):  # eight bytes for each of 2**20 items
        raised((DecodeError, LimitExceeded), rlx.decode, message(opened + NULL * rest))


@pytest.mark.parametrize("item", [NULL, b"\5\1", INT, b"\x08\0\0\0\0", b"\x0b\0\0\0\0"])
def test_message_over_the_items_limit_is_rejected(item):
    most = 2**20 if item == NULL else 2**16  # the default, and one that takes less time
    limits = Limits(items=most)
    data = message(b"\x08" + u32(most - 1) + item * (most - 1))
    with at_most(100 * len(data)):
        assert len(rlx.decode(data, limits=limits)["k"]) == most - 1
    with pytest.raises(LimitExceeded, match=f"items={most}"):
        rlx.decode(message(b"\x08" + u32(most) + item * most), limits=limits)


def test_dtype_text_is_never_evaluated():
    name = b"__import__('os').abort()"
    assert "dtype" in str(raised(DecodeError, rlx.decode, message(array(name, [1], 8, bytes(8)))))
