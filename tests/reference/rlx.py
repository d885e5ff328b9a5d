"""RLX in slow, plain Python: the oracle of the property tests and a rival of the benchmarks.

The same algorithm as RELAAX's own codec (one small `struct` call a field, a table of types that
is searched for each value read), little-endian, strict about what it reads. It is as fast as
RELAAX's for arrays and up to twice as fast for small messages, so as a rival it does not flatter.
Nothing of rlwire is imported here, so that the compiled codec and this file can only agree by
both being right.

Not here: netstrings; limits, so a message is judged by its bytes alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any

import numpy as np
from PIL import Image

VERSION = 1
NONE, NULL, INT4, STRING, DOUBLE, BOOLEAN, IMAGE, NDARRAY, LIST, UINT4, INT64, DICT = range(12)

# RELAAX scales these modes, and only these, to [0, 1].
SCALED_MODES = frozenset(["L", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV"])

# mode -> (dtype, channels; 0 means a two-dimensional array). Mode "1" packs eight pixels a byte.
MODES: dict[str, tuple[str, int]] = {
    "L": ("|u1", 0),
    "P": ("|u1", 0),
    "LA": ("|u1", 2),
    "PA": ("|u1", 2),
    "La": ("|u1", 2),
    "RGB": ("|u1", 3),
    "YCbCr": ("|u1", 3),
    "LAB": ("|u1", 3),
    "HSV": ("|u1", 3),
    "RGBA": ("|u1", 4),
    "RGBa": ("|u1", 4),
    "RGBX": ("|u1", 4),
    "CMYK": ("|u1", 4),
    "I": ("<i4", 0),
    "F": ("<f4", 0),
    "I;16": ("<u2", 0),
    "I;16L": ("<u2", 0),
    "I;16N": ("<u2", 0),
    "I;16B": (">u2", 0),
}

_PLAIN_NAME = re.compile(r"[<>=|]?[A-Za-z][A-Za-z0-9_]*")


class Refused(ValueError):
    """The oracle's only error: a value it cannot write or bytes it cannot read."""


# --- writing -----------------------------------------------------------------------------


def encode(message: dict[str, Any], *, dialect: str = "relaax") -> bytes:
    """The bytes inside the netstring for `message`."""
    out = bytearray(pack("<I", VERSION))
    for key, value in message.items():
        _put_text(out, key)
        _put(out, value, dialect)
    return bytes(out)


def _put(out: bytearray, value: Any, dialect: str) -> None:
    writer = _WRITERS.get(type(value)) or _writer_of_relative(value)
    writer(out, value, dialect)


def _put_type(out: bytearray, number: int) -> None:
    out += pack("<B", number)


def _put_count(out: bytearray, count: int) -> None:
    if count > 0xFFFFFFFF:
        raise Refused(f"{count} does not fit a count of four bytes")
    out += pack("<I", count)


def _put_text(out: bytearray, text: str) -> None:
    if not isinstance(text, str):
        raise Refused(f"a key must be a str, not {type(text).__name__}")
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refused(str(error)) from None
    _put_count(out, len(data))
    out += data


def _put_none(out: bytearray, value: None, dialect: str) -> None:
    _put_type(out, NULL)


def _put_bool(out: bytearray, value: Any, dialect: str) -> None:
    _put_type(out, BOOLEAN)
    out += pack("<B", 1 if value else 0)


def _put_int(out: bytearray, value: Any, dialect: str) -> None:
    if -(2**31) <= value < 2**31:
        _put_type(out, INT4)
        out += pack("<i", value)
    else:
        _put_int64(out, value, dialect)


def _put_int64(out: bytearray, value: Any, dialect: str) -> None:
    if not -(2**63) <= int(value) < 2**63:
        raise Refused(f"{value} does not fit 64 bits")
    _put_type(out, INT64)
    out += pack("<q", int(value))


def _put_uint4(out: bytearray, value: Any, dialect: str) -> None:
    _put_type(out, UINT4)
    out += pack("<I", value)


def _put_float(out: bytearray, value: Any, dialect: str) -> None:
    _put_type(out, DOUBLE)
    out += pack("<d", value)


def _put_str(out: bytearray, value: str, dialect: str) -> None:
    _put_type(out, STRING)
    _put_text(out, value)


def _put_list(out: bytearray, value: Any, dialect: str) -> None:
    _put_type(out, LIST)
    _put_count(out, len(value))
    for item in value:
        _put(out, item, dialect)


