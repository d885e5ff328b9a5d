"""Convert a peer's values to elements of a space, and elements to plain values.

For protocols without types: a list of numbers may be an array, and JavaScript's 1 a float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlwire.codecs.casting import as_array, cast
from rlwire.environments.trees import Leaf, tree_of
from rlwire.errors import EncodeError, quoted

Fit: TypeAlias = Callable[[Any], Any]
"""Converts a value to an element of a space, or raises EncodeError."""


def fitting(space: Any, what: str, *, within: bool | None = None, extra: bool = False) -> Fit:
    """Return a function that converts values to elements of a space.

    It checks shapes and kinds of numbers, and with `within` also bounds; by default it checks the
    bounds of discrete spaces and texts only. With `extra`, mappings may have other entries.
    """
    tree = tree_of(space, what, "which has no fixed structure")
    fits = [_leaf(leaf, leaf.named(what), within) for leaf in tree.leaves]
    if tree.is_leaf:
        return fits[0]
    return lambda value: tree.build(
        fit(part) for fit, part in zip(fits, tree.parts(value, extra), strict=True)
    )


def _leaf(leaf: Leaf, what: str, within: bool | None) -> Fit:
    wanted, shape, is_scalar = leaf.dtype, leaf.shape, leaf.is_scalar
    kind, make = wanted.kind, wanted.type
    # An int in a Discrete, unless a derived class has other values.
    is_discrete = (
        type(leaf.space).__module__ == "gymnasium.spaces.discrete" and is_scalar and kind in "iu"
    )
    if within is None:
        within = leaf.text is not None or any(
            hasattr(leaf.space, name) for name in ("n", "nvec", "num_values")
        )

    def numbers(value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == wanted and value.shape == shape:
            return value
        array = as_array(value, what, dtype=wanted)
        if array.dtype.kind not in "buif":
            raise EncodeError(f"{what} must be numbers of shape {shape}, not {quoted(value)}")
        if array.shape != shape:
            if array.ndim != len(shape) and abs(int(np.prod(shape))) == array.size <= 1:
                array = array.reshape(tuple(map(abs, shape)))
            if array.ndim != len(shape) or any(
                size not in (-1, have) for size, have in zip(shape, array.shape, strict=True)
            ):
                raise EncodeError(f"{what} must have shape {shape}, not {array.shape}")
        # Floats above 2**53 may be rounded integers.
        if kind in "bui" and array.dtype.kind == "f":
            if (array != np.rint(array)).any() or (abs(array) > np.float64(2**53)).any():
                raise EncodeError(f"{what} must be whole numbers, {wanted}, not {quoted(value)}")
            array = array.astype(np.int64)
        return cast(array, wanted, what)

    def fit(value: Any) -> Any:
        if is_discrete and type(value) is int and leaf.low <= value <= leaf.high:
            return make(value)
        if leaf.text is None:
            value = numbers(value)[()] if is_scalar else numbers(value)
        elif leaf.text is str and not shape and not isinstance(value, str):
            raise EncodeError(f"{what} must be text, not {quoted(value)}")
        if within and not leaf.contains(value):
            raise EncodeError(f"{what} must be of {leaf.space}, not {quoted(value)}")
        return value

    return fit if is_scalar or within or leaf.text is not None else numbers


def plain(value: Any) -> Any:
    """Replace NumPy scalars by Python's numbers, and tuples by lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value if value.ndim else as_array(value, "the value").item()
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value
