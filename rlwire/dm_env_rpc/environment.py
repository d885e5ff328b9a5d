"""`DmEnvRpcEndpoint`: a joined agent of a dm_env_rpc server as an `Endpoint`.

rlwire's server sends its spaces. For other servers they are derived from the specs:

- A single observation or action named ``observation`` or ``action`` is the space itself. Otherwise
  names are the keys of a Dict, nested at periods. Keys numbered from 0 form a Tuple.
- A first size that varies, or texts in a row, are a Sequence; of numbers as one array (stack=True).
- An integer scalar with both bounds is Discrete. An int8 array with bounds 0 and 1 is MultiBinary.
  A one-dimensional int64 action with other bounds is MultiDiscrete. All others are Box or Text.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Step, TensorSpec
from rlwire.dm_env_rpc.client import Client
from rlwire.dm_env_rpc.properties import PICTURE, RENDER_FPS, PropertiesExtension
from rlwire.dm_env_rpc.spaces import (
    INFO,
    REQUEST_SPACES,
    TRUNCATED,
    Structure,
    reset_settings,
    spaces_in,
    structure_of,
)
from rlwire.dm_env_rpc.status import StatusError
from rlwire.environments.endpoint import Endpoint, Outcome
from rlwire.environments.infos import InfoCodec
from rlwire.environments.trees import text_of
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    on_error,
    optional,
    quoted,
)
from rlwire.limits import Limits
from rlwire.registry import located
from rlwire.sessions.dm_env_rpc import DmEnvRpcState
from rlwire.transports.address import AddressLike
from rlwire.transports.sockets import Backoff

with optional("gymnasium", "gym"):
    from gymnasium import spaces

logger = logging.getLogger(__name__)

_LARGE = 4096  # elements of an observation whose range is checked in an episode's first step only
_BOUNDS = 20  # bytes for each element of a Box: two bounds, two flags

_RUNNING = codec.EnvironmentStateType.RUNNING
_TERMINATED = codec.EnvironmentStateType.TERMINATED
_LOST = (ConnectionClosed, DeadlineExceeded, OSError)


class DmEnvRpcEndpoint(Endpoint):
    """The environment of a joined agent.

    The reward is the observation ``reward``, or 0. ``info["discount"]`` is the observation
    ``discount``, unless it is the usual one: 0 when terminated, 1 otherwise. A reward or discount
    that is not one number (an array, or names such as ``reward.speed``) is in the info as a whole,
    and `reward_space` or `discount_space` is its space. Only rlwire's server sends the
    environment's info. Seed and options are sent as settings of a reset.
    """

    nondeterministic = False

    def __init__(
        self,
        address: AddressLike,
        *,
        world: str = "",
        settings: Mapping[str, Any] | None = None,
        join_settings: Mapping[str, Any] | None = None,
        agent: str | None = None,
        observation_space: Any = None,
        action_space: Any = None,
        reward: str = "reward",
        discount: str = "discount",
        copy: bool = True,
        reconnect: Backoff | None = None,
        **options: Any,
    ) -> None:
        options["metadata"] = (*options.get("metadata", ()), REQUEST_SPACES)
        self.client = Client(address, copy=copy or None, **options)
        world = world or located("dm-env-rpc", address)[2]
        self._backoff = reconnect
        self._created = False
        self._running = False
        self._lost: str | None = None
        self._last: Any = None
        self._begun: dict[str, Any] | None = None  # the settings of a pending reset
        self._info_dropped = False  # whether the log has said that an info cannot be decoded
        self._resetting = False  # whether a ResetRequest was sent before the pending step
        self.client.connect()
        if agent is not None:
            join_settings = {**(join_settings or {}), "agent": agent}
        with on_error(self.close):
            self._join(world, settings, join_settings)
            self._specs = specs = self.client.specs
            assert specs is not None
            observations = {each.name: each for each in specs.observations.values()}
            actions = {each.name: each for each in specs.actions.values()}
            check_sizes([*observations.values(), *actions.values()], self.client.limits)
            self._reward = Signal(reward, observations)
            self._discount = Signal(discount, observations)
            signals = [*self._reward.names, *self._discount.names]
            self._told = next((name for name in observations if name.startswith(INFO)), None)
            shown = {
                name: spec
                for name, spec in observations.items()
                if name not in signals and name != self._told
            }
            told = spaces_in(self._told, self.client.limits) if self._told else None
            self.episode = told.episode if told else {}
            if observation_space is None:
                observation_space = told[0] if told else space_of_specs(shown, "observation")
            if action_space is None:
                action_space = told[1] if told else space_of_specs(actions, "action")
            seen = matching_structure(observation_space, shown, "observation", partial=True)
            self._actions = matching_structure(action_space, actions, "action", partial=False)
            self._observations = seen
            self._requested = (*seen.names, *signals)
            self._decode = InfoCodec(self.client.limits).decode
            self._alone = _as_it_comes(observation_space, seen)
            theirs = [observations[name] for name in seen.names]
            self._ranges = codec.SpecManager(specs.observations, limits=self.client.limits)
            self._bounded = {s.name for s in theirs if not (s.min is None and s.max is None)}
            self._fixed = {
                ours.name: tuple(ours.shape)
                for ours, spec in zip(seen.specs, theirs, strict=True)
                if min(ours.shape, default=0) >= 0 > min(spec.shape, default=0)
            }
        self.observation_space, self.action_space = observation_space, action_space
        self.reward_space, self.discount_space = self._reward.space, self._discount.space
        self.client.release()  # for the thread that steps

    def _join(
        self,
        world: str,
        settings: Mapping[str, Any] | None,
        join_settings: Mapping[str, Any] | None,
    ) -> None:
        client = self.client
        if settings is None:
            try:
                client.join_world(world, join_settings)
                return
            except StatusError as error:
                if world:
                    raise
                refused = error
            try:
                name = client.create_world()
            except StatusError as error:
                raise refused from error
        elif world:
            raise ValueError("settings= creates a world: remove the name, or pass join_settings=")
        else:
            name = client.create_world(settings)
        self._created = True
        client.join_world(name, join_settings)

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        settings = reset_settings(seed, options, self._told is not None)
        self._begun = settings
        if self._lost is None:
            self._ask_reset(settings)

    def _ask_reset(self, settings: dict[str, Any]) -> None:
        client, self._running = self.client, False
        try:
            # A reply that was not received may have changed the state.
            self._resetting = bool(
                settings or client.pending or client.state is DmEnvRpcState.RUNNING
            )
            if self._resetting:
                client.send(codec.ResetRequest(settings))
            client.send(Step({}, self._requested))
        except _LOST as error:
            self._lost = str(error)

    def begin_step(self, action: Any) -> None:
        if not self._running:
            raise LocalProtocolError(f"{self.client.address}: no episode is running, call reset()")
        self._begun = None
        request = Step(self._actions.flatten(action), self._requested)
        try:
            self.client.send(request)
        except _LOST as error:
            self._lost = str(error)

    def finish(self) -> Outcome:
        try:
            if self._begun is not None:
                return self._finish_reset(self._begun)
            return self._finish_step()
        except KeyError as error:
            raise RemoteProtocolError(
                f"{self.client.address}: the reply lacks the requested observation {error}"
            ) from None

    def _finish_step(self) -> Outcome:
        try:
            if self._lost is not None:
                raise ConnectionClosed(self._lost)
            result = self._receive()[-1]
        except _LOST as error:
            self._lost, self._running = str(error), False
            logger.warning("%s: lost; the episode is truncated: %s", self.client.address, error)
            return self._last, 0.0, False, True, {"lost": self._lost}
        seen = result.observations
        terminated = result.state == _TERMINATED
        self._running = result.state == _RUNNING
        signal = self._reward
        reward = 0.0 if signal.alone is None else float(seen[signal.alone])
        info = self._info(seen)
        truncated = bool(terminated and info.pop(TRUNCATED, False))
        if signal.structure is not None:
            info["reward"] = signal.structure.build(seen)
        signal = self._discount
        if signal.structure is not None:
            info["discount"] = signal.structure.build(seen)
        elif signal.alone is not None:
            discount = seen[signal.alone]
            if discount != (0.0 if terminated else 1.0):
                info["discount"] = discount
        self._last = observation = self._observation(seen)
        return observation, reward, terminated, truncated or not (terminated or self._running), info

    def _finish_reset(self, settings: dict[str, Any]) -> Outcome:
        if self._lost is None:
            try:
                return self._first()
            except DeadlineExceeded as error:  # not retried
                self._lost = str(error)
                raise
            except _LOST as error:
                logger.info("%s: lost between episodes: %s", self.client.address, error)
        if self.client.reconnect(self._backoff) != self._specs:
            raise self._changed()
        self._lost, self._running = None, False
        self._ask_reset(settings)
        return self._first()

    def _first(self) -> Outcome:
        if self._lost is not None:
            raise ConnectionClosed(self._lost)
        reset, result = self._receive()
        specs = reset.specs if self._resetting else self._specs
        state, seen = result.state, result.observations
        if specs != self._specs:
            raise self._changed()
        if state != _RUNNING:
            raise RemoteProtocolError(
                f"{self.client.address}: expected RUNNING from the first step, not {state!r}"
            )
        self._running = True
        self._last = observation = self._observation(seen, sys.maxsize)
        return observation, self._info(seen)

    def _receive(self) -> list[Any]:
        """Receive all pending replies; return the last two, or None and the only one."""
        client = self.client
        replies: list[Any] = [None]
        try:
            while len(replies) == 1 or client.pending:
                try:
                    replies.append(client.receive())
                except StatusError as error:
                    replies.append(error)
        except BaseException as error:
            client._failed(error)
            if not isinstance(error, DeadlineExceeded):
                raise
            raise DeadlineExceeded(
                f"{error}: the environment takes longer than Timeouts.idle, or its step waits for "
                f"other agents, which must join, reset and step too"
            ) from error
        replies = replies[-2:]
        for reply in replies:
            if isinstance(reply, StatusError):
                raise reply
        return replies

    def _info(self, seen: dict[str, Any]) -> dict[str, Any]:
        told = None if self._told is None else seen.get(self._told)
        if told is None:
            return {}
        try:
            info = self._decode(told)
            if isinstance(info, dict):
                return info
            error: Any = f"expected a dict, not {quoted(info)}"
        except (RlwireError, TypeError, ValueError, BufferError) as problem:
            error = problem
        if not self._info_dropped:
            self._info_dropped = True
            logger.warning("%s: an info is left out: %s", self.client.address, error)
        return {}

    def _observation(self, seen: dict[str, Any], most: int = _LARGE) -> Any:
        if self._fixed or self._bounded:
            self._check(seen, most)
        if self._alone is not None:
            return seen[self._alone]
        return self._observations.build(seen)

    def _check(self, seen: dict[str, Any], most: int) -> None:
        """Reject shapes other than those of a given space; log values out of range, once each."""
        for name, shape in self._fixed.items():
            if np.shape(seen[name]) != shape:
                raise RemoteProtocolError(
                    f"{self.client.address}: the observation {quoted(name)} has shape "
                    f"{np.shape(seen[name])}, but observation_space has {shape}"
                )
        outside = self._ranges.find_outside(seen, self._bounded, most)
        if outside is not None:
            self._bounded.discard(outside[0])
            logger.warning("%s: the observation %s; logged once", self.client.address, outside[1])

    def _changed(self) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"{self.client.address}: the world's actions or observations have changed; make the "
            f"environment again"
        )

    def start_rendering(self) -> None:
        """Read the frame rate from the server, and enable `render`."""
        self._properties = PropertiesExtension(self.client)
        try:
            fps = self._properties.read(RENDER_FPS)
        except (KeyError, StatusError):
            raise ValueError(
                f"{self.client.address}: the server does not render: rlwire.serve does if the "
                f'environment accepts render_mode="rgb_array" and the world has one agent'
            ) from None
        self.client.release()
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": float(fps)}
        self.render_mode = "rgb_array"

    def render(self) -> Any:
        return None if self.render_mode is None else self._decode(self._properties.read(PICTURE))

    def close(self) -> None:
        client = self.client
        try:
            if not (client.closed or client.pending):
                client.release()
                world = client.world_name
                client.leave_world()
                if self._created and world is not None:
                    client.destroy_world(world)
        except (ConnectionClosed, DeadlineExceeded, StatusError) as error:
            logger.info("%s: left without leave_world: %s", client.address, error)
        finally:
            client.close()


class Signal:
    """The reward or the discount among the observations."""

    def __init__(self, name: str, specs: Mapping[str, TensorSpec]) -> None:
        found = {
            each: spec
            for each, spec in specs.items()
            if name and (each == name or each.startswith(f"{name}."))
        }
        self.names = list(found)
        self.alone: str | None = None  # the name, if it is one number
        self.structure: Structure | None = None  # otherwise
        self.space: Any = None
        if not found:
            return
        lone = found.get(name)
        if lone is not None and not len(lone.shape) and lone.dtype < codec.DataType.STRING:
            self.alone = name
            return
        self.space = space_of_specs(found, name)
        self.structure = structure_of(
            self.space, name, name, "" if name in found else name, checked=False, sequences=True
        )


def _as_it_comes(space: Any, structure: Structure) -> str | None:
    """Return the name of the tensor that is the whole observation without conversion, or None."""
    if not isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        return None
    spec = structure.specs[0]
    return spec.name if space.shape and space.dtype == codec.numpy_dtype(spec.dtype) else None


def matching_structure(
    space: Any, specs: Mapping[str, TensorSpec], what: str, *, partial: bool
) -> Structure:
    tops = {name.split(".")[0] for name in specs}
    name = tops.pop() if len(tops) == 1 else what
    structure = structure_of(space, what, name, checked=not partial, sequences=True)
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