def _put_dict(out: bytearray, value: dict[str, Any], dialect: str) -> None:
    _put_type(out, DICT)
    _put_count(out, len(value))
    for key, item in value.items():
        _put_text(out, key)
        _put(out, item, dialect)


def _put_array(out: bytearray, value: np.ndarray[Any, Any], dialect: str) -> None:
    if value.dtype.kind not in "biufc" or value.dtype.fields or value.dtype.subdtype:
        raise Refused(f"an array of dtype {value.dtype} cannot be sent")
    _put_type(out, NDARRAY)
    if dialect == "relaax":
        _put_text(out, str(value.dtype))
    _put_count(out, value.ndim)
    for size in value.shape:
        _put_count(out, size)
    _put_count(out, value.nbytes)
    out += np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def _put_image(out: bytearray, value: Image.Image, dialect: str) -> None:
    _put_type(out, IMAGE)
    _put_text(out, value.mode)
    for size in value.size:
        _put_count(out, size)
    data = value.tobytes()
    _put_count(out, len(data))
    out += data


_Writer = Callable[[bytearray, Any, str], None]

_WRITERS: dict[type, _Writer] = {
    type(None): _put_none,
    bool: _put_bool,
    np.bool_: _put_bool,
    int: _put_int,
    float: _put_float,
    str: _put_str,
    list: _put_list,
    tuple: _put_list,
    dict: _put_dict,
    np.ndarray: _put_array,
}


def _writer_of_relative(value: Any) -> _Writer:
    """The writer for NumPy's scalars, for subclasses, and for whatever NumPy can read."""
    if isinstance(value, np.integer):
        if value.dtype.itemsize == 8:
            return _put_int64
        return _put_uint4 if value.dtype.kind == "u" and value.dtype.itemsize == 4 else _put_int
    if isinstance(value, np.floating):
        return _put_float
    if isinstance(value, Image.Image):
        return _put_image
    if isinstance(value, np.generic) and not isinstance(value, str):
        raise Refused(f"{type(value).__name__} cannot be sent")
    for base in (bool, int, float, str, list, tuple, dict, np.ndarray):
        if isinstance(value, base):
            return _WRITERS[base]
    if hasattr(value, "__array__"):
        return lambda out, value, dialect: _put_array(out, np.asarray(value), dialect)
    try:
        view = memoryview(value)
    except TypeError:
        raise Refused(f"{type(value).__name__} cannot be sent") from None
    return lambda out, value, dialect: _put_array(out, np.asarray(view), dialect)


# --- reading -----------------------------------------------------------------------------


def decode(
    data: bytes, *, dialect: str = "relaax", dtype: Any = None, images: str = "array"
) -> dict[str, Any]:
    """The message whose bytes, without the netstring, are `data`; arrays are read-only copies."""
    try:
        version = _count(data, 0)
        if version != VERSION:
            raise Refused(f"version {version}")
        message: dict[str, Any] = {}
        at, context = 4, (dialect, dtype, images)
        while at < len(data):
            key, at = _text(data, at)
            if key in message:
                raise Refused(f"key {key!r} twice")
            message[key], at = _value(data, at, context)
        return message
    except struct.error:
        raise Refused("the message ends early") from None


_Context = tuple[str, Any, str]


def _value(data: bytes, at: int, context: _Context) -> tuple[Any, int]:
    number = _type(data, at)
    for candidate, reader in _READERS.items():
        if candidate == number:
            return reader(data, at + 1, context)
    raise Refused(f"type byte {number} at byte {at}")


def _type(data: bytes, at: int) -> int:
    return unpack_from("<B", data, at)[0]


def _count(data: bytes, at: int) -> int:
    return unpack_from("<I", data, at)[0]


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size = _count(data, at)
    end = at + 4 + size
    if end > len(data):
        raise Refused(f"{size} bytes promised at byte {at}, {len(data) - at - 4} left")
    return data[at + 4 : end], end


def _text(data: bytes, at: int) -> tuple[str, int]:
    part, end = _bytes(data, at)
    try:
        return str(part, "utf-8"), end
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {at + 4 + error.start}") from None


def _get_none(data: bytes, at: int, context: _Context) -> tuple[None, int]:
    return None, at


def _get_int4(data: bytes, at: int, context: _Context) -> tuple[int, int]:
    return unpack_from("<i", data, at)[0], at + 4


def _get_uint4(data: bytes, at: int, context: _Context) -> tuple[int, int]:
    return unpack_from("<I", data, at)[0], at + 4


def _get_int64(data: bytes, at: int, context: _Context) -> tuple[int, int]:
    return unpack_from("<q", data, at)[0], at + 8


