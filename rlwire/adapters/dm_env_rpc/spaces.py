"""Gymnasium's spaces and dm_env's specs as dm_env_rpc's tensors, both ways.

A `Structure` knows what a nested space looks like: `flatten` makes tensors by name of a value,
`build` makes the value again. Names join the keys with periods; places in tuples and lists count
from 0, and an outermost tuple's items are called as a lone value would be, such as
``observation.0``.

Payloads exist for float32, float64, int8, int32, int64, uint8, uint32, uint64, bool and text.
Other numbers travel in the nearest wider one (float16 as float32, int16 as int32, uint16 as
uint32) and come back in their own dtype. Infinite bounds are left out where the whole side is
infinite. Complex numbers, objects, and spaces without a fixed structure cannot be carried.

Not here: environments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwire.codecs.casting import cast
from rlwire.codecs.dm_env_rpc import DataType, TensorSpec, bounds, make_spec, unflatten
from rlwire.errors import EncodeError, optional

__all__ = ["Leaf", "Structure", "of_dm_env_spec", "of_gymnasium_space"]

_WIRE: dict[tuple[str, int], np.dtype[Any]] = {
    ("b", 1): np.dtype(np.bool_),
    ("f", 2): np.dtype(np.float32),
    ("f", 4): np.dtype(np.float32),
    ("f", 8): np.dtype(np.float64),
    ("i", 1): np.dtype(np.int8),
    ("i", 2): np.dtype(np.int32),
    ("i", 4): np.dtype(np.int32),
    ("i", 8): np.dtype(np.int64),
    ("u", 1): np.dtype(np.uint8),
    ("u", 2): np.dtype(np.uint32),
    ("u", 4): np.dtype(np.uint32),
    ("u", 8): np.dtype(np.uint64),
}
"""Kind and size of a dtype, and the payload's that carries it."""

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Leaf:
    """One tensor.

    Attributes:
        spec: its name, shape, payload and bounds.
        to_wire: the environment's value to one that the spec describes.
        to_native: a value that the spec describes to what the environment wants.
    """

    spec: TensorSpec
    to_wire: Convert
    to_native: Convert


class _Named:
    """Children by key: a dictionary."""

    def __init__(self, children: dict[Any, _Node]) -> None:
        self.children = children

    def items(self, value: Any, where: str) -> Iterator[tuple[str, _Node, Any]]:
        if not isinstance(value, Mapping):
            raise EncodeError(f"{where} must be a mapping, not a {type(value).__name__}")
        for key, child in self.children.items():
            if key not in value:
                raise EncodeError(f"{where} has no entry {key!r}")
            yield str(key), child, value[key]

    def build(self, tensors: Mapping[str, Any]) -> Any:
        return {key: _build(child, tensors) for key, child in self.children.items()}


class _Placed:
    """Children by place: a tuple, a named tuple or a list."""

    def __init__(self, children: list[_Node], make: Convert) -> None:
        self.children = dict(enumerate(children))
        self._make = make

    def items(self, value: Any, where: str) -> Iterator[tuple[str, _Node, Any]]:
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
            raise EncodeError(f"{where} must be a sequence, not a {type(value).__name__}")
        if len(value) != len(self.children):
            raise EncodeError(f"{where} must have {len(self.children)} items, not {len(value)}")
        for place, child in self.children.items():
            yield str(place), child, value[place]

    def build(self, tensors: Mapping[str, Any]) -> Any:
        return self._make([_build(child, tensors) for child in self.children.values()])


_Node = Leaf | _Named | _Placed


def _build(node: _Node, tensors: Mapping[str, Any]) -> Any:
    if isinstance(node, Leaf):
        return node.to_native(tensors[node.spec.name])
    return node.build(tensors)


def _leaves(node: _Node) -> Iterator[Leaf]:
    if isinstance(node, Leaf):
        yield node
        return
    for child in node.children.values():
        yield from _leaves(child)


