"""Converts values of Gymnasium spaces and dm_env specs to dm_env_rpc tensors and back.

`Structure.flatten` returns a value's tensors by name, `build` reverses it. Names join keys with
periods. Items of tuples and lists are numbered from 0; those of an outermost tuple have the default
name as a prefix: ``observation.0``. A single dm_env spec keeps its own name.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.casting import cast, exact_range, real
from rlwire.codecs.dm_env_rpc import Settings, TensorSpec
from rlwire.environments.driver import Driven
from rlwire.environments.infos import InfoCodec
from rlwire.environments.spaces import DescribedSpaces, describe_both, spaces_of
from rlwire.environments.trees import Leaf, Tree, tree_of
from rlwire.errors import DecodeError, EncodeError, RlwireError, quoted
from rlwire.limits import DEFAULT, Limits

REQUEST_SPACES = "rlwire-whole", "1"
"""gRPC metadata of `rlwire.make`, which requests spaces and infos from an rlwire server."""

MULTIPLEXED = "rlwire-multiplexed", "1"
"""gRPC metadata with which rlwire's event loop says that many calls may share a connection."""

INFO = "rlwire.info "
"""Name prefix of an extra observation for `rlwire.make`; the rest of the name is the spaces as JSON
(`describe_both`). Its value is the info as MessagePack, sent unrequested in steps with an info."""

TRUNCATED = "rlwire.truncated"
"""Key of an info: the step is truncated too, though its state is TERMINATED."""

_PACKED, _INTEGER = "rlwire/msgpack", "rlwire/integer"
"""Types of messages that are settings between rlwire's ends, because no tensor carries them."""

_BITS = 8192  # of an integer among settings

_CANNOT = "which dm_env_rpc cannot describe"

_CARRIED = ("b1", "f4", "f8", "i1", "i4", "i8", "u1", "u4", "u8")
_TENSORS = frozenset(map(np.dtype, _CARRIED))
_WIDER = {"f2": "f4", "i2": "i4", "u2": "u4"}

_ndarray = np.ndarray

# A peer's few bytes must not become many objects or much memory.
_settings = InfoCodec(dataclasses.replace(DEFAULT, expanded=1 << 24, items=1 << 16))


def info_spec(driven: Driven) -> TensorSpec:
    spaces = describe_both(driven.observation_space, driven.action_space, driven.environment)
    name = INFO + json.dumps(spaces, separators=(",", ":"))
    return codec.make_spec(name, (-1,), np.dtype(np.uint8))


def spaces_in(name: str, limits: Limits) -> DescribedSpaces | None:
    """Return the observation and action space in a name that begins with `INFO`, or None."""
    try:
        described = json.loads(name[len(INFO) :])
    except (ValueError, RecursionError):
        words = f"an observation's name does not describe spaces: {quoted(name)}"
        raise DecodeError(words) from None
    return spaces_of(described, limits)


class Tensor:
    """A tensor's spec, and conversions between wire values and the environment's numbers."""

    def __init__(self, spec: TensorSpec, wire: np.dtype[Any], leaf: Leaf, group: str) -> None:
        self.spec, self.name = spec, spec.name
        self._path = f"$.step.{group}.{spec.name}"
        self._wire, self._native = wire, leaf.dtype
        self._scalar, self._type = wire.type, leaf.dtype.type
        self._boolean, self._double = wire.kind == "b", wire.char == "d"
        self._largest = float(np.finfo(leaf.dtype).max) if wire.kind == "f" else -1.0
        self._least, self._most = exact_range(leaf.dtype)
        self._same = wire == leaf.dtype
        self._passed = self._scalar if self._same else None  # scalars that are not converted
        self._is_number = leaf.space is None
        self._exact = self._same and not self._is_number
        self._single = leaf.is_scalar and not leaf.shape
        self._stacked: bool | None = getattr(leaf.space, "stack", None)  # of a Sequence

    def to_wire(self, value: Any) -> Any:
        kind = type(value)
        if kind is self._passed or (kind is _ndarray and self._exact and value.dtype == self._wire):
            return value
        if kind is float and -self._largest <= value <= self._largest:  # as most rewards are
            return value if self._double else self._scalar(value)
        if kind is int and not self._boolean and self._least <= value <= self._most:
            return value  # the encoder converts it
        if self._is_number:
            return self._scalar(real(value, repr(self.name), self._path))
        value = cast(value, self._native, repr(self.name), self._path)
        return value if self._same else value.astype(self._wire)

    def to_native(self, value: Any) -> Any:
        if not self._same:
            value = cast(value, self._native, repr(self.name), self._path)
        elif self._single:
            return value if type(value) is self._type else self._type(value)
        elif self._stacked is None and type(value) is _ndarray and value.flags.carray:
            return value
        if self._stacked is not None:  # no copy: a broadcast may be longer than memory
            return value if self._stacked else tuple(value)
        # A copy of a read-only view, such as a broadcast, or of one that is not aligned.
        return self._type(value) if self._single else np.array(value, dtype=self._native)


