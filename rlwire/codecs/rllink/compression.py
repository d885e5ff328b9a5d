"""Compressed bodies: by zstd or LZ4, where both ends are rlwire's and have agreed on it.

Not here: how they agree (`rlwire.sessions.rllink`). A body says its size before it is expanded, and
what claims more than the limits allow never is.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from rlwire.errors import DecodeError, LimitExceeded, optional
from rlwire.limits import Limits

__all__ = ["COMPRESSIONS", "Compression", "compress", "expand", "kind_of"]

Compression: TypeAlias = Literal["zstd", "lz4"]

COMPRESSIONS: Final[tuple[Compression, ...]] = ("zstd", "lz4")
"""What a body may be compressed with, the better one first."""

# The frames' magic numbers (RFC 8878, 3.1.1; LZ4's frame format), in the order of their bytes.
_MAGIC: Final[dict[bytes, Compression]] = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}


def kind_of(body: memoryview) -> Compression | None:
    """Return what a body is compressed with, None if with nothing."""
    return _MAGIC.get(bytes(body[:4]))


def compress(data: bytes, kind: str) -> bytes:
    """Return a compressed body.

    Raises:
        MissingExtra: what does it is not installed.
        ValueError: there is no such kind.
    """
    if kind == "zstd":
        with optional("zstandard", "compression"):
            import zstandard
        return zstandard.ZstdCompressor(level=1).compress(data)
    if kind == "lz4":
        with optional("lz4", "compression"):
            import lz4.frame
        return bytes(lz4.frame.compress(data, store_size=True))
    raise ValueError(f"compression must be one of {COMPRESSIONS} or None, not {kind!r}")


def expand(data: memoryview, kind: str, limits: Limits, offset: int = 0) -> bytes:
    """Return the body that was compressed.

    Args:
        data: all of it.
        kind: as `kind_of` says.
        limits: ``received`` and ``expanded`` bound what is made.
        offset: of the first byte in its frame, for errors.

    Raises:
        DecodeError, LimitExceeded, MissingExtra: it cannot be read, or is too large.
    """
    maximum = min(limits.expanded, limits.received)
    try:
        if kind == "zstd":
            with optional("zstandard", "compression"):
                import zstandard
            size = zstandard.frame_content_size(data)
            _allow(size, maximum, offset)
            plain: bytes = zstandard.ZstdDecompressor(max_window_size=2**27).decompress(
                data, allow_extra_data=False
            )
            whole = True
        else:
            with optional("lz4", "compression"):
                import lz4.frame
            size = lz4.frame.get_frame_info(bytes(data[:32]))["content_size"]
            _allow(size, maximum, offset)
            engine: Any = lz4.frame.LZ4FrameDecompressor()
            plain = engine.decompress(data, max_length=size)
            whole = engine.eof and not engine.unused_data
    except (DecodeError, LimitExceeded, ImportError):
        raise
    except Exception as error:  # zstandard and lz4 have one of their own each, and RuntimeError
        raise DecodeError(f"a body that is no whole {kind}: {error}", offset=offset) from None
    if not whole or len(plain) != size:
        raise DecodeError(f"a body that is no whole {kind} of {size} bytes", offset=offset)
    return plain


def _allow(size: int, maximum: int, offset: int) -> None:
    if size <= 0:
        raise DecodeError("a compressed body that does not say its size", offset=offset)
    if size > maximum:
        raise LimitExceeded("expanded", maximum, size, offset=offset)
