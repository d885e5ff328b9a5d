"""`AgentSpaces`: the Gymnasium spaces of an agent's specs.

rlwire's server sends its spaces. For other servers they are derived from the specs:

- A single observation or action named ``observation`` or ``action`` is the space itself. Otherwise
  names are the keys of a Dict, nested at periods. Keys numbered from 0 form a Tuple.
- A first size that varies, or texts in a row, are a Sequence; of numbers as one array (stack=True).
- An integer scalar with both bounds is Discrete. An int8 array with bounds 0 and 1 is MultiBinary.
  A one-dimensional int64 action with other bounds is MultiDiscrete. All others are Box or Text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import TensorSpec
from rlwire.dm_env_rpc.options import DmEnvRpcEndpointOptions
from rlwire.dm_env_rpc.spaces import INFO, Structure, spaces_in, structure_of
from rlwire.environments.trees import text_of
from rlwire.errors import EncodeError, LimitExceeded, optional, quoted
from rlwire.limits import Limits

with optional("gymnasium", "gym"):
    from gymnasium import spaces

_BOUNDS = 20  # bytes for each element of a Box: two bounds, two flags


class AgentSpaces:
    """The spaces of an agent's specs: given, sent by rlwire's server, or derived.

    `info_name` is the observation with rlwire's spaces and infos. `observations` and `actions` are
    the spaces as tensors. EncodeError if one does not fit its specs, or cannot be derived.
    """

    def __init__(
        self, specs: codec.ActionObservationSpecs, limits: Limits, options: DmEnvRpcEndpointOptions
    ) -> None:
        seen = {spec.name: spec for spec in specs.observations.values()}
        actions = {spec.name: spec for spec in specs.actions.values()}
        check_sizes([*seen.values(), *actions.values()], limits)
        self.reward, self.discount = Signal(options.reward, seen), Signal(options.discount, seen)
        self.info_name = next((name for name in seen if name.startswith(INFO)), None)
        others = {self.info_name, *self.reward.names, *self.discount.names}
        parts = {name: spec for name, spec in seen.items() if name not in others}
        sent = spaces_in(self.info_name, limits) if self.info_name else None
        self.episode = sent.episode if sent else {}
        observation_space, action_space = options.observation_space, options.action_space
        if observation_space is None:
            observation_space = sent[0] if sent else space_of_specs(parts, "observation")
        if action_space is None:
            action_space = sent[1] if sent else space_of_specs(actions, "action")
        self.observation_space, self.action_space = observation_space, action_space
        self.observations = _matching(observation_space, parts, "observation", True)
        self.actions = _matching(action_space, actions, "action", False)

    @property
    def only_observation(self) -> str | None:
        """The name of the tensor that is the whole observation without conversion, or None."""
        space = self.observation_space
        if not isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
            return None
        spec = self.observations.specs[0]
        return spec.name if space.shape and space.dtype == codec.numpy_dtype(spec.dtype) else None


class Signal:
    """The reward or the discount among the observations."""

    def __init__(self, name: str, specs: Mapping[str, TensorSpec]) -> None:
        found = {each: specs[each] for each in specs if name and codec.is_within(each, [name])}
        self.names = list(found)
        self.scalar: str | None = None  # the name, if it is one number
        self.structure: Structure | None = None  # otherwise
        self.space: Any = None
        if not found:
            return
        single = found.get(name)
        if single is not None and not len(single.shape) and single.dtype < codec.DataType.STRING:
            self.scalar = name
            return
        self.space = space_of_specs(found, name)
        prefix = "" if name in found else name
        self.structure = structure_of(self.space, name, name, prefix, client=True)


def _matching(space: Any, specs: Mapping[str, TensorSpec], what: str, partial: bool) -> Structure:
    tops = {name.split(".")[0] for name in specs}
    name = tops.pop() if len(tops) == 1 else what
    structure = structure_of(space, what, name, client=True)
    for leaf in structure.leaves:
        ours, theirs = leaf.spec, specs.get(leaf.spec.name)
        if theirs is None:
            raise EncodeError(
                f"the {what} space {space} needs {ours.name!r}; the server has {sorted(specs)}"
            )
        if ours.dtype != theirs.dtype or not _fits(ours.shape, theirs.shape):
            raise EncodeError(
                f"the {what} {ours.name!r} is {getattr(theirs.dtype, 'name', theirs.dtype)} of "
                f"shape {tuple(theirs.shape)} at the server, and {ours.dtype.name} of shape "
                f"{tuple(ours.shape)} in {space}"
            )
    missing = [name for name in specs if name not in structure.names]
    if missing and not partial:
        raise EncodeError(f"the {what} space {space} lacks the server's {missing[0]!r}")
    return structure


def _fits(ours: Any, theirs: Any) -> bool:
    return len(ours) == len(theirs) and all(
        one == other or other < 0 or one < 0 for one, other in zip(ours, theirs, strict=True)
    )


def check_sizes(specs: Iterable[TensorSpec], limits: Limits) -> None:
    """Raise LimitExceeded if the bounds of spaces of these specs would need too much memory."""
    size = sum(math.prod(map(abs, spec.shape)) for spec in specs) * _BOUNDS
    if size > limits.expanded:
        raise LimitExceeded("expanded", limits.expanded, size)


def space_of_specs(specs: Mapping[str, TensorSpec], what: str) -> Any:
    space = _nested(codec.unflatten(dict(specs)), what)
    return space[what] if list(space) == [what] else space


def _nested(value: Any, what: str) -> Any:
    if isinstance(value, TensorSpec):
        try:
            return _leaf(value, what)
        except EncodeError:
            raise
        except (ValueError, AssertionError, OverflowError, TypeError) as error:
            raise EncodeError(
                f"the {what} {quoted(value.name)} is no space of Gymnasium: {error}; pass "
                f"{what}_space="
            ) from None
    children = {key: _nested(each, what) for key, each in value.items()}
    if children and set(children) == set(map(str, range(len(children)))):
        return spaces.Tuple([children[str(place)] for place in range(len(children))])
    return spaces.Dict(children)


def _leaf(spec: TensorSpec, what: str) -> Any:
    shape = tuple(map(int, spec.shape))
    text = spec.dtype == codec.DataType.STRING
    if shape and min(shape[1:], default=0) >= 0 and (shape[0] < 0 or (text and len(shape) == 1)):
        return spaces.Sequence(_leaf(replace(spec, shape=shape[1:]), what), stack=not text)
    if any(size < 0 for size in shape) or (text and shape):
        raise EncodeError(
            f"the {what} {spec.name!r} has no fixed size: its shape is {shape}; pass "
            f"{what}_space=, a Dict without it"
        )
    if text:
        return text_of(None, spaces)
    if spec.dtype == codec.DataType.PROTO:
        raise EncodeError(
            f"the {what} {quoted(spec.name)} is a message of protobuf, which no space carries: "
            + ("pass observation_space=, a Dict without it, or " if what != "action" else "")
            + "use rlwire.connect"
        )
    dtype = codec.numpy_dtype(spec.dtype)
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, np.bool_)
    low, high = codec.bounds(spec)
    if dtype.kind == "f":
        low = dtype.type(-np.inf) if spec.min is None else low
        high = dtype.type(np.inf) if spec.max is None else high
    elif spec.max is not None and spec.min is not None:
        # Gymnasium counts a Discrete's values in its own dtype, a MultiDiscrete's in int64.
        if not shape and int(high) - int(low) < np.iinfo(dtype).max:
            return spaces.Discrete(int(high) - int(low) + 1, start=int(low), dtype=dtype.type)
        least, most = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
        if dtype == np.int8 and 0 not in shape and not least.any() and (most == 1).all():
            return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
        counts = most.astype(object) - least.astype(object)
        row = dtype == np.int64 and what == "action" and len(shape) == 1
        if row and (counts < 2**63 - 1).all():
            return spaces.MultiDiscrete(most - least + 1, start=least)
    return spaces.Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), shape, dtype.type)
