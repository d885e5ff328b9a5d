"""Episodes of the environments in a recording, built from the `Step`s of its messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlwire.recording.messages import UNKNOWN, RecordedConnection, Step


class Position(NamedTuple):
    """Numbers of an environment's step (0 before the first) and episode, and of the step in it."""

    step: int
    episode: int
    step_in_episode: int


@dataclass
class Episode:
    """An episode of one environment, with one more observation than actions.

    Attributes:
        rewards: NaN where the protocol sent none.
        finished: False if its end is not recorded; `truncated` is then true.
        spaces: of observations and actions; None where the protocol sent none.
    """

    connection: RecordedConnection
    environment: str
    number: int
    length: int = 0
    total: float = 0.0
    observations: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    finished: bool = False
    spaces: tuple[Any, Any] = (None, None)


class EpisodeBuilder:
    """Builds the episodes of one environment; `keep` keeps observations, actions and rewards.

    An action holds until the next one, because observations of PERLERT do not wait for actions.
    Observations before an episode's first action replace that of the reset. A result without an
    observation, such as a terminal update of RLX without a state, repeats the last one.
    """

    def __init__(self, connection: RecordedConnection, environment: str, keep: bool) -> None:
        self._connection, self._environment, self._keep = connection, environment, keep
        self._episode: Episode | None = None
        self._count = self._steps = self._length = 0
        self._action: Any = UNKNOWN
        self._waits = False  # for the result of the action
        self._spaces: tuple[Any, Any] = (None, None)

    @property
    def position(self) -> Position:
        """Position of the last message."""
        return Position(self._steps + self._waits, self._count, self._length + self._waits)

    def add(self, step: Step) -> Episode | None:
        """Add what a message means; return the episode that it ends."""
        old, new = self._spaces, (step.observation_space, step.action_space)
        self._spaces = new[0] or old[0], new[1] or old[1]
        ended = self._begin(step) if step.begins else None
        if step.action is not UNKNOWN:
            self._action, self._waits = step.action, True
        ends = [x is not UNKNOWN and bool(np.any(x)) for x in (step.terminated, step.truncated)]
        seen, paid = step.observation is not UNKNOWN, step.reward is not UNKNOWN
        if step.begins or not (seen or paid or any(ends)):
            return ended
        if self._episode is None:  # the recording began in the middle of it
            return None if any(ends) else self._begin(step)
        if seen and self._action is UNKNOWN and not any(ends):
            self._episode.observations = [step.observation] * self._keep
        elif seen or paid or self._waits:
            self._result(self._episode, step)
        return self.end(ends[0], ends[1], finished=True) if any(ends) else None

    def end(
        self, terminated: bool = False, truncated: bool = True, finished: bool = False
    ) -> Episode | None:
        """End the episode; return it if it has a step."""
        episode, self._episode = self._episode, None
        self._action, self._waits = UNKNOWN, False
        if episode is None or not episode.length:
            return None
        episode.terminated, episode.truncated, episode.finished = terminated, truncated, finished
        episode.spaces = self._spaces
        return episode

    def _begin(self, step: Step) -> Episode | None:
        ended = self.end()
        self._count, self._length = self._count + 1, 0
        self._episode = Episode(self._connection, self._environment, self._count)
        if self._keep and step.observation is not UNKNOWN:
            self._episode.observations.append(step.observation)
        return ended

    def _result(self, episode: Episode, step: Step) -> None:
        try:
            reward = float(np.sum(np.asarray(step.reward, np.float64)))
        except (TypeError, ValueError):  # unknown, None or a text
            reward = np.nan
        episode.total += 0.0 if np.isnan(reward) else reward
        self._waits = False
        self._steps += 1
        self._length = episode.length = episode.length + 1
        if self._keep:
            seen = [step.observation] if step.observation is not UNKNOWN else []
            episode.observations += seen or episode.observations[-1:]
            episode.actions.append(self._action)
            episode.rewards.append(reward)
