"""Msgpack messages for the fuzz driver."""

import math
import random
import struct

Value = object


class Ext:
    """An extension."""

    def __init__(self, code, data):
        self.code = code
        self.data = data


def head(one, most, wide, size):
    """A head of one byte, or of a type byte and one, two or four of size."""
    if one and size <= most:
        return bytes([one | size])
    for kind, form in zip(wide, (">B", ">H", ">I"), strict=True):
        if kind and size < 1 << 8 * struct.calcsize(form):
            return bytes([kind]) + struct.pack(form, size)
    raise ValueError(size)


def pack(value):
    """One value, in the shortest form of the specification."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if -32 <= value < 128:
            return struct.pack("b", value)
        forms = (">BB", ">BH", ">BI", ">BQ") if value >= 0 else (">Bb", ">Bh", ">Bi", ">Bq")
        for i, form in enumerate(forms):
            try:
                return struct.pack(form, (0xCC if value >= 0 else 0xD0) + i, value)
            except struct.error:
                continue
        raise ValueError(value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, str):
        text = value.encode()
        return head(0xA0, 31, (0xD9, 0xDA, 0xDB), len(text)) + text
    if isinstance(value, bytes):
        return head(0, 0, (0xC4, 0xC5, 0xC6), len(value)) + value
    if isinstance(value, Ext):
        fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(value.data))
        wide = (0xC7, 0xC8, 0xC9)
        first = bytes([fixed]) if fixed else head(0, 0, wide, len(value.data))
        return first + struct.pack("b", value.code) + value.data
    if isinstance(value, (list, tuple)):
        return head(0x90, 15, (0, 0xDC, 0xDD), len(value)) + b"".join(map(pack, value))
    assert isinstance(value, dict)
    entries = b"".join(pack(key) + pack(item) for key, item in value.items())
    return head(0x80, 15, (0, 0xDE, 0xDF), len(value)) + entries


def nd(dtype, shape, data, kind=b""):
    """An array as msgpack-numpy writes it."""
    return {b"nd": True, b"type": dtype, b"kind": kind, b"shape": shape, b"data": data}


def ndarray(dtype, shape, data):
    """An array as openpi-client writes it."""
    return {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape}


def values():
    """Values of every type and size class, and arrays in both dialects."""
    chance = random.Random(7)
    for bits in (0, 5, 7, 8, 15, 16, 31, 32, 63, 64):
        for near in (-1, 0, 1):
            for value in (2**bits + near, -(2**bits) + near):
                if -(2**63) <= value < 2**64:
                    yield value
    yield from (None, True, False, 0.0, -1.5, float("inf"), float("nan"))
    for size in (0, 1, 2, 4, 8, 16, 31, 32, 255, 256, 300):
        yield "Grüße, 世界"[:size] if size < 16 else "x" * size
        yield chance.randbytes(size)
        yield Ext(chance.randrange(-128, 128), chance.randbytes(size))
    for size in (4, 8, 12):
        yield Ext(-1, bytes(size))
    yield Ext(-1, struct.pack(">Q", 999999999 << 34 | 5))
    yield [[[[[], {}]]], {"a": {"b": {b"c": [1, "two", 3.0]}}}]
    yield list(range(20))
    yield {str(i): i for i in range(20)}
    floats = struct.pack("<6f", *range(6))
    for make in (nd, ndarray):
        yield make("<f4", [2, 3], floats)
        yield {"observation": {"image": make("|u1", [3, 4], bytes(12)), "n": 5}, "done": False}
        yield make(">i2", [], b"\x00\x01")
        yield make("<f8", [0, 7], b"")
        yield [make("<U2", [1], b"a\0\0\0b\0\0\0"), make("<M8[ns]", [1], bytes(8))]
        yield make("bfloat16", [2], bytes(4))
        yield {str(key, "ascii"): item for key, item in make("<f4", [6], floats).items()}
        yield dict(reversed(list(make("<f4", [6], floats).items())))
        for large in ([0, 2**62], [2**61, 0, 2], [2**31, 0, 2**31], [2**40, 2**20, 0]):
            yield make("|b1", large, b"")
            yield [{"x": make("|i1", large, b"")}]
        for dtype, size in (("<f2", 2), ("<i4", 4), (">u8", 8), ("<c16", 16), ("|i1", 1)):
            for shape in ([3], [2, 2], [1, 3, 1, 2]):
                yield make(dtype, shape, bytes(size * math.prod(shape)))
    yield nd([["a", "<i4"], ["b", "<f8", [2]]], [1], bytes(20), b"V")
    yield nd([["", "|O"]], [1], b"\x80\x02K\x01.", b"O")
    yield {b"nd": False, b"type": "<f4", b"data": floats[:4]}
    yield {b"__npgeneric__": True, b"data": 1.5, b"dtype": "<f4"}
    yield {b"complex": True, b"data": "(1+2j)"}


def messages():
    return map(pack, values())
