"""Tensor messages for the fuzz driver.

Built by hand from the .proto's field numbers.
"""

import random
import struct

FLOATS, DOUBLES, INT8S, INT32S, INT64S, UINT8S, UINT32S, UINT64S, BOOLS, STRINGS, PROTOS = range(
    1, 12
)
SHAPE = 15


def varint(value):
    """A number as protobuf's varint; a negative one as 64 bits."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, body):
    """A field of bytes."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def shape(*dims):
    """The field `shape`, packed; nothing without dimensions."""
    return field(SHAPE, b"".join(map(varint, dims))) if dims else b""


def varints(number, values, *dims):
    """A Tensor of packed varints."""
    return field(number, field(1, b"".join(map(varint, values)))) + shape(*dims)


def messages():
    """One or more of everything that a Tensor may be."""
    chance = random.Random(5)
    floats = struct.pack("<6f", 0.0, -0.0, 1.5, 3e38, float("inf"), float("nan"))
    yield field(FLOATS, field(1, floats)) + shape(2, 3)
    yield field(FLOATS, field(1, floats)) + shape(-1, 2)
    yield field(FLOATS, field(1, floats[:4]))
    yield field(FLOATS, field(1, floats[:4])) + shape(4, -1, 0)
    yield field(DOUBLES, field(1, struct.pack("<4d", 1.5, -2.5, 1e300, 0.0))) + shape(4)
    yield field(DOUBLES, b"") + shape(0, 3)
    yield field(INT8S, field(1, bytes(range(250, 256)))) + shape(3, 2)
    yield field(UINT8S, field(1, bytes(range(24)))) + shape(2, 3, 4)
    yield varints(INT32S, [0, 1, 127, 128, 16383, 16384, 2**21, 2**28, 2**31 - 1, -1], 10)
    yield varints(INT32S, [-(2**31)] * 4 + [-1] * 4, 8)
    yield varints(INT64S, [0, -1, 2**63 - 1, -(2**63), 2**35, 2**42, 2**49, 2**56], 2, 4)
    yield varints(UINT32S, [0, 2**32 - 1, 2**14, 2**7], 4)
    yield varints(UINT64S, [0, 2**64 - 1, 2**63, 2**56 - 1, 2**56], 5)
    yield varints(BOOLS, [1, 0, 1, 1, 0, 1], 6)
    yield varints(BOOLS, [1])
    yield varints(INT32S, [5], 2, 2)
    for number, values in (
        (INT32S, [chance.randrange(12288) for _ in range(300)]),
        (INT32S, [chance.randrange(128) for _ in range(300)]),
        (INT32S, [chance.randrange(-100, 100) for _ in range(200)]),
        (UINT32S, [chance.getrandbits(chance.randrange(33)) for _ in range(200)]),
        (UINT64S, [chance.getrandbits(chance.randrange(65)) for _ in range(200)]),
        (INT64S, [chance.getrandbits(64) - 2**63 for _ in range(150)]),
        (UINT64S, [300] * 300),
    ):
        yield varints(number, values, len(values))
    words = ["", "a", "wörld", "日本語", "𝄞" * 3]
    yield field(STRINGS, b"".join(field(1, word.encode()) for word in words)) + shape(5)
    yield field(STRINGS, field(1, b"hello"))
    any_ = field(1, b"type.googleapis.com/a.B") + field(2, b"\x08\x05")
    yield field(PROTOS, field(1, any_))
    yield field(PROTOS, field(1, any_) + field(1, b"") + field(1, any_)) + shape(3)
    # As older or other writers do it: unpacked, in pieces, merged, switched, with unknown fields.
    yield field(INT32S, b"".join(b"\x08" + varint(i * 100) for i in range(6))) + shape(2, 3)
    yield field(FLOATS, b"".join(b"\x0d" + floats[i : i + 4] for i in range(0, 24, 4))) + shape(6)
    yield field(DOUBLES, b"\x09" + bytes(8) + field(1, bytes(16)) + b"\x09" + bytes(8)) + shape(4)
    yield (
        field(INT64S, field(1, varint(7)) + b"\x08\x05")
        + shape(3)
        + field(INT64S, field(1, b"\x01"))
    )
    yield field(FLOATS, field(1, floats)) + field(INT8S, field(1, b"\xff")) + shape()
    yield field(UINT8S, field(1, b"abc")) + field(UINT8S, field(1, b"de")) + shape(2)
    yield b"\x78\x02" + field(UINT32S, field(1, b"\x01\x02\x03\x04")) + b"\x78\x02"
    unknown = field(12, b"xyz") + b"\x68\x01" + b"\x75" + bytes(4) + b"\x83\x01\x08\x01\x84\x01"
    yield unknown + field(BOOLS, field(2, b"??") + field(1, b"\x01\x80\x01\x00")) + shape(3)
