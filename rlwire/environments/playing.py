"""Environments that call, for `rlwire.play` in any protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from rlwire.environments.driver import Driven, drive
from rlwire.environments.fitting import Fit, fitting, plain
from rlwire.errors import EncodeError, RemoteProtocolError


@contextlib.contextmanager
def opened(environment: Any, seed: int | None, protocol: str) -> Iterator[Game]:
    """Open an environment to play; close it at the end if it was made here."""
    driven = drive(environment)
    try:
        yield Game(driven.one(protocol), seed)
    finally:
        if driven.owned:
            driven.close()


class Game:
    """An environment whose values go to a wire, and whose actions come from one.

    Attributes:
        total: the rewards of this episode.
        over: whether it has ended.
        truncated: whether it was truncated.
    """

    def __init__(self, environment: Driven, seed: int | None) -> None:
        self.environment = environment
        self.total = 0.0
        self.over = self.truncated = False
        self._seed = seed
        self._fit: Fit = fitting(environment.action_space, "the action")

    def reset(self) -> Any:
        """Begin an episode; return the first observation."""
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
        self.over, self.truncated = (
            bool(terminated or truncated),
            bool(truncated and not terminated),
        )
        return plain(observation), reward
