"""Compressed bodies: zstd, where both ends are rlwire's and have agreed on it.

A body says its size before it is expanded, and one that claims more than the limits allow is not.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from rlwire.errors import DecodeError, LimitExceeded, optional
from rlwire.limits import Limits

Compression: TypeAlias = Literal["zstd"]

COMPRESSIONS: Final[tuple[Compression, ...]] = ("zstd",)

_MAGIC: Final = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1


def is_compressed(body: memoryview) -> bool:
    """Return whether a body begins as a frame of zstd does."""
    return bytes(body[:4]) == _MAGIC


def compress(data: bytes) -> bytes:
    """Return a compressed body."""
    with optional("zstandard", "compression"):
        import zstandard
    return zstandard.ZstdCompressor(level=1).compress(data)


def expand(data: memoryview, limits: Limits, offset: int = 0) -> bytes:
    """Return the body that was compressed, at most `limits` of it; `offset` is for errors."""
    with optional("zstandard", "compression"):
        import zstandard
    maximum = min(limits.expanded, limits.received)
    try:
        size = zstandard.frame_content_size(data)
        if size <= 0:
            raise DecodeError("a compressed body that does not say its size", offset=offset)
        if size > maximum:
            raise LimitExceeded("expanded", maximum, size, offset=offset)
        plain: bytes = zstandard.ZstdDecompressor(max_window_size=2**27).decompress(
            data, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise DecodeError(f"a body that is no whole zstd: {error}", offset=offset) from None
    if len(plain) != size:
        raise DecodeError(f"a body that is no whole zstd of {size} bytes", offset=offset)
    return plain
