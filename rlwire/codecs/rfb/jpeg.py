"""JPEG files of Tight, checked by ITU-T T.81 before a package decodes them.

The file's size and depth must be the rectangle's, and its scans must not cost more than its pixels.
Progressive files are therefore rejected.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rlwire.errors import DecodeError

simplejpeg: Any = None
with contextlib.suppress(ImportError):
    simplejpeg = importlib.import_module("simplejpeg")

_SEGMENTS = 1024  # most before the first scan
# T.81, table B.1: sequential DCT with Huffman coding.
_FRAMES = {0xC0, 0xC1}
# Tables (DHT, DQT), restart interval (DRI), APPn and comments have no pixels.
_SKIPPED = {0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)}
_CHANNELS = 3


def _bad(reason: str, offset: int) -> NoReturn:
    raise DecodeError(reason, offset=offset)


def check_jpeg(data: bytes, width: int, height: int, base: int) -> None:
    """Reject a JPEG file that is not RGB of this size, or whose scans cost more than its pixels."""
    if data[:2] != b"\xff\xd8":
        _bad("expected a JPEG file, which starts with SOI", base)
    spot, framed = 2, False
    for _ in range(_SEGMENTS):
        if len(data) - spot < 4:
            _bad("the JPEG file ends before its first scan", base + len(data))
        if data[spot] != 0xFF:
            _bad(f"expected a marker in the JPEG file, got byte 0x{data[spot]:02x}", base + spot)
        marker = data[spot + 1]
        if marker == 0xFF:  # B.1.1.2: fill bytes
            spot += 1
            continue
        if marker == 0xDA:
            break
        size = int.from_bytes(data[spot + 2 : spot + 4], "big")
        if marker in _FRAMES:
            if framed or size < 8 or len(data) - spot < 10:
                _bad("the JPEG file has an invalid or a second frame header", base + spot)
            framed = True
            fields = (
                ("bit depth", spot + 4, spot + 5, 8),
                ("height", spot + 5, spot + 7, height),
                ("width", spot + 7, spot + 9, width),
                ("number of channels", spot + 9, spot + 10, _CHANNELS),
            )
            for what, start, end, declared in fields:
                if (found := int.from_bytes(data[start:end], "big")) != declared:
                    _bad(f"the JPEG file's {what} is {found}, expected {declared}", base + start)
        elif marker not in _SKIPPED or size < 2:
            # Each scan of a progressive file covers the whole image, in a few bytes.
            _bad(
                f"the JPEG file must be sequential and Huffman-coded, got marker 0x{marker:02x}",
                base + spot,
            )
        spot += 2 + size
    else:
        _bad(f"the JPEG file has over {_SEGMENTS} segments before its first scan", base + spot)
    if not framed:
        _bad("the JPEG file has a scan before its frame header", base + spot)
    # In a scan 0xFF is followed by 0 or a restart marker, so no scan is missed.
    rest = np.frombuffer(data, np.uint8, offset=spot)  # faster than `bytes.count`
    if np.count_nonzero((rest[:-1] == 0xFF) & (rest[1:] == 0xDA)) > _CHANNELS:
        _bad("the JPEG file has more scans than channels", base + spot)


def _read(data: bytes) -> NDArray[np.uint8]:
    # Not Image.open, which would try other formats and warn about the process's pixel limit.
    from PIL.JpegImagePlugin import JpegImageFile

    with JpegImageFile(io.BytesIO(data)) as image:
        return np.asarray(image)


def decode_jpeg(data: bytes, width: int, height: int, base: int) -> NDArray[np.uint8]:
    """Return the pixels of a JPEG file, contiguous uint8 (height, width, 3)."""
    shape = (height, width, _CHANNELS)
    check_jpeg(data, width, height, base)
    pixels: NDArray[np.uint8]
    try:
        pixels = _read(data) if simplejpeg is None else simplejpeg.decode_jpeg(data, "RGB")
    except MemoryError:
        raise
    except Exception as problem:  # Pillow has no common exception for broken files
        raise DecodeError(f"the JPEG file is broken: {problem}", offset=base) from None
    if pixels.shape != shape:
        raise DecodeError(f"the JPEG file has shape {pixels.shape}, not {shape}", offset=base)
    return pixels
