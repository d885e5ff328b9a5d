"""Plays the bandits: what `rlwire run` starts."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bandit import Bandit  # type: ignore[import-not-found]

from rlwire.rlx import TrainingBase, options

logger = logging.getLogger(__name__)


class Training(TrainingBase):
    """An episode is a number of pulls, and its reward their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = options.get("environment/steps", 1000)
        self.bandit = Bandit()

    def episode(self, number: int) -> float:
        """Pull arms as the agent says."""
        arm = self.agent.update(reward=None, state=[])
        total = 0.0
        for _ in range(self.steps):
            reward = self.bandit.pull(arm)
            total += reward
            arm = self.agent.update(reward=reward, state=[])
        mean: float = total / self.steps
        logger.info("episode %d: %.2f a pull, the last of arm %d", number, mean, arm)
        return mean


if __name__ == "__main__":
    Training().run()
