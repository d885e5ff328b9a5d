"""`SpaceText` converts values of Gymnasium's spaces and dm_env's specs to PERLERT's text and back.

| space                           | observation                          | action                |
|---------------------------------|--------------------------------------|-----------------------|
| Box, MultiDiscrete, MultiBinary | ``0.54,-1``, in C order              | the same              |
| Discrete                        | ``3``                                | the same              |
| Text                            | unchanged                            | the same              |
| Dict                            | ``x:0.54,y.left:1,2``: keys, nested  | only the values, in   |
|                                 | ones joined by periods               | the space's order:    |
| Tuple                           | ``0:0.54,1:3``: indexes from 0       | ``0.54,1,2``          |

Actions have no keys, since they must not contain a colon. Booleans are 1 and 0. Numbers have enough
digits to restore the same number, or a given number of decimals. Shapes and dtypes are not sent:
the receiver's space defines them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs import perlert
from rlwire.codecs.casting import cast, exact_range
from rlwire.environments.spaces import DescribedSpaces, describe_both, spaces_of
from rlwire.environments.trees import Leaf, tree_of
from rlwire.errors import DecodeError, EncodeError, RlwireError, quoted
from rlwire.limits import DEFAULT, Limits

OWN_TAG = "rlwire-"
"""Prefix of the default tags of rlwire's clients. Servers describe the spaces to such tags."""

DESCRIPTION = "rlwire.spaces "
"""Prefix of a space description: ``rlwire.spaces 1/2 ...`` is the first of two parts."""

_PARTS = 16  # of a description; one per registration, since source addresses can be forged
_PART = re.compile(f"{DESCRIPTION}([0-9]{{1,2}})/([0-9]{{1,2}}) (.*)", re.DOTALL).fullmatch
_HEADER = 256  # bytes of a datagram that are reserved for the text before the description
_FORBIDDEN = frozenset(":;,=")
_CANNOT = "which has no text in PERLERT"
_NAME = re.compile(r"(?:^|,)([^,:]*):")


