"""`Agent`: pulls arms, and tells the parameter server what they paid."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Agent"]


class Agent:
    """One environment's agent.

    Settings: ``output/action_size``, how many arms there are (4); ``batch_size``, after how many
    rewards it learns (10). Metrics: ``paying_arm``, the arm it likes best, and ``action``, what it
    did.
    """

    def __init__(self, parameter_server: Any, metrics: Any) -> None:
        self.session = parameter_server.session
        self.metrics = metrics
        self.batch_size = int(parameter_server.config.get("batch_size", 10))
        self.random = np.random.default_rng()

    def init(self, exploit: bool = False) -> bool:
        """Begin with the newest preferences; with `exploit`, pull the best arm, learn nothing."""
        self.exploit = exploit
        self.last: int | None = None
        self.preferences, self.baseline = self.session.op_get_preferences()
        self.begin_batch()
        return True

    def reset(self) -> bool:
        """Forget the last pull."""
        self.last = None
        return True

    def update(self, reward: float | None, state: Any, terminal: bool) -> int | None:
        """Take what the last arm paid, and return the next one; None at an episode's end."""
        if reward is not None and self.last is not None and not self.exploit:
            self.learn(float(reward), self.last)
        self.last = None if terminal else self.choose()
        return self.last

    def choose(self) -> int:
        """Return an arm, from 0."""
        if self.exploit:
            return int(np.argmax(self.preferences))
        return int(self.random.choice(self.chances.size, p=self.chances))

    def learn(self, reward: float, arm: int) -> None:
        """Add one pull to the batch, and send it when it is full."""
        self.gradient -= (reward - self.baseline) * self.chances
        self.gradient[arm] += reward - self.baseline
        self.actions.append(arm)
        self.rewards += reward
        if len(self.actions) == self.batch_size:
            self.preferences, self.baseline = self.session.op_learn(
                self.gradient / self.batch_size, self.rewards, self.batch_size
            )
            self.batches += 1
            if self.batches % 50 == 0:
                self.metrics.scalar("paying_arm", int(np.argmax(self.preferences)))
                self.metrics.histogram("action", self.actions)
            self.begin_batch()

    batches = 0

    def begin_batch(self) -> None:
        """Begin with no pulls, and the chances that the preferences give."""
        weights = np.exp(self.preferences - np.max(self.preferences))
        self.chances = weights / weights.sum()
        self.gradient = np.zeros(weights.size)
        self.actions: list[int] = []
        self.rewards = 0.0
