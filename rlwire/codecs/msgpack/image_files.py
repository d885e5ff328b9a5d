"""PNG and JPEG through Pillow: what is written, and what is looked at before Pillow reads.

A file's own width, height and depth are compared with the declared ones, and everything in it
that could cost more than its pixels is refused: compressed texts and profiles, palettes,
animations, progressive scans. Not here: the ext type around the file (`images`).

References: PNG is ISO/IEC 15948 (W3C), JPEG is ITU-T T.81.
"""

from __future__ import annotations

import io
import sys
import zlib
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rlwire.errors import DecodeError, EncodeError

__all__ = ["check_jpeg", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png", "geometry"]

Array = NDArray[Any]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNKS = 65_536
"""The most chunks in a PNG file: Pillow goes through them in Python."""
_SEGMENTS = 1024
"""The most segments before a JPEG file's first scan, for the same reason."""

_PIECE = 16_384
"""Bytes of a PNG file's rows that are inflated at once: zlib copies what it did not come to."""
_INFLATED = 65_536
"""Bytes that are had of them at once, and thrown away."""

# PNG, 11.3: those that say something about colours or the sender, uncompressed.
_HARMLESS = {b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"bKGD", b"hIST", b"pHYs", b"tIME", b"tEXt"}
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}

# T.81, table B.1: sequential DCT with Huffman coding, of which cameras write the first.
_FRAMES = {0xC0, 0xC1}
# Tables (DHT, DQT), restart interval (DRI), APPn and comments: no pixels, read or skipped.
_SKIPPED = {0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)}

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def geometry(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Height, width and channels of an image's shape; None if no image has it."""
    if len(shape) == 2:
        height, width, channels = *shape, 1
    elif len(shape) == 3:
        height, width, channels = shape
    else:
        return None
    if channels not in _MODES or not height or not width:
        return None
    return height, width, channels


def _sizes(array: Array, name: str) -> tuple[int, int, int]:
    found = geometry(array.shape)
    if found is None:
        raise EncodeError(
            f"{name} takes arrays of shape (height, width) or (height, width, 1, 3 or 4), "
            f"none of them empty, not {array.shape}"
        )
    return found


def _save(mode: str, width: int, height: int, data: bytes, name: str, **options: Any) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    try:
        Image.frombytes(mode, (width, height), data).save(file, name, **options)
    except (OSError, ValueError) as problem:  # more than 65,500 pixels a side in JPEG
        raise EncodeError(f"Pillow cannot write this {name}: {problem}") from problem
    return file.getvalue()


def encode_png(array: Array, level: int) -> bytes:
    """The PNG file of an array of uint8, or of uint16 with one channel."""
    height, width, channels = _sizes(array, "PNG")
    if array.dtype == np.uint16 and channels == 1:
        data = array.astype("<u2", copy=False).tobytes()
        return _save("I;16", width, height, data, "PNG", compress_level=level)
    if array.dtype != np.uint8:
        raise EncodeError(
            f"PNG takes uint8, and uint16 with one channel, not {array.dtype} of {array.shape}"
        )
    return _save(_MODES[channels], width, height, array.tobytes(), "PNG", compress_level=level)


def encode_jpeg(array: Array, quality: int) -> bytes:
    """The JPEG file of an array of uint8: the numbers that are read back are only near."""
    height, width, channels = _sizes(array, "JPEG")
    if array.dtype != np.uint8:
        raise EncodeError(f"JPEG takes uint8, not {array.dtype}")
    # T.81 knows no alpha. CMYK's four channels are coded each by itself and at full resolution,
    # which suits four stacked frames as well as transparency.
    mode = "CMYK" if channels == 4 else _MODES[channels]
    return _save(mode, width, height, array.tobytes(), "JPEG", quality=quality)


def _bad(reason: str, offset: int) -> NoReturn:
    raise DecodeError(reason, offset=offset)


def _agree(name: str, what: str, found: int, declared: int, offset: int) -> None:
    if found != declared:
        _bad(f"the {name} file's {what} is {found}, the array's {declared}", offset)


def _check_png(data: bytes, sizes: tuple[int, int, int], depth: int, base: int) -> None:
    if data[:8] != _SIGNATURE:
        _bad("no PNG file: its signature is missing", base)
    if len(data) < 33 or data[8:16] != b"\0\0\0\rIHDR":
        _bad("no PNG file: it does not begin with an IHDR chunk", base + 8)
    height, width, channels = sizes
    _agree("PNG", "width", int.from_bytes(data[16:20], "big"), width, base + 16)
    _agree("PNG", "height", int.from_bytes(data[20:24], "big"), height, base + 20)
    _agree("PNG", "bit depth", data[24], depth, base + 24)
    _agree("PNG", "colour type", data[25], _COLOUR_TYPES[channels], base + 25)
    if data[28]:
        _bad("a PNG file here is not interlaced", base + 28)
    spot, chunks = 33, 0
    while len(data) - spot >= 12:
        kind = data[spot + 4 : spot + 8]
        if kind != b"IDAT" and kind != b"IEND" and kind not in _HARMLESS:
            _bad(f"a PNG file here may have no chunk {kind!r}", base + spot + 4)
        spot += 12 + int.from_bytes(data[spot : spot + 4], "big")
        chunks += 1
        if chunks > _CHUNKS:
            _bad(f"a PNG file here may have no more than {_CHUNKS} chunks", base + spot)
        if kind == b"IEND":
            break
    else:
        _bad("the PNG file ends before its IEND chunk", base + min(spot, len(data)))
    if spot != len(data):
        _bad("the PNG file does not end with its IEND chunk", base + min(spot, len(data)))


def _check_rows(data: bytes, size: int, base: int) -> None:
    """Refuse a checked PNG file that has fewer rows than it says: Pillow leaves them black."""
    inflater, found, spot = zlib.decompressobj(), 0, 33
    while spot < len(data):
        end = spot + 8 + int.from_bytes(data[spot : spot + 4], "big")
        if data[spot + 4 : spot + 8] == b"IDAT":
            for first in range(spot + 8, end, _PIECE):
                rest = data[first : min(first + _PIECE, end)]
                while rest and not inflater.eof and found < size:
                    try:
                        found += len(inflater.decompress(rest, _INFLATED))
                    except zlib.error as problem:
                        _bad(f"the PNG file's rows are broken: {problem}", base + spot)
                    rest = inflater.unconsumed_tail
        spot = end + 4
    if found < size:
        _bad(f"the PNG file has {found} bytes of rows, it takes {size}", base)


def check_jpeg(data: bytes, sizes: tuple[int, int, int], base: int) -> None:
    """Refuse a JPEG file of other sizes (height, width, channels), or that costs more.

    Raises:
        DecodeError: with an offset counted from `base`.
    """
    if data[:2] != b"\xff\xd8":
        _bad("no JPEG file: it does not begin with SOI", base)
    height, width, channels = sizes
    spot, framed = 2, False
    for _ in range(_SEGMENTS):
        if len(data) - spot < 4:
            _bad("the JPEG file ends before its first scan", base + len(data))
        if data[spot] != 0xFF:
            _bad(f"the JPEG file has byte 0x{data[spot]:02x} where a marker is due", base + spot)
        marker = data[spot + 1]
        if marker == 0xFF:  # B.1.1.2: fill bytes
            spot += 1
            continue
        if marker == 0xDA:
            break
        size = int.from_bytes(data[spot + 2 : spot + 4], "big")
        if marker in _FRAMES:
            if framed or size < 8 or len(data) - spot < 10:
                _bad("the JPEG file's frame header is broken, or not the only one", base + spot)
            framed = True
            _agree("JPEG", "bit depth", data[spot + 4], 8, base + spot + 4)
            found = int.from_bytes(data[spot + 5 : spot + 7], "big")
            _agree("JPEG", "height", found, height, base + spot + 5)
            found = int.from_bytes(data[spot + 7 : spot + 9], "big")
            _agree("JPEG", "width", found, width, base + spot + 7)
            _agree("JPEG", "number of channels", data[spot + 9], channels, base + spot + 9)
        elif marker not in _SKIPPED or size < 2:
            # Progressive ones above all: each scan of a few bytes goes over the whole image.
            _bad(
                f"a JPEG file here is sequential and Huffman-coded; marker 0x{marker:02x}",
                base + spot,
            )
        spot += 2 + size
    else:
        _bad(f"the JPEG file has over {_SEGMENTS} segments before its first scan", base + spot)
    if not framed:
        _bad("the JPEG file has a scan before its frame header", base + spot)
    # In a scan 0xFF is followed by 0 or a restart marker, so this counts no scan too few.
    rest = np.frombuffer(data, np.uint8, offset=spot)  # `bytes.count` takes longer
    if np.count_nonzero((rest[:-1] == 0xFF) & (rest[1:] == 0xDA)) > channels:
        _bad("the JPEG file has more scans than channels", base + spot)


def _load(data: bytes, name: str, size: tuple[int, int], modes: set[str], base: int) -> Array:
    # Not Image.open: that would try other formats, and warn by the process's own pixel limit.
    from PIL import JpegImagePlugin, PngImagePlugin

    kind = PngImagePlugin.PngImageFile if name == "PNG" else JpegImagePlugin.JpegImageFile
    try:
        with kind(io.BytesIO(data)) as image:
            if image.size != size or image.mode not in modes:
                raise ValueError(f"Pillow found {image.mode} of {image.size}")
            image.load()
            pixels = np.frombuffer(image.tobytes(), _PIXELS[image.mode])
    except MemoryError:
        raise
    except Exception as problem:  # Pillow has no base class for what broken files make it raise
        raise DecodeError(f"Pillow cannot read the {name} file: {problem}", offset=base) from None
    return pixels


_NATIVE = "<" if sys.byteorder == "little" else ">"
_PIXELS = {
    **dict.fromkeys(("L", "RGB", "RGBA", "CMYK"), "u1"),
    "I;16": "<u2",
    "I": f"{_NATIVE}i4",
}


def decode_png(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any], base: int = 0) -> Array:
    """The pixels of a PNG file, in an array that may be read-only.

    Args:
        data: the file.
        shape: as declared; `geometry` has found it to be an image's.
        dtype: uint8, or uint16 for one channel.
        base: where the file begins, for the offsets of errors.

    Raises:
        DecodeError: the file is broken, or is not of this shape and dtype.
    """
    sizes = geometry(shape)
    wide = dtype == np.uint16
    if sizes is None or (dtype != np.uint8 and not (wide and sizes[2] == 1)):
        _bad(f"there is no PNG of {dtype} {shape}", base)
    _check_png(data, sizes, 16 if wide else 8, base)
    # Pillow before version 10 reads 16 bits as 32.
    modes = {"I;16", "I"} if wide else {_MODES[sizes[2]]}
    pixels = _load(data, "PNG", (sizes[1], sizes[0]), modes, base)
    # Pillow begins with zeros and goes downwards: only a last row of zeros leaves a doubt.
    row = pixels.size // sizes[0]
    if not pixels[-row:].any():
        _check_rows(data, sizes[0] * (1 + row * dtype.itemsize), base)
    return pixels.astype(dtype, copy=False).reshape(shape)


def decode_jpeg(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any], base: int = 0) -> Array:
    """The pixels of a JPEG file; as `decode_png`."""
    sizes = geometry(shape)
    if sizes is None or dtype != np.uint8:
        _bad(f"there is no JPEG of {dtype} {shape}", base)
    check_jpeg(data, sizes, base)
    mode = "CMYK" if sizes[2] == 4 else _MODES[sizes[2]]
    return _load(data, "JPEG", (sizes[1], sizes[0]), {mode}, base).reshape(shape)
