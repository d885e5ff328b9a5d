"""Tensor specs with bounds: creates them, and checks values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from rlwire.codecs.casting import as_array, keeps
from rlwire.codecs.dm_env_rpc.values import DataType, TensorSpec, data_type, numpy_dtype
from rlwire.errors import EncodeError, quoted

__all__ = ["Bounds", "bounds", "check_bounds", "make_spec"]


class Bounds(NamedTuple):
    """Inclusive bounds: scalars, or arrays of the spec's shape."""

    min: Any
    max: Any


def _data_type(dtype: DTypeLike | DataType) -> DataType:
    try:
        # NumPy accepts neither a number of the enumeration nor True as a dtype.
        return DataType(dtype) if isinstance(dtype, int) else data_type(dtype)
    except EncodeError:
        raise
    except (TypeError, ValueError) as problem:
        raise EncodeError(f"{dtype!r} is not a dtype: {problem}") from None


def _shown(spec: TensorSpec) -> str:
    return f"the spec {quoted(spec.name)}"


def _number_type(spec: TensorSpec) -> np.dtype[Any]:
    if not DataType.FLOAT <= spec.dtype <= DataType.UINT64:
        name = spec.dtype.name if isinstance(spec.dtype, DataType) else f"number {spec.dtype}"
        raise EncodeError(f"{_shown(spec)} has the non-numeric type {name}, which has no bounds")
    return numpy_dtype(spec.dtype)


def _received(spec: TensorSpec, which: str, bound: Any, dtype: np.dtype[Any]) -> Any:
    """Return one bound of a spec that may come from a peer."""
    array = np.asarray(bound)
    if array.dtype != dtype:
        raise EncodeError(
            f"{_shown(spec)} has dtype {dtype}, but its {which} has dtype {array.dtype}"
        )
    if dtype.kind == "f" and np.isnan(array).any():  # bounds nothing
        array = np.where(np.isnan(array), dtype.type(-np.inf if which == "min" else np.inf), array)
    if array.size == 1:
        return array.reshape(-1)[0]
    _check_shape(spec, which, array.shape)
    return array


def _check_shape(spec: TensorSpec, which: str, shape: tuple[int, ...]) -> None:
    if any(size < 0 for size in spec.shape):
        raise EncodeError(
            f"{_shown(spec)} has the variable shape {tuple(spec.shape)}, so its {which} must be "
            f"a scalar, not an array of shape {shape}"
        )
    if shape != tuple(spec.shape):
        raise EncodeError(
            f"{_shown(spec)} has shape {tuple(spec.shape)}, but its {which} has the incompatible "
            f"shape {shape}"
        )


def _check_order(spec: TensorSpec, low: Any, high: Any) -> None:
    if np.any(np.less(high, low)):
        raise EncodeError(f"{_shown(spec)} has min {low} larger than max {high}")


def bounds(spec: TensorSpec) -> Bounds:
    """Return the inclusive bounds of a spec; a missing bound is that of its dtype."""
    dtype = _number_type(spec)
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    low = dtype.type(info.min) if spec.min is None else _received(spec, "min", spec.min, dtype)
    high = dtype.type(info.max) if spec.max is None else _received(spec, "max", spec.max, dtype)
    _check_order(spec, low, high)
    return Bounds(low, high)


def check_bounds(spec: TensorSpec, value: Any) -> None:
    """Raise EncodeError if an element exceeds a bound of the spec. NaN exceeds every bound."""
    if spec.min is None and spec.max is None:
        return
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise EncodeError(f"{quoted(spec.name)} has bounds, but dtype {array.dtype} is not numeric")
    for which, bound in zip(("min", "max"), bounds(spec), strict=True):
        if getattr(spec, which) is not None:
            _check_side(spec, array, bound, which)


def _check_side(spec: TensorSpec, array: np.ndarray[Any, Any], bound: Any, which: str) -> None:
    if np.ndim(bound) and array.shape != np.shape(bound):
        raise EncodeError(
            f"{quoted(spec.name)} has shape {array.shape}, but the {which} of its spec has shape "
            f"{np.shape(bound)}"
        )
    inside = np.asarray(array >= bound if which == "min" else array <= bound)
    if inside.all():
        return
    index = tuple(map(int, np.unravel_index(inside.argmin(), inside.shape)))
    where = f" at index {list(index)}" if index else ""
    side = "below" if which == "min" else "above"
    limit = np.broadcast_to(bound, array.shape)[index]
    said = f"not a number, so outside {which}" if np.isnan(array[index]) else f"{side} {which}"
    raise EncodeError(
        f"{quoted(spec.name)} is out of bounds{where}: {array[index]} is {said} {limit}"
    )


def make_spec(
    name: str,
    shape: Sequence[int],
    dtype: DTypeLike | DataType,
    minimum: Any = None,
    maximum: Any = None,
) -> TensorSpec:
    """Return a valid spec with bounds cast to its dtype; EncodeError if they do not fit."""
    if not isinstance(name, str):
        raise EncodeError(f"a name must be str, not {type(name).__qualname__} ({name!r})")
    sizes = tuple(map(int, shape))
    if sum(size < 0 for size in sizes) > 1:
        raise EncodeError(f"the spec {name!r} has more than one variable dimension: {sizes}")
    if any(not -(2**31) <= size < 2**31 for size in sizes):
        raise EncodeError(f"the spec {name!r} has a dimension of more than 32 bits: {sizes}")
    plain = TensorSpec(name, sizes, _data_type(dtype))
    if minimum is None and maximum is None:
        return plain
    low = None if minimum is None else _given(plain, "min", minimum)
    high = None if maximum is None else _given(plain, "max", maximum)
    if low is not None and high is not None:
        _check_order(plain, low, high)
    return TensorSpec(plain.name, plain.shape, plain.dtype, low, high)


def _given(spec: TensorSpec, which: str, bound: Any) -> Any:
    """Return a bound in the spec's dtype: a scalar, or a read-only array."""
    dtype = _number_type(spec)
    array = as_array(bound, f"the {which} of {_shown(spec)}")
    if array.dtype == object and all(isinstance(item, int) for item in array.flat):
        # Integers of more than 64 bits.
        try:
            array = array.astype(np.float64)
        except OverflowError:
            array = np.full(array.shape, np.nan)
    if array.dtype.kind not in "biuf":
        raise EncodeError(f"the {which} of {_shown(spec)} is not numeric: {bound!r}")
    if array.size != 1:
        _check_shape(spec, which, array.shape)
    if not _fits(array, dtype):
        raise EncodeError(f"the {which} of {_shown(spec)}, {bound!r}, does not fit {dtype}")
    if array.size == 1:
        return array.reshape(-1).astype(dtype)[0]
    array = array.astype(dtype)  # always a copy
    array.flags.writeable = False
    return array


def _fits(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bool:
    """Return whether all numbers are in the dtype's range, and integers for an integer dtype."""
    if dtype.kind != "f":
        return keeps(array, dtype)
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    return not np.isnan(array).any() and np.array_equal(np.isinf(converted), np.isinf(array))
