"""Environments as worlds: `EnvironmentWorlds` and `EnvironmentWorld`.

What becomes of observations, rewards and the end of an episode is in docs/protocols/dm_env_rpc.md.

Not here: a world in which agents meet (`rlwire.dm_env_rpc.shared`).
"""

from __future__ import annotations

import copy
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
from rlwire.dm_env_rpc.factories import Maker, Start
from rlwire.dm_env_rpc.properties import Properties, pictures_of
from rlwire.dm_env_rpc.protocols import Refusal
from rlwire.dm_env_rpc.spaces import Structure, of_number, structure_of, told_spec
from rlwire.environments.driver import Driven, check_alone, driver_of
from rlwire.environments.infos import encode_info
from rlwire.errors import EncodeError, on_error
from rlwire.sessions.dm_env_rpc import Code

logger = logging.getLogger(__name__)

_said: set[str] = set()  # the environments of which the log says that infos are lost

_RUNNING = EnvironmentStateType.RUNNING
_TERMINATED = EnvironmentStateType.TERMINATED
_INTERRUPTED = EnvironmentStateType.INTERRUPTED


@dataclass(frozen=True)
class Names:
    """What things are called on the wire.

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


@dataclass
class _Environment:
    """An environment and what it was made with."""

    driven: Driven
    made_with: Settings
    pictures: Properties | None
    failed: bool = False


class EnvironmentWorld:
    """A world of a single-agent environment; each agent in it has an environment of its own.

    The settings of ``create_world``, ``join_world``, ``reset`` and ``reset_world`` that are in
    `accepts` are the factory's keyword arguments: NumPy scalars as Python's, names with periods as
    nested dictionaries. An agent's settings go over those of its world, and when a reset changes
    them a new environment is made. Clients may always give ``seed``, and with ``options`` in
    `accepts` also ``options.NAME``, to Gymnasium's ``reset``, unless `accepts` names an argument of
    the factory so: those of a reset are for the next sequence, those of ``create_world`` and
    ``join_world`` for each agent's first.

    An environment's attribute ``properties``, if it is a `Properties`, is the world's.

    Args:
        make_environment: a class or function that makes an environment; or an environment, which
            takes one agent at a time and is not closed.
        settings: those of ``create_world``.
        agents: how many agents may be in the world at a time.
        names: what observations, actions, reward and discount are called.
        default_actions: by name, what is done when a step leaves an action out. An action without
            a default must be in every step.
        infos: whether Gymnasium's infos are sent to clients that can read them: `rlwire.make` and
            what stands on it. False saves the bytes of infos that nobody reads.
        accepts: the settings that clients may give, by default none: an argument can be a path, a
            URL or a size. A name covers what nests in it: ``task`` covers ``task.size``.

    Raises:
        Refusal: a setting is not accepted, missing or of no use.
        TypeError: what was made is no environment, or the factory needs an argument that is not in
            `accepts`.
        ValueError: `accepts` has a name that is no argument of the factory's.
        EncodeError: the environment has something that dm_env_rpc cannot carry.
    """

    parallel_agents = True  # they share nothing but what the lock guards

    def __init__(
        self,
        make_environment: Any,
        settings: Settings | None = None,
        *,
        agents: int = 1,
        names: Names | None = None,
        default_actions: Mapping[str, Any] | None = None,
        infos: bool = True,
        accepts: Collection[str] = (),
    ) -> None:
        maker = make_environment
        self._maker = maker if isinstance(maker, Maker) else Maker(maker, accepts)
        self._owned = not self._maker.lends
        self.is_accepted = self._maker.is_accepted
        self._agents = agents if self._owned else 1
        self._names = names or Names()
        self._defaults = dict(default_actions or {})
        self._infos = infos
        self._lock = threading.Lock()
        self._joined = 0
        self._closed = False
        self._resets = 0
        self._takes_seed: bool | None = None
        self._latest: _Environment | None = None
        self._idle: _Environment | None = None
        self._maker.lend()
        with on_error(self.close):
            self._begin(settings or {})

    def _begin(self, given: Settings) -> None:
        self._settings, self._start = self._sort(given)
        self._maker.check_required(given)
        made = self._idle = self._make(self._settings)
        self._takes_seed = made.driven.takes_seed
        self._sort(given)
        self.view(made.driven)

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

    def join(self, settings: Settings) -> _Agent:
        """Give one more agent an environment."""
        own, start = self._sort(settings)
        with self._lock:
            if self._joined >= self._agents:
                raise Refusal(
                    Code.RESOURCE_EXHAUSTED,
                    f"agents in this world: {self._joined}, as many as it takes",
                )
            self._joined += 1
        try:
            taken = self._take({**self._settings, **own})
            return _Agent(self, taken, own, start.over(self._start))
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

    def view(self, driven: Driven) -> View:
        """Return an agent's view of its environment."""
        return View(driven, self._names, self._infos, self._defaults)

    def _sort(self, settings: Settings) -> tuple[Settings, Start]:
        """Return what environments are made with, and what they are reset with."""
        return self._maker.sort(settings, self._takes_seed)

    def _make(self, made_with: Settings) -> _Environment:
        environment = self._maker(made_with)
        with on_error(getattr(environment, "close", bool) if self._owned else bool):
            driven = driver_of(environment)
            check_alone(driven, "dm_env_rpc")
            self._latest = _Environment(driven, made_with, pictures_of(driven))
            return self._latest

    def _take(self, made_with: Settings) -> _Environment:
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is None:
            return self._make(made_with)
        if _same(idle.made_with, made_with):
            return idle
        with on_error(lambda: self._keep(idle)):
            made = self._make(made_with)
        self._close(idle)
        return made

    def _remake(self, old: _Environment, made_with: Settings) -> _Environment:
        made = self._make(made_with)
        self._close(old)
        return made

    def _give_back(self, environment: _Environment) -> None:
        """An agent has left; the next one may have its environment."""
        with self._lock:
            self._joined -= 1
        self._keep(environment)

    def _keep(self, environment: _Environment) -> None:
        with self._lock:
            keep = self._idle is None and not self._closed and not environment.failed
            if keep or not self._owned:
                self._idle = environment
                return
        self._close(environment)

    def _close(self, environment: _Environment) -> None:
        if self._owned:
            environment.driven.close()