class Structure:
    """A nested space.

    Attributes:
        what: what errors call it, such as ``reward``.
        leaves: its tensors, in the order of the space.
        specs: theirs.
        names: theirs.
    """

    def __init__(self, root: _Node, what: str) -> None:
        self._root = root
        self.what = what
        self.leaves = list(_leaves(root))
        self.specs = [leaf.spec for leaf in self.leaves]
        self.names = [spec.name for spec in self.specs]
        if len(set(self.names)) != len(self.names):
            twice = min(name for name, count in Counter(self.names).items() if count > 1)
            raise EncodeError(f"two tensors of the {what} would be called {twice!r}")
        unflatten(dict.fromkeys(self.names))  # refuses "a" next to "a.b", which nobody can rebuild

    def flatten(self, value: Any) -> dict[str, Any]:
        """Return the tensors of a value of this space, by name.

        Raises:
            EncodeError: the value is none of this space; its shape is the encoder's to check.
        """
        root = self._root
        if isinstance(root, Leaf):
            return {root.spec.name: root.to_wire(value)}
        tensors: dict[str, Any] = {}
        self._flatten(root, value, f"the {self.what}", tensors)
        return tensors

    def _flatten(
        self, node: _Named | _Placed, value: Any, where: str, tensors: dict[str, Any]
    ) -> None:
        for key, child, part in node.items(value, where):
            if isinstance(child, Leaf):
                tensors[child.spec.name] = child.to_wire(part)
            else:
                self._flatten(child, part, f"{where}.{key}", tensors)

    def build(self, tensors: Mapping[str, Any]) -> Any:
        """Return the value that these tensors are; all names must be there."""
        return _build(self._root, tensors)

    def fill(self, number: float) -> dict[str, Any]:
        """Return tensors full of a number, or of the nearest one within the bounds."""
        return {spec.name: _full(spec, number) for spec in self.specs}


def _full(spec: TensorSpec, number: float) -> Any:
    shape = tuple(1 if size < 0 else size for size in spec.shape)
    if spec.dtype == DataType.STRING:
        return np.full(shape, "")
    if spec.dtype == DataType.BOOL:
        return np.full(shape, bool(number))
    low, high = bounds(spec)
    return np.clip(np.full(shape, number, np.asarray(low).dtype), low, high)


# ---- numbers and text ---------------------------------------------------------------------------


def _number_to_wire(name: str, wire: np.dtype[Any]) -> Convert:
    scalar = wire.type
    floating = wire.kind == "f"

    def to_wire(value: Any) -> Any:
        kind = type(value)
        if kind is scalar or (kind is np.ndarray and value.dtype == wire):
            return value
        if floating and kind is float:  # as most rewards are
            return scalar(value)
        return cast(value, wire, repr(name))

    return to_wire


def _number_leaf(
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    low: Any = None,
    high: Any = None,
    *,
    scalar: bool,
) -> Leaf:
    """A tensor of numbers; `scalar` says whether a lone number is NumPy's scalar or an array."""
    native = np.dtype(dtype)
    wire = _WIRE.get((native.kind, native.itemsize))
    if wire is None:
        raise EncodeError(f"{name!r} is of {native}, which no payload of dm_env_rpc can carry")
    spec = make_spec(name, shape, wire, _bound(low, shape, wire), _bound(high, shape, wire))
    lone = scalar and not shape
    if lone and wire == native:
        return Leaf(spec, _number_to_wire(name, wire), native.type)

    def to_native(value: Any) -> Any:
        if wire != native:
            value = cast(value, native, repr(name))
        # A copy of its own: what came off the wire may be a view that cannot be written to.
        return native.type(value) if lone else np.array(value, dtype=native)

    return Leaf(spec, _number_to_wire(name, wire), to_native)


def _bound(bound: Any, shape: tuple[int, ...], wire: np.dtype[Any]) -> Any:
    """One side of the bounds: None, a scalar, or an array of `shape`."""
    if bound is None or wire.kind == "b":
        return None
    array = np.asarray(bound).astype(wire)
    if not array.size or (wire.kind == "f" and (np.isinf(array).all() or np.isnan(array).any())):
        return None
    if (array == array.flat[0]).all():
        return array.flat[0]
    # A spec of variable shape has one bound for all elements.
    return None if any(size < 0 for size in shape) else np.broadcast_to(array, shape)


def _text_leaf(name: str, shape: tuple[int, ...], kind: type = str, dtype: Any = None) -> Leaf:
    """A tensor of text; `dtype` is that of the environment's arrays."""

    def native(text: Any) -> Any:
        return str(text).encode() if kind is bytes else str(text)

    def to_native(value: Any) -> Any:
        if not shape:
            return native(np.asarray(value).item())
        array = np.asarray(value)
        items = np.empty(array.shape, object)
        items.reshape(-1)[:] = [native(text) for text in array.flat]
        return items if dtype is None else items.astype(dtype)

    return Leaf(
        make_spec(name, shape, DataType.STRING), lambda value: _text(value, name), to_native
    )


def _text(value: Any, name: str) -> Any:
    if type(value) is str:
        return value
    array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
    if array.dtype.kind == "U":
        return array
    texts = []
    for item in array.flat:
        if not isinstance(item, (str, bytes)):
            raise EncodeError(f"{name!r} must be text, not {type(item).__name__}")
        texts.append(item.decode() if isinstance(item, bytes) else item)
    return np.array(texts, dtype=str).reshape(array.shape)


