"""RFB's rectangles for the fuzz driver.

They are of the recordings in tests/codecs/rfb, and some made by hand; what is compressed there
stands inflated here.
"""

import lzma
import random
import struct
import zlib
from pathlib import Path

RECORDINGS = Path(__file__).resolve().parents[1] / "codecs" / "rfb" / "recordings"
MOST = 8192
PIXEL, PACKED = 4, 3  # bytes of a PIXEL, and of a CPIXEL or TPIXEL


def compact(size):
    if size < 128:
        return bytes([size])
    if size < 16384:
        return bytes([size & 127 | 128, size >> 7])
    return bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])


class Reader:
    """Takes a recording apart, and inflates what is compressed."""

    def __init__(self, data):
        self.data, self.at = data, 24 + struct.unpack_from(">I", data, 20)[0]
        self.streams = [zlib.decompressobj() for _ in range(5)]

    def take(self, size):
        self.at += size
        return self.data[self.at - size : self.at]

    def rectangles(self):
        while self.at < len(self.data):
            kind, count = struct.unpack(">BxH", self.take(4))
            assert kind == 0
            while count:
                head = self.take(12)
                width, height, encoding = struct.unpack_from(">HHi", head, 4)
                if encoding == -224:
                    break
                yield head + self.body(encoding, width, height)
                count -= 1

    def body(self, encoding, width, height):
        if encoding == 0:
            return self.take(width * height * PIXEL)
        if encoding == 1:
            return self.take(4)
        if encoding == 2:
            count = struct.unpack_from(">I", self.data, self.at)[0]
            return self.take(4 + PIXEL + count * (PIXEL + 8))
        if encoding == 5:
            return b"".join(
                self.tile(min(16, width - x), min(16, height - y))
                for y in range(0, height, 16)
                for x in range(0, width, 16)
            )
        if encoding == 16:
            (size,) = struct.unpack(">I", self.take(4))
            plain = self.streams[4].decompress(self.take(size))
            return struct.pack(">I", len(plain)) + plain
        assert encoding == 7
        return self.tight(width, height)

    def tile(self, width, height):
        mask = self.take(1)
        if mask[0] & 1:
            return mask + self.take(width * height * PIXEL)
        found = mask + self.take(PIXEL * ((mask[0] >> 1 & 1) + (mask[0] >> 2 & 1)))
        if mask[0] & 8:
            count = self.take(1)
            each = 2 + (PIXEL if mask[0] & 16 else 0)
            found += count + self.take(count[0] * each)
        return found

    def length(self):
        size = shift = 0
        for i in range(3):
            byte = self.take(1)[0]
            size |= (byte if i == 2 else byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return size

    def tight(self, width, height):
        control = self.take(1)
        for i in range(4):
            if control[0] >> i & 1:
                self.streams[i] = zlib.decompressobj()
        kind = control[0] >> 4
        if kind == 8:
            return control + self.take(PACKED)
        if kind == 9:
            size = self.length()
            return control + compact(size) + self.take(size)
        found, need = control, width * height * PACKED
        if kind & 4:
            name = self.take(1)
            found += name
            if name == b"\1":
                count = self.take(1)
                found += count + self.take((count[0] + 1) * PACKED)
                need = width * height if count[0] > 1 else (width + 7) // 8 * height
        if need < 12:
            return found + self.take(need)
        plain = self.streams[kind & 3].decompress(self.take(self.length()))
        assert len(plain) == need
        return found + compact(need) + plain


def by_hand():
    """What Xvnc does not send."""
    chance = random.Random(3)
    some = chance.randbytes

    def one(encoding, body, width=8, height=5):
        place = chance.randrange(100), chance.randrange(60)
        return struct.pack(">HHHHi", *place, width, height, encoding) + body

    def zrle(body):
        return one(16, struct.pack(">I", len(body)) + body)

    yield one(7, b"\x8f" + some(3)) + one(1, b"\0\3\0\2") + one(0, some(160))
    yield one(7, b"\x60\2" + compact(120) + some(120))
    yield one(7, b"\x90" + compact(120) + some(120))
    yield one(7, b"\x40\1\0" + some(3) + bytes(5))
    yield one(7, b"\x70\1\2" + some(9) + compact(40) + b"\0\1\2\1" * 10)
    yield zrle(b"\1" + some(3)) + zrle(b"\0" + some(120))
    yield zrle(b"\2" + some(11)) + zrle(b"\4" + some(22))
    yield zrle(b"\x10" + some(68))
    yield zrle(b"\x80" + some(3) + b"\x1f" + some(3) + b"\7")
    yield zrle(b"\x82" + some(6) + b"\0\x80\x1e\1\x81\6")
    yield one(5, b"\1" + some(160)) + one(5, b"\x1a" + some(4) + b"\0")
    yield one(2, b"\0\0\0\1" + some(8) + struct.pack(">HHHH", 1, 2, 3, 3))
    yield struct.pack(">HHHHi", 0, 0, 50, 40, -223)


def messages():
    for path in sorted(RECORDINGS.glob("*.rfb.xz")):
        for rectangle in Reader(lzma.decompress(path.read_bytes())).rectangles():
            if len(rectangle) < MOST and not (rectangle[11] == 7 and rectangle[12] >> 4 == 9):
                yield rectangle
    yield from by_hand()
