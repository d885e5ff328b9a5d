"""`pack_array` and `unpack_array`: arrays to the maps that openpi-client makes of them, and back.

They are for whoever hands them to a msgpack package as its hooks; `packb` and `unpackb` do without
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlwire.errors import DecodeError, EncodeError

__all__ = ["pack_array", "unpack_array"]


def pack_array(obj: Any) -> Any:
    """Return the map for an array or a NumPy scalar, anything else as it is.

    Raises:
        EncodeError: a dtype that openpi-client does not send: complex, structured, objects.
    """
    if not isinstance(obj, (np.ndarray, np.generic)):
        return obj
    dtype = obj.dtype
    if dtype.kind in "VOc":
        raise EncodeError(f"openpi-client has no arrays of dtype {dtype}")
    if isinstance(obj, np.generic):
        return {b"__npgeneric__": True, b"data": obj.item(), b"dtype": dtype.str}
    return {
        b"__ndarray__": True,
        b"data": obj.tobytes(),
        b"dtype": dtype.str,
        b"shape": obj.shape,
    }


def unpack_array(obj: Any) -> Any:
    """Return the array or NumPy scalar that a map stands for, else the map.

    Arrays are views of the map's bytes, and read-only as these are.

    Raises:
        DecodeError: the map does not say what it must.
    """
    try:
        if b"__ndarray__" in obj:
            return np.ndarray(tuple(obj[b"shape"]), _dtype(obj[b"dtype"]), obj[b"data"])
        if b"__npgeneric__" in obj:
            return _dtype(obj[b"dtype"]).type(obj[b"data"])
    except DecodeError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DecodeError(f"a map that is no array after all: {error!r}") from None
    return obj


def _dtype(text: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(text)
    if dtype.kind in "VOc" or dtype.itemsize == 0:
        raise DecodeError(f"openpi-client has no arrays of dtype {dtype}")
    return dtype
