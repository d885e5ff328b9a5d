"""Environments as worlds: each agent has an environment of its own.

docs/protocols/dm_env_rpc.md says what becomes of observations, rewards and the end of an episode.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwire.codecs.dm_env_rpc import (
    ActionObservationSpecs,
    EnvironmentStateType,
    InformedResult,
    Settings,
    StepResult,
    check_bounds,
)
from rlwire.dm_env_rpc.properties import Properties, pictures_of
from rlwire.dm_env_rpc.settings import EnvironmentMaker, ResetArguments
from rlwire.dm_env_rpc.spaces import Structure, info_spec, of_number, structure_of
from rlwire.dm_env_rpc.status import StatusError
from rlwire.environments.driver import Driven, check_alone, driver_of
from rlwire.environments.infos import encode_info
from rlwire.errors import EncodeError, on_error
from rlwire.sessions.dm_env_rpc import Code

logger = logging.getLogger(__name__)

_logged: set[str] = set()  # the environments of which the log says that infos are not sent

RUNNING = EnvironmentStateType.RUNNING
TERMINATED = EnvironmentStateType.TERMINATED
INTERRUPTED = EnvironmentStateType.INTERRUPTED


@dataclass(frozen=True)
class Names:
    """Names on the wire.

    Attributes:
        observation: a lone observation without a name of its own.
        action: a lone action without a name of its own.
        reward: the observation that the reward is; None leaves it out.
        discount: the observation that the discount is; None leaves it out.
    """

    observation: str = "observation"
    action: str = "action"
    reward: str | None = "reward"
    discount: str | None = "discount"


class EnvironmentAgent:
    """An agent's specs, and the way between an environment's values and the wire's.

    A base for those that are an `rlwire.dm_env_rpc.world.AgentEnvironment`.
    """

    def __init__(
        self, driven: Driven, names: Names, infos: bool, default_actions: Mapping[str, Any]
    ) -> None:
        self._names, self._infos, self._given_defaults = names, infos, default_actions
        self._is_whole = False
        self._drive(driven)

    def _drive(self, driven: Driven) -> None:
        """Read the spaces of this environment."""
        names = self._names
        self._driven = driven
        self._observations = structure_of(
            driven.observation_space, "observation", names.observation
        )
        self._actions = structure_of(driven.action_space, "action", names.action)
        self._reward = _signal(driven.reward_space, "reward", names.reward)
        self._discount = _signal(driven.discount_space, "discount", names.discount, 0.0, 1.0)
        # Whatever cannot be described to an `rlwire.make` is so known before anybody connects.
        self._info_spec = info_spec(driven.observation_space, driven.action_space)
        self._dropped: set[str] = set()
        self._unasked: tuple[int, ...] = ()
        observations = list(self._observations.specs)
        self._first: dict[str, Any] = {}  # reward and discount of a first step
        for signal, first in ((self._reward, 0.0), (self._discount, 1.0)):
            if signal is None:
                continue
            for name in signal.names:
                if name in self._observations.names:
                    raise EncodeError(
                        f"there is an observation called {name!r} already; name the "
                        f"{signal.what} otherwise, or leave it out: Names({signal.what}=None)"
                    )
            observations += signal.specs
            self._first |= signal.fill(first)
        self.specs = ActionObservationSpecs(
            dict(enumerate(self._actions.specs, 1)), dict(enumerate(observations, 1))
        )
        self._defaults = _defaults(self._actions, self._given_defaults)
        if self._is_whole:
            self.whole()

    def whole(self) -> None:
        """Add the spaces to `specs`, and infos to results: the client is an `rlwire.make`."""
        self._is_whole = True
        uid = len(self.specs.observations) + 1
        self._unasked = (uid,)
        self.specs = ActionObservationSpecs(
            self.specs.actions, {**self.specs.observations, uid: self._info_spec}
        )

    def _action(self, actions: dict[str, Any]) -> Any:
        """Return the environment's action."""
        if self._defaults:
            actions = {**self._defaults, **actions}
        if len(actions) < len(self._actions.names):
            missing = [name for name in self._actions.names if name not in actions]
            raise StatusError(
                Code.INVALID_ARGUMENT,
                f"every step must have all actions; missing: {', '.join(map(repr, missing))}",
            )
        try:
            return self._actions.build(actions)
        except EncodeError as error:  # the client's value, not ours
            raise StatusError(Code.INVALID_ARGUMENT, str(error)) from None

    def _result(
        self,
        state: EnvironmentStateType,
        observation: Any,
        reward: Any,
        discount: Any,
        info: Mapping[str, Any],
    ) -> StepResult:
        """Return a step's result; no reward or discount is a first step's."""
        observations = self._observations.flatten(observation)
        if reward is None or discount is None:
            observations.update(self._first)
        if reward is not None and self._reward is not None:
            observations.update(self._reward.flatten(reward))
        if discount is not None and self._discount is not None:
            observations.update(self._discount.flatten(discount))
        # dm_env has no infos: its driver's has the reward and the discount.
        if info and self._infos and self._driven.discount_space is None:
            if self._unasked:
                encoded = encode_info(info, self._dropped)
                observations[self._info_spec.name] = np.frombuffer(encoded, np.uint8)
                return InformedResult(state, observations, self._unasked)
            self._warn_of_info(info)
        return StepResult(state, observations)

    def _warn_of_info(self, info: Mapping[str, Any]) -> None:
        """Log that an info is not sent: once for each kind of environment."""
        name = self._driven.name
        if name not in _logged:
            _logged.add(name)
            logger.warning(
                "%s: the info (%s) is not sent to clients other than rlwire.make, dm_env_rpc has "
                "no field for it; put what they need into the observations",
                name,
                ", ".join(map(str, info)),
            )


