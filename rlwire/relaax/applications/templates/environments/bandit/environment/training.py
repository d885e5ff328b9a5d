"""Play a bandit with four arms; `rlwire run` starts this program."""

from __future__ import annotations

import logging
import random

from rlwire.rlx import TrainingBase, options

logger = logging.getLogger(__name__)

CHANCES = (0.4, 0.5, 0.6, 0.8)


def pull(arm: int) -> float:
    """Return the reward of an arm, 1 or -1."""
    return 1.0 if random.random() < CHANCES[arm] else -1.0


class Training(TrainingBase):
    """An episode has a fixed number of pulls; its reward is their mean."""

    def episode(self, number: int) -> float:
        steps = options.get("environment/steps", 1000)
        arm = self.agent.update(reward=None, state=[])
        total = 0.0
        for _ in range(steps):
            reward = pull(arm)
            total += reward
            arm = self.agent.update(reward=reward, state=[])
        mean: float = total / steps
        logger.info("episode %d: %.2f a pull, the last of arm %d", number, mean, arm)
        return mean


if __name__ == "__main__":
    Training().run()
