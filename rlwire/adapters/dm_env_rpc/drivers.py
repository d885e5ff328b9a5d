"""Environments of dm_env and Gymnasium behind one interface, `Driver`.

What becomes of their values on the wire is said in `rlwire.adapters.dm_env_rpc.spaces`. Not here:
worlds and settings (`rlwire.adapters.dm_env_rpc.environments`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from rlwire.adapters.dm_env_rpc import spaces
from rlwire.codecs.dm_env_rpc import EnvironmentStateType, TensorSpec, make_spec

__all__ = [
    "Driver",
    "GymnasiumDriver",
    "Names",
    "Outcome",
    "drive",
    "is_environment",
    "is_world",
]

_RUNNING = EnvironmentStateType.RUNNING
_TERMINATED = EnvironmentStateType.TERMINATED
_INTERRUPTED = EnvironmentStateType.INTERRUPTED

Outcome: TypeAlias = tuple[EnvironmentStateType, Any, Any, Any]
"""State, observation, reward, discount; None for a reward or discount that there is not."""


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


def is_environment(value: object) -> bool:
    """Whether `value` is an environment of dm_env or Gymnasium, or a class of them."""
    return all(hasattr(value, name) for name in ("reset", "step", "close")) and (
        _is_dm_env(value) or _is_gymnasium(value)
    )


def is_world(value: object) -> bool:
    """Whether `value` is a `World`, or a class of worlds."""
    return all(hasattr(value, name) for name in ("join", "reset", "close"))


def _is_dm_env(value: object) -> bool:
    return hasattr(value, "observation_spec") and hasattr(value, "action_spec")


def _is_gymnasium(value: object) -> bool:
    if isinstance(value, type):  # spaces are attributes that only instances have
        return hasattr(value, "metadata") and hasattr(value, "unwrapped")
    return hasattr(value, "observation_space") and hasattr(value, "action_space")


class Driver(Protocol):
    """An environment of either kind."""

    observations: spaces.Structure
    actions: spaces.Structure
    reward: spaces.Structure | None
    discount: spaces.Structure | None

    def begin(self, seed: int | None, options: Mapping[str, Any] | None) -> Outcome:
        """Begin a sequence; Gymnasium's environments take a seed and options."""

    def step(self, action: Any) -> Outcome:
        """Act."""


class DmEnvDriver:
    """Drives a `dm_env.Environment`."""

    def __init__(self, environment: Any, names: Names) -> None:
        self._environment = environment
        of = spaces.of_dm_env_spec
        self.observations = of(environment.observation_spec(), "observation", names.observation)
        self.actions = of(environment.action_spec(), "action", names.action)
        self.reward = self.discount = None
        if names.reward is not None:
            self.reward = of(environment.reward_spec(), "reward", "", names.reward)
        if names.discount is not None:
            self.discount = of(environment.discount_spec(), "discount", "", names.discount)

    def begin(self, seed: int | None, options: Mapping[str, Any] | None) -> Outcome:
        """Begin a sequence."""
        step = self._environment.reset()
        if not step.first():
            raise RuntimeError(
                f"{type(self._environment).__name__}.reset() returned a step of type "
                f"{step.step_type.name}, which begins no sequence"
            )
        return _RUNNING, step.observation, step.reward, step.discount

    def step(self, action: Any) -> Outcome:
        """Act."""
        step = self._environment.step(action)
        state = _RUNNING
        if step.last():
            goes_on = step.discount is not None and _any(step.discount)
            state = _INTERRUPTED if goes_on else _TERMINATED
        return state, step.observation, step.reward, step.discount


def _any(discount: Any) -> bool:
    if isinstance(discount, Mapping):
        return any(map(_any, discount.values()))
    return bool(np.any(discount))


class GymnasiumDriver:
    """Drives a `gymnasium.Env`."""

    def __init__(self, environment: Any, names: Names) -> None:
        if hasattr(environment, "num_envs"):
            raise TypeError(
                f"{type(environment).__name__} is a vector of environments; serve one of them, "
                f"each connection gets its own"
            )
        self._environment = environment
        of = spaces.of_gymnasium_space
        self.observations = of(environment.observation_space, "observation", names.observation)
        self.actions = of(environment.action_space, "action", names.action)
        self.reward = self.discount = None
        if names.reward is not None:
            self.reward = _double(make_spec(names.reward, (), np.float64))
        if names.discount is not None:
            self.discount = _double(make_spec(names.discount, (), np.float64, 0.0, 1.0))

    def begin(self, seed: int | None, options: Mapping[str, Any] | None) -> Outcome:
        """Begin a sequence."""
        observation, _info = self._environment.reset(
            seed=seed, options=None if options is None else dict(options)
        )
        return _RUNNING, observation, None, None

    def step(self, action: Any) -> Outcome:
        """Act."""
        observation, reward, terminated, truncated, _info = self._environment.step(action)
        if terminated:
            return _TERMINATED, observation, reward, 0.0
        return (_INTERRUPTED if truncated else _RUNNING), observation, reward, 1.0


def _double(spec: TensorSpec) -> spaces.Structure:
    return spaces.Structure(spaces.Leaf(spec, np.float64, float), spec.name)


def drive(environment: Any, names: Names) -> Driver:
    """Return a driver.

    Raises:
        TypeError: it is no environment, or many in one.
        EncodeError: it has something that dm_env_rpc cannot carry.
    """
    if _is_dm_env(environment):
        return DmEnvDriver(environment, names)
    if _is_gymnasium(environment):
        return GymnasiumDriver(environment, names)
    raise TypeError(
        f"a {type(environment).__name__} is no environment: it has neither dm_env's "
        f"observation_spec() and action_spec() nor Gymnasium's observation_space and action_space"
    )
