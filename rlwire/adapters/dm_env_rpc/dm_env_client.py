"""`RemoteEnvironment`: an environment behind a dm_env_rpc server as a `dm_env.Environment`.

Needs dm_env (the extra ``dm``). Not here: connections and requests (`Client`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rlwire.adapters.dm_env_rpc.client import Client
from rlwire.adapters.dm_env_rpc.status import StatusError
from rlwire.codecs.dm_env_rpc import (
    ActionObservationSpecs,
    DataType,
    EnvironmentStateType,
    TensorSpec,
    bounds,
    flatten,
    numpy_dtype,
    unflatten,
)
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    RemoteProtocolError,
    optional,
)

with optional("dm-env", "dm", "dm_env"):
    import dm_env
    from dm_env import specs as dm_specs

__all__ = ["RemoteEnvironment", "to_dm_env_spec"]

logger = logging.getLogger(__name__)

_RUNNING = EnvironmentStateType.RUNNING


class RemoteEnvironment(dm_env.Environment):  # type: ignore[misc]
    """A joined agent's environment.

    ::

        with RemoteEnvironment.connect("localhost:9999", {"level": 3}) as environment:
            step = environment.reset()
            while not step.last():
                step = environment.step(policy(step.observation))

    Observations and actions are dictionaries, nested where the names have periods. The reward and
    the discount are the observations of these names: they are not among the observations, unless
    `requested_observations` has them. A server without them gives the reward 0, and the discount 0
    when the sequence has terminated and 1 else. The first step of a sequence has neither, as
    dm_env wants it.

    Args:
        client: has joined a world; nobody else uses it.
        requested_observations: names of those to ask the server for; None for all.
        reward: the observation that is the reward, None for none.
        discount: the observation that is the discount, None for none.
        nested: False keeps names with periods as they are.

    Raises:
        ValueError: an observation is requested that there is not.
        RemoteProtocolError: the server's specs are none.
    """

    def __init__(
        self,
        client: Client,
        *,
        requested_observations: Iterable[str] | None = None,
        reward: str | None = "reward",
        discount: str | None = "discount",
        nested: bool = True,
    ) -> None:
        specs = client.specs
        if specs is None:
            raise ValueError("the client has joined no world")
        self._client = client
        self._specs = specs
        self._nested = nested
        self._running = False
        self._closed = False
        self._owned = False
        self._world: str | None = None
        self._keep(specs, requested_observations, reward, discount)

    @classmethod
    def connect(
        cls,
        address: Any,
        create_settings: Mapping[str, Any] | None = None,
        join_settings: Mapping[str, Any] | None = None,
        *,
        world_name: str | None = None,
        client_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> RemoteEnvironment:
        """Connect, create a world unless one is named, and join it; `close` takes all of it back.

        Args:
            address: of the server.
            create_settings: for the new world; nested ones are flattened.
            join_settings: for the agent.
            world_name: joins this world, and creates none.
            client_options: more arguments for the `Client`.
            options: `RemoteEnvironment`'s.

        Raises:
            StatusError: the server refuses.
            ConnectionClosed, DeadlineExceeded: it cannot be reached.
        """
        client = Client(address, **(client_options or {}))
        try:
            client.connect()
            world = None
            if world_name is None:
                world_name = world = client.create_world(create_settings)
            elif create_settings:
                raise ValueError("a world that is named is not created; settings are of no use")
            client.join_world(world_name, join_settings)
            environment = cls(client, **options)
        except BaseException:
            client.close()
            raise
        environment._owned = True
        environment._world = world
        return environment

    @property
    def client(self) -> Client:
        """What talks to the server; for extensions, such as properties."""
        return self._client

    def reset(self) -> dm_env.TimeStep:
        """Begin a sequence.

        Raises:
            RuntimeError: the environment is closed, or has other actions or observations now.
            StatusError: the server refuses.
        """
        self._check_open()
        if self._running:
            if self._client.reset() != self._specs:
                raise RuntimeError(
                    "the environment has other actions or observations since this reset; join again"
                )
            self._running = False
        return self.step({})

    def step(self, action: Any) -> dm_env.TimeStep:
        """Act; after a sequence's last step, and before its first, the action is ignored.

        Raises:
            EncodeError: there is no such action, or its value does not fit.
            RuntimeError: the environment is closed.
            StatusError: the server refuses.
        """
        self._check_open()
        if not self._running:
            action = {}
        elif not isinstance(action, Mapping):
            raise EncodeError(f"actions are a mapping of names, not a {type(action).__name__}")
        elif self._nested_actions:
            action = flatten(action)
        result = self._client.step(action, self._requested)
        running = result.state == _RUNNING
        if running and self._running:
            kind = dm_env.StepType.MID
        elif running:
            kind = dm_env.StepType.FIRST
        elif self._running:
            kind = dm_env.StepType.LAST
        else:
            raise RemoteProtocolError(
                f"the server ended a sequence that had not begun: state {result.state!r}"
            )
        self._running = running
        observations = result.observations
        reward = discount = None
        if kind is not dm_env.StepType.FIRST:
            reward = self._reward.value(observations, 0.0)
            goes_on = result.state != EnvironmentStateType.TERMINATED
            discount = self._discount.value(observations, 1.0 if goes_on else 0.0)
        for name in self._hidden:
            del observations[name]
        if self._nested_observations:
            observations = unflatten(observations)
        return dm_env.TimeStep(kind, reward, discount, observations)

    def reconnect(self) -> None:
        """Connect and join again, after a loss; the next step begins a sequence.

        Raises:
            RuntimeError: the environment is closed, or has other actions or observations now.
            StatusError, ConnectionClosed, DeadlineExceeded, OSError: as `Client.reconnect`.
        """
        self._check_open()
        self._running = False
        specs = self._client.reconnect()
        if self._world is not None:
            self._world = self._client.world_name
        if specs != self._specs:
            raise RuntimeError("the environment has other actions or observations; join again")

    def observation_spec(self) -> Any:
        """Return the specs of the observations in each step."""
        return self._nest(self._observation_specs)

    def action_spec(self) -> Any:
        """Return the specs of the actions."""
        return self._nest({s.name: to_dm_env_spec(s) for s in self._specs.actions.values()})

    def reward_spec(self) -> Any:
        """Return the spec of the reward."""
        return self._reward.spec() or super().reward_spec()

    def discount_spec(self) -> Any:
        """Return the spec of the discount."""
        return self._discount.spec() or super().discount_spec()

    def close(self) -> None:
        """Leave the world, and take back what `connect` did; again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._client.closed:
                self._client.leave_world()
                if self._world is not None:
                    self._client.destroy_world(self._world)
        except (ConnectionClosed, DeadlineExceeded) as error:
            logger.info("the server has not been told that the agent leaves: %s", error)
        except StatusError as error:  # such as for another agent in the world
            logger.warning("the world %r stays: %s", self._world, error)
        finally:
            if self._owned:
                self._client.close()

    def _keep(
        self,
        specs: ActionObservationSpecs,
        requested: Iterable[str] | None,
        reward: str | None,
        discount: str | None,
    ) -> None:
        by_name = {spec.name: spec for spec in specs.observations.values()}
        self._reward = _Signal(reward, by_name)
        self._discount = _Signal(discount, by_name)
        signals = [*self._reward.names, *self._discount.names]
        if requested is None:
            shown = [name for name in by_name if name not in signals]
        else:
            shown = list(dict.fromkeys(requested))
            unknown = [name for name in shown if name not in by_name]
            if unknown:
                raise ValueError(
                    f"there is no observation {unknown[0]!r}; there are {sorted(by_name)}"
                )
        self._hidden = [name for name in signals if name not in shown]
        self._requested = (*shown, *self._hidden)
        self._nested_observations = self._nested and any("." in name for name in shown)
        self._nested_actions = self._nested and any(
            "." in spec.name for spec in specs.actions.values()
        )
        self._observation_specs = {name: to_dm_env_spec(by_name[name]) for name in shown}

    def _nest(self, flat: dict[str, Any]) -> dict[str, Any]:
        return unflatten(flat) if self._nested else flat

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the environment is closed")


