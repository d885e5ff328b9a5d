"""`Tree`: the structure of a Gymnasium space or of dm_env's specs, with a `Leaf` for each value.

A tree splits a nested value into parts, one per leaf, and rebuilds it. Spaces without a fixed
structure (Sequence, Graph, OneOf) have no tree.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlwire.errors import EncodeError, optional, quoted

_TEXT = 2**16  # characters of a text without a stated maximum


@dataclass(frozen=True)
class Leaf:
    """One array, number or text.

    Attributes:
        space: the space or spec.
        keys: the path to it, keys of mappings and indices of sequences.
        name: the spec's name; empty for a Gymnasium space.
        shape: shape of its arrays; -1 for a size that varies.
        dtype: dtype of its arrays; of text, NumPy's str or, for Python's str, object.
        low, high: bounds of the numbers; None if unknown.
        is_scalar: whether a value without dimensions is a NumPy scalar instead of an array.
        text: str or bytes for text, None for numbers.
    """

    space: Any
    keys: tuple[Any, ...]
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: Any = None
    high: Any = None
    is_scalar: bool = False
    text: type | None = None

    @property
    def where(self) -> str:
        return ".".join(map(str, self.keys))

    def named(self, what: str) -> str:
        """Return the leaf's name for errors; `what` is the whole value's."""
        return f"{what}, {self.where}" if self.keys else what

    def contains(self, value: Any) -> bool:
        if hasattr(self.space, "contains"):
            return bool(self.space.contains(value))
        try:
            self.space.validate(value)
        except ValueError:
            return False
        return True

    def default_value(self) -> Any:
        """Return the value nearest to zero, or the shortest text, as a new object."""
        if hasattr(self.space, "character_list"):
            return "".join(self.space.character_list[:1]) * self.space.min_length
        if self.text is not None:
            return self.space.generate_value()
        array = np.zeros(tuple(map(abs, self.shape)))  # sizes that vary are 1
        if self.low is not None or self.high is not None:
            array = np.clip(array, self.low, self.high)
        number = np.asarray(array, self.dtype)
        return number[()] if self.is_scalar else number


class _Branch:
    """Children by key; or by index, and `make` turns their list into a sequence."""

    def __init__(
        self, children: dict[Any, _Node], make: Callable[[list[Any]], Any] | None = None
    ) -> None:
        self.children = children
        self.make = make

    def split(self, value: Any, where: str, parts: list[Any], extra: bool) -> None:
        kind, children, keyed = type(value), self.children, self.make is None
        if keyed:
            if kind is not dict and not isinstance(value, Mapping):
                raise EncodeError(f"{where} must be a mapping, not a {kind.__name__}")
            if not extra and len(value) > len(children):
                other = next(key for key in value if key not in children)
                has = f"leave it out, or add it to the Dict of {quoted([*children])}"
                raise EncodeError(f"{where} has an entry {other!r}, which its space lacks: {has}")
        elif kind is not tuple and (
            isinstance(value, (str, bytes, Mapping))
            or not (hasattr(value, "__len__") and hasattr(value, "__getitem__"))
            or (isinstance(value, np.ndarray) and not value.ndim)
        ):
            raise EncodeError(f"{where} must be a sequence, not a {kind.__name__}")
        elif len(value) != len(children):
            raise EncodeError(f"{where} must have {len(children)} items, not {len(value)}")
        for key, child in children.items():
            if keyed and key not in value:
                raise EncodeError(f"{where} has no entry {key!r}")
            if isinstance(child, Leaf):
                parts.append(value[key])
            else:
                child.split(value[key], f"{where}.{key}", parts, extra)

    def build(self, values: Iterator[Any]) -> Any:
        built = {key: _build(child, values) for key, child in self.children.items()}
        return built if self.make is None else self.make(list(built.values()))


_Node = Leaf | _Branch


def _build(node: _Node, values: Iterator[Any]) -> Any:
    return next(values) if isinstance(node, Leaf) else node.build(values)


def _leaves(node: _Node) -> Iterator[Leaf]:
    if isinstance(node, Leaf):
        yield node
        return
    for child in node.children.values():
        yield from _leaves(child)


class Tree:
    """The structure of a space.

    Attributes:
        what: name for errors, such as ``the observation``.
        leaves: the leaves, in the space's order.
        is_leaf: whether the space is a single leaf.
        is_sequence: whether the space is a sequence.
    """

    def __init__(self, root: _Node, what: str) -> None:
        self._root = root
        self.what = what
        self.leaves = list(_leaves(root))
        self.is_leaf = isinstance(root, Leaf)
        self.is_sequence = isinstance(root, _Branch) and root.make is not None

    def parts(self, value: Any, extra: bool = False) -> list[Any]:
        """Split a value into parts, one per leaf; EncodeError for less, or more unless `extra`."""
        if isinstance(self._root, Leaf):
            return [value]
        parts: list[Any] = []
        self._root.split(value, self.what, parts, extra)
        return parts

    def build(self, parts: Iterable[Any]) -> Any:
        return _build(self._root, iter(parts))

    def contains(self, value: Any) -> bool:
        pairs = zip(self.leaves, self.parts(value), strict=True)
        return all(leaf.contains(part) for leaf, part in pairs)

    def default_value(self) -> Any:
        """Return the value nearest to zero, as an action the best guess at a no-op."""
        return self.build(leaf.default_value() for leaf in self.leaves)


def tree_of(space: Any, what: str, cannot: str, sequences: bool = False) -> Tree:
    """Return the tree of a space or of specs; `what` and `cannot` are parts of the EncodeError.

    With `sequences`, a Sequence of arrays or texts is a leaf whose first size varies.
    """
    is_spec = not (hasattr(space, "sample") and hasattr(space, "contains")) and (
        hasattr(space, "generate_value") or isinstance(space, (Mapping, tuple, list))
    )
    leaf_of = _spec_leaf if is_spec else _space_leaf
    # A Gymnasium space of one's own may be a Mapping or Sequence too, but a leaf.
    kinds: Any = None if is_spec else gymnasium_spaces()
    mappings, lists = (Mapping, Sequence) if is_spec else (kinds.Dict, kinds.Tuple)

    def node(space: Any, keys: tuple[Any, ...]) -> _Node:
        if isinstance(space, mappings):
            return _Branch({key: node(each, (*keys, key)) for key, each in space.items()})
        if isinstance(space, lists) and not isinstance(space, (str, bytes)):
            children = {index: node(each, (*keys, index)) for index, each in enumerate(space)}
            return _Branch(
                children, getattr(type(space), "_make", type(space)) if is_spec else tuple
            )
        if sequences and not is_spec and hasattr(space, "feature_space"):
            inner = node(space.feature_space, keys)
            if isinstance(inner, Leaf):
                return replace(inner, space=space, shape=(-1, *inner.shape), is_scalar=False)
        if (leaf := leaf_of(space, keys)) is not None:
            return leaf
        at = f" at {'.'.join(map(str, keys))}" if keys else ""
        kind = type(space).__name__
        if is_spec:
            raise EncodeError(f"{what} has a {kind}{at} instead of a dm_env spec, {cannot}")
        raise EncodeError(
            f"{what} has a {kind}{at}, {cannot}: wrap the environment to convert it to a Box, "
            f"Discrete, MultiDiscrete, MultiBinary, Text, Dict or Tuple: {space}"
        )

    return Tree(node(space, ()), what)


def gymnasium_spaces() -> Any:
    """Import Gymnasium's spaces."""
    with optional("gymnasium", "gym"):
        from gymnasium import spaces
    return spaces


