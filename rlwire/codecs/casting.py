"""Numbers of one dtype as numbers of another, where they stay what they are: `cast`.

What protocols that know the dtype of a value beforehand do with a user's: an action of 1.5 where an
integer is expected is a mistake, and to act on 1 instead would hide it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.errors import EncodeError


def cast(value: Any, dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Return a value as an array of `dtype`, which is of booleans or real numbers.

    Booleans and integers become each other if all fit, booleans counting as 0 and 1; they become
    floats that are the same numbers. Floats become floats, of any precision, and nothing else. An
    array without elements becomes anything.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:  # such as a jagged list
        raise EncodeError(f"{what} is no array: {error}") from None
    kind = array.dtype.kind
    if not array.size:  # [] is an array of float64
        return array.astype(dtype, copy=False)
    if kind not in "biuf" or (kind == "f" and dtype.kind != "f"):
        raise EncodeError(f"{what} must be of {dtype}, not of {array.dtype}")
    if kind != "f" and not _fits(array, dtype):
        raise EncodeError(f"{what} has a value that does not fit {dtype}")
    return array.astype(dtype, copy=False)


def _fits(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether these booleans or integers are the same numbers in another dtype."""
    if array.dtype.kind == "b":
        return True
    least, most = int(array.min()), int(array.max())
    if dtype.kind == "b":
        return least >= 0 and most <= 1
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        return info.min <= least and most <= info.max
    bits = np.finfo(dtype).nmant + 1
    largest = max(-least, most)
    if largest <= 1 << bits:
        return True
    # Larger ones must end in zeros, so many that the rest has no more bits than a float's.
    sizes = array.reshape(-1) if array.dtype.kind == "u" else np.abs(array.reshape(-1).astype("i8"))
    sizes = sizes.astype(np.uint64)  # that of the least int64 too, which abs() leaves negative
    last = np.maximum(sizes & (~sizes + np.uint64(1)), np.uint64(1))
    exact = bool((sizes // last >> np.uint64(bits) == 0).all())
    return exact and largest <= int(np.finfo(dtype).max)
