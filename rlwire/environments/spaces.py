"""Convert spaces to JSON values (`describe`) and back (`space_of`).

dm_env's specs are converted to Gymnasium spaces first (`gymnasium_space`).

| space         | value                                                                            |
|---------------|----------------------------------------------------------------------------------|
| Box           | ``{"box": "float32", "shape": [4], "low": [-1, -2, null, 0], "high": 5}``        |
| Discrete      | ``{"discrete": 2}``, with ``start`` where it is not 0                            |
| MultiDiscrete | ``{"multi_discrete": [3, 5]}``, with ``start``; ``shape`` where it is not flat   |
| MultiBinary   | ``{"multi_binary": 7}`` or ``{"multi_binary": [2, 2]}``                          |
| Text          | ``{"text": 12}``, with ``min`` where it is not 1, and ``characters``             |
| Dict          | ``{"dict": [["x", space], ["y", space]]}``, in the space's order                 |
| Tuple         | ``{"tuple": [space, space]}``                                                    |

Arrays are lists in C order, or one number for equal elements; null is an infinite bound. Integers
of another dtype than int64 have ``dtype``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.casting import DTYPES, exact_range
from rlwire.environments.loading import load
from rlwire.environments.trees import Leaf, gymnasium_spaces, text_of, tree_of
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, MissingExtra, quoted
from rlwire.limits import DEFAULT, Limits

_KINDS = ("box", "discrete", "multi_discrete", "multi_binary", "text", "dict", "tuple")
_HELD = 20  # bytes per element of a Box or MultiDiscrete: two bounds, two flags


def gymnasium_space(space: Any) -> Any:
    """Convert dm_env's specs to a Gymnasium space; return a Gymnasium space unchanged.

    A scalar integer with bounds becomes Discrete, other numbers Box, text a Text of printable
    characters, mappings Dict, sequences Tuple.
    """
    kinds = gymnasium_spaces()
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
    if leaf.text is not None or str(dtype) not in DTYPES or any(size < 0 for size in shape):
        raise EncodeError(f"Gymnasium has no space for {leaf.space}", path=leaf.where)
    low, high = leaf.low, leaf.high
    if dtype.kind in "iu" and not shape and low is not None:
        return kinds.Discrete(int(high) - int(low) + 1, start=int(low), dtype=dtype.type)
    if low is None and dtype.kind == "f":
        low, high = -np.inf, np.inf
    elif low is None:
        low, high = exact_range(dtype)
    low, high = (np.broadcast_to(np.asarray(bound, dtype), shape) for bound in (low, high))
    return kinds.Box(low, high, shape, dtype.type)


def describe(space: Any) -> dict[str, Any]:
    return _described(gymnasium_space(space), gymnasium_spaces(), "$")


class DescribedSpaces(NamedTuple):
    """The spaces, and what `episode_of` returns, of a peer's environment."""

    observation: Any
    action: Any
    episode: dict[str, Any]


def episode_of(environment: Any) -> dict[str, Any]:
    """Return the `max_episode_steps` and `reward_threshold` of an environment's spec, if any."""
    return _episode(getattr(getattr(environment, "spec", None), "__dict__", {}))


def _episode(told: Mapping[str, Any]) -> dict[str, Any]:
    steps, reward = told.get("max_episode_steps"), told.get("reward_threshold")
    found: dict[str, Any] = {}
    if type(steps) is int and steps > 0:
        found["max_episode_steps"] = steps
    if isinstance(reward, (int, float)) and math.isfinite(reward):
        found["reward_threshold"] = float(reward)
    return found


def describe_both(
    observation_space: Any, action_space: Any, environment: Any = None
) -> dict[str, Any] | None:
    """Return the JSON value of both spaces, for `spaces_of`; None for specs that have none.

    It also has what `episode_of` returns for `environment`.
    """
    told: dict[str, Any] = episode_of(environment)
    for which, space in (("observation", observation_space), ("action", action_space)):
        try:
            told[which] = describe(space)
        except MissingExtra:
            return None
        except EncodeError as error:
            if not hasattr(space, "sample"):  # specs of dm_env
                return None
            raise EncodeError(f"the {which} space {space} has no JSON form: {error}") from None
    return told


def spaces_of(told: Any, limits: Limits = DEFAULT) -> DescribedSpaces | None:
    """Return the spaces that `describe_both` described; None for any other value."""
    if not isinstance(told, Mapping) or not {"observation", "action"} <= told.keys():
        return None
    seen, done = space_of(told["observation"], limits), space_of(told["action"], limits)
    return DescribedSpaces(seen, done, _episode(told))


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
    if isinstance(space, kinds.Box) and str(space.dtype) in DTYPES:
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
        f"expected a Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict or Tuple, not a "
        f"{type(space).__name__}: wrap the environment to convert it",
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
    """Return one number if all elements are equal, else a list; infinity becomes None."""
    if not array.size:
        return 0
    if (array == array.flat[0]).all():
        return _number(array.flat[0])
    return [_number(each) for each in array.flat]


def _number(value: Any) -> int | float | None:
    if value.dtype.kind != "f":
        return int(value)
    # The shortest text for its dtype: 4.8, not 4.800000190734863.
    return float(str(value)) if np.isfinite(value) else None


def space_of(value: Any, limits: Limits = DEFAULT) -> Any:
    """Return the Gymnasium space of a JSON value; DecodeError if it is invalid."""
    return _Reader(limits).read(value, "$", 1)