def _space_leaf(space: Any, keys: tuple[Any, ...]) -> Leaf | None:
    spaces = gymnasium_spaces()
    text = text_of(space, spaces)
    if text is not None:
        return Leaf(text, keys, "", (), np.dtype(str), text=str)
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start) + int(space.n) - 1
        return Leaf(space, keys, "", (), space.dtype, low, high, is_scalar=True)
    if isinstance(space, spaces.Box):
        bounds = space.low, space.high
    elif isinstance(space, spaces.MultiDiscrete):
        bounds = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        bounds = 0, 1
    else:
        return None
    return Leaf(space, keys, "", tuple(space.shape), space.dtype, *bounds)


def text_of(space: Any, kinds: Any) -> Any:
    """Convert a space of strings, such as MiniGrid's, to Text, and None to any; None for others."""
    if isinstance(space, kinds.Text):
        return space
    if space is not None and not (
        isinstance(space, kinds.Space) and not space.shape and space.dtype == np.dtype(str)
    ):
        return None
    return kinds.Text(_TEXT, min_length=0, charset=string.printable)


def _spec_leaf(spec: Any, keys: tuple[Any, ...]) -> Leaf | None:
    with optional("dm-env", "dm", "dm_env"):
        from dm_env import specs
    if isinstance(spec, specs.StringArray):
        kind = np.dtype(object)
        return Leaf(spec, keys, spec.name or "", spec.shape, kind, text=spec.string_type)
    if not isinstance(spec, specs.Array):
        return None
    low = high = text = None
    if spec.dtype.kind in "US":
        text = bytes if spec.dtype.kind == "S" else str
    elif isinstance(spec, specs.BoundedArray):
        low, high = spec.minimum, spec.maximum
    return Leaf(spec, keys, spec.name or "", spec.shape, spec.dtype, low, high, True, text)
