"""Binary messages: a rewarder's JSON, and large arrays beside it as they are in memory.

====================  ==========================================================================
bytes                 content
====================  ==========================================================================
1, 1, 2               0xFF, which begins no JSON; the version 1; bytes of the list, little-endian
4                     bytes of the JSON, little-endian
then                  the JSON of the message, with false for each array
then                  the list: ``[[path, dtype, *shape], ...]`` with a path such as ``["image"]``
then                  each array, little-endian and in C order, at a multiple of 64 bytes
====================  ==========================================================================
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlwire.codecs._json import Buffer
from rlwire.codecs._json import decode as read
from rlwire.codecs.rewarder.infos import DTYPES
from rlwire.errors import DecodeError, LimitExceeded, quoted
from rlwire.limits import Limits

MAGIC: Final = b"\xff"
LEAST: Final = 512  # bytes of an array that is worth a binary message
_HEAD: Final = struct.Struct("<BBHI")
_ALIGNED: Final = 64
_LONGEST: Final = 0xFFFF  # bytes of the list

Path = tuple[str | int, ...]
Arrays = list[tuple[Path, NDArray[Any]]]


def split(value: Any, copy: bool = True) -> tuple[Any, Arrays]:
    """Return a value with False for each large array, and these arrays with their paths.

    Arrays are copied, because an environment may write to its own again; without `copy`, only
    those that are not little-endian and in C order.
    """
    arrays: Arrays = []
    return _split(value, (), arrays, copy), arrays


def _split(value: Any, path: Path, arrays: Arrays, copy: bool) -> Any:
    if type(value) is np.ndarray:
        dtype = value.dtype
        if value.nbytes < LEAST or dtype.kind not in "biuf" or dtype.itemsize > 8:
            return value.copy() if copy else value
        make = np.array if copy else np.asarray
        arrays.append((path, make(value, dtype.newbyteorder("<"), order="C")))
        return False
    if type(value) is dict and all(type(name) is str for name in value):
        return {name: _split(each, (*path, name), arrays, copy) for name, each in value.items()}
    if type(value) is list:
        return [_split(each, (*path, index), arrays, copy) for index, each in enumerate(value)]
    return value


@functools.lru_cache(8)
def _listed(marks: tuple[tuple[Path, np.dtype[Any], tuple[int, ...]], ...]) -> bytes:
    return msgspec.json.encode([(path, dtype.name, *shape) for path, dtype, shape in marks])


def parts(size: int, arrays: Arrays) -> tuple[bytes, list[Buffer]] | None:
    """Return what is before a JSON of `size` bytes, and after it; None for too many arrays."""
    listed = _listed(tuple([(path, array.dtype, array.shape) for path, array in arrays]))
    if len(listed) > _LONGEST:
        return None
    end = _HEAD.size + size + len(listed)
    after: list[Buffer] = [listed]
    for _, array in arrays:
        after += bytes(-end % _ALIGNED), array.reshape(-1).view(np.uint8).data
        end += len(after[-2]) + array.nbytes
    return _HEAD.pack(MAGIC[0], 1, len(listed), size), after


def join(data: Buffer, limits: Limits) -> tuple[bytes, Arrays]:
    """Return the JSON of a binary message, and its arrays, which are views if it is writable."""
    view = memoryview(data)
    if view.nbytes > limits.message:
        raise LimitExceeded("message", limits.message, view.nbytes)
    if view.nbytes < _HEAD.size:
        raise DecodeError("a binary message is truncated", offset=view.nbytes)
    _, version, listed, size = _HEAD.unpack_from(view)
    end = _HEAD.size + size + listed
    if version != 1 or end > view.nbytes:
        raise DecodeError("invalid head of a binary message", offset=1)
    text = bytes(view[_HEAD.size : end - listed])
    arrays: Arrays = []
    for mark in _marks(bytes(view[end - listed : end]), limits):
        path, dtype, shape = mark
        end += -end % _ALIGNED
        count = math.prod(shape)
        if count * dtype.itemsize > view.nbytes - end:
            raise DecodeError(f"an array {dtype} of shape {shape} is truncated", offset=end)
        array = np.frombuffer(view, dtype, count, end) if count else np.empty(0, dtype)
        arrays.append((path, (array.copy() if view.readonly else array).reshape(shape)))
        end += count * dtype.itemsize
    if end != view.nbytes:
        raise DecodeError(f"{view.nbytes - end} bytes after the last array", offset=end)
    return text, arrays


@functools.lru_cache(8)
def _marks(text: bytes, limits: Limits) -> list[tuple[Path, np.dtype[Any], list[int]]]:
    marks = []
    for mark in read(text, limits) if text.startswith(b"[") else [None]:
        path, name, *shape = mark if isinstance(mark, list) and len(mark) >= 2 else ((), None)
        if not (
            isinstance(path, list)
            and all(type(step) in (str, int) for step in path)
            and isinstance(name, str)
            and name in DTYPES
            and all(type(size) is int and size >= 0 for size in shape)
            and math.prod(max(size, 1) for size in shape) < 2**59  # as NumPy demands of any shape
        ):
            raise DecodeError(f"expected [path, dtype, *shape], not {quoted(mark)}")
        if len(shape) > limits.dims:
            raise LimitExceeded("dims", limits.dims, len(shape))
        marks.append((tuple(path), np.dtype(name).newbyteorder("<"), shape))
    return marks


def put(value: Any, arrays: Arrays) -> Any:
    """Return a value with the arrays at their paths, where it has False."""
    for path, array in arrays:
        if not path and value is False:
            value = array
            continue
        place = value
        try:
            for step in path[:-1]:
                place = place[step] if type(place) in (dict, list) else None
            if type(place) not in (dict, list) or place[path[-1]] is not False:
                raise KeyError
            place[path[-1]] = array
        except (LookupError, TypeError):
            raise DecodeError(f"no false at the path of an array: {quoted([*path])}") from None
    return value
