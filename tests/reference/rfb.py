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

RAW, TIGHT = 0, 7
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
        decode = {RAW: self._raw, TIGHT: self._tight}
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
