"""Remotes that run an environment of Gymnasium's, as the original's gym-core ones do.

Their keys stand for actions: the arrows and Z of an Atari game, Left of CartPole. A commit of the
key C, in those that wait for it, makes one step; so the environment behind pixels is as
deterministic as one in this process. Needs Gymnasium (the extra ``gym``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from rlwire.adapters.universe.diagnostics import SEARCH
from rlwire.adapters.universe.events import PEEK, key, keys
from rlwire.adapters.universe.sums import Outcome, added
from rlwire.adapters.universe.wrappers import SafeActionSpace, Wrapper
from rlwire.environments.loading import load_environment
from rlwire.errors import DeadlineExceeded

__all__ = [
    "ATARI",
    "GymCoreAction",
    "GymCoreObservation",
    "GymCoreSync",
    "core_actions",
    "core_meanings",
]

ATARI: Final = (160, 210)
"""Width and height of an Atari game's picture, for `CropObservations`."""

_KEYS: Final = {"UP": "Up", "LEFT": "Left", "RIGHT": "Right", "DOWN": "Down", "FIRE": "z"}
_COMMIT: Final = [key("c", True), key("c", False)]


def core_meanings(env_id: str) -> list[str]:
    """Return what an Atari game's actions mean, such as ``["NOOP", "FIRE", "RIGHT"]``.

    Args:
        env_id: with the module that registers it: ``"ale_py:ALE/Pong-v5"``.

    Raises:
        ValueError: it has no meanings.
    """
    env = load_environment(f"gym:{env_id}")()
    try:
        tell = getattr(env.unwrapped, "get_action_meanings", None)
        if tell is None:
            raise ValueError(f"{env_id} does not say what its actions mean; give them as events")
        return list(tell())
    finally:
        env.close()


def core_actions(env_id: str | Sequence[str]) -> list[list[Any]]:
    """Return the events of each action of an environment of Gymnasium's behind a screen.

    Args:
        env_id: ``CartPole-v1``, what `core_meanings` takes, or what that returns.

    Raises:
        ValueError: it is another one.
    """
    if isinstance(env_id, str) and env_id.partition("-v")[0] == "CartPole":
        return [[key("Left", True)], [key("Left", False)]]
    meanings = core_meanings(env_id) if isinstance(env_id, str) else env_id
    return [
        list(keys([name for word, name in _KEYS.items() if word in meaning], _KEYS.values()))
        for meaning in meanings
    ]


class GymCoreAction(SafeActionSpace):
    """Takes actions as the environment itself does: numbers.

    Args:
        env: the inner vector.
        env_id: as `core_actions` takes it.
    """

    def __init__(self, env: Any, env_id: str | Sequence[str]) -> None:
        super().__init__(env, core_actions(env_id))


class GymCoreObservation(Wrapper):
    """Shows what the rewarder tells of the environment's own observation, in place of pixels.

    Args:
        env: the inner vector.
        observation_space: one environment's, a Box or a Discrete, whose dtype and shape it has.
    """

    def __init__(self, env: Any, observation_space: Any) -> None:
        super().__init__(env)
        self.observation_space = observation_space

    def reset(self, *arguments: Any, **options: Any) -> list[Any]:
        """Begin episodes: an observation comes with a step."""
        return [None for _ in self.env.reset(*arguments, **options)]

    def step(self, action_n: Sequence[Any]) -> Outcome:
        """Act; an index has no observation before the first of its episode."""
        _, reward_n, done_n, info = self.env.step(action_n)
        return list(map(self._told, info["n"])), reward_n, done_n, info

    def _told(self, info: dict[str, Any]) -> Any:
        told = info.pop("rewarder.observation", None)
        if told is None or told[1] == info.get("env_status.complete.episode_id"):
            return None
        space = self.observation_space
        array = np.asarray(told[0], space.dtype).reshape(space.shape)
        return array if space.shape else array[()]


class GymCoreSync(Wrapper):
    """Makes exactly one step of each environment: commits the action, and waits for its picture.

    The remotes make a step for each commit, send one reward for it, and write their time into
    pictures (`markings` of `UniverseEnv`); a picture counts when it is not older than the reward.

    Args:
        env: the inner vector, whose resets block (`BlockingReset`).
        timeout: seconds that a step may take.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        env: Any,
        timeout: float = 10.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(env)
        self._timeout = timeout
        self._clock = clock

    def reset(self, *arguments: Any, **options: Any) -> list[Any]:
        """Begin episodes, and return a picture of each that was drawn after it.

        Raises:
            DeadlineExceeded: it takes too long.
        """
        observation_n = self.env.reset(*arguments, **options)
        outcome: Outcome = self.env.step([[] for _ in observation_n])
        return self._caught_up(outcome, self._clock() + self._timeout)[0]

    def step(self, action_n: Sequence[Any]) -> Outcome:
        """Make a step of each, and return it; errors as of `reset`."""
        until = self._clock() + self._timeout
        outcome: Outcome = self.env.step([[*action, *_COMMIT] for action in action_n])
        while not all(info.get("stats.reward.count") for info in outcome[3]["n"]):
            outcome = self._more(outcome, until, "a reward")
        return self._caught_up(outcome, until)

    def _more(self, outcome: Outcome, until: float, what: str) -> Outcome:
        left = until - self._clock()
        if left <= 0:
            raise DeadlineExceeded(f"{what} of a step is missing after {self._timeout:g} s")
        self.env.wait(min(left, SEARCH))  # then pictures are searched again
        wait = [[PEEK] if info.get("stats.reward.count") else [] for info in outcome[3]["n"]]
        return added(outcome, self.env.step(wait))

    def _caught_up(self, outcome: Outcome, until: float) -> Outcome:
        sent = [info.get("reward_buffer.remote_time", 0.0) for info in outcome[3]["n"]]
        while any(
            info.get("diagnostics.image_remote_time", -1.0) < time_sent
            for info, time_sent in zip(outcome[3]["n"], sent, strict=True)
        ):
            outcome = self._more(outcome, until, "the picture")
        return outcome
