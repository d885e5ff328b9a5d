"""`drive` wraps an environment of Gymnasium, dm_env or PettingZoo in a `Driven`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from rlwire.codecs.casting import flag, real
from rlwire.environments.endpoint import OLD_API, reset
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.loading import load_environment
from rlwire.environments.trees import tree_of
from rlwire.errors import EncodeError, RemoteProtocolError, on_error

Step: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""Observation, reward, terminated, truncated, info."""


class Driven:
    """Gives an environment Gymnasium's methods; parallel ones have spaces and results by agent.

    Attributes:
        agents: names of all agents of a parallel environment; empty for others.
        observation_space, action_space: a Gymnasium space or dm_env's specs.
        reward_space: dm_env's specs of rewards; None for a number.
        discount_space: dm_env's specs of discounts, or None.
        accepts_seed: whether `reset` uses its arguments.
        owned: whether `drive` made the environment, so that its caller closes it.
    """

    agents: tuple[Any, ...] = ()
    reward_space: Any = None
    discount_space: Any = None
    accepts_seed = True
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
        result = reset(self.environment, seed=seed, **given)
        whole = type(result) is tuple and len(result) == 2
        return result if whole else self._unpacked(result, "reset", "observation", "info")

    def step(self, action: Any) -> Any:
        """Take a step; return a `Step`, or one by agent, for each that was playing."""
        result = self.environment.step(action)
        if type(result) is not tuple or len(result) != 5:
            names = ("observation", "reward", "terminated", "truncated", "info")
            result = self._unpacked(result, "step", *names)
        if result[1] is None:
            raise EncodeError(f"{self.name}: step() must return a number as the reward, not None")
        return result

    def _unpacked(self, result: Any, method: str, *names: str) -> tuple[Any, ...]:
        if isinstance(result, (tuple, list)) and len(result) == len(names):
            return tuple(result)
        many = isinstance(result, (tuple, list))
        raise TypeError(
            f"{self.name}: {method}() must return {', '.join(names)}, not "
            f"{f'{len(result)} items' if many else type(result).__name__}; {OLD_API}"
        )

    def close(self) -> None:
        self.environment.close()

    def one(self, protocol: str) -> Driven:
        """Return self; TypeError or EncodeError unless it has one agent and scalar rewards."""
        if self.agents:
            raise TypeError(
                f"{self.name} has {len(self.agents)} agents "
                f"({', '.join(map(str, self.agents[:10]))}), {protocol} carries one: serve it over "
                f"PERLERT or dm_env_rpc"
            )
        if self.reward_space is not None:
            reward = tree_of(self.reward_space, "the reward", f"which {protocol} cannot carry")
            if not reward.is_leaf or reward.leaves[0].shape or reward.leaves[0].text:
                raise EncodeError(
                    f"{self.name} has rewards {self.reward_space}, {protocol} carries a number: "
                    f"wrap the environment, or serve it over dm_env_rpc"
                )
        return self


class _DmEnv(Driven):
    """Wraps a `dm_env.Environment`; infos have ``discount``, those of resets also ``reward``."""

    accepts_seed = False

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
                f"{type(self.environment).__name__}.reset() must return a step of type FIRST, not "
                f"{step.step_type.name}"
            )
        return step.observation, _given(reward=step.reward, discount=step.discount)

    def step(self, action: Any) -> Any:
        """Take a step; a last step with a discount other than 0 is a truncation."""
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
        """Step the playing agents; one that vanishes without a flag counts as terminated."""
        before = self._playing
        observations, rewards, terminations, truncations, infos = super().step(
            {name: action[name] for name in before}
        )
        self._playing = list(self.environment.agents)
        self._last.update(observations)
        gone = set(before).difference(self._playing)
        steps = {}
        for name in {**observations, **dict.fromkeys(gone)}:
            terminated, truncated = terminations.get(name, False), truncations.get(name, False)
            if rewards.get(name, 0.0) is None:
                raise EncodeError(f"{self.name}: the reward of {name} must be a number, not None")
            if not (terminated is False is truncated):
                terminated = flag(terminated, f"{name}: terminated")
                truncated = flag(truncated, f"{name}: truncated")
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
    if isinstance(value, type):  # only instances have spaces
        return _has(value, "metadata", "unwrapped")
    return _has(value, "observation_space", "action_space")


