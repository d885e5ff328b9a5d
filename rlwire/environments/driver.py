"""One driver of environments of Gymnasium, dm_env and PettingZoo: `drive` returns a `Driven`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlwire.environments.fitting import fitting, plain
from rlwire.environments.loading import load_environment
from rlwire.environments.trees import tree_of
from rlwire.errors import EncodeError, RemoteProtocolError, on_error

Step: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""Observation, reward, terminated, truncated, info."""


class Driven:
    """An environment with Gymnasium's methods; of a parallel one, spaces and results by agent.

    Attributes:
        environment: what is driven.
        name: what it calls itself.
        agents: the names of all agents of a parallel environment; else empty.
        observation_space, action_space: Gymnasium's space or dm_env's specs.
        reward_space: dm_env's specs of rewards; None for a number.
        discount_space: dm_env's specs of discounts; None if there are none.
        takes_seed: whether `reset` uses its arguments.
        owned: whether `drive` has made the environment.
    """

    agents: tuple[Any, ...] = ()
    reward_space: Any = None
    discount_space: Any = None
    takes_seed = True
    owned = False

    def __init__(self, environment: Any, name: str) -> None:
        self.environment = environment
        self.name = name
        self._read_spaces()

    def _read_spaces(self) -> None:
        self.observation_space = self.environment.observation_space
        self.action_space = self.environment.action_space

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, Any]:
        given = {} if options is None else {"options": dict(options)}
        observation, info = self.environment.reset(seed=seed, **given)
        return observation, info

    def step(self, action: Any) -> Any:
        """Act; return a `Step`, or one for each agent that was playing."""
        return self.environment.step(action)

    def close(self) -> None:
        self.environment.close()

    def one(self, protocol: str) -> Driven:
        """Return itself if it has one agent with a number as reward; else raise."""
        if self.agents:
            raise TypeError(
                f"{self.name} has the agents {', '.join(map(str, self.agents[:10]))}; {protocol} "
                f"carries one agent's results: serve it over PERLERT or dm_env_rpc"
            )
        if self.reward_space is not None:
            reward = tree_of(self.reward_space, "the reward", f"which {protocol} cannot carry")
            if not reward.lone or reward.leaves[0].shape or reward.leaves[0].text:
                raise EncodeError(
                    f"a reward of {self.name} is {self.reward_space}, but {protocol} carries a "
                    f"number: wrap the environment, or serve it over dm_env_rpc"
                )
        return self


class _DmEnv(Driven):
    """Drives a `dm_env.Environment`, with ``discount`` in the info and ``reward`` after a reset."""

    takes_seed = False

    def _read_spaces(self) -> None:
        self.observation_space = self.environment.observation_spec()
        self.action_space = self.environment.action_spec()
        self.reward_space = self.environment.reward_spec()
        self.discount_space = self.environment.discount_spec()

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, Any]:
        step = self.environment.reset()
        if not step.first():
            raise RuntimeError(
                f"{type(self.environment).__name__}.reset() must return a first step, not "
                f"{step.step_type.name}"
            )
        return step.observation, _given(reward=step.reward, discount=step.discount)

    def step(self, action: Any) -> Any:
        """Act; a last step with a discount above 0 is a truncation."""
        step = self.environment.step(action)
        truncated = step.last() and step.discount is not None and _any(step.discount)
        terminated = step.last() and not truncated
        info = _given(discount=step.discount)
        return step.observation, step.reward, terminated, truncated, info


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _any(discount: Any) -> bool:
    if isinstance(discount, Mapping):
        return any(map(_any, discount.values()))
    return bool(np.any(discount))


class _Parallel(Driven):
    """Drives a `pettingzoo.ParallelEnv`: dictionaries by agent."""

    def _read_spaces(self) -> None:
        environment = self.environment
        self.agents = tuple(environment.possible_agents)
        self.observation_space = {name: environment.observation_space(name) for name in self.agents}
        self.action_space = {name: environment.action_space(name) for name in self.agents}
        self._playing: list[Any] = []
        self._last: dict[Any, Any] = {}

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, Any]:
        observations, infos = super().reset(seed, options)
        self._playing = list(self.environment.agents)
        self._last = dict(observations)
        return observations, infos

    def step(self, action: Any) -> dict[Any, Step]:
        """Let the playing agents act; one that is dropped silently is terminated."""
        before = self._playing
        observations, rewards, terminations, truncations, infos = self.environment.step(
            {name: action[name] for name in before}
        )
        self._playing = list(self.environment.agents)
        self._last.update(observations)
        gone = set(before).difference(self._playing)
        steps = {}
        for name in {**observations, **dict.fromkeys(gone)}:
            terminated, truncated = terminations.get(name, False), truncations.get(name, False)
            steps[name] = (
                self._last[name],
                rewards.get(name, 0.0),
                terminated or (name in gone and not truncated),
                truncated,
                infos.get(name) or {},
            )
        return steps