class _Signal:
    """The reward or the discount among the observations; nested if its names go on."""

    def __init__(self, name: str | None, specs: Mapping[str, TensorSpec]) -> None:
        self._name = name
        self._specs = {}
        if name is not None:
            self._specs = {
                each: spec
                for each, spec in specs.items()
                if each == name or each.startswith(name + ".")
            }
        self.names = list(self._specs)

    def value(self, observations: Mapping[str, Any], default: float) -> Any:
        if not self.names:
            return default
        if self._name in self._specs:
            return observations[self._name]
        return unflatten({name: observations[name] for name in self.names})[str(self._name)]

    def spec(self) -> Any:
        if not self.names:
            return None
        specs = {name: to_dm_env_spec(spec) for name, spec in self._specs.items()}
        return specs.get(str(self._name)) or unflatten(specs)[str(self._name)]


def to_dm_env_spec(spec: TensorSpec) -> dm_specs.Array:
    """Return dm_env's spec for a tensor's.

    A `DiscreteArray` for an integer from 0 to a maximum, a `BoundedArray` for other bounds, a
    `StringArray` for text, an `Array` else; of objects for messages.

    Raises:
        RemoteProtocolError: the spec has no dtype, or impossible bounds.
    """
    shape, name = tuple(spec.shape), spec.name
    if spec.dtype == DataType.STRING:
        return dm_specs.StringArray(shape, name=name)
    try:
        dtype = numpy_dtype(spec.dtype)
        if spec.min is None and spec.max is None:
            return dm_specs.Array(shape, dtype, name)
        low, high = bounds(spec)
    except EncodeError as error:
        raise RemoteProtocolError(f"the spec {name!r} cannot be used: {error}") from None
    if not shape and dtype.kind in "iu" and low == 0 and spec.max is not None:
        return dm_specs.DiscreteArray(int(high) + 1, dtype, name)
    if any(size < 0 for size in shape):
        # dm_env broadcasts bounds to the shape, which is not known here.
        return dm_specs.Array(shape, dtype, name)
    return dm_specs.BoundedArray(shape, dtype, np.asarray(low), np.asarray(high), name)
