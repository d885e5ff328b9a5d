"""`Columns`: the values of a space for many environments, an array a leaf, wherever they lie.

The arrays may be shared by processes, and parts of one batch may be written by several of them.
Not here: who writes and when.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.errors import EncodeError, optional

__all__ = ["Allocate", "Columns", "rows"]

Allocate: TypeAlias = Callable[[tuple[int, ...], "np.dtype[Any]"], NDArray[Any]]
"""Returns a new array of zeros of this shape and dtype."""


class Columns:
    """Batched values: ``value`` is what Gymnasium's vector environments give for a space.

    Args:
        space: a `gymnasium.Space` of one environment: Box, Discrete, MultiDiscrete, MultiBinary,
            and Dict and Tuple of them.
        count: how many environments.
        allocate: makes the arrays, of shape ``(count, *shape)``.
        what: what errors call it.

    Attributes:
        value: an array, or dictionaries and tuples of arrays.
        write: stores one environment's value: ``write(place, value)``.

    Raises:
        EncodeError: the space has something else in it.
    """

    def __init__(self, space: Any, count: int, allocate: Allocate, what: str) -> None:
        self.value: Any = _allocated(space, count, allocate, what)
        self.write: Callable[[int, Any], None] = _writer(self.value)

    def part(self, start: int, end: int) -> Columns:
        """Return the same arrays' rows of some environments, which have places from 0 there."""
        part = object.__new__(Columns)
        part.value = _mapped(self.value, lambda array: array[start:end])
        part.write = _writer(part.value)
        return part

    def read(self, place: int) -> Any:
        """Return one environment's value, in memory of its own."""
        return _mapped(self.value, lambda array: copy.copy(array[place]))

    def fill(self, values: Any) -> None:
        """Store the values of all environments at once, batched as `value` is.

        Raises:
            EncodeError: they have another structure, shape or kind.
        """
        _fill(self.value, values, "the actions")

    def snapshot(self) -> Any:
        """Return `value` in memory of its own."""
        return _mapped(self.value, np.copy)


def rows(value: Any) -> Iterator[Any]:
    """Yield each environment's value of a batch, as `gymnasium.vector.utils.iterate` does."""
    if isinstance(value, Mapping):
        parts = {key: rows(part) for key, part in value.items()}
        for row in zip(*parts.values(), strict=True):
            yield dict(zip(parts, row, strict=True))
    elif isinstance(value, tuple):
        yield from zip(*map(rows, value), strict=True)
    elif value.ndim == 1:
        yield from value
    else:  # not views: the next step's actions go to the same place
        yield from value.copy()


def _allocated(space: Any, count: int, allocate: Allocate, what: str) -> Any:
    with optional("gymnasium", "gym"):
        from gymnasium import spaces
    if isinstance(space, spaces.Dict):
        return {
            key: _allocated(child, count, allocate, f"{what}, {key}")
            for key, child in space.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            _allocated(child, count, allocate, f"{what}, {place}")
            for place, child in enumerate(space)
        )
    known = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    if isinstance(space, known) and space.shape is not None:
        return allocate((count, *space.shape), np.dtype(space.dtype))
    raise EncodeError(
        f"{what} is of the space {space}, which has no array of a fixed size; wrap the "
        f"environment so that it is a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"
    )


def _mapped(value: Any, function: Callable[[NDArray[Any]], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(part, function) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_mapped(part, function) for part in value)
    return function(value)


def _writer(value: Any) -> Callable[[int, Any], None]:
    if isinstance(value, np.ndarray):
        return value.__setitem__
    named = value.items() if isinstance(value, dict) else enumerate(value)
    writers = [(key, _writer(part)) for key, part in named]

    def write(place: int, values: Any) -> None:
        for key, write_part in writers:
            write_part(place, values[key])

    return write


def _fill(value: Any, given: Any, what: str) -> None:
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(given, Mapping) or key not in given:
                raise EncodeError(f"{what} must be a mapping with the entry {key!r}")
            _fill(part, given[key], f"{what}, {key}")
    elif isinstance(value, tuple):
        if not isinstance(given, (tuple, list)) or len(given) != len(value):
            raise EncodeError(f"{what} must be a tuple of {len(value)} batches")
        for place, part in enumerate(value):
            _fill(part, given[place], f"{what}, {place}")
    else:
        array = np.asarray(given)
        if array.shape != value.shape:
            raise EncodeError(f"{what} must have shape {value.shape}, not {array.shape}")
        if not np.can_cast(array.dtype, value.dtype, "same_kind"):
            raise EncodeError(f"{what} must be {value.dtype}, not {array.dtype}")
        value[...] = array