class _Texts(Tensor):
    def __init__(self, spec: TensorSpec, leaf: Leaf, checked: bool, group: str) -> None:
        self.spec, self.name, self._leaf = spec, spec.name, leaf
        self._path = f"$.step.{group}.{spec.name}"
        self._checked = checked and hasattr(leaf.space, "max_length")

    def to_wire(self, value: Any) -> Any:
        if type(value) is str:
            return value
        array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
        if array.dtype.kind == "U":
            return array
        for item in array.flat:
            if not isinstance(item, (str, self._leaf.text or str)):
                words = f"{self.name!r} must be text, not {type(item).__name__}"
                raise EncodeError(words, path=self._path)
        texts = [item.decode() if isinstance(item, bytes) else item for item in array.flat]
        return np.array(texts, object).reshape(array.shape)

    def to_native(self, value: Any) -> Any:
        leaf, space = self._leaf, self._leaf.space
        array = np.asarray(value, object)
        texts = [str(item).encode() if leaf.text is bytes else str(item) for item in array.flat]
        if not leaf.shape:
            if len(texts) != 1:
                words = f"{self.name!r} must be one text, not of shape {array.shape}"
                raise EncodeError(words, path=self._path)
            text = texts[0]
            if self._checked and not space.contains(text):
                raise EncodeError(
                    f"{self.name!r} must have {space.min_length} to {space.max_length} characters, "
                    f"from {space.characters!r}",
                    path=self._path,
                )
            return text
        if hasattr(space, "stack"):  # a Sequence
            return tuple(texts)
        items = np.empty(array.shape, object)
        items.reshape(-1)[:] = texts
        return items.astype(leaf.dtype)


