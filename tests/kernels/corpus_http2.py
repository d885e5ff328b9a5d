"""Streams of HTTP/2 frames for the fuzz driver."""

import random
import struct

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, UNKNOWN = 6, 7, 8, 9, 200
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 32


def frame(kind, flags, stream, payload=b""):
    """One frame as RFC 9113, section 4.1, draws it."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(data):
    """A gRPC message with its prefix."""
    return struct.pack(">BI", 0, len(data)) + data


def settings(**values):
    """A SETTINGS frame; names are ``s1`` to ``s6``."""
    pairs = b"".join(struct.pack(">HI", int(name[1:]), value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, pairs)


def messages():
    """Frames of every kind, with every flag that changes what they are."""
    chance = random.Random(9)
    yield settings(s1=4096, s2=0, s3=100, s4=2**31 - 1, s5=16_384, s6=8192)
    yield settings(s5=2**24 - 1, s4=0, s9=7) + frame(SETTINGS, ACK, 0)
    yield frame(PING, 0, 0, b"12345678") + frame(PING, ACK, 0, b"12345678")
    yield frame(GOAWAY, 0, 0, struct.pack(">II", 7, 0) + b"bye")
    yield frame(RST_STREAM, 0, 3, struct.pack(">I", 8)) + frame(PRIORITY, 0, 3, bytes(5))
    for more in (1, 65_535, 2**31 - 1):
        yield frame(WINDOW_UPDATE, 0, 3, struct.pack(">I", more))
        yield frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", more)) * 2
    block = bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff")
    yield frame(HEADERS, END_HEADERS, 1, block)
    yield frame(HEADERS, END_STREAM, 1, block[:3]) + frame(CONTINUATION, END_HEADERS, 1, block[3:])
    yield frame(HEADERS, END_HEADERS | PADDED, 1, b"\x04" + block + bytes(4))
    yield frame(HEADERS, END_HEADERS | PRIORITIZED, 1, bytes(5) + block)
    yield frame(
        HEADERS, END_HEADERS | PRIORITIZED | PADDED, 1, b"\x02" + bytes(5) + block + b"\0\0"
    )
    for size in (0, 1, 5, 100, 2000):
        body = message(chance.randbytes(size))
        yield frame(DATA, 0, 1, body)
        yield frame(DATA, PADDED | END_STREAM, 1, b"\x07" + body + bytes(7))
        yield frame(DATA, 0, 1, body[:3]) + frame(DATA, 0, 1, body[3:]) + frame(DATA, END_STREAM, 1)
        yield frame(DATA, 0, 1, body * 2) + frame(UNKNOWN, 255, 9, b"what")
    yield b"".join(frame(DATA, 0, stream, message(b"x")) for stream in range(1, 40, 2))
