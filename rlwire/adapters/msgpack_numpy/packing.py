"""`encode` and `decode`: arrays to the maps that msgpack-numpy makes of them, and back.

They are for whoever hands them to a msgpack package as its hooks; `packb` and `unpackb` do without
them. Nothing is pickled and nothing unpickled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlwire.errors import DecodeError, EncodeError

__all__ = ["decode", "encode"]

Hook = Callable[[Any], Any]


def encode(obj: Any, chain: Hook | None = None) -> Any:
    """Return the map for an array, a NumPy scalar or a complex number, anything else as it is.

    Args:
        obj: what a packer has no type for.
        chain: what the others are given to, if there is one.

    Raises:
        EncodeError: an array of objects.
    """
    if isinstance(obj, np.ndarray):
        dtype = obj.dtype
        if dtype.hasobject:
            raise EncodeError(
                f"an array of dtype {dtype} cannot be sent: msgpack-numpy would pickle it, and "
                f"a pickle can run any code where it is loaded"
            )
        obj = np.asarray(obj)  # of a masked array the data, as with the original
        structured = dtype.kind == "V"
        return {
            b"nd": True,
            b"type": dtype.descr if structured else dtype.str,
            b"kind": b"V" if structured else b"",
            b"shape": obj.shape,
            b"data": obj.data if obj.flags.c_contiguous else obj.tobytes(),
        }
    if isinstance(obj, (np.bool_, np.number)):
        return {b"nd": False, b"type": obj.dtype.str, b"data": obj.data}
    if isinstance(obj, complex):
        return {b"complex": True, b"data": repr(obj)}
    return obj if chain is None else chain(obj)


def decode(obj: Any, chain: Hook | None = None) -> Any:
    """Return the array, NumPy scalar or complex number that a map stands for, else the map.

    Arrays are views of the map's bytes, and read-only as these are.

    Args:
        obj: a map, as an unpacker's object hook gets it.
        chain: what other maps are given to, if there is one.

    Raises:
        DecodeError: an array of objects, which is a pickle; or the map does not say what it must.
    """
    try:
        if b"nd" in obj:
            if obj[b"nd"] is True:
                return _array(obj)
            dtype = _dtype(obj[b"type"])
            return np.frombuffer(obj[b"data"], dtype)[0]
        if b"complex" in obj:
            text = obj[b"data"]
            return complex(text.decode() if isinstance(text, bytes) else str(text))
    except KeyError:  # a map of somebody else's
        pass
    except DecodeError:
        raise
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise DecodeError(f"a map that is no array after all: {error}") from None
    return obj if chain is None else chain(obj)


def _array(obj: Any) -> Any:
    kind = obj.get(b"kind")
    if kind == b"O":
        raise DecodeError(
            "an array of objects is a pickle, which can run any code when it is loaded: rlwire "
            "does not load it"
        )
    return np.ndarray(tuple(obj[b"shape"]), _dtype(obj[b"type"]), obj[b"data"])


def _dtype(described: Any) -> np.dtype[Any]:
    """Return the dtype of an array protocol's text, or of a list of fields."""
    dtype = np.dtype(_fields(described) if isinstance(described, (list, tuple)) else described)
    if dtype.hasobject or dtype.itemsize == 0:
        raise DecodeError(f"an array of dtype {dtype}")
    return dtype


def _fields(described: Any) -> list[tuple[Any, ...]]:
    """Lists, on the wire, in place of the tuples that NumPy wants."""
    fields = []
    for name, kind, *shape in described:
        if isinstance(name, list):
            name = tuple(map(_text, name))
        nested = _fields(kind) if isinstance(kind, (list, tuple)) else _text(kind)
        fields.append(
            (
                _text(name),
                nested,
                *(tuple(size) if isinstance(size, list) else size for size in shape),
            )
        )
    return fields


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
