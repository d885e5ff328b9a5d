"""Play a Gymnasium environment; `rlwire run` starts this program."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from rlwire.errors import optional
from rlwire.rlx import TrainingBase, options

with optional("gymnasium", "gym"):
    import gymnasium

logger = logging.getLogger(__name__)


class Training(TrainingBase):
    """An episode is one of the environment; its reward is the sum of rewards."""

    def __init__(self) -> None:
        super().__init__()
        arguments = options.get("environment/arguments", [])
        self.env = gymnasium.make(
            options.get("environment/name"),
            render_mode="human" if options.show_ui else None,
            **{name: arguments.get(name) for name in arguments},
        )

    def episode(self, number: int) -> float:
        state, _ = self.env.reset()
        reward, total, over = None, 0.0, False
        while not over:
            action = self.agent.update(reward, observed(state))
            state, given, terminated, truncated, _ = self.env.step(np.asarray(action)[()])
            reward, over = float(given), terminated or truncated
            total += reward
        self.agent.update(reward, observed(state), terminal=True)
        logger.info("episode %d: %g", number, total)
        return total


def observed(state: Any) -> Any:
    """Convert a state to float32, and uint8 to the range 0 to 1."""
    state = np.asarray(state)
    return state.astype(np.float32) / (255 if state.dtype == np.uint8 else 1)


if __name__ == "__main__":
    Training().run()
