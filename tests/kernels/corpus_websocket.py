"""Streams of WebSocket frames for the fuzz driver.

Every stream is of one side: all its frames are masked, or none.
"""

import random
import struct

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(opcode, payload, *, key=None, fin=True):
    """One frame as RFC 6455, section 5.2, draws it."""
    size = len(payload)
    head = bytes([(0x80 if fin else 0) | opcode])
    bit = 0x80 if key is not None else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    if key is None:
        return head + payload
    masked = bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))
    return head + key + masked


def messages():
    """Frames of every kind and size class, of both sides."""
    chance = random.Random(6)
    words = "Grüße, 世界 𝄞 and plain ASCII that is longer than a word of eight bytes".encode()
    for masked in (False, True):

        def make(opcode, payload, fin=True, masked=masked):
            return frame(opcode, payload, key=chance.randbytes(4) if masked else None, fin=fin)

        for size in (0, 1, 7, 8, 9, 63, 125, 126, 127, 300, 1000):
            yield make(BINARY, chance.randbytes(size))
            yield make(TEXT, (words * 20)[:40] * (size // 40))
        yield make(TEXT, b"plain")
        yield make(TEXT, words[:3], fin=False) + make(CONTINUATION, words[3:])
        yield make(PING, b"") + make(PONG, b"echo") + make(CLOSE, struct.pack(">H", 1000) + b"bye")
        yield (
            make(BINARY, b"one", fin=False)
            + make(PING, b"between")
            + make(CONTINUATION, b"", fin=False)
            + make(CONTINUATION, chance.randbytes(200))
        )
        yield b"".join(make(TEXT, b"{}") for _ in range(20))
