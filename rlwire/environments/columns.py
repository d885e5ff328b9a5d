"""`Columns`: the values of a space for many environments, one array per leaf.

Callers borrow large batches without a copy. A batch is reused when its arrays have been released.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from weakref import WeakSet, ref

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs._arrays import assign
from rlwire.codecs.casting import cast
from rlwire.environments.trees import Leaf, Tree, tree_of
from rlwire.errors import EncodeError, quoted

Allocate: TypeAlias = Callable[[tuple[int, ...], "np.dtype[Any]"], NDArray[Any]]
"""Returns a new array of zeros of this shape and dtype."""


class Columns:
    """Batched values, in the layout of Gymnasium's vector environments.

    Attributes:
        value: the batch that is being written: an array, or dictionaries and tuples of arrays.
    """

    def __init__(
        self, space: Any, count: int, allocate: Allocate, what: str, spare: int = 0
    ) -> None:
        cannot = "which has no array of a fixed size"

        def column(leaf: Leaf) -> NDArray[Any]:
            if leaf.text is not None:
                raise EncodeError(f"{leaf.named(what)} is of the space {leaf.space}, {cannot}")
            return allocate((count, *leaf.shape), leaf.dtype)

        tree = tree_of(space, what, cannot)
        batches = [[column(leaf) for leaf in tree.leaves] for _ in range(1 + spare)]
        # Numbers of the batch being written and of the one before; in shared memory, as the arrays.
        indices = allocate((2,), np.dtype(np.int64)) if spare else np.zeros(2, np.int64)
        self._hold(tree, batches, indices, 0)
        self._loans: list[list[Callable[[], Any]]] = [[] for _ in batches]  # weak references
        if spare:
            _borrowable.add(self)

    def _hold(
        self, tree: Tree, batches: list[list[NDArray[Any]]], indices: NDArray[Any], start: int
    ) -> None:
        self._tree, self._batches, self._indices, self._start = tree, batches, indices, start
        self._now = -1
        self.switch_batch()

    def write(self, index: int, value: Any) -> None:
        """Store an environment's value; EncodeError for what Gymnasium's vectors refuse."""
        if self._only is not None:
            if not assign(self._only, index, value):
                self._convert(self._tree.leaves[0], self._only, index, value)
            return
        try:
            parts = self._tree.parts(value, extra=True)
        except EncodeError as error:
            raise EncodeError(f"{self.name(index)}: {error.reason}") from None
        for leaf, array, part in zip(self._tree.leaves, self._arrays, parts, strict=True):
            if not assign(array, index, part):
                self._convert(leaf, array, index, part)

    def _convert(self, leaf: Leaf, array: NDArray[Any], index: int, value: Any) -> None:
        what = f"{self.name(index)}: {leaf.named(self._tree.what)}"
        array[index] = _fitting(value, array[index], what, f", as {leaf.space} says")

    def name(self, index: int) -> str:
        """Return an environment's number in the whole vector, for errors."""
        return f"environment {self._start + index}"

    def __getitem__(self, rows: slice) -> Columns:
        """Return the rows of some environments, renumbered from 0."""
        part = object.__new__(Columns)
        batches = [[array[rows] for array in arrays] for arrays in self._batches]
        part._hold(self._tree, batches, self._indices, self._start + rows.start)
        return part

    def read(self, index: int) -> Any:
        """Return a copy of one environment's value."""
        return self._tree.build(copy.copy(array[index]) for array in self._arrays)

    def rows(self) -> Iterator[Any]:
        columns = [array if array.ndim == 1 else array.copy() for array in self._arrays]
        if self._tree.is_leaf:
            return iter(columns[0])
        return map(self._tree.build, zip(*columns, strict=True))

    def fill(self, values: Any) -> None:
        """Store all environments' values, batched like `value`; EncodeError if they do not fit."""
        parts = self._tree.parts(values)
        for leaf, array, part in zip(self._tree.leaves, self._arrays, parts, strict=True):
            what = leaf.named(f"{self._tree.what}s")
            _fitting(part, array, what)  # refuses other shapes
            array[...] = cast(part, array.dtype, what)

    def choose_batch(self) -> None:
        """Choose the batch to write: one without live arrays, or 0, which is never borrowed."""
        if len(self._batches) == 1:
            return
        before = int(self._indices[0])
        others = (each for each in range(1, len(self._batches)) if each != before)
        chosen = next((each for each in others if not self._borrowed(each)), 0)
        self._loans[chosen] = []
        self._indices[:] = chosen, before
        self.switch_batch()

    def switch_batch(self) -> None:
        """Switch to the batch that `choose_batch` chose, possibly in another process."""
        now = int(self._indices[0])
        if now != self._now:
            self._now, self._arrays = now, self._batches[now]
            self._only = self._arrays[0] if self._tree.is_leaf else None
            self.value: Any = self._tree.build(self._arrays)

    def copy_previous(self, start: int = 0) -> None:
        """Copy the values of environments `start` and up from the previous batch."""
        self.switch_batch()
        before = self._batches[self._indices[1]]
        if before is not self._arrays:
            for array, old in zip(self._arrays, before, strict=True):
                array[start:] = old[start:]

    def borrow(self) -> Any:
        """Return `value` in memory that is not written as long as any of its arrays lives."""
        if not self._now:
            return self._tree.build(map(np.copy, self._arrays))
        # Arrays derived from these keep them alive through the buffer protocol.
        views = [array.view() for array in self._arrays]
        self._loans[self._now] += map(ref, views)
        return self._tree.build(np.asarray(memoryview(view)) for view in views)

    def _borrowed(self, batch: int) -> bool:
        return any(view() is not None for view in self._loans[batch])


def _fitting(value: Any, like: Any, what: str, says: str = "") -> NDArray[Any]:
    """Return an array that can be assigned to `like`; EncodeError for other shapes and kinds."""
    try:
        given = np.asanyarray(value)
    except ValueError:  # lists of different lengths
        given = np.empty((), object)
    if given.shape != like.shape or not np.can_cast(given.dtype, like.dtype, "same_kind"):
        raise EncodeError(
            f"{what} must be {like.dtype} of shape {like.shape}{says}, not {given.dtype} of shape "
            f"{given.shape}: {quoted(value)}"
        )
    return given


_borrowable: WeakSet[Columns] = WeakSet()


def _before_fork() -> None:
    """Never reuse batches with live arrays: a forked process shares them."""
    for columns in list(_borrowable):
        for batch in range(1, len(columns._batches)):
            if columns._borrowed(batch):
                columns._loans[batch] = [lambda: True]


os.register_at_fork(before=_before_fork)