def _signal(
    space: Any, what: str, name: str | None, low: float | None = None, high: float | None = None
) -> Structure | None:
    """A reward or discount: a number, or what dm_env's specs say."""
    if name is None:
        return None
    if space is None:
        return of_number(what, name, low, high)
    return structure_of(space, what, "", name)


def _defaults(actions: Structure, defaults: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [name for name in defaults if name not in actions.names]
    if unknown:
        raise EncodeError(
            f"default_actions: there is no action {unknown[0]!r}; there are {actions.names}"
        )
    values = {}
    for leaf in actions.leaves:
        if leaf.spec.name in defaults:
            value = leaf.to_wire(np.asarray(defaults[leaf.spec.name]))
            check_bounds(leaf.spec, value)
            values[leaf.spec.name] = value
    return values


@dataclass
class _Made:
    """An environment and the settings it was made with."""

    driven: Driven
    settings: Settings
    pictures: Properties | None
    failed: bool = False


class EnvironmentWorld:
    """A world of single-agent environments, made by an `EnvironmentWorlds`.

    An environment's attribute ``properties``, if it is a `Properties`, is the world's.
    """

    parallel_agents = True  # they share nothing but what the lock guards

    def __init__(self, maker: EnvironmentWorlds, settings: Settings) -> None:
        self._maker = maker
        self._owned = not maker.lends
        self._agents = maker.agents if self._owned else 1
        self._lock = threading.Lock()
        self._joined = 0
        self._closed = False
        self._resets = 0
        self._takes_seed: bool | None = None
        self._latest: _Made | None = None
        self._idle: _Made | None = None  # for the next agent
        maker.lend()
        with on_error(self.close):
            self._settings, self._start = self._sort(settings)
            maker.check_required(settings)
            made = self._idle = self._make(self._settings)
            self._takes_seed = made.driven.takes_seed
            self._sort(settings)
            EnvironmentAgent(made.driven, *maker.agent_options)

    @property
    def properties(self) -> Properties | None:
        """The properties of the environment that was made last, if it has an attribute of the name.

        Only for a world of one agent: among several, nobody says whose is meant.
        """
        latest = self._latest
        if self._agents > 1 or latest is None:
            return None
        environment = latest.driven.environment
        found = getattr(getattr(environment, "unwrapped", environment), "properties", None)
        return found if isinstance(found, Properties) else None

    @property
    def pictures(self) -> Properties | None:
        """What `rlwire.make` reads to render; None where nothing is rendered, as `properties`."""
        latest = self._latest
        return None if self._agents > 1 or latest is None else latest.pictures

    def join(self, settings: Settings) -> _OwnEnvironment:
        """Give one more agent an environment."""
        own, start = self._sort(settings)
        with self._lock:
            if self._joined >= self._agents:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED,
                    f"agents in this world: {self._joined}, as many as it takes",
                )
            self._joined += 1
        try:
            made = self._lease({**self._settings, **own})
            return _OwnEnvironment(self, made, own, start.over(self._start))
        except BaseException:
            with self._lock:
                self._joined -= 1
            raise

    def reset(self, settings: Settings) -> None:
        """Take new settings; each agent gets them with its own reset, which comes next."""
        changed, start = self._sort(settings)
        with self._lock:
            self._settings = {**self._settings, **changed}
            self._start = start
            self._resets += 1

    def close(self) -> None:
        """Close the environment that waits for an agent."""
        with self._lock:
            closed, self._closed = self._closed, True
            idle, self._idle = self._idle, None
        if idle is not None:
            self._close(idle)
        if not closed:
            self._maker.take_back()

    def _sort(self, settings: Settings) -> tuple[Settings, ResetArguments]:
        """Return what environments are made with, and what they are reset with."""
        return self._maker.sort(settings, self._takes_seed)

    def _make(self, settings: Settings, instead: _Made | None = None) -> _Made:
        """Make an environment; then close the one in whose place it comes."""
        environment = self._maker.make_environment(settings)
        with on_error(getattr(environment, "close", bool) if self._owned else bool):
            driven = driver_of(environment)
            check_alone(driven, "dm_env_rpc")
            made = self._latest = _Made(driven, settings, pictures_of(driven))
        if instead is not None:
            self._close(instead)
        return made

    def _lease(self, settings: Settings) -> _Made:
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is not None and _same(idle.settings, settings):
            return idle
        with on_error(lambda: None if idle is None else self._keep(idle)):
            return self._make(settings, idle)

    def _release(self, made: _Made) -> None:
        """Keep the environment of an agent that has left for the next one."""
        with self._lock:
            self._joined -= 1
        self._keep(made)

    def _keep(self, made: _Made) -> None:
        with self._lock:
            keep = self._idle is None and not self._closed and not made.failed
            if keep or not self._owned:
                self._idle = made
                return
        self._close(made)

    def _close(self, made: _Made) -> None:
        if self._owned:
            made.driven.close()