def _get_double(data: bytes, at: int, context: _Context) -> tuple[float, int]:
    return unpack_from("<d", data, at)[0], at + 8


def _get_bool(data: bytes, at: int, context: _Context) -> tuple[bool, int]:
    (value,) = unpack_from("<B", data, at)
    if value > 1:
        raise Refused(f"boolean {value} at byte {at}")
    return value == 1, at + 1


def _get_str(data: bytes, at: int, context: _Context) -> tuple[str, int]:
    return _text(data, at)


def _get_list(data: bytes, at: int, context: _Context) -> tuple[list[Any], int]:
    count = _count(data, at)
    at += 4
    if count > len(data) - at:  # an item has at least its type byte
        raise Refused(f"{count} items promised at byte {at - 4}, {len(data) - at} bytes left")
    items = []
    for _ in range(count):
        item, at = _value(data, at, context)
        items.append(item)
    return items, at


def _get_dict(data: bytes, at: int, context: _Context) -> tuple[dict[str, Any], int]:
    count = _count(data, at)
    at += 4
    if count * 5 > len(data) - at:  # an entry has at least its key's length and a type byte
        raise Refused(f"{count} entries promised at byte {at - 4}, {len(data) - at} bytes left")
    entries: dict[str, Any] = {}
    for _ in range(count):
        key, at = _text(data, at)
        if key in entries:
            raise Refused(f"key {key!r} twice")
        entries[key], at = _value(data, at, context)
    return entries, at


def _get_array(data: bytes, at: int, context: _Context) -> tuple[np.ndarray[Any, Any], int]:
    dialect, given, _images = context
    if dialect == "relaax":
        name, at = _text(data, at)
        if not _PLAIN_NAME.fullmatch(name):
            raise Refused(f"dtype {name!r}")
        try:
            dtype = np.dtype(name)
        except TypeError:
            raise Refused(f"dtype {name!r}") from None
    else:
        dtype = np.dtype(given)
    if dtype.kind not in "biufc" or dtype.fields or dtype.subdtype:
        raise Refused(f"dtype {dtype}")
    count = _count(data, at)
    at += 4
    if count > 32:
        raise Refused(f"{count} dimensions")
    shape = unpack_from(f"<{count}I", data, at)
    part, end = _bytes(data, at + 4 * count)
    wanted = dtype.itemsize
    for size in shape:  # Python's integers do not overflow
        wanted *= size
    if wanted != len(part):
        raise Refused(f"shape {shape} of {dtype} takes {wanted} bytes, not {len(part)}")
    try:
        return np.frombuffer(part, dtype).reshape(shape), end
    except ValueError as error:  # an empty array whose other dimensions overflow an address
        raise Refused(str(error)) from None


def _get_image(data: bytes, at: int, context: _Context) -> tuple[Any, int]:
    _dialect, _dtype, images = context
    mode, at = _text(data, at)
    width, height = unpack_from("<II", data, at)
    part, end = _bytes(data, at + 8)
    if mode == "1":
        channels, dtype, wanted = 0, np.dtype("|b1"), (width + 7) // 8 * height
    elif mode in MODES:
        name, channels = MODES[mode]
        dtype = np.dtype(name)
        wanted = width * height * (channels or 1) * dtype.itemsize
    else:
        raise Refused(f"image mode {mode!r}")
    if wanted != len(part):
        raise Refused(f"a {width}x{height} {mode} image takes {wanted} bytes, not {len(part)}")
    if images == "pil":
        return Image.frombytes(mode, (width, height), part), end
    if mode == "1":
        rows = np.frombuffer(part, np.uint8).reshape(height, (width + 7) // 8)
        array = np.unpackbits(rows, axis=1)[:, :width].astype(bool)
    else:
        shape = (height, width, channels) if channels else (height, width)
        array = np.frombuffer(part, dtype).reshape(shape)
    if images == "float32" and mode in SCALED_MODES:
        array = array.astype(np.float32) * np.float32(1.0 / 255.0)
    return array, end


_READERS: dict[int, Callable[[bytes, int, _Context], tuple[Any, int]]] = {
    NONE: _get_none,
    NULL: _get_none,
    INT4: _get_int4,
    STRING: _get_str,
    DOUBLE: _get_double,
    BOOLEAN: _get_bool,
    IMAGE: _get_image,
    NDARRAY: _get_array,
    LIST: _get_list,
    UINT4: _get_uint4,
    INT64: _get_int64,
    DICT: _get_dict,
}
