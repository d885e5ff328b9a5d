"""Spaces as values of JSON, so that one end can tell the other: `describe` and `space_of`.

dm_env's specs are described as the spaces of Gymnasium that they are: `gymnasium_space`.

| space         | value                                                                            |
|---------------|----------------------------------------------------------------------------------|
| Box           | ``{"box": "float32", "shape": [4], "low": [-1, -2, null, 0], "high": 5}``        |
| Discrete      | ``{"discrete": 2}``, with ``start`` where it is not 0                            |
| MultiDiscrete | ``{"multi_discrete": [3, 5]}``, with ``start``; ``shape`` where it is not flat   |
| MultiBinary   | ``{"multi_binary": 7}`` or ``{"multi_binary": [2, 2]}``                          |
| Text          | ``{"text": 12}``, with ``min`` where it is not 1, and ``characters``             |
| Dict          | ``{"dict": [["x", space], ["y", space]]}``, in the space's order                 |
| Tuple         | ``{"tuple": [space, space]}``                                                    |

Numbers of an array stand in C order, or once where they are all the same; null is a bound that is
infinite. ``dtype`` stands beside integers of another dtype than int64.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.loading import load
from rlwire.environments.trees import Leaf, text_of, tree_of
from rlwire.errors import (
    DecodeError,
    EncodeError,
    LimitExceeded,
    MissingExtra,
    optional,
    quoted,
)
from rlwire.limits import DEFAULT, Limits

__all__ = ["describe", "describe_both", "gymnasium_space", "named_space", "space_of", "spaces_of"]

_DTYPES = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
}
_HELD = 20  # bytes that a Box or MultiDiscrete keeps for an element of 8: two bounds, two flags


def _gymnasium() -> Any:
    with optional("gymnasium", "gym"):
        from gymnasium import spaces
    return spaces


def gymnasium_space(space: Any) -> Any:
    """Return the Gymnasium space that specs of dm_env describe; a space is what it was.

    A lone integer with bounds is Discrete, other numbers are Box; text is Text, of whatever can be
    printed; mappings are Dict, sequences Tuple.
    """
    kinds = _gymnasium()
    if isinstance(space, kinds.Space):
        return space
    tree = tree_of(space, "it", "which no space of Gymnasium is")
    return _nested(tree.build(_leaf_space(leaf, kinds) for leaf in tree.leaves), kinds)


def _nested(value: Any, kinds: Any) -> Any:
    if isinstance(value, kinds.Space):
        return value
    if isinstance(value, Mapping):
        return kinds.Dict([(key, _nested(each, kinds)) for key, each in value.items()])
    return kinds.Tuple([_nested(each, kinds) for each in value])


def _leaf_space(leaf: Leaf, kinds: Any) -> Any:
    shape, dtype = leaf.shape, leaf.dtype
    if leaf.text is not None and not shape:
        return text_of(None, kinds)
    if leaf.text is not None or str(dtype) not in _DTYPES or any(size < 0 for size in shape):
        raise EncodeError(f"{leaf.space} is no space of Gymnasium", path=leaf.where)
    low, high = leaf.low, leaf.high
    if dtype.kind in "iu" and not shape and low is not None:
        return kinds.Discrete(int(high) - int(low) + 1, start=int(low), dtype=dtype.type)
    if low is None and dtype.kind == "f":
        low, high = -np.inf, np.inf
    elif low is None:
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = (np.broadcast_to(np.asarray(bound, dtype), shape) for bound in (low, high))
    return kinds.Box(low, high, shape, dtype.type)


def describe(space: Any) -> dict[str, Any]:
    """Return a space as JSON has it: dictionaries, lists, texts, numbers and None."""
    return _described(gymnasium_space(space), _gymnasium(), "$")


def describe_both(observation_space: Any, action_space: Any) -> dict[str, Any] | None:
    """Return an environment's spaces as `spaces_of` reads them, or None where specs say all."""
    told = {}
    for which, space in (("observation", observation_space), ("action", action_space)):
        try:
            told[which] = describe(space)
        except MissingExtra:
            return None
        except EncodeError as error:
            if not hasattr(space, "sample"):  # specs of dm_env
                return None
            raise EncodeError(f"the {which} space {space} cannot be described: {error}") from None
    return told


def spaces_of(told: Any, limits: Limits = DEFAULT) -> tuple[Any, Any] | None:
    """Return the observation and the action space that `describe_both` has described; else None."""
    if not isinstance(told, Mapping) or not {"observation", "action"} <= told.keys():
        return None
    return space_of(told["observation"], limits), space_of(told["action"], limits)