def named_space(text: str) -> Any:
    """Return the space ``"module:name"``, or that of JSON text in the form of `describe`."""
    if not text.lstrip().startswith("{"):
        return load(text, "a space as 'module:name' or JSON such as '{\"discrete\": 2}'")
    try:
        return space_of(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON {text!r}: {error}") from None


class _Invalid(ValueError):
    """Its text is for the peer, unlike those of Gymnasium and NumPy."""


class _Reader:
    """Decodes one JSON value; limits apply to the sum over its nested spaces."""

    def __init__(self, limits: Limits) -> None:
        self._kinds = gymnasium_spaces()
        self._limits = limits
        self._items = self._bytes = 0
        self._path = ""

    def read(self, value: Any, path: str, depth: int) -> Any:
        outer, self._path = self._path, path
        self._most("depth", depth)
        self._items += 1
        self._most("items", self._items)
        found = [kind for kind in _KINDS if isinstance(value, Mapping) and kind in value]
        if len(found) != 1:
            kinds = ", ".join(_KINDS)
            raise DecodeError(f"a space must have one of {kinds}, not {quoted(value)}", path=path)
        try:
            return getattr(self, f"_{found[0]}")(value, depth + 1)
        except (DecodeError, LimitExceeded):
            raise
        except (ValueError, TypeError, OverflowError, AssertionError) as error:
            ours = isinstance(error, _Invalid)
            words = str(error) if ours else "its entries are of wrong types, sizes or ranges"
            raise DecodeError(f"invalid {found[0]}: {words}", path=path) from None
        finally:
            self._path = outer

    def _most(self, limit: str, size: int) -> None:
        maximum = getattr(self._limits, limit)
        if size > maximum:
            raise LimitExceeded(limit, maximum, size, path=self._path)

    def _dict(self, value: Mapping[str, Any], depth: int) -> Any:
        items = {}
        for pair in self._list(value["dict"]):
            name, each = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
            if not isinstance(name, str) or name in items:
                raise _Invalid(f"expected a new name and a space, not {quoted(pair)}")
            items[name] = self.read(each, f"{self._path}.{name}", depth)
        return self._kinds.Dict(list(items.items()))

    def _tuple(self, value: Mapping[str, Any], depth: int) -> Any:
        items = enumerate(self._list(value["tuple"]))
        return self._kinds.Tuple(
            [self.read(each, f"{self._path}[{place}]", depth) for place, each in items]
        )

    def _box(self, value: Mapping[str, Any], depth: int) -> Any:
        dtype = _dtype(value["box"])
        shape = self._shape(value.get("shape"))
        low = self._array(value.get("low"), shape, dtype, -math.inf)
        high = self._array(value.get("high"), shape, dtype, math.inf)
        return self._kinds.Box(low, high, shape, dtype.type)

    def _discrete(self, value: Mapping[str, Any], depth: int) -> Any:
        dtype = _dtype(value.get("dtype", "int64"), "iu")
        n, start = _integer(value["discrete"]), _integer(value.get("start", 0))
        for each in (n, start, start + n - 1):
            _element(each, dtype)
        return self._kinds.Discrete(n, start=start, dtype=dtype.type)

    def _multi_discrete(self, value: Mapping[str, Any], depth: int) -> Any:
        counts = self._list(value["multi_discrete"])
        shape = self._shape(value.get("shape", [len(counts)]))
        dtype = _dtype(value.get("dtype", "int64"), "iu")
        nvec = self._array(counts, shape, dtype)
        start = self._array(value.get("start", 0), shape, dtype)
        return self._kinds.MultiDiscrete(nvec, dtype=dtype.type, start=start)

    def _multi_binary(self, value: Mapping[str, Any], depth: int) -> Any:
        n = value["multi_binary"]
        shape = self._shape(n if isinstance(n, list) else [n])
        return self._kinds.MultiBinary(shape if isinstance(n, list) else shape[0])

    def _text(self, value: Mapping[str, Any], depth: int) -> Any:
        characters = value.get("characters")
        more = {}
        if characters is not None:
            if not isinstance(characters, str):
                raise _Invalid(f"characters must be text, not {quoted(characters)}")
            self._most("string", len(characters))
            more = {"charset": characters}
        least = _integer(value.get("min", 1))
        return self._kinds.Text(_integer(value["text"]), min_length=least, **more)

    def _list(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _Invalid(f"expected a list, not {quoted(value)}")
        self._items += len(value)
        self._most("items", self._items)
        return value

    def _shape(self, value: Any) -> tuple[int, ...]:
        shape = tuple(map(_integer, self._list(value)))
        self._most("dims", len(shape))
        if any(size < 0 for size in shape):
            raise _Invalid(f"expected sizes of 0 or more, not {quoted(list(shape))}")
        self._bytes += _HELD * math.prod(shape)
        self._most("expanded", self._bytes)
        return shape

    def _array(
        self, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], infinite: float = 0
    ) -> NDArray[Any]:
        if not isinstance(value, list):
            return np.full(shape, _element(value, dtype, infinite), dtype)
        numbers = [_element(each, dtype, infinite) for each in self._list(value)]
        return np.array(numbers, dtype).reshape(shape)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Invalid(f"expected an integer, not {quoted(value)}")
    return value


def _dtype(name: Any, kinds: str = "biuf") -> np.dtype[Any]:
    dtype = DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None or dtype.kind not in kinds:
        known = ", ".join(one for one, each in DTYPES.items() if each.kind in kinds)
        raise _Invalid(f"dtype must be one of {known}, not {quoted(name)}")
    return dtype


def _element(value: Any, dtype: np.dtype[Any], infinite: float = 0) -> Any:
    if dtype.kind == "f":
        if value is None:
            return infinite
        if isinstance(value, (int, float)) and abs(value) <= float(np.finfo(dtype).max):
            return float(value)
        raise _Invalid(f"expected a {dtype}, not {quoted(value)}")
    number = _integer(value)
    least, most = exact_range(dtype)
    if not least <= number <= most:
        raise _Invalid(f"expected a {dtype}, not {number}")
    return number
