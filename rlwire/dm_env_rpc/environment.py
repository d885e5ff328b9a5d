"""`DmEnvRpcEndpoint`: a joined agent of a dm_env_rpc server as an `Endpoint`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, cast

import numpy as np

from rlwire._options import given, with_options
from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Step, StepResult
from rlwire.dm_env_rpc.agent_spaces import AgentSpaces
from rlwire.dm_env_rpc.client import Client
from rlwire.dm_env_rpc.options import DmEnvRpcClientOptions, DmEnvRpcEndpointOptions
from rlwire.dm_env_rpc.properties import PICTURE, RENDER_FPS, PropertiesExtension
from rlwire.dm_env_rpc.shared_connections import SharedConnections
from rlwire.dm_env_rpc.spaces import REQUEST_SPACES, TRUNCATED, reset_settings
from rlwire.dm_env_rpc.status import StatusError
from rlwire.environments.endpoint import SHARED, Endpoint, Outcome
from rlwire.environments.infos import InfoCodec
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    WouldWait,
    on_error,
    quoted,
)
from rlwire.sessions.dm_env_rpc import DmEnvRpcState, EncodedStep
from rlwire.urls import located

logger = logging.getLogger(__name__)

_LARGE = 4096  # elements of an observation whose range is checked in an episode's first step only

_RUNNING = codec.EnvironmentStateType.RUNNING
_TERMINATED = codec.EnvironmentStateType.TERMINATED
_LOST = (ConnectionClosed, DeadlineExceeded, OSError)


def _late(error: Exception) -> Exception:
    if not isinstance(error, DeadlineExceeded) or "Timeouts.write" in str(error):  # was not sent
        return error
    return DeadlineExceeded(
        f"{error}: the environment takes longer than Timeouts.idle, or its step waits for other "
        f"agents, which must join, reset and step too"
    )


class DmEnvRpcEndpoint(Endpoint):
    """The environment of a joined agent.

    The reward is the observation ``reward``, or 0. ``info["discount"]`` is the observation
    ``discount``, unless it is the usual one: 0 when terminated, 1 otherwise. A reward or discount
    that is not one number (an array, or names such as ``reward.speed``) is in the info as a whole,
    and `reward_space` or `discount_space` is its space. Only rlwire's server sends the
    environment's info. Seed and options are sent as settings of a reset.
    """

    nondeterministic = False

    @with_options(DmEnvRpcEndpointOptions)
    def __init__(self, options: DmEnvRpcEndpointOptions) -> None:
        changed = {
            **given(options, DmEnvRpcClientOptions),
            "metadata": (*options.metadata, REQUEST_SPACES),
            "copy": options.copy or None,
        }
        self.client = Client(**changed)
        self._pending = self.client.sent
        self._backoff = options.reconnect
        self._created = False
        self._running = False
        self._lost: str | None = None
        self._watched: Any = None  # the connection, while an event loop takes the steps
        self._last: Any = None
        self._settings: dict[str, Any] | None = None  # of a pending reset
        self._info_dropped = False  # whether the log has said that an info cannot be decoded
        shared = SHARED.get()
        if shared is not None and options.record is None:
            connections = shared.setdefault(SharedConnections, SharedConnections())
            self.client.shared = connections
            self.flush = connections.flush
        self.client.connect()
        with on_error(self.close):
            self._join(options)
            self._exchange = cast(Any, self.client.connection).exchange
            self._specs = self.client.specs
            assert self._specs is not None
            spaces = AgentSpaces(self._specs, self.client.limits, options)
        self._info_name, only = spaces.info_name, spaces.only_observation
        self._observations, self._actions = spaces.observations, spaces.actions
        self._reward, self._discount = spaces.reward, spaces.discount
        self._build = self._observations.build if only is None else itemgetter(only)
        names = self._observations.names
        self._requested = (*names, *self._reward.names, *self._discount.names)
        self._request = Step({}, self._requested)
        # Of a single number or array, which the encoder converts.
        actions = self._actions
        numeric = actions.is_leaf and actions.specs[0].dtype < codec.DataType.STRING
        if numeric:  # else the encoder would keep what the space's narrower dtype cannot
            numeric = codec.numpy_dtype(actions.specs[0].dtype) == spaces.action_space.dtype
        self._action = actions.names[0] if numeric else None
        self._decode = InfoCodec(self.client.limits).decode
        self._ranges = codec.SpecManager(self._specs.observations, limits=self.client.limits)
        theirs = {name: self._ranges.specs_by_name[name] for name in names}
        self._bounded = {s.name for s in theirs.values() if not (s.min is None and s.max is None)}
        # Shapes that a given observation_space fixes.
        self._fixed = {
            spec.name: tuple(spec.shape)
            for spec in self._observations.specs
            if min(spec.shape, default=0) >= 0 > min(theirs[spec.name].shape, default=0)
        }
        self.observation_space, self.action_space = spaces.observation_space, spaces.action_space
        self.reward_space, self.discount_space = self._reward.space, self._discount.space
        self.episode = spaces.episode
        cast(Any, self.client.connection).release()  # for the thread that steps

    def _join(self, options: DmEnvRpcEndpointOptions) -> None:
        client, settings = self.client, options.join_settings
        world = located("dm-env-rpc", options.address)[2]
        if options.agent is not None:
            settings = {**(settings or {}), "agent": options.agent}
        if options.settings is None:
            try:
                client.join_world(world, settings)
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
            name = client.create_world(options.settings)
        self._created = True
        client.join_world(name, settings)

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        settings = reset_settings(seed, options, self._info_name is not None)
        self._settings = settings
        if self._lost is None:
            self._send_reset(settings)

    def _send_reset(self, settings: dict[str, Any]) -> None:
        client, self._running = self.client, False
        try:
            # A reply that was not received may have changed the state.
            if settings or self._pending or client.state is DmEnvRpcState.RUNNING:
                client.send(codec.ResetRequest(settings))
            client.send(Step({}, self._requested))
        except _LOST as error:
            self._lost = str(error)

    def encode_step(self, action: Any) -> Step | EncodedStep:
        if not self._running:
            raise LocalProtocolError(f"{self.client.address}: no episode is running, call reset()")
        name = self._action
        actions = self._actions.flatten(action) if name is None else {name: action}
        return self.client.encode(Step(actions, self._requested))

    def watch(self, wanted: bool) -> int:
        self._watched = None
        connection = self.client.watched(wanted)
        file: int = -1 if connection is None else connection.watch(wanted)
        if wanted and file != -1:
            self._watched = connection
        return file

    def send_step(self, encoded: Step | EncodedStep) -> None:
        self._settings = None
        try:
            (self._watched or self.client).send(encoded)
        except _LOST as error:
            self._lost = str(error)
            if self._watched is not None:  # its file is closed: there is nothing to watch
                raise WouldWait(self._lost) from error

    def step(self, action: Any) -> Outcome:
        if not self._running or self._pending or self._lost is not None:
            return super().step(action)
        # Hot path: few Python calls.
        name, request, self._settings = self._action, self._request, None
        request.actions = self._actions.flatten(action) if name is None else {name: action}
        try:
            result = self._exchange(request)
        except BaseException as error:
            self.client.on_failure(error)
            if isinstance(error, _LOST):
                return self._truncated(_late(error))
            raise
        return self._outcome(result)

    def finish(self) -> Outcome:
        if self._settings is not None:
            return self._finish_reset(self._settings)
        try:
            if self._lost is not None:
                raise ConnectionClosed(self._lost)
            result = self._receive()[-1] if self._watched is None else self._watched.receive()
        except _LOST as error:
            return self._truncated(error)
        except BaseException as error:
            if self._watched is not None and not isinstance(error, WouldWait):
                self.client.cancel()
            raise
        return self._outcome(result)

    def _truncated(self, error: Exception) -> Outcome:
        self._lost, self._running = str(error), False
        logger.warning("%s: lost; the episode is truncated: %s", self.client.address, error)
        return self._last, 0.0, False, True, {"lost": self._lost}

    def _outcome(self, result: Any) -> Outcome:
        """Return what a `StepResult` says, or raise a `Status`."""
        if type(result) is not StepResult:
            raise StatusError.of(result)
        seen, state = result.observations, result.state
        terminated, self._running = state is _TERMINATED, state is _RUNNING
        truncated = not (terminated or self._running)
        try:
            info: dict[str, Any] = {}
            if self._info_name in seen:
                info = self._info(seen)
                truncated = bool(terminated and info.pop(TRUNCATED, False)) or truncated
            signal = self._reward
            reward = 0.0 if signal.scalar is None else float(seen[signal.scalar])
            if signal.structure is not None:
                info["reward"] = signal.structure.build(seen)
            signal = self._discount
            if signal.scalar is not None:
                discount = seen[signal.scalar]
                if discount != (0.0 if terminated else 1.0):
                    info["discount"] = discount
            elif signal.structure is not None:
                info["discount"] = signal.structure.build(seen)
            if self._fixed or self._bounded:
                self._check(seen, _LARGE)
            self._last = observation = self._build(seen)
        except KeyError as error:
            raise self._lacks(error) from None
        return observation, reward, terminated, truncated, info

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
        self._exchange = cast(Any, self.client.connection).exchange
        self._lost, self._running = None, False
        self._send_reset(settings)
        return self._first()

    def _first(self) -> Outcome:
        if self._lost is not None:
            raise ConnectionClosed(self._lost)
        *reset, result = self._receive()
        state, seen = result.state, result.observations
        if reset and reset[0].specs != self._specs:
            raise self._changed()
        if state != _RUNNING:
            raise RemoteProtocolError(
                f"{self.client.address}: expected RUNNING from the first step, not {state!r}"
            )
        self._running = True
        try:
            self._check(seen, sys.maxsize)
            self._last = self._build(seen)
        except KeyError as error:
            raise self._lacks(error) from None
        return self._last, self._info(seen)

    def _lacks(self, error: KeyError) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"{self.client.address}: the reply lacks the requested observation {error}"
        )

    def _receive(self) -> list[Any]:
        """Receive all pending replies; return the last two, or the only one."""
        replies: list[Any] = []
        try:
            while self._pending or not replies:
                try:
                    replies.append(self.client.receive())
                except StatusError as error:
                    replies.append(error)
        except BaseException as error:
            self.client.on_failure(error)
            if isinstance(error, DeadlineExceeded):
                raise _late(error) from error
            raise
        for reply in replies[-2:]:
            if isinstance(reply, StatusError):
                raise reply
        return replies[-2:]

    def _info(self, seen: dict[str, Any]) -> dict[str, Any]:
        encoded = None if self._info_name is None else seen.get(self._info_name)
        if encoded is None:
            return {}
        try:
            info = self._decode(encoded)
            if isinstance(info, dict):
                return info
            error: Any = f"expected a dict, not {quoted(info)}"
        except (RlwireError, TypeError, ValueError, BufferError) as problem:
            error = problem
        if not self._info_dropped:
            self._info_dropped = True
            logger.warning("%s: an info is left out: %s", self.client.address, error)
        return {}

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
        cast(Any, self.client.connection).release()
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": float(fps)}
        self.render_mode = "rgb_array"

    def render(self) -> Any:
        return None if self.render_mode is None else self._decode(self._properties.read(PICTURE))

    def close(self) -> None:
        client = self.client
        try:
            if not (client.closed or self._pending):
                cast(Any, client.connection).release()
                world = client.world_name
                client.leave_world()
                if self._created and world is not None:
                    client.destroy_world(world)
        except (ConnectionClosed, DeadlineExceeded, LocalProtocolError, StatusError) as error:
            logger.info("%s: left without leave_world: %s", client.address, error)
        finally:
            client.close()
