"""`Agent`: pulls arms, and sends their rewards to the parameter server."""

from __future__ import annotations

from typing import Any

import numpy as np


class Agent:
    """The agent of one environment.

    Settings: ``output/action_size``, the number of arms (4); ``epsilon``, the fraction of random
    pulls (0.1). Metrics: ``paying_arm``, the best arm so far, every 100 pulls.
    """

    def __init__(self, parameter_server: Any, metrics: Any) -> None:
        self.session = parameter_server.session
        self.metrics = metrics
        self.epsilon = float(parameter_server.config.get("epsilon", 0.1))
        self.random = np.random.default_rng()
        self.pulls = 0

    def init(self, exploit: bool = False) -> bool:
        """Get the newest values; with `exploit`, pull the best arm and do not learn."""
        self.exploit = exploit
        self.values = self.session.op_get_values()
        return self.reset()

    def reset(self) -> bool:
        self.last: int | None = None
        return True

    def update(self, reward: float | None, state: Any, terminal: bool) -> int | None:
        """Learn from the last arm's reward; return the next arm, None at an episode's end."""
        if reward is not None and self.last is not None and not self.exploit:
            self.values = self.session.op_learn(self.last, float(reward))
            self.pulls += 1
            if self.pulls % 100 == 0:
                self.metrics.scalar("paying_arm", int(np.argmax(self.values)))
        self.last = None if terminal else self.choose()
        return self.last

    def choose(self) -> int:
        if not self.exploit and self.random.random() < self.epsilon:
            return int(self.random.integers(self.values.size))
        return int(np.argmax(self.values))