def _same(one: Settings, other: Settings) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) for name, value in one.items()
    )


class View:
    """What an agent may do and see in an environment, and the way between both sides' values.

    Attributes:
        specs: what the agent may do and see.
    """

    def __init__(
        self,
        driven: Driven,
        names: Names,
        infos: bool,
        default_actions: Mapping[str, Any],
    ) -> None:
        self._driven = driven
        self._observations = structure_of(
            driven.observation_space, "observation", names.observation
        )
        self._actions = structure_of(driven.action_space, "action", names.action)
        self._reward = _signal(driven.reward_space, "reward", names.reward)
        self._discount = _signal(driven.discount_space, "discount", names.discount, 0.0, 1.0)
        # dm_env has no infos: what its driver says there is the reward and the discount.
        self._infos = infos and driven.discount_space is None
        self._dropped: set[str] = set()
        self._told = told_spec(driven.observation_space, driven.action_space)
        self._unasked: tuple[int, ...] = ()
        observations = list(self._observations.specs)
        for extra in (self._reward, self._discount):
            if extra is None:
                continue
            for name in extra.names:
                if name in self._observations.names:
                    raise EncodeError(
                        f"there is an observation called {name!r} already; name the "
                        f"{extra.what} otherwise, or leave it out: Names({extra.what}=None)"
                    )
            observations += extra.specs
        self._first: dict[str, Any] = {}
        if self._reward is not None:
            self._first |= self._reward.fill(0.0)
        if self._discount is not None:
            self._first |= self._discount.fill(1.0)
        self.specs = ActionObservationSpecs(
            dict(enumerate(self._actions.specs, 1)), dict(enumerate(observations, 1))
        )
        self._needed = self._actions.names
        self._defaults = _defaults(self._actions, default_actions)

    def whole(self) -> View:
        """Return this view for an `rlwire.make`: `specs` tell the spaces, and infos are sent."""
        view = copy.copy(self)
        observations = dict(self.specs.observations)
        uid = len(observations) + 1
        view._unasked = (uid,)
        view.specs = ActionObservationSpecs(self.specs.actions, {**observations, uid: self._told})
        return view

    def begin(self, start: Start) -> StepResult:
        """Reset the environment; return what the agent is told."""
        observation, info = self._driven.reset(start.seed, start.options)
        if self._driven.discount_space is None:
            return self.told(_RUNNING, observation, None, None, info)
        return self.told(_RUNNING, observation, info.get("reward"), info.get("discount"), info)

    def step(self, action: Any) -> StepResult:
        """Step the environment; return what the agent is told."""
        observation, reward, terminated, truncated, info = self._driven.step(action)
        if self._driven.discount_space is None:
            discount = 0.0 if terminated else 1.0
        else:
            discount = info.get("discount")
        state = _TERMINATED if terminated else _INTERRUPTED if truncated else _RUNNING
        return self.told(state, observation, reward, discount, info)

    def action(self, actions: dict[str, Any]) -> Any:
        """Return what the environment is told."""
        if self._defaults:
            actions = {**self._defaults, **actions}
        if len(actions) < len(self._needed):
            missing = [name for name in self._needed if name not in actions]
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"every step must have all actions; missing: {', '.join(map(repr, missing))}",
            )
        try:
            return self._actions.build(actions)
        except EncodeError as error:  # the peer's value, not ours
            raise Refusal(Code.INVALID_ARGUMENT, str(error)) from None

    def told(
        self,
        state: EnvironmentStateType,
        observation: Any,
        reward: Any,
        discount: Any,
        info: Mapping[str, Any],
    ) -> StepResult:
        """Return what the agent is told; no reward or discount is a first step's."""
        observations = self._observations.flatten(observation)
        if reward is None or discount is None:
            observations.update(self._first)
        if reward is not None and self._reward is not None:
            observations.update(self._reward.flatten(reward))
        if discount is not None and self._discount is not None:
            observations.update(self._discount.flatten(discount))
        if info and self._infos:
            if self._unasked:
                observations[self._told.name] = np.frombuffer(
                    encode_info(info, self._dropped), np.uint8
                )
                return InformedResult(state, observations, self._unasked)
            self._say_lost(info)
        return StepResult(state, observations)

    def _say_lost(self, info: Mapping[str, Any]) -> None:
        """Say in the log that an info is not sent: once for each kind of environment."""
        name = self._driven.name
        if name not in _said:
            _said.add(name)
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


