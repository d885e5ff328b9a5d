"""Conversion of numbers between dtypes that never changes a value: `cast`.

Encoders use it where the protocol declares a dtype. An action of 1.5 for an integer is an error:
sending 1 instead would hide it.
"""

from __future__ import annotations

import contextlib
import functools
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


def as_array(
    value: Any, what: str, path: str = "", dtype: np.dtype[Any] | None = None
) -> NDArray[Any]:
    """Return a value as an array; EncodeError, which starts with `what`, if elements are masked.

    Also for a list with an integer that the array, or floats of `dtype`, cannot represent.
    """
    try:
        array = np.asanyarray(value)
        _check_mask(array, what, path)
        if isinstance(value, (list, tuple)):
            narrow = dtype is not None and dtype.kind == array.dtype.kind == "f"
            _check_items(value, min(array.dtype, dtype) if narrow else array.dtype, what, path)
    except (EncodeError, MemoryError):
        raise
    except Exception as error:
        ragged = isinstance(error, ValueError) and isinstance(value, (list, tuple))
        why = "has lists of different lengths" if ragged else f"is not an array: {error}"
        raise EncodeError(f"{what} {why}", path=path) from (None if ragged else error)
    return np.asarray(array)


def _check_mask(array: NDArray[Any], what: str, path: str) -> None:
    if type(array) is not np.ndarray and np.ma.is_masked(array):  # importing np.ma is slow
        raise EncodeError(f"{what} has masked elements: send its .filled() or .data", path=path)


def _check_items(items: Any, dtype: Any, what: str, path: str) -> None:
    """Raise EncodeError for masked items, and for integers that NumPy changes in a list's array."""
    kinds, real = {*map(type, items)}, dtype.kind in "fc"
    if kinds <= _FLOATS or (kinds <= _NUMBERS and not real):
        return
    low, high = exact_range(dtype) if real else (0, 0)
    for item in items:
        if isinstance(item, (list, tuple)):
            _check_items(item, dtype, what, path)
        elif isinstance(item, np.ndarray) or (
            real and isinstance(item, (int, np.integer)) and not low <= item <= high
        ):
            array = np.asanyarray(item)
            _check_mask(array, what, path)
            if real and array.dtype.kind in "iuO" and not keeps(array, dtype):
                raise EncodeError(f"{what} has a value that does not fit {dtype}", path=path)


def cast(value: Any, dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Return `value` as an array of `dtype`, a dtype of booleans or real numbers.

    Booleans and integers convert to each other if all values fit; False is 0 and True is 1. They
    convert to floats that represent them exactly. Floats convert only to floats, of any precision.
    An empty array converts to any dtype.

    Raises:
        EncodeError: the conversion would change a value; the message starts with `what`.
    """
    array = as_array(value, what, dtype=dtype)
    kind = array.dtype.kind
    # [] is an array of float64
    if array.size and (kind not in "biuf" or (kind == "f" and dtype.kind != "f")):
        whole = "int(...)" if array.ndim == 0 else f".astype(np.{dtype})"
        remedy = f": use {whole}" if kind == "f" and dtype.kind in "iu" else ""
        raise EncodeError(f"{what} must have dtype {dtype}, not {array.dtype}{remedy}")
    if kind != "f" and not _fits(array, dtype):
        raise EncodeError(f"{what} has a value that does not fit {dtype}")
    return array.astype(dtype, copy=False)


def real(value: Any, what: str) -> float:
    """Return any single number as a float; EncodeError, which starts with `what`, for others."""
    if type(value) is float or isinstance(value, np.floating):
        return float(value)
    with contextlib.suppress(Exception):  # also of the value's own methods
        one = as_array(value, what) if isinstance(value, (list, tuple, np.ndarray)) else value
        kind = getattr(getattr(one, "dtype", None), "kind", "f")
        one = one.item() if isinstance(one, np.ndarray) else one
        if kind not in "cmMSU" and not isinstance(one, complex) and hasattr(one, "__float__"):
            return float(one)
    raise EncodeError(f"{what} must be one number, not {quoted(value)}")


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
