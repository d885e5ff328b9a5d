"""`DmEnvironment`, a remote environment as a `dm_env.Environment`, and `specs_of`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.remote import RemoteEnvironment
from rlwire.environments.trees import Leaf, tree_of
from rlwire.errors import optional

with optional("dm-env", "dm", "dm_env"):
    import dm_env
    from dm_env import specs as dm_specs


__all__ = ["DmEnvironment"]


class DmEnvironment(dm_env.Environment):
    """Wraps a remote environment of `rlwire.make` or `rlwire.listen`; `close` closes both.

    ::

        with DmEnvironment(rlwire.make("dm-env-rpc://localhost:9911")) as environment:
            step = environment.reset()
            while not step.last():
                step = environment.step(policy(step.observation))

    The last step's discount is 0 if the environment terminated, 1 if it was truncated or lost.
    ``info["discount"]`` and ``info["reward"]`` override the discount and reward. EncodeError for
    spaces that dm_env has no specs for.

    Attributes:
        environment: the remote environment.
        info: the info of the last step or reset.
    """

    def __init__(self, environment: RemoteEnvironment) -> None:
        self.environment = environment
        self.info: dict[str, Any] = {}
        self._seen = specs_of(environment.observation_space, "observation")
        self._done = specs_of(environment.action_space, "action")
        self._reward = _signal(environment, "reward")
        self._discount = _signal(environment, "discount")
        self._running = False

    def reset(self) -> dm_env.TimeStep:
        """Begin an episode; RlwireError if the server rejects it or cannot be reached."""
        self._running = False
        observation, self.info = self.environment.reset()
        self._running = True
        return dm_env.restart(observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        """Take a step, or `reset` after a last step; EncodeError if the action does not fit."""
        if not self._running:
            return self.reset()
        observation, reward, terminated, truncated, info = self.environment.step(action)
        self.info = info
        self._running = not (terminated or truncated)
        discount = info.get("discount", 0.0 if terminated else 1.0)
        kind = dm_env.StepType.MID if self._running else dm_env.StepType.LAST
        return dm_env.TimeStep(kind, info.get("reward", reward), discount, observation)

    def observation_spec(self) -> Any:
        return self._seen

    def action_spec(self) -> Any:
        return self._done

    def reward_spec(self) -> Any:
        return super().reward_spec() if self._reward is None else self._reward

    def discount_spec(self) -> Any:
        return super().discount_spec() if self._discount is None else self._discount

    def close(self) -> None:
        """Close the remote environment as well."""
        self.environment.close()


def _signal(environment: RemoteEnvironment, what: str) -> Any:
    space = getattr(environment.endpoint, f"{what}_space", None)
    return None if space is None else specs_of(space, what)


def specs_of(space: Any, name: str = "") -> Any:
    """Convert a Gymnasium space to dm_env's specs; EncodeError for Sequence, Graph and OneOf."""
    tree = tree_of(space, name or "the space", "for which dm_env has no specs")
    return tree.build(_spec(leaf, name) for leaf in tree.leaves)


def _spec(leaf: Leaf, name: str) -> Any:
    for key in leaf.keys:
        name = f"{name}{key}" if isinstance(key, int) else str(key)
    if leaf.text is not None:
        return dm_specs.StringArray((), name=name)
    low, high = np.asarray(leaf.low), np.asarray(leaf.high)
    if hasattr(leaf.space, "n") and leaf.is_scalar and low == 0:
        return dm_specs.DiscreteArray(int(high) + 1, leaf.dtype, name)
    kind = leaf.dtype.kind
    if kind == "b" or (kind == "f" and np.isneginf(low).all() and np.isposinf(high).all()):
        return dm_specs.Array(leaf.shape, leaf.dtype, name)
    return dm_specs.BoundedArray(leaf.shape, leaf.dtype, _one(low), _one(high), name)


def _one(bound: NDArray[Any]) -> Any:
    return bound.flat[0] if bound.size and (bound == bound.flat[0]).all() else bound
