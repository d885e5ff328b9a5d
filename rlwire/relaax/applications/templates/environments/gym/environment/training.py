"""Plays an environment of Gymnasium: what `rlwire run` starts."""

from __future__ import annotations

import logging

import numpy as np

from rlwire.errors import optional
from rlwire.rlx import TrainingBase, options

with optional("gymnasium", "gym"):
    import gymnasium

logger = logging.getLogger(__name__)


class Training(TrainingBase):
    """An episode is one of the environment's, and its reward the sum of all."""

    def __init__(self) -> None:
        super().__init__()
        render_mode = "human" if options.show_ui else None
        self.env = gymnasium.make(options.get("environment/name"), render_mode=render_mode)

    def episode(self, number: int) -> float:
        """Play one episode."""
        state, _ = self.env.reset()
        reward, total, over = None, 0.0, False
        while not over:
            action = self.agent.update(reward, np.asarray(state, np.float32))
            state, given, terminated, truncated, _ = self.env.step(np.asarray(action)[()])
            reward, over = float(given), terminated or truncated
            total += reward
        self.agent.update(reward, np.asarray(state, np.float32), terminal=True)
        logger.info("episode %d: %g", number, total)
        return total


if __name__ == "__main__":
    Training().run()
