"""A slow viewer of RFB, written from RFC 6143 and rfbproto.rst: what a server's bytes show.

It reads from a function that returns so many bytes, one rectangle after another, and checks as it
goes. Nothing of rlwire is used.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

RAW, COPY_RECT, HEXTILE, TIGHT, ZRLE = 0, 1, 5, 7, 16
CURSOR, DESKTOP_SIZE, EXTENDED_DESKTOP_SIZE = -239, -223, -308

Read = Callable[[int], bytes]


@dataclass(frozen=True)
class Pixels:
    """How pixels are written."""

    bits: int = 32
    depth: int = 24
    big: bool = False
    most: tuple[int, int, int] = (255, 255, 255)
    shift: tuple[int, int, int] = (16, 8, 0)

    @property
    def size(self) -> int:
        return self.bits // 8

    def colour(self, data: bytes) -> tuple[int, ...]:
        """Return red, green and blue, 0 to 255, of one PIXEL."""
        value = int.from_bytes(data, "big" if self.big else "little")
        found = [(value >> s & m, m) for s, m in zip(self.shift, self.most, strict=False)]
        return tuple((2 * part * 255 + most) // (2 * most) for part, most in found)

    def shown(self, frame: Any) -> Any:
        """Return what a frame looks like after its colours were written so."""
        most = np.array(self.most, np.int64)
        parts = (2 * frame.astype(np.int64) * most + 255) // 510
        return ((2 * parts * 255 + most) // (2 * most)).astype(np.uint8)

    def compact(self) -> tuple[int, int]:
        """Return the size of a CPIXEL, and where in a PIXEL its bytes begin."""
        used = sum(m << s for m, s in zip(self.most, self.shift, strict=False))
        if self.bits == 32 and self.depth <= 24:
            if used < 1 << 24:
                return 3, int(self.big)
            if not used & 0xFF:
                return 3, int(not self.big)
        return self.size, 0

    def of_compact(self, data: bytes) -> tuple[int, ...]:
        size, skip = self.compact()
        rest = self.size - size - skip
        return self.colour(bytes(skip) + data + bytes(rest))

    @property
    def tight(self) -> bool:
        """Whether a TPIXEL is the bytes R, G, B."""
        return self.bits == 32 and self.depth == 24 and self.most == (255, 255, 255)


@dataclass
class Viewer:
    """What a viewer has: a framebuffer, and the zlib streams of its connection."""

    width: int
    height: int
    pixels: Pixels = field(default_factory=Pixels)

    def __post_init__(self) -> None:
        self.frame = np.zeros((self.height, self.width, 3), np.uint8)
        self.zrle = zlib.decompressobj()
        self.tight = [zlib.decompressobj() for _ in range(4)]
        self.kinds: list[int] = []
        self.cursor: tuple[int, int, bytes, bytes] | None = None
        self.layout: tuple[int, int] | None = None
        self.lossy = False

    def rectangles(self, data: bytes, count: int) -> None:
        """Read so many rectangles, which is all that there is."""
        file = io.BytesIO(data)

        def read(size: int) -> bytes:
            part = file.read(size)
            assert len(part) == size, "it ends inside a rectangle"
            return part

        for _ in range(count):
            self.rectangle(read)
        assert not file.read(1), "bytes after the last rectangle"

    def rectangle(self, read: Read) -> None:
        x, y, width, height, kind = struct.unpack(">HHHHi", read(12))
        self.kinds.append(kind)
        if kind == DESKTOP_SIZE:
            self.resize(width, height)
            return
        if kind == EXTENDED_DESKTOP_SIZE:
            self.layout = (x, y)
            screens = read(4)[0]
            assert screens == 1
            assert struct.unpack(">IHHHHI", read(16)) == (1, 0, 0, width, height, 0)
            if y == 0:
                self.resize(width, height)
            return
        if kind == CURSOR:
            colours = read(width * height * self.pixels.size)
            self.cursor = (width, height, colours, read((width + 7) // 8 * height))
            return
        assert x + width <= self.width
        assert y + height <= self.height
        assert width
        assert height
        if kind == COPY_RECT:
            from_x, from_y = struct.unpack(">HH", read(4))
            assert from_x + width <= self.width
            assert from_y + height <= self.height
            part = self.frame[from_y : from_y + height, from_x : from_x + width].copy()
            self.frame[y : y + height, x : x + width] = part
            return
        decode = {RAW: self._raw, HEXTILE: self._hextile, ZRLE: self._zrle, TIGHT: self._tight}
        self.frame[y : y + height, x : x + width] = decode[kind](read, width, height)

    def resize(self, width: int, height: int) -> None:
        old = self.frame[:height, :width]
        self.width, self.height = width, height
        self.frame = np.zeros((height, width, 3), np.uint8)
        self.frame[: old.shape[0], : old.shape[1]] = old

    def _colours(self, data: bytes, size: int, colour: Callable[[bytes], Any]) -> Any:
        assert len(data) % size == 0
        known: dict[bytes, Any] = {}
        parts = [data[i : i + size] for i in range(0, len(data), size)]
        for part in parts:
            if part not in known:
                known[part] = colour(part)
        return np.array([known[part] for part in parts], np.uint8).reshape(-1, 3)

    def _pixels(self, data: bytes) -> Any:
        form = self.pixels
        values = np.frombuffer(data, f"{'>' if form.big else '<'}u{form.size}").astype(np.int64)
        parts = [(values >> s & m, m) for s, m in zip(form.shift, form.most, strict=True)]
        shown = [(2 * part * 255 + most) // (2 * most) for part, most in parts]
        return np.stack(shown, axis=1).astype(np.uint8)

    def _raw(self, read: Read, width: int, height: int) -> Any:
        data = read(width * height * self.pixels.size)
        return self._pixels(data).reshape(height, width, 3)

    def _hextile(self, read: Read, width: int, height: int) -> Any:
        area = np.zeros((height, width, 3), np.uint8)
        back = fore = None
        for y in range(0, height, 16):
            for x in range(0, width, 16):
                tile = area[y : y + 16, x : x + 16]
                flags = read(1)[0]
                assert flags < 32
                if flags & 1:
                    assert flags == 1
                    tile[:] = self._raw(read, tile.shape[1], tile.shape[0])
                    back = fore = None
                    continue
                if flags & 2:
                    back = self._pixels(read(self.pixels.size))[0]
                assert back is not None, "a tile without a background"
                tile[:] = back
                if flags & 4:
                    assert not flags & 16
                    fore = self._pixels(read(self.pixels.size))[0]
                if flags & 8:
                    for _ in range(read(1)[0]):
                        if flags & 16:
                            colour = self._pixels(read(self.pixels.size))[0]
                        else:
                            assert fore is not None
                            colour = fore
                        place, size = read(2)
                        left, top = place >> 4, place & 15
                        right, bottom = left + (size >> 4) + 1, top + (size & 15) + 1
                        assert right <= tile.shape[1]
                        assert bottom <= tile.shape[0]
                        tile[top:bottom, left:right] = colour
                if flags & 16:
                    fore = None
        return area

    def _zrle(self, read: Read, width: int, height: int) -> Any:
        (length,) = struct.unpack(">I", read(4))
        file = io.BytesIO(self.zrle.decompress(read(length)))
        area = np.zeros((height, width, 3), np.uint8)
        for y in range(0, height, 64):
            for x in range(0, width, 64):
                tile = area[y : y + 64, x : x + 64]
                tile[:] = self._zrle_tile(file, tile.shape[1], tile.shape[0])
        assert not file.read(1), "pixels after the last tile"
        return area

    def _zrle_tile(self, file: io.BytesIO, width: int, height: int) -> Any:
        size, _ = self.pixels.compact()

        def colours(count: int) -> Any:
            return self._colours(file.read(count * size), size, self.pixels.of_compact)

        def length() -> int:
            total = 1
            while (byte := file.read(1)[0]) == 255:
                total += 255
            return total + byte

        kind = file.read(1)[0]
        if kind == 0:
            return colours(width * height).reshape(height, width, 3)
        if kind == 1:
            return np.broadcast_to(colours(1)[0], (height, width, 3))
        if kind <= 16:
            palette = colours(kind)
            bits = 1 if kind == 2 else 2 if kind <= 4 else 4
            rows = np.frombuffer(file.read((width * bits + 7) // 8 * height), np.uint8)
            flat = np.unpackbits(rows.reshape(height, -1), axis=1)[:, : width * bits]
            indices = np.zeros((height, width), int)
            for bit in range(bits):
                indices = indices * 2 + flat[:, bit::bits]
            return palette[indices]
        found: list[Any] = []
        if kind == 128:
            while len(found) < width * height:
                colour = colours(1)[0]
                found += [colour] * length()
        else:
            assert kind >= 130
            palette = colours(kind - 128)
            while len(found) < width * height:
                index = file.read(1)[0]
                found += [palette[index & 127]] * (length() if index & 128 else 1)
        assert len(found) == width * height, "a run past the end of its tile"
        return np.array(found, np.uint8).reshape(height, width, 3)

    def _tight(self, read: Read, width: int, height: int) -> Any:
        assert width <= 2048
        control = read(1)[0]
        for i in range(4):
            if control >> i & 1:
                self.tight[i] = zlib.decompressobj()
        kind = control >> 4
        size = 3 if self.pixels.tight else self.pixels.size

        def colours(data: bytes) -> Any:
            return self._colours(data, size, tuple if size == 3 else self.pixels.colour)

        if kind == 8:
            return np.broadcast_to(colours(read(size))[0], (height, width, 3))
        if kind == 9:
            assert self.pixels.tight
            self.lossy = True
            return np.asarray(Image.open(io.BytesIO(read(self._length(read)))).convert("RGB"))
        assert kind < 8
        stream = self.tight[kind & 3]
        if kind & 4 and (which := read(1)[0]):
            assert which == 1
            count = read(1)[0] + 1
            palette = colours(read(count * size))
            if count == 2:
                data = self._data(read, stream, (width + 7) // 8 * height)
                rows = np.frombuffer(data, np.uint8).reshape(height, -1)
                return palette[np.unpackbits(rows, axis=1)[:, :width]]
            data = self._data(read, stream, width * height)
            return palette[np.frombuffer(data, np.uint8).reshape(height, width)]
        return colours(self._data(read, stream, width * height * size)).reshape(height, width, 3)

    def _length(self, read: Read) -> int:
        total = 0
        for place in range(3):
            byte = read(1)[0]
            total |= (byte if place == 2 else byte & 127) << 7 * place
            if not byte & 128:
                break
        return total

    def _data(self, read: Read, stream: Any, size: int) -> bytes:
        if size < 12:
            return read(size)
        data = stream.decompress(read(self._length(read)))
        assert len(data) == size
        return bytes(data)
