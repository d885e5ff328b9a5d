"""What a viewer's session tells: its handshake, whole updates, sizes, the pointer's shape.

Source: RFC 6143, section 7.8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.rfb.decoder import Rectangle, RectangleDecoder
from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.framebuffer import Framebuffer
from rlwire.codecs.rfb.messages import Bell, Fence, ScreenLayout
from rlwire.codecs.rfb.pixels import PixelFormat

__all__ = [
    "CursorShape",
    "Event",
    "Opened",
    "Painted",
    "Resized",
]


@dataclass(frozen=True, slots=True)
class Opened:
    """The handshake is over."""

    width: int
    height: int
    name: str


@dataclass(frozen=True, slots=True)
class Painted:
    """An update is whole and in the framebuffer: its rectangles, in the order of painting."""

    rectangles: list[Rectangle]


@dataclass(frozen=True, slots=True)
class Resized:
    """The framebuffer has another size; what fits of the old pixels is still there."""

    width: int
    height: int
    screens: tuple[ScreenLayout, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CursorShape:
    """How the pointer looks; only where the encoding Cursor is asked for.

    Attributes:
        x, y: of the point in it that points.
        pixels: red, green, blue, and 255 where it is seen or 0: (height, width, 4), uint8.
    """

    x: int
    y: int
    pixels: NDArray[np.uint8]

    @classmethod
    def read(
        cls, x: int, y: int, width: int, height: int, data: bytes, pixel_format: PixelFormat
    ) -> CursorShape:
        """Return what a rectangle of the encoding Cursor says."""
        framebuffer = Framebuffer(width, height, channels=4)
        colours = width * height * pixel_format.bits_per_pixel // 8
        head = struct.pack(">HHHHi", 0, 0, width, height, Encoding.RAW)
        RectangleDecoder(framebuffer, pixel_format).decode(head + data[:colours])
        seen = np.frombuffer(data, np.uint8, offset=colours).reshape(height, (width + 7) // 8)
        framebuffer.pixels[..., 3] = 255 * np.unpackbits(seen, axis=1)[:, :width]
        return cls(x, y, framebuffer.pixels)


Event: TypeAlias = Opened | Painted | Resized | CursorShape | Bell | Fence
"""What a `ClientSession` returns. A Fence is the answer to one that was sent."""
