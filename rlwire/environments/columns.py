"""`Columns`: the values of a space for many environments, an array a leaf, wherever they lie.

The arrays may be shared by processes, and parts of one batch may be written by several of them.
Not here: who writes and when.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.trees import Leaf, Tree, tree_of
from rlwire.errors import EncodeError

__all__ = ["Allocate", "Columns"]

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
        cannot = "which has no array of a fixed size"

        def column(leaf: Leaf) -> NDArray[Any]:
            if leaf.text is not None:
                whose = f"{what}, {leaf.where}" if leaf.keys else what
                raise EncodeError(f"{whose} is of the space {leaf.space}, {cannot}")
            return allocate((count, *leaf.shape), leaf.dtype)

        tree = tree_of(space, what, cannot)
        self._hold(tree, [column(leaf) for leaf in tree.leaves])

    def _hold(self, tree: Tree, arrays: list[NDArray[Any]]) -> None:
        self._tree, self._arrays = tree, arrays
        self.value: Any = tree.build(arrays)
        self.write: Callable[[int, Any], None]
        self.write = arrays[0].__setitem__ if tree.lone else self._write

    def _write(self, place: int, value: Any) -> None:
        for array, part in zip(self._arrays, self._tree.parts(value), strict=True):
            array[place] = part

    def part(self, start: int, end: int) -> Columns:
        """Return the same arrays' rows of some environments, which have places from 0 there."""
        part = object.__new__(Columns)
        part._hold(self._tree, [array[start:end] for array in self._arrays])
        return part

    def read(self, place: int) -> Any:
        """Return one environment's value, in memory of its own."""
        return self._tree.build(copy.copy(array[place]) for array in self._arrays)

    def rows(self) -> Iterator[Any]:
        """Yield each environment's value, as `gymnasium.vector.utils.iterate` does."""
        # Not views: the next step's actions go to the same place.
        columns = [array if array.ndim == 1 else array.copy() for array in self._arrays]
        if self._tree.lone:
            return iter(columns[0])
        return map(self._tree.build, zip(*columns, strict=True))

    def fill(self, values: Any) -> None:
        """Store the values of all environments at once, batched as `value` is.

        Raises:
            EncodeError: they have another structure, shape or kind.
        """
        parts = self._tree.parts(values)
        for leaf, array, part in zip(self._tree.leaves, self._arrays, parts, strict=True):
            what = f"{self._tree.what}s, {leaf.where}" if leaf.keys else f"{self._tree.what}s"
            given = np.asarray(part)
            if given.shape != array.shape:
                raise EncodeError(f"{what} must have shape {array.shape}, not {given.shape}")
            if not np.can_cast(given.dtype, array.dtype, "same_kind"):
                raise EncodeError(f"{what} must be {array.dtype}, not {given.dtype}")
            array[...] = given

    def snapshot(self) -> Any:
        """Return `value` in memory of its own."""
        return self._tree.build(map(np.copy, self._arrays))