def _same(one: Settings, other: Settings) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) for name, value in one.items()
    )


class _OwnEnvironment(EnvironmentAgent):
    """An agent with an environment of its own."""

    def __init__(
        self, world: EnvironmentWorld, made: _Made, own: Settings, start: ResetArguments
    ) -> None:
        super().__init__(made.driven, *world._maker.agent_options)
        self._world, self._made, self._own, self._start = world, made, own, start
        self._resets = world._resets

    def reset(self, settings: Settings) -> None:
        """Take new settings; a new environment is made if they ask for one."""
        world = self._world
        changed, start = world._sort(settings)
        if self._resets != world._resets:
            start = start.over(world._start)
        own = {**self._own, **changed}
        wanted = {**world._settings, **own}
        if not _same(wanted, self._made.settings):
            self._made = world._make(wanted, self._made)
            self._drive(self._made.driven)
        self._own, self._start, self._resets = own, start, world._resets

    def begin(self) -> StepResult:
        """Reset the environment."""
        result = self._call(self._begin, self._start)
        self._start = ResetArguments()
        return result

    def _begin(self, start: ResetArguments) -> StepResult:
        observation, info = self._driven.reset(start.seed, start.options)
        if self._driven.discount_space is None:
            return self._result(RUNNING, observation, None, None, info)
        return self._result(RUNNING, observation, info.get("reward"), info.get("discount"), info)

    def step(self, actions: dict[str, Any]) -> StepResult:
        """Step the environment."""
        return self._call(self._step, self._action(actions))

    def _step(self, action: Any) -> StepResult:
        observation, reward, terminated, truncated, info = self._driven.step(action)
        if self._driven.discount_space is None:
            discount = 0.0 if terminated else 1.0
        else:
            discount = info.get("discount")
        state = TERMINATED if terminated else INTERRUPTED if truncated else RUNNING
        return self._result(state, observation, reward, discount, info)

    def _call(self, call: Callable[[Any], StepResult], argument: Any) -> StepResult:
        try:
            return call(argument)
        except BaseException:
            self._made.failed = True
            raise

    def close(self) -> None:
        """Leave the environment to the next agent."""
        self._world._release(self._made)