def _described(space: Any, kinds: Any, path: str) -> dict[str, Any]:
    if isinstance(space, kinds.Dict):
        items = []
        for key, each in space.items():
            if not isinstance(key, str):
                raise EncodeError(f"a key of a Dict must be text, not {key!r}", path=path)
            items.append([key, _described(each, kinds, f"{path}.{key}")])
        return {"dict": items}
    if isinstance(space, kinds.Tuple):
        each = enumerate(space)
        return {"tuple": [_described(child, kinds, f"{path}[{place}]") for place, child in each]}
    if isinstance(space, kinds.Box) and str(space.dtype) in _DTYPES:
        return {
            "box": str(space.dtype),
            "shape": list(space.shape),
            "low": _numbers(space.low),
            "high": _numbers(space.high),
        }
    if isinstance(space, kinds.Discrete):
        return {"discrete": int(space.n), **_start(space)}
    if isinstance(space, kinds.MultiDiscrete):
        shape = {} if space.nvec.ndim == 1 else {"shape": list(space.shape)}
        return {"multi_discrete": space.nvec.reshape(-1).tolist(), **shape, **_start(space)}
    if isinstance(space, kinds.MultiBinary):
        return {"multi_binary": list(space.n) if isinstance(space.n, tuple) else int(space.n)}
    space = text_of(space, kinds) or space
    if isinstance(space, kinds.Text):
        text: dict[str, Any] = {"text": space.max_length}
        if space.min_length != 1:
            text["min"] = space.min_length
        if space.character_set != kinds.Text(1).character_set:
            text["characters"] = "".join(space.character_list)
        return text
    raise EncodeError(
        f"a space of the kind {type(space).__name__} has no description; wrap the environment so "
        f"that it is a Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict or Tuple",
        path=path,
    )


