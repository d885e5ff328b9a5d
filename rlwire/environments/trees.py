"""What is in a space, Gymnasium's or dm_env's specs alike: a `Tree`, with a `Leaf` for each value.

A tree takes a nested value apart, leaf by leaf, and puts it together again. What a leaf is called
and how it is written is each protocol's. Spaces without a fixed structure (Sequence, Graph, OneOf)
have no tree. A space of strings that is not a Text, such as MiniGrid's MissionSpace, counts as the
Text that `text_of` returns.

Not here: spaces as JSON (`rlwire.environments.spaces`).
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwire.errors import EncodeError, optional

_TEXT = 2**16  # characters of a text of whose length nothing is said


@dataclass(frozen=True)
class Leaf:
    """One array, number or text.

    Attributes:
        space: the space or spec.
        keys: where it is: keys of mappings and places in sequences.
        name: what dm_env's spec calls itself; empty for Gymnasium's.
        shape: of its arrays; -1 for a size that varies.
        dtype: of its arrays; that of texts is str's, or object where they are Python's own.
        low: the least of each number, None where nothing is said.
        high: the greatest.
        lone: whether a number without dimensions is NumPy's scalar, not an array.
        text: str or bytes if it is text, else None.
    """

    space: Any
    keys: tuple[Any, ...]
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: Any = None
    high: Any = None
    lone: bool = False
    text: type | None = None

    @property
    def where(self) -> str:
        """The keys, joined by periods."""
        return ".".join(map(str, self.keys))

    def contains(self, value: Any) -> bool:
        """Whether a value is within the space."""
        if hasattr(self.space, "contains"):
            return bool(self.space.contains(value))
        try:
            self.space.validate(value)
        except ValueError:
            return False
        return True

    def nothing(self) -> Any:
        """Return the value nearest to zero, or the shortest text; an array is a new one."""
        if hasattr(self.space, "character_list"):
            return "".join(self.space.character_list[:1]) * self.space.min_length
        if self.text is not None:
            return self.space.generate_value()
        array = np.zeros(tuple(map(abs, self.shape)))  # 1 where a size varies
        if self.low is not None or self.high is not None:
            array = np.clip(array, self.low, self.high)
        number = np.asarray(array, self.dtype)
        return number[()] if self.lone else number


class _Named:
    """Children by key: a dictionary."""

    def __init__(self, children: dict[Any, _Node]) -> None:
        self.children = children

    def items(self, value: Any, where: str) -> Iterator[tuple[Any, _Node, Any]]:
        if not isinstance(value, Mapping):
            raise EncodeError(f"{where} must be a mapping, not a {type(value).__name__}")
        for key, child in self.children.items():
            if key not in value:
                raise EncodeError(f"{where} has no entry {key!r}")
            yield key, child, value[key]

    def build(self, values: Iterator[Any]) -> Any:
        return {key: _build(child, values) for key, child in self.children.items()}


class _Placed:
    """Children by place: a tuple, a named tuple or a list."""

    def __init__(self, children: list[_Node], make: Callable[[list[Any]], Any]) -> None:
        self.children = dict(enumerate(children))
        self._make = make

    def items(self, value: Any, where: str) -> Iterator[tuple[Any, _Node, Any]]:
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
            raise EncodeError(f"{where} must be a sequence, not a {type(value).__name__}")
        if len(value) != len(self.children):
            raise EncodeError(f"{where} must have {len(self.children)} items, not {len(value)}")
        for place, child in self.children.items():
            yield place, child, value[place]

    def build(self, values: Iterator[Any]) -> Any:
        return self._make([_build(child, values) for child in self.children.values()])


_Node = Leaf | _Named | _Placed


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
        what: what errors call it, such as ``the observation``.
        leaves: in the space's order.
        lone: whether it is a leaf and nothing else.
        placed: whether it is a sequence, at its outside.
    """

    def __init__(self, root: _Node, what: str) -> None:
        self._root = root
        self.what = what
        self.leaves = list(_leaves(root))
        self.lone = isinstance(root, Leaf)
        self.placed = isinstance(root, _Placed)

    def parts(self, value: Any) -> list[Any]:
        """Return a value's parts, one a leaf."""
        parts: list[Any] = []
        self._part(self._root, value, self.what, parts)
        return parts

    def _part(self, node: _Node, value: Any, where: str, parts: list[Any]) -> None:
        if isinstance(node, Leaf):
            parts.append(value)
            return
        for key, child, part in node.items(value, where):
            if isinstance(child, Leaf):
                parts.append(part)
            else:
                self._part(child, part, f"{where}.{key}", parts)

    def build(self, parts: Iterable[Any]) -> Any:
        """Return the value that has these parts, one a leaf."""
        return _build(self._root, iter(parts))

    def contains(self, value: Any) -> bool:
        """Whether a value of this structure is within the space."""
        pairs = zip(self.leaves, self.parts(value), strict=True)
        return all(leaf.contains(part) for leaf, part in pairs)

    def nothing(self) -> Any:
        """Return the value nearest to zero: doing nothing, if it is an action.

        That is a guess; an environment's 0 may as well mean "to the left".
        """
        return self.build(leaf.nothing() for leaf in self.leaves)