# ---- dm_env -------------------------------------------------------------------------------------


def of_dm_env_spec(spec: Any, what: str, name: str, prefix: str = "") -> Structure:
    """Return the structure of dm_env's specs: one, or nested ones.

    Args:
        spec: a `dm_env.specs.Array`, or mappings and sequences of them.
        what: what errors call it.
        name: of a lone spec that has none itself, and of a sequence. In a mapping the keys are
            the names.
        prefix: begins every name, and is the name of a lone spec.

    Raises:
        EncodeError: it cannot be carried.
        MissingExtra: dm_env is not installed.
    """
    with optional("dm-env", "dm", "dm_env"):
        from dm_env import specs

    def node(spec: Any, path: str) -> _Node:
        if isinstance(spec, specs.Array):
            return _dm_env_leaf(spec, path or spec.name or name, specs)
        if isinstance(spec, Mapping):
            return _Named({key: node(each, _join(path, key)) for key, each in spec.items()})
        if isinstance(spec, Sequence) and not isinstance(spec, (str, bytes)):
            path = path or name
            children = [node(each, _join(path, place)) for place, each in enumerate(spec)]
            return _Placed(children, getattr(type(spec), "_make", type(spec)))
        raise EncodeError(
            f"the {what} spec has a {type(spec).__name__}{f' at {path}' if path else ''}, "
            f"which is none of dm_env's specs"
        )

    return Structure(node(spec, prefix), what)


def _dm_env_leaf(spec: Any, name: str, specs: Any) -> Leaf:
    if isinstance(spec, specs.StringArray):
        return _text_leaf(name, spec.shape, spec.string_type)
    if spec.dtype.kind in "US":
        kind = bytes if spec.dtype.kind == "S" else str
        return _text_leaf(name, spec.shape, kind, spec.dtype)
    if isinstance(spec, specs.BoundedArray):
        low, high = spec.minimum, spec.maximum
        return _number_leaf(name, spec.shape, spec.dtype, low, high, scalar=True)
    return _number_leaf(name, spec.shape, spec.dtype, scalar=True)


# ---- Gymnasium ----------------------------------------------------------------------------------


def of_gymnasium_space(space: Any, what: str, name: str) -> Structure:
    """Return the structure of a Gymnasium space.

    Box, Discrete, MultiDiscrete, MultiBinary and Text, and Dict and Tuple of them.

    Args:
        space: a `gymnasium.Space`.
        what: what errors call it.
        name: of a lone one, and of a tuple. In a Dict the keys are the names.

    Raises:
        EncodeError: it cannot be carried.
        MissingExtra: Gymnasium is not installed.
    """
    with optional("gymnasium", "gym"):
        from gymnasium import spaces

    def node(space: Any, path: str) -> _Node:
        if isinstance(space, spaces.Dict):
            return _Named({key: node(each, _join(path, key)) for key, each in space.items()})
        if isinstance(space, spaces.Tuple):
            path = path or name
            children = [node(each, _join(path, place)) for place, each in enumerate(space)]
            return _Placed(children, tuple)
        leaf = _gymnasium_leaf(space, path or name, spaces)
        if leaf is None:
            raise EncodeError(
                f"the {what} space has a {type(space).__name__}{f' at {path}' if path else ''}, "
                f"which dm_env_rpc cannot describe; wrap the environment so that it is a Box, "
                f"Discrete, MultiDiscrete, MultiBinary, Text, Dict or Tuple"
            )
        return leaf

    return Structure(node(space, ""), what)


def _gymnasium_leaf(space: Any, name: str, spaces: Any) -> Leaf | None:
    if isinstance(space, spaces.Box):
        return _number_leaf(name, space.shape, space.dtype, space.low, space.high, scalar=False)
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start) + int(space.n) - 1
        return _number_leaf(name, (), space.dtype, low, high, scalar=True)
    if isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
        return _number_leaf(name, space.shape, space.dtype, low, high, scalar=False)
    if isinstance(space, spaces.MultiBinary):
        return _number_leaf(name, space.shape, space.dtype, 0, 1, scalar=False)
    if isinstance(space, spaces.Text):
        leaf = _text_leaf(name, ())

        def to_native(value: Any) -> str:
            text: str = leaf.to_native(value)
            if not space.contains(text):
                raise EncodeError(
                    f"{name!r} must be text of {space.min_length} to {space.max_length} of the "
                    f"characters {space.characters!r}"
                )
            return text

        return Leaf(leaf.spec, leaf.to_wire, to_native)
    return None


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