def _start(space: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if np.any(space.start):
        found["start"] = _numbers(np.asarray(space.start))
    if space.dtype != np.int64:
        found["dtype"] = str(space.dtype)
    return found


def _numbers(array: NDArray[Any]) -> Any:
    """A number for all elements, or a list of one for each; None is an infinite one."""
    if not array.size:
        return 0
    if (array == array.flat[0]).all():
        return _number(array.flat[0])
    return [_number(each) for each in array.flat]


def _number(value: Any) -> int | float | None:
    if value.dtype.kind != "f":
        return int(value)
    # The shortest text that is the same number in its own dtype: 4.8, not 4.800000190734863.
    return float(str(value)) if np.isfinite(value) else None


def space_of(value: Any, limits: Limits = DEFAULT) -> Any:
    """Return the Gymnasium space that a value of JSON describes, as `describe` writes it."""
    return _Reader(limits).read(value, "$", 1)


def named_space(text: str) -> Any:
    """Return the space that a text names: ``"module:name"``, or JSON as `describe` writes it."""
    if not text.lstrip().startswith("{"):
        return load(text, "a space as 'module:name' or JSON such as '{\"discrete\": 2}'")
    try:
        return space_of(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{text!r} is no JSON: {error}") from None


class _Reader:
    """Makes the spaces of one description; what they take is counted over all."""

    def __init__(self, limits: Limits) -> None:
        self._kinds = _gymnasium()
        self._limits = limits
        self._items = self._bytes = 0
        self._makers = {
            "box": self._box,
            "discrete": self._discrete,
            "multi_discrete": self._multi_discrete,
            "multi_binary": self._multi_binary,
            "text": self._text,
            "dict": self._dict,
            "tuple": self._tuple,
        }

    def read(self, value: Any, path: str, depth: int) -> Any:
        if depth > self._limits.depth:
            raise LimitExceeded("depth", self._limits.depth, depth, path=path)
        self._items += 1
        self._most("items", self._items, path)
        if not isinstance(value, Mapping):
            raise DecodeError(f"a space is an object, not {quoted(value)}", path=path)
        found = [kind for kind in self._makers if kind in value]
        if len(found) != 1:
            raise DecodeError(
                f"a space has one of {', '.join(self._makers)}, not {quoted(list(value))}",
                path=path,
            )
        try:
            return self._makers[found[0]](value, path, depth)
        except (DecodeError, LimitExceeded):
            raise
        except (ValueError, TypeError, OverflowError, AssertionError) as error:
            # Gymnasium's own: no elements, a minimum over the maximum.
            raise DecodeError(f"no {found[0]}: {error}", path=path) from None

    def _most(self, limit: str, size: int, path: str) -> None:
        maximum = getattr(self._limits, limit)
        if size > maximum:
            raise LimitExceeded(limit, maximum, size, path=path)

    def _dict(self, value: Mapping[str, Any], path: str, depth: int) -> Any:
        items = {}
        for pair in self._list(value["dict"], path):
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise DecodeError(f"an item is a name and a space, not {quoted(pair)}", path=path)
            if pair[0] in items:
                raise DecodeError(f"two items are called {quoted(pair[0])}", path=path)
            items[pair[0]] = self.read(pair[1], f"{path}.{pair[0]}", depth + 1)
        return self._kinds.Dict(list(items.items()))

    def _tuple(self, value: Mapping[str, Any], path: str, depth: int) -> Any:
        items = enumerate(self._list(value["tuple"], path))
        return self._kinds.Tuple(
            [self.read(each, f"{path}[{place}]", depth + 1) for place, each in items]
        )

    def _box(self, value: Mapping[str, Any], path: str, depth: int) -> Any:
        dtype = self._dtype(value["box"], path)
        shape = self._shape(value.get("shape"), path)
        low = self._array(value.get("low"), shape, dtype, -math.inf, path)
        high = self._array(value.get("high"), shape, dtype, math.inf, path)
        return self._kinds.Box(low, high, shape, dtype.type)

    def _discrete(self, value: Mapping[str, Any], path: str, depth: int) -> Any:
        dtype = self._integers(value, path)
        n, start = (
            self._integer(value["discrete"], path),
            self._integer(value.get("start", 0), path),
        )
        for each in (n, start, start + n - 1):
            self._array(each, (), dtype, 0, path)  # refuses what the dtype does not hold
        return self._kinds.Discrete(n, start=start, dtype=dtype.type)

    def _multi_discrete(self, value: Mapping[str, Any], path: str, depth: int) -> Any:
        counts = self._list(value["multi_discrete"], path)
        shape = self._shape(value.get("shape", [len(counts)]), path)
        dtype = self._integers(value, path)
        nvec = self._array(counts, shape, dtype, 0, path)
        start = self._array(value.get("start", 0), shape, dtype, 0, path)
        return self._kinds.MultiDiscrete(nvec, dtype=dtype.type, start=start)

    def _multi_binary(self, value: Mapping[str, Any], path: str, depth: int) -> Any:
        n = value["multi_binary"]
        shape = self._shape(n if isinstance(n, list) else [n], path)
        return self._kinds.MultiBinary(shape if isinstance(n, list) else shape[0])

    def _text(self, value: Mapping[str, Any], path: str, depth: int) -> Any:
        characters = value.get("characters")
        longest = self._integer(value["text"], path)
        least = self._integer(value.get("min", 1), path)
        if characters is None:
            return self._kinds.Text(longest, min_length=least)
        if not isinstance(characters, str):
            raise DecodeError(f"characters are a text, not {quoted(characters)}", path=path)
        self._most("string", len(characters), path)
        return self._kinds.Text(longest, min_length=least, charset=characters)

    def _list(self, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise DecodeError(f"a list is expected, not {quoted(value)}", path=path)
        self._items += len(value)
        self._most("items", self._items, path)
        return value

    def _integer(self, value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise DecodeError(f"a whole number is expected, not {quoted(value)}", path=path)
        return value

    def _dtype(self, name: Any, path: str) -> np.dtype[Any]:
        dtype = _DTYPES.get(name) if isinstance(name, str) else None
        if dtype is None:
            raise DecodeError(
                f"no dtype: {quoted(name)}; there are {', '.join(_DTYPES)}", path=path
            )
        return dtype

    def _integers(self, value: Mapping[str, Any], path: str) -> np.dtype[Any]:
        dtype = self._dtype(value.get("dtype", "int64"), path)
        if dtype.kind not in "iu":
            raise DecodeError(f"an integer dtype is expected, not {dtype}", path=path)
        return dtype

    def _shape(self, value: Any, path: str) -> tuple[int, ...]:
        sizes = self._list(value, path)
        self._most("dims", len(sizes), path)
        shape = tuple(self._integer(size, path) for size in sizes)
        if any(size < 0 for size in shape):
            raise DecodeError(f"a size is below 0: {quoted(list(shape))}", path=path)
        self._bytes += _HELD * math.prod(shape)
        self._most("expanded", self._bytes, path)
        return shape

    def _array(
        self,
        value: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        infinite: float,
        path: str,
    ) -> NDArray[Any]:
        """Return one side of the bounds, of `shape`."""
        if not isinstance(value, list):
            return np.full(shape, self._element(value, dtype, infinite, path), dtype)
        size = math.prod(shape)
        if len(value) != size:
            raise DecodeError(f"{size} numbers are expected, not {len(value)}", path=path)
        self._list(value, path)
        numbers = [self._element(each, dtype, infinite, path) for each in value]
        return np.array(numbers, dtype).reshape(shape)

    def _element(self, value: Any, dtype: np.dtype[Any], infinite: float, path: str) -> Any:
        if dtype.kind == "f":
            if value is None:
                return infinite
            if isinstance(value, (int, float)) and abs(value) <= float(np.finfo(dtype).max):
                return float(value)
            raise DecodeError(f"a {dtype} is expected, not {quoted(value)}", path=path)
        number = self._integer(value, path)
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not least <= number <= most:
            raise DecodeError(f"{number} is no {dtype}", path=path)
        return number