class _Agent:
    """An agent and its environment."""

    def __init__(
        self, world: EnvironmentWorld, environment: _Environment, own: Settings, start: Start
    ) -> None:
        self._world = world
        self._environment = environment
        self._own = own
        self._start = start
        self._resets = world._resets
        self._is_whole = False
        self._see()

    def _see(self) -> None:
        view = self._world.view(self._environment.driven)
        self._view = view.whole() if self._is_whole else view
        self.specs = self._view.specs

    def whole(self) -> None:
        """Tell the spaces, and send infos: the client is one of ours."""
        self._is_whole = True
        self._view = self._view.whole()
        self.specs = self._view.specs

    def reset(self, settings: Settings) -> None:
        """Take new settings; a new environment is made if they ask for one."""
        world = self._world
        changed, start = world._sort(settings)
        if self._resets != world._resets:
            start = start.over(world._start)
        own = {**self._own, **changed}
        wanted = {**world._settings, **own}
        if not _same(wanted, self._environment.made_with):
            self._environment = world._remake(self._environment, wanted)
            self._see()
        self._own, self._start, self._resets = own, start, world._resets

    def begin(self) -> StepResult:
        """Reset the environment."""
        result = self._call(self._view.begin, self._start)
        self._start = Start()
        return result

    def step(self, actions: dict[str, Any]) -> StepResult:
        """Step the environment."""
        return self._call(self._view.step, self._view.action(actions))

    def _call(self, call: Callable[[Any], StepResult], argument: Any) -> StepResult:
        try:
            return call(argument)
        except BaseException:
            self._environment.failed = True
            raise

    def close(self) -> None:
        """Leave the environment to the next agent."""
        self._world._give_back(self._environment)


class EnvironmentWorlds:
    """Makes an `EnvironmentWorld` for each ``create_world``: a `WorldFactory`.

    ::

        server = Server(EnvironmentWorlds(MyEnvironment, agents=4), "localhost:9999")

    Args:
        make_environment: as `EnvironmentWorld` takes it. An environment that is handed in can be in
            one world at a time.
        agents: this and what follows: as `EnvironmentWorld` takes it.

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
        self._maker = Maker(make_environment, accepts)
        self.accepts = self._maker.accepts
        self.is_accepted = self._maker.is_accepted
        self._options: dict[str, Any] = {
            "agents": agents,
            "names": names,
            "default_actions": default_actions,
            "infos": infos,
        }

    def check(self) -> None:
        """Make an environment and close it, if that needs no settings.

        What cannot be served is known so before anybody connects.

        Raises:
            What `EnvironmentWorld` raises.
        """
        if not self._maker.needs_settings:
            self({}).close()

    def __call__(self, settings: Settings) -> EnvironmentWorld:
        """Make a world."""
        return EnvironmentWorld(self._maker, settings, **self._options)