def is_environment(value: object) -> bool:
    """Return whether `value` is an environment that `drive` supports, or a class of them."""
    return _has(value, "reset", "step", "close") and (
        _is_dm_env(value) or _is_parallel(value) or _is_gymnasium(value)
    )


def _name_of(environment: Any) -> str:
    named = getattr(getattr(environment, "spec", None), "id", None)
    if named is None and _is_parallel(environment):
        named = (getattr(environment, "metadata", None) or {}).get("name")
    return str(named or type(getattr(environment, "unwrapped", environment)).__name__)


def maker(
    target: Any, env_kwargs: Mapping[str, Any] | None = None
) -> tuple[Any, Callable[[], Any] | None]:
    """Return an environment and None, or None and a function that makes environments."""
    if isinstance(target, str):
        target = load_environment(target)
    made = is_environment(target) and not isinstance(target, type)
    if made or not callable(target):
        if env_kwargs:
            raise ValueError(
                f"env_kwargs ({', '.join(env_kwargs)}) need a class or function that makes "
                f"environments, not an instance of {type(target).__name__}"
            )
        return target, None
    return None, functools.partial(target, **env_kwargs) if env_kwargs else target


def drive(target: Any, env_kwargs: Mapping[str, Any] | None = None) -> Driven:
    """Wrap an environment, or one that a factory or name makes."""
    environment, make = maker(target, env_kwargs)
    if make is None:
        return driver_of(environment)
    environment = make()
    with on_error(getattr(environment, "close", bool)):
        driven = driver_of(environment)
    driven.owned = True
    return driven


def driver_of(environment: Any) -> Driven:
    """Wrap an environment; TypeError for anything else."""
    if isinstance(environment, Driven):
        return environment
    kind = type(environment).__name__
    if _has(environment, "possible_agents", "agent_iter"):
        raise TypeError(
            f"{kind} is an AEC environment, whose agents act in turns: serve its parallel_env, or "
            f"pettingzoo.utils.aec_to_parallel(...)"
        )
    if hasattr(environment, "num_envs"):
        raise TypeError(
            f"{kind} is a vector of environments: serve a function that makes a single one, for "
            f"each peer"
        )
    if _is_dm_env(environment):
        return _DmEnv(environment, _name_of(environment))
    if _is_parallel(environment):
        return _Parallel(environment, _name_of(environment))
    if _is_gymnasium(environment):
        return Driven(environment, _name_of(environment))
    raise TypeError(
        f"expected an environment with Gymnasium's observation_space and action_space, dm_env's "
        f"observation_spec() and action_spec(), or PettingZoo's possible_agents, not {kind}"
    )


@contextlib.contextmanager
def opened(environment: Any, seed: int | None, protocol: str) -> Iterator[Game]:
    """Make or wrap an environment for `rlwire.play`; on exit, close it if it was made here."""
    driven = drive(environment)
    try:
        yield Game(driven.one(protocol), seed)
    finally:
        if driven.owned:
            driven.close()


class Game:
    """An environment that a remote agent plays; its attributes are those of the episode."""

    def __init__(self, environment: Driven, seed: int | None) -> None:
        self.environment = environment
        self._seed = seed
        self._fit = fitting(environment.action_space, "the action")

    def reset(self) -> Any:
        seed, self._seed = self._seed, None
        observation, _ = self.environment.reset(seed)
        self.total = 0.0
        self.ended = self.terminated = self.truncated = False
        return _observed(observation)

    def step(self, action: Any) -> tuple[Any, float]:
        """Take the remote agent's action; return the observation and the reward."""
        try:
            action = self._fit(action)
        except EncodeError as error:
            raise RemoteProtocolError(f"invalid action of the remote agent: {error}") from error
        observation, reward, terminated, truncated, _ = self.environment.step(action)
        reward = real(reward, "the reward")
        self.total += reward
        self.terminated = terminated is not False and flag(terminated, "terminated")
        self.truncated = truncated is not False and flag(truncated, "truncated")
        self.ended = self.terminated or self.truncated
        return _observed(observation), reward


def _observed(observation: Any) -> Any:
    if observation is None:  # which RLX sends where there is no new state
        raise EncodeError("the environment's observation is None")
    try:
        return plain(observation)
    except RecursionError:
        raise EncodeError("the environment's observation contains itself") from None
