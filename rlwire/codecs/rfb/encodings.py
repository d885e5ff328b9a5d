"""Numbers of RFB's encodings: what a client lists in SetEncodings and a rectangle's head names.

Source: RFC 6143, sections 7.7 and 7.8; the others are the community's (rfbproto.rst).
"""

from __future__ import annotations

from enum import IntEnum


class Encoding(IntEnum):
    """What a rectangle has: pixels, or from -1 down something else (a pseudo-encoding)."""

    RAW = 0
    COPY_RECT = 1
    RRE = 2
    HEXTILE = 5
    TIGHT = 7
    ZRLE = 16

    QUALITY_0 = -32  # and up to -23 for quality 9
    DESKTOP_SIZE = -223
    LAST_RECT = -224
    CURSOR = -239
    COMPRESS_0 = -256  # and up to -247 for level 9
    EXTENDED_DESKTOP_SIZE = -308
    FENCE = -312
    CONTINUOUS_UPDATES = -313


def quality_level(level: int) -> int:
    """Return what asks for JPEG of this quality, 0 to 9."""
    return Encoding.QUALITY_0 + _checked("quality", level)


def compress_level(level: int) -> int:
    """Return what asks for this much work on compression, 0 to 9."""
    return Encoding.COMPRESS_0 + _checked("compression", level)


def _checked(name: str, level: int) -> int:
    if not 0 <= level <= 9:
        raise ValueError(f"{name} must be 0 to 9, not {level!r}")
    return level
