"""How pixels are written: RFB's pixel formats, true colour only.

Source: RFC 6143, section 7.4.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from rlwire.errors import DecodeError, EncodeError

_format = struct.Struct(">BBBBHHHBBBxxx")


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """A true-colour pixel format; each colour is shifted and masked out of a pixel.

    Raises:
        EncodeError: it makes no sense.
    """

    bits_per_pixel: int
    depth: int
    big_endian: bool
    red_max: int
    green_max: int
    blue_max: int
    red_shift: int
    green_shift: int
    blue_shift: int

    def __post_init__(self) -> None:
        reason = self._wrong()
        if reason:
            raise EncodeError(reason)

    def _wrong(self) -> str:
        bits = self.bits_per_pixel
        if bits not in (8, 16, 32):
            return f"a pixel has 8, 16 or 32 bits, not {bits}"
        if not 1 <= self.depth <= bits:
            return f"a depth of {self.depth} does not fit into {bits} bits"
        used = 0
        for most, shift in (
            (self.red_max, self.red_shift),
            (self.green_max, self.green_shift),
            (self.blue_max, self.blue_shift),
        ):
            if not 1 <= most < 2**16 or most & (most + 1):
                return f"the highest value of a colour is {most}, not one less than a power of two"
            if shift + most.bit_length() > bits:
                return f"a colour up to {most}, shifted by {shift}, does not fit into {bits} bits"
            if used & most << shift:
                return "two colours are in the same bits"
            used |= most << shift
        return ""

    def pack(self) -> bytes:
        """Return its 16 bytes."""
        return _format.pack(
            self.bits_per_pixel, self.depth, bool(self.big_endian), 1,
            self.red_max, self.green_max, self.blue_max,
            self.red_shift, self.green_shift, self.blue_shift,
        )  # fmt: skip

    @classmethod
    def unpack(cls, buffer: bytes | bytearray | memoryview, offset: int = 0) -> PixelFormat:
        """Return what 16 bytes say."""
        if len(buffer) - offset < _format.size:
            raise DecodeError("a pixel format has 16 bytes", offset=offset)
        bits, depth, big, true_colour, *rest = _format.unpack_from(buffer, offset)
        if not true_colour:
            raise DecodeError("colours of a map; rlwire has true colour only", offset=offset + 3)
        try:
            return cls(bits, depth, bool(big), *rest)
        except EncodeError as error:
            raise DecodeError(error.reason, offset=offset) from None


RGB888 = PixelFormat(32, 24, False, 255, 255, 255, 16, 8, 0)
"""32 bits, in memory blue, green, red and nothing; what TigerVNC has."""

RGBX = PixelFormat(32, 24, False, 255, 255, 255, 0, 8, 16)
"""32 bits, in memory red, green, blue and nothing; painted fastest, since a frame has them so."""

RGB565 = PixelFormat(16, 16, False, 31, 63, 31, 11, 5, 0)
"""16 bits."""

BGR233 = PixelFormat(8, 8, False, 7, 7, 3, 0, 3, 6)
"""8 bits, blue the highest."""
