"""Plays a game of the Arcade Learning Environment: what `rlwire run` starts."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from rlwire.errors import optional
from rlwire.rlx import TrainingBase, options

with optional("gymnasium", "gym"):
    import gymnasium
with optional("ale-py", "bench", "ale_py"):
    import ale_py

logger = logging.getLogger(__name__)
gymnasium.register_envs(ale_py)


class Training(TrainingBase):
    """An episode is one game, and its reward the score; rewards are clipped to -1, 0 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.env = gymnasium.make(
            options.get("environment/name"),
            obs_type=options.get("environment/observation", "ram"),
            frameskip=options.get("environment/frameskip", 4),
            max_episode_steps=options.get("environment/limit"),
            render_mode="human" if options.show_ui else None,
        )

    def episode(self, number: int) -> float:
        """Play one game."""
        state, _ = self.env.reset()
        reward, score, over = None, 0.0, False
        while not over:
            action = self.agent.update(reward, seen(state))
            state, points, terminated, truncated, _ = self.env.step(action)
            reward, over = float(np.sign(points)), terminated or truncated
            score += float(points)
        self.agent.update(reward, seen(state), terminal=True)
        logger.info("game %d: %g", number, score)
        return score


def seen(state: Any) -> Any:
    """Return bytes as numbers from 0 to 1."""
    return np.asarray(state, np.float32) / 255


if __name__ == "__main__":
    Training().run()