def write_spaces(
    observation_space: Any, action_space: Any, limits: Limits = DEFAULT, environment: Any = None
) -> list[str]:
    """Return the lobby messages that describe spaces; none for specs without an equal space."""
    spaces = describe_both(observation_space, action_space, environment)
    if spaces is None:
        return []
    text = json.dumps(spaces, separators=(",", ":"))
    size = max(limits.datagram - _HEADER, limits.datagram // 2)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    if len(parts) > _PARTS:
        raise EncodeError(
            f"the description of the spaces has {len(text)} bytes, limit is {_PARTS} parts of "
            f"{size}; give all elements of a Box the same bounds, or raise the limit "
            f"datagram={limits.datagram} at both ends: observation space {observation_space}, "
            f"action space {action_space}"
        )
    return [f"{DESCRIPTION}{number}/{len(parts)} {part}" for number, part in enumerate(parts, 1)]


class SpaceDescription:
    """Collects the parts of a space description, in any order."""

    def __init__(self) -> None:
        self.count = 0  # of parts; 0 before the first has arrived
        self._parts: dict[int, str] = {}

    def add(self, text: str) -> bool:
        """Add a part; return whether the text is one."""
        found = _PART(text)
        if found is None:
            return False
        number, count = int(found[1]), int(found[2])
        if 1 <= number <= count <= _PARTS:
            if count != self.count:
                self._parts.clear()
            self.count, self._parts[number] = count, found[3]
        return True

    def spaces(self, limits: Limits = DEFAULT) -> DescribedSpaces | None:
        """Return the observation and the action space; None while a part is missing."""
        if not self._parts or len(self._parts) < self.count:
            return None
        text = "".join(self._parts[number] for number in sorted(self._parts))
        try:
            spaces = spaces_of(json.loads(text), limits)
        except RlwireError:
            raise
        except (ValueError, RecursionError):
            spaces = None
        if spaces is None:
            raise DecodeError(f"invalid description of spaces in lobby messages: {quoted(text)}")
        return spaces


class SpaceText:
    """Writes and reads the values of a space.

    Args:
        space: a `gymnasium.Space`, or dm_env's specs.
        what: its name in errors, such as ``the observation of 'agent_0'``.
        named: True for observations: items of a Dict or Tuple have names. False for actions: they
            have none, and numbers that are not finite are rejected.
        limits: a space whose shortest text is longer than `Limits.datagram` is rejected.
        words: names of a Discrete space's values, in order. Text may also be a number.
    """

    def __init__(
        self,
        space: Any,
        what: str,
        *,
        named: bool,
        limits: Limits = DEFAULT,
        words: Sequence[str] = (),
    ) -> None:
        self.space = space
        self._what = what
        self._named = named
        self._tree = tree_of(space, what, _CANNOT)
        for key in (str(key) for leaf in self._tree.leaves for key in leaf.keys):
            if _FORBIDDEN & set(key):
                raise EncodeError(
                    f"{what} has a key {key!r} with one of : ; , =, which PERLERT reserves: rename "
                    f"it in {space}"
                )
        self.contains = self._tree.contains
        self.default_value = self._tree.default_value
        self._leaves = [_TextLeaf(leaf, what, finite=not named) for leaf in self._tree.leaves]
        self._leaf = self._leaves[0] if self._tree.is_leaf else None
        self._by_name = {leaf.name: leaf for leaf in self._leaves}
        if len(self._by_name) < len(self._leaves):
            raise EncodeError(f"{what} has two items with the same name: {space}")
        if words:
            start, count = int(getattr(space, "start", 0)), getattr(space, "n", None)
            if len({*words}) != len(words) or len(words) != count or _FORBIDDEN & {*"".join(words)}:
                raise EncodeError(
                    f"{what} needs a name without : ; , = for each of the values of {space}, not "
                    f"{quoted([*words])}"
                )
            self._leaves[0].name_values([str(start + index) for index in range(count)], words)
        self._numbers = sum(leaf.size for leaf in self._leaves)
        least = 2 * self._numbers - 1
        if named:
            least += sum(len(leaf.name) + 1 for leaf in self._leaves)
        if least > limits.datagram:
            raise EncodeError(
                f"{what} has {self._numbers} values, at least {least} bytes of text, limit is "
                f"datagram={limits.datagram}; send features or a smaller image, or raise the limit "
                f"at both ends, with limits=Limits(datagram=N) or --limits.datagram N, up to 65507"
            )

    def to_wire(self, value: Any) -> Any:
        """Return what a `StepWriter` rounds and writes: a single leaf's value, or a mapping."""
        if self._leaf is not None:
            return self._leaf.prepare(value)
        parts = zip(self._leaves, self._tree.parts(value), strict=True)
        return {leaf.name: leaf.prepare(part) for leaf, part in parts}

    def to_text(self, value: Any) -> str:
        """Return the PERLERT text of a value of the space."""
        wire = self.to_wire(value)
        if self._named or self._leaf is not None:
            return perlert.value_to_text(wire)
        return ",".join(
            perlert.value_to_text(wire[leaf.name]) for leaf in self._leaves if leaf.size
        )

    def from_text(self, text: str) -> Any:
        """Return the value that PERLERT text describes."""
        if self._leaf is not None:
            return self._leaf.read(text)
        return self._tree.build(self._read_named(text) if self._named else self._read_bare(text))

    def _read_named(self, text: str) -> list[Any]:
        names = list(_NAME.finditer(text))
        ends = [match.start() for match in names[1:]] + [len(text)]
        found: dict[str, Any] = {}
        for match, end in zip(names, ends, strict=False):  # without names there is one end
            leaf = self._by_name.get(match[1])
            if leaf is not None:  # unknown names are ignored
                found[match[1]] = leaf.read(text[match.end() : end])
        missing = [leaf.name for leaf in self._leaves if leaf.name not in found]
        if missing:
            raise DecodeError(f"{self._what} lacks {missing[0]!r}")
        return [found[leaf.name] for leaf in self._leaves]

    def _read_bare(self, text: str) -> list[Any]:
        items = text.split(",") if text or self._leaves else []
        if len(items) != self._numbers:
            raise DecodeError(f"{self._what} must have {self._numbers} values, not {len(items)}")
        left = iter(items)
        return [leaf.read(",".join(next(left) for _ in range(leaf.size))) for leaf in self._leaves]


class _TextLeaf:
    """One leaf of a space: an array, an integer or text; `size` is its number of values."""

    def __init__(self, leaf: Leaf, what: str, *, finite: bool) -> None:
        self._what = what = leaf.named(what)
        self.name = leaf.where
        self.size = 1
        self._finite = finite
        self._shape = leaf.shape
        self._dtype = leaf.dtype
        self.prepare: Callable[[Any], Any]
        self.read: Callable[[str], Any]
        if leaf.text is str and not leaf.shape:
            self.prepare, self.read = self._prepare_text, str
            # dm_env's string specs have no charset.
            if _FORBIDDEN & set(getattr(leaf.space, "characters", "")):
                raise EncodeError(
                    f"{what} is text that may contain : ; , =, which PERLERT reserves; restrict "
                    f"the charset of {leaf.space}"
                )
        elif leaf.is_scalar and leaf.dtype.kind in "iu" and not leaf.shape:
            self.prepare, self.read = self._prepare_integer, self._read_integer
            self._integer = f"{what} must be an integer of {leaf.dtype}"
            self._wire = leaf.dtype
        elif leaf.dtype.kind in "biuf" and -1 not in leaf.shape:
            self.size = math.prod(leaf.shape)
            self.prepare, self.read = self._prepare_array, self._read_array
            # The codec has neither float16 nor bool.
            kind = {"b": np.uint8, "f": np.float32 if leaf.dtype.itemsize <= 4 else np.float64}
            self._wire = np.dtype(kind.get(leaf.dtype.kind, leaf.dtype))
        else:
            raise EncodeError(f"{what} is of the space {leaf.space}, {_CANNOT}")

    def name_values(self, numbers: Sequence[str], words: Sequence[str]) -> None:
        """Write names instead of numbers, and read both."""
        names = dict(zip(numbers, words, strict=True))
        values = dict(zip(words, numbers, strict=True))
        prepare, read = self.prepare, self.read
        self.prepare = lambda value: names.get(number := prepare(value), number)
        self.read = lambda text: read(values.get(text, text))

    def _prepare_array(self, value: Any) -> NDArray[Any]:
        same = type(value) is np.ndarray and value.dtype == self._dtype
        array: NDArray[Any] = value if same else cast(value, self._dtype, self._what)
        if array.shape != self._shape:
            raise EncodeError(f"{self._what} must have shape {self._shape}, not {array.shape}")
        if self._finite and self._wire.kind == "f" and not np.isfinite(array).all():
            raise EncodeError(f"{self._what} must have finite numbers, not {quoted(value)}")
        return array if self._wire == self._dtype else array.astype(self._wire)

    def _read_array(self, text: str) -> NDArray[Any]:
        array = perlert.text_to_array(text, self._wire, shape=self._shape)
        if self._finite and self._wire.kind == "f" and not np.isfinite(array).all():
            raise DecodeError(f"{self._what} must have finite numbers")
        if self._dtype.kind == "b" and (array > 1).any():
            raise DecodeError(f"{self._what} must be 0 or 1, not {quoted(text)}")
        return array if self._wire == self._dtype else array.astype(self._dtype)

    def _prepare_integer(self, value: Any) -> str:
        low, high = exact_range(self._wire)
        if type(value) is not int or not low <= value <= high:
            number = cast(value, self._wire, self._what)
            if number.shape:
                raise EncodeError(f"{self._integer}, not {quoted(value)}")
            value = int(number)
        return str(value)

    def _read_integer(self, text: str) -> Any:
        try:
            return self._read_array(text)[()]
        except DecodeError:
            raise DecodeError(f"{self._integer}, not {quoted(text)}") from None

    def _prepare_text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise EncodeError(f"{self._what} must be text, not a {type(value).__name__}")
        if _FORBIDDEN & set(value):
            raise EncodeError(f"{self._what} contains one of the characters : ; , =: {value!r}")
        return value