def tree_of(space: Any, what: str, cannot: str) -> Tree:
    """Return what is in a Gymnasium space, or in specs of dm_env."""
    if hasattr(space, "sample") and hasattr(space, "contains"):
        return _of_space(space, what, cannot)
    if hasattr(space, "generate_value") or isinstance(space, (Mapping, tuple, list)):
        return _of_spec(space, what, cannot)
    return _of_space(space, what, cannot)


def _of_space(space: Any, what: str, cannot: str) -> Tree:
    with optional("gymnasium", "gym"):
        from gymnasium import spaces

    def node(space: Any, keys: tuple[Any, ...]) -> _Node:
        if isinstance(space, spaces.Dict):
            return _Named({key: node(each, (*keys, key)) for key, each in space.items()})
        if isinstance(space, spaces.Tuple):
            each = enumerate(space)
            return _Placed([node(child, (*keys, place)) for place, child in each], tuple)
        text = text_of(space, spaces)
        if text is not None:
            return Leaf(text, keys, "", (), np.dtype(str), text=str)
        if isinstance(space, spaces.Discrete):
            low, high = int(space.start), int(space.start) + int(space.n) - 1
            return Leaf(space, keys, "", (), space.dtype, low, high, lone=True)
        if isinstance(space, spaces.Box):
            bounds = space.low, space.high
        elif isinstance(space, spaces.MultiDiscrete):
            bounds = space.start, space.start + space.nvec - 1
        elif isinstance(space, spaces.MultiBinary):
            bounds = 0, 1
        else:
            raise EncodeError(
                f"{what} has a {type(space).__name__}{_at(keys)}, {cannot}; wrap the "
                f"environment so that it is a Box, Discrete, MultiDiscrete, MultiBinary, Text, "
                f"Dict or Tuple: {space}"
            )
        return Leaf(space, keys, "", tuple(space.shape), space.dtype, *bounds)

    return Tree(node(space, ()), what)


def text_of(space: Any, kinds: Any) -> Any:
    """Return the Text that a space of strings is, or None; None itself gives one of any text."""
    if isinstance(space, kinds.Text):
        return space
    if space is not None and not (
        isinstance(space, kinds.Space) and not space.shape and space.dtype == np.dtype(str)
    ):
        return None
    return kinds.Text(_TEXT, min_length=0, charset=string.printable)


def _of_spec(spec: Any, what: str, cannot: str) -> Tree:
    with optional("dm-env", "dm", "dm_env"):
        from dm_env import specs

    def node(spec: Any, keys: tuple[Any, ...]) -> _Node:
        if isinstance(spec, specs.StringArray):
            kind = np.dtype(object)
            return Leaf(spec, keys, spec.name or "", spec.shape, kind, text=spec.string_type)
        if isinstance(spec, specs.Array):
            low = high = text = None
            if spec.dtype.kind in "US":
                text = bytes if spec.dtype.kind == "S" else str
            elif isinstance(spec, specs.BoundedArray):
                low, high = spec.minimum, spec.maximum
            return Leaf(spec, keys, spec.name or "", spec.shape, spec.dtype, low, high, True, text)
        if isinstance(spec, Mapping):
            return _Named({key: node(each, (*keys, key)) for key, each in spec.items()})
        if isinstance(spec, Sequence) and not isinstance(spec, (str, bytes)):
            children = [node(each, (*keys, place)) for place, each in enumerate(spec)]
            return _Placed(children, getattr(type(spec), "_make", type(spec)))
        raise EncodeError(
            f"{what} has a {type(spec).__name__}{_at(keys)}, which is none of dm_env's "
            f"specs, {cannot}"
        )

    return Tree(node(spec, ()), what)


def _at(keys: tuple[Any, ...]) -> str:
    return f" at {'.'.join(map(str, keys))}" if keys else ""