class EnvironmentWorlds(EnvironmentMaker):
    """Makes a world of single-agent environments for each ``create_world``: a `WorldFactory`.

    ::

        server = Server(EnvironmentWorlds(MyEnvironment, agents=4), "localhost:9999")

    Each agent in a world has an environment of its own. The settings of ``create_world``,
    ``join_world``, ``reset`` and ``reset_world`` that are in `accepts` are the factory's keyword
    arguments: NumPy scalars as Python's, names with periods as nested dictionaries. An agent's
    settings go over those of its world, and when a reset changes them a new environment is made.
    Clients may always give ``seed``, and with ``options`` in `accepts` also ``options.NAME``, to
    Gymnasium's ``reset``, unless `accepts` names an argument of the factory so: those of a reset
    are for the next sequence, those of ``create_world`` and ``join_world`` for each agent's first.

    Args:
        make_environment: a class or function that makes an environment; or an environment, which
            takes one agent at a time and is not closed.
        agents: how many agents may be in a world at a time.
        names: what observations, actions, reward and discount are called.
        default_actions: by name, what is done when a step leaves an action out. An action without
            a default must be in every step.
        infos: whether Gymnasium's infos are sent to clients that can read them: `rlwire.make` and
            what stands on it. False saves the bytes of infos that nobody reads.
        accepts: the settings that clients may give, by default none: an argument can be a path, a
            URL or a size. A name covers what nests in it: ``task`` covers ``task.size``.

    Attributes:
        accepts: the settings that clients may give, with ``seed``.

    Raises:
        TypeError: it is neither an environment nor can it be called, or needs an argument that is
            not in `accepts`.
        ValueError: `accepts` has a name that is no argument of the factory's.
    """

    def __init__(
        self,
        make_environment: Any,
        *,
        agents: int = 1,
        names: Names | None = None,
        default_actions: Mapping[str, Any] | None = None,
        infos: bool = True,
        accepts: Collection[str] = (),
    ) -> None:
        super().__init__(make_environment, accepts)
        self.agents = agents
        self.agent_options = names or Names(), infos, dict(default_actions or {})

    def check(self) -> None:
        """Make a world and close it, if that needs no settings.

        What cannot be served is known so before anybody connects.
        """
        if not self.needs_settings:
            self({}).close()

    def __call__(self, settings: Settings) -> EnvironmentWorld:
        """Make a world.

        Raises:
            StatusError: a setting is not accepted, missing or invalid.
            TypeError: what was made is no environment.
            EncodeError: the environment has something that dm_env_rpc cannot carry.
        """
        return EnvironmentWorld(self, settings)
