"""Conversion of numbers between dtypes that never changes a value: `cast`.

Encoders use it where the protocol declares a dtype. An action of 1.5 for an integer is an error:
sending 1 instead would hide it.
"""

from __future__ import annotations

import contextlib
import functools
from array import array as TypedArray
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlwire.errors import EncodeError, quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLAIN = map(np.dtype, ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
DTYPES: Final[dict[str, np.dtype[Any]]] = {str(dtype): dtype for dtype in _PLAIN}
"""The dtypes of booleans, integers and floats of at most 64 bits, by name."""

_FLOATS = frozenset((float,))
_NUMBERS = frozenset((bool, int, float))
_ARRAY = np.ndarray
_SIMPLE = (float, int, str, bytes, np.generic, type(None))
# Sequences without items to check.
_BUFFERS = (str, bytes, bytearray, memoryview, range, TypedArray)


def as_array(
    value: Any, what: str, path: str = "", dtype: np.dtype[Any] | None = None
) -> NDArray[Any]:
    """Return a value as an array; EncodeError, which starts with `what`, if elements are masked.

    Also for a list with an integer that the array, or floats of `dtype`, cannot represent.
    """
    try:
        array = np.asanyarray(value)
        made = array is not value and array.ndim
        if made or type(array) is not np.ndarray or array.dtype.hasobject:
            narrow = dtype is not None and dtype.kind == array.dtype.kind == "f"
            least = min(array.dtype, dtype) if narrow else array.dtype
            _check(array if hasattr(value, "__array__") else value, least, what, path)
    except (EncodeError, MemoryError):
        raise
    except Exception as error:
        ragged = isinstance(error, ValueError) and isinstance(value, (list, tuple))
        why = "has lists of different lengths" if ragged else f"is not an array: {error}"
        raise EncodeError(f"{what} {why}", path=path) from (None if ragged else error)
    return np.asarray(array)


def _check(value: Any, dtype: Any, what: str, path: str) -> None:
    """Raise EncodeError for what changes in an array: masked items, and integers among floats."""
    if isinstance(value, Mapping) and not isinstance(value, dict):  # an array of its keys
        raise TypeError(f"it has a {type(value).__name__}")
    real = dtype.kind in "fc"
    if not isinstance(value, Sequence) or isinstance(value, _BUFFERS):
        array = np.asanyarray(value)
        held = array.flat if array.dtype.hasobject and array is value else ()
        for one in (array, *held):
            # Importing np.ma is slow.
            if isinstance(one, _ARRAY) and type(one) is not _ARRAY and np.ma.is_masked(one):
                words = f"{what} has masked elements: send its .filled() or .data"
                raise EncodeError(words, path=path)
        if real and array.dtype.kind in "iuO" and not keeps(array, dtype):
            raise unfit(what, dtype, path)
        return
    kinds = {*map(type, value)}
    if kinds <= _FLOATS or (kinds <= _NUMBERS and not real):
        return
    low, high = exact_range(dtype) if real else (0, 0)
    for item in value:
        if not isinstance(item, _SIMPLE) or (
            real and isinstance(item, (int, np.integer)) and not low <= item <= high
        ):
            _check(item, dtype, what, path)


def unfit(what: str, dtype: Any, path: str = "") -> EncodeError:
    """Return the error for a number that a dtype cannot represent."""
    return EncodeError(
        f"{what} has a value that does not fit {dtype}: clip it, or declare a wider dtype",
        path=path,
    )


def cast(value: Any, dtype: np.dtype[Any], what: str, path: str = "") -> NDArray[Any]:
    """Return `value` as an array of `dtype`, a dtype of booleans or real numbers.

    Booleans and integers convert to each other if all values fit; False is 0 and True is 1. They
    convert to floats that represent them exactly. Floats convert only to floats, of any precision
    and a range that has them. An empty array converts to any dtype.

    Raises:
        EncodeError: the conversion would change a value; the message starts with `what`.
    """
    array = as_array(value, what, path, dtype)
    kind = array.dtype.kind
    # [] is an array of float64
    if array.size and (kind not in "biuf" or (kind == "f" and dtype.kind != "f")):
        whole = "int(...)" if array.ndim == 0 else f".astype(np.{dtype})"
        remedy = f": use {whole}" if kind == "f" and dtype.kind in "iu" else ""
        given = quoted(array.tolist()) if kind == "O" else array.dtype
        raise EncodeError(f"{what} must have dtype {dtype}, not {given}{remedy}", path=path)
    if kind != "f" and not _fits(array, dtype):
        raise unfit(what, dtype, path)
    if kind != "f" or array.itemsize <= dtype.itemsize:
        return array.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype)
    infinite = np.count_nonzero(np.isinf(narrow))
    if infinite and infinite != np.count_nonzero(np.isinf(array)):
        raise unfit(what, dtype, path)
    return narrow


def real(value: Any, what: str, path: str = "") -> float:
    """Return any single number as a float; EncodeError, which starts with `what`, for others."""
    if type(value) is float or isinstance(value, np.floating):
        return float(value)
    with contextlib.suppress(Exception):  # also of the value's own methods
        one = as_array(value, what) if isinstance(value, (list, tuple, np.ndarray)) else value
        kind = getattr(getattr(one, "dtype", None), "kind", "f")
        one = one.item() if isinstance(one, np.ndarray) else one
        if kind not in "cmMSU" and not isinstance(one, complex) and hasattr(one, "__float__"):
            return float(one)
    raise EncodeError(f"{what} must be one number, not {quoted(value)}", path=path)


def flag(value: Any, what: str) -> bool:
    """Return a boolean, or a number that stands for one, as a bool; None is False.

    EncodeError, which starts with `what`, for others: to Python, a list of False is true.
    """
    if value is None or isinstance(value, (bool, np.bool_)):
        return bool(value)
    with contextlib.suppress(Exception):
        there = hasattr(value, "item") and not isinstance(value, np.ndarray)  # as on a GPU
        one = (value if there else as_array(value, what)).item()
        if isinstance(one, int) or one in (0, 1):
            return bool(one)
    raise EncodeError(f"{what} must be true or false, not {quoted(value)}")


@functools.cache
def exact_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the integers between which `dtype` represents each one exactly."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "fc":
        bits = np.finfo(dtype).nmant + 1
        return -1 << bits, 1 << bits
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _fits(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` represents these booleans or integers exactly."""
    if array.dtype.kind == "b" or array.dtype == dtype or not array.size:
        return True
    if array.size == 1:  # without reductions, which cost more than the rest
        least = most = int(array.item())
    else:
        least, most = int(array.min()), int(array.max())
    low, high = exact_range(dtype)
    return (low <= least and most <= high) or (dtype.kind in "fc" and keeps(array, dtype))


def keeps(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether each number stays the same in `dtype`, a dtype of real numbers."""
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
    return bool(converted.tolist() == array.tolist())  # Python compares ints with floats exactly