def _has(value: object, *names: str) -> bool:
    return all(hasattr(value, name) for name in names)


def _is_dm_env(value: object) -> bool:
    return _has(value, "observation_spec", "action_spec")


def _is_parallel(value: object) -> bool:
    return _has(value, "possible_agents") and callable(getattr(value, "observation_space", None))


def _is_gymnasium(value: object) -> bool:
    if isinstance(value, type):  # spaces are attributes that only instances have
        return _has(value, "metadata", "unwrapped")
    return _has(value, "observation_space", "action_space")


def is_environment(value: object) -> bool:
    """Whether `value` is an environment that `drive` supports, or a class of them."""
    return _has(value, "reset", "step", "close") and (
        _is_dm_env(value) or _is_parallel(value) or _is_gymnasium(value)
    )


def _name_of(environment: Any) -> str:
    named = getattr(getattr(environment, "spec", None), "id", None)
    if named is None and _is_parallel(environment):
        named = (getattr(environment, "metadata", None) or {}).get("name")
    return str(named or type(getattr(environment, "unwrapped", environment)).__name__)


def maker(
    thing: Any, env_kwargs: Mapping[str, Any] | None = None
) -> tuple[Any, Callable[[], Any] | None]:
    """Return an environment and None, or None and a function that makes environments."""
    if isinstance(thing, str):
        thing = load_environment(thing)
    made = is_environment(thing) and not isinstance(thing, type)
    if made or not callable(thing):
        if env_kwargs:
            raise ValueError(
                f"env_kwargs ({', '.join(env_kwargs)}) are for a function that makes environments; "
                f"this one is made"
            )
        return thing, None
    return None, functools.partial(thing, **env_kwargs) if env_kwargs else thing


def drive(thing: Any, env_kwargs: Mapping[str, Any] | None = None) -> Driven:
    """Return a driver of an environment, or of one that it makes."""
    environment, make = maker(thing, env_kwargs)
    if make is None:
        return driver_of(environment)
    environment = make()
    with on_error(getattr(environment, "close", bool)):
        driven = driver_of(environment)
    driven.owned = True
    return driven


def driver_of(environment: Any) -> Driven:
    """Return a driver of an environment; TypeError for anything else."""
    if isinstance(environment, Driven):
        return environment
    kind = type(environment).__name__
    if _has(environment, "possible_agents", "agent_iter"):
        raise TypeError(
            f"the agents of {kind} act in turns, but must act at once: serve a parallel_env, or "
            f"pettingzoo.utils.aec_to_parallel(...)"
        )
    if hasattr(environment, "num_envs"):
        raise TypeError(
            f"{kind} is a vector of environments: serve a function that makes one; each peer gets "
            f"its own"
        )
    if _is_dm_env(environment):
        return _DmEnv(environment, _name_of(environment))
    if _is_parallel(environment):
        return _Parallel(environment, _name_of(environment))
    if _is_gymnasium(environment):
        return Driven(environment, _name_of(environment))
    raise TypeError(
        f"a {kind} is no environment: it needs Gymnasium's observation_space and action_space, "
        f"dm_env's observation_spec() and action_spec(), or PettingZoo's possible_agents"
    )


@contextlib.contextmanager
def opened(environment: Any, seed: int | None, protocol: str) -> Iterator[Game]:
    """Open an environment to `rlwire.play`; close it at the end if it was made here."""
    driven = drive(environment)
    try:
        yield Game(driven.one(protocol), seed)
    finally:
        if driven.owned:
            driven.close()


class Game:
    """An environment that calls a peer; `total`, `over` and `truncated` are of this episode."""

    def __init__(self, environment: Driven, seed: int | None) -> None:
        self.environment = environment
        self.total = 0.0
        self.over = self.truncated = False
        self._seed = seed
        self._fit = fitting(environment.action_space, "the action")

    def reset(self) -> Any:
        seed, self._seed = self._seed, None
        observation, _ = self.environment.reset(seed)
        self.total, self.over, self.truncated = 0.0, False, False
        return plain(observation)

    def step(self, action: Any) -> tuple[Any, float]:
        """Do the peer's action; return the observation and the reward."""
        try:
            action = self._fit(action)
        except EncodeError as error:
            raise RemoteProtocolError(f"{error} (from the agent)") from error
        observation, reward, terminated, truncated, _ = self.environment.step(action)
        reward = float(reward)
        self.total += reward
        self.over = bool(terminated or truncated)
        self.truncated = bool(truncated and not terminated)
        return plain(observation), reward