class Structure:
    """A nested space as tensors: `leaves`, their `specs` and `names`, in the space's order."""

    def __init__(
        self, tree: Tree, what: str, name: str, prefix: str = "", checked: bool = True
    ) -> None:
        self._tree = tree
        self.what = what
        first = prefix or (name if tree.is_sequence else "")
        start = [first] if first else []
        group = "actions" if what == "action" else "observations"
        self.leaves = [
            _tensor(
                leaf, ".".join(map(str, [*start, *leaf.keys])) or leaf.name or name, checked, group
            )
            for leaf in tree.leaves
        ]
        self.is_leaf = tree.is_leaf
        self._single = self.leaves[0] if tree.is_leaf else None
        self.specs = [leaf.spec for leaf in self.leaves]
        self.names = [spec.name for spec in self.specs]
        if len(set(self.names)) != len(self.names):
            twice = min(name for name, count in Counter(self.names).items() if count > 1)
            raise EncodeError(f"two tensors of the {what} have the name {twice!r}")
        codec.unflatten(dict.fromkeys(self.names))  # rejects "a" beside "a.b"

    def flatten(self, value: Any, tensors: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return a value's tensors by name, added to `tensors`."""
        if tensors is None:
            tensors = {}
        single = self._single
        if single is not None:
            tensors[single.name] = single.to_wire(value)
            return tensors
        for leaf, part in zip(self.leaves, self._tree.parts(value), strict=False):
            tensors[leaf.name] = leaf.to_wire(part)
        return tensors

    def build(self, tensors: Mapping[str, Any]) -> Any:
        """Return the value of these tensors; all names are required."""
        single = self._single
        if single is not None:
            return single.to_native(tensors[single.name])
        return self._tree.build([leaf.to_native(tensors[leaf.name]) for leaf in self.leaves])

    def fill(self, number: float) -> dict[str, Any]:
        """Return tensors filled with a number, clipped to their bounds."""
        tensors: dict[str, Any] = {}
        for spec in self.specs:
            full = np.full([1 if size < 0 else size for size in spec.shape], number)
            if spec.dtype == codec.DataType.STRING:
                tensors[spec.name] = np.full(full.shape, "")
            elif spec.dtype == codec.DataType.BOOL:
                tensors[spec.name] = full != 0
            else:
                low, high = codec.bounds(spec)
                tensors[spec.name] = np.clip(full.astype(np.asarray(low).dtype), low, high)
        return tensors


def reset_settings(seed: int | None, options: Mapping[str, Any] | None, rlwire: bool) -> Settings:
    """Return the settings of a reset; EncodeError for what cannot be sent unchanged.

    `rlwire`: whether the server is, whose `plain_setting` decodes what no tensor carries.
    """
    settings: Settings = {}
    if seed is not None:
        settings["seed"] = int(seed)
    if options and rlwire:
        _add_options("options", dict(options), settings)
    elif options:
        settings |= codec.flatten({"options": dict(options)}, strict=False)
    for name, value in settings.items():
        if type(value) is int and not -(2**63) <= value < 2**64:
            if not rlwire or value.bit_length() >= _BITS:
                raise EncodeError(f"{name}: expected an integer of 64 bits, got {quoted(value)}")
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            settings[name] = codec.AnyMessage(_INTEGER, data)
    return settings


def _add_options(name: str, value: Any, settings: Settings) -> None:
    nested = isinstance(value, Mapping) and value and name.count(".") < DEFAULT.depth - 1
    if nested and all(isinstance(key, str) and "." not in key for key in value):
        for key, each in value.items():
            _add_options(".".join((name, key)), each, settings)  # an enumeration's key is its text
        return
    dtype = value.dtype if isinstance(value, (np.ndarray, np.generic)) else None
    carried = type(value) in (bool, int, float) or (dtype is not None and dtype in _TENSORS)
    if not (carried or (type(value) is str and value[-1:] != "\0")):
        try:
            value = codec.AnyMessage(_PACKED, _settings.checked(value))
        except RlwireError as error:
            raise EncodeError(f"{name} cannot be sent: {error}") from None
    settings[name] = value


def plain_setting(value: Any) -> Any:
    """Return the Python value of a received setting."""
    if isinstance(value, codec.AnyMessage) and value.type_url == _PACKED:
        return _settings.decode(value.value)
    if isinstance(value, codec.AnyMessage) and value.type_url == _INTEGER:
        if len(value.value) > _BITS // 8:
            raise DecodeError(f"an integer of {len(value.value)} bytes, expected {_BITS // 8}")
        return int.from_bytes(value.value, "little", signed=True)
    return value.item() if isinstance(value, np.generic) else value


def _tensor(leaf: Leaf, name: str, checked: bool, group: str) -> Tensor:
    if leaf.text is not None:
        spec = codec.make_spec(name, leaf.shape, codec.DataType.STRING)
        return _Texts(spec, leaf, checked, group)
    shape, native = leaf.shape, leaf.dtype
    code = f"{native.kind}{native.itemsize}"
    code = _WIDER.get(code, code)
    if code not in _CARRIED:
        raise EncodeError(f"{name!r} has dtype {native}, which dm_env_rpc cannot encode")
    wire = np.dtype(code)
    low, high = _bound(leaf.low, shape, wire), _bound(leaf.high, shape, wire)
    spec = codec.make_spec(name, shape, wire, low, high)
    return Tensor(spec, wire, leaf, group)


def _bound(bound: Any, shape: tuple[int, ...], wire: np.dtype[Any]) -> Any:
    """Return one side of the bounds: None, a scalar, or an array of `shape`."""
    if bound is None or wire.kind == "b":
        return None
    array = np.asarray(bound).astype(wire)
    if not array.size or (wire.kind == "f" and (np.isinf(array).all() or np.isnan(array).any())):
        return None
    if (array == array.flat[0]).all():
        return array.flat[0]
    # A spec of variable shape has one bound for all elements.
    return None if any(size < 0 for size in shape) else np.broadcast_to(array, shape)


def structure_of(
    space: Any, what: str, name: str, prefix: str = "", client: bool = False
) -> Structure:
    """Return a space as tensors; a `client` has sequences too, and checks no texts."""
    tree = tree_of(space, f"the {what}", _CANNOT, client)
    return Structure(tree, what, name, prefix, not client)


def of_number(
    what: str, name: str, low: float | None = None, high: float | None = None
) -> Structure:
    leaf = Leaf(None, (), name, (), np.dtype(np.float64), low, high, is_scalar=True)
    return Structure(Tree(leaf, f"the {what}"), what, name)
