"""`ParameterServer`: has the preferences, and learns from what agents tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlwire.relaax import parameter_server

__all__ = ["ParameterServer"]


class ParameterServer(parameter_server.ParameterServer):
    """One for all agents."""

    def init_session(self) -> None:
        """Make the model."""
        arms = int(self.config.get("output/action_size", 4))
        rate = float(self.config.get("initial_learning_rate", 0.5))
        self.session = parameter_server.Session(Preferences(arms, rate))


class Preferences:
    """How much each arm is liked; `rate` is how far one batch moves a preference."""

    def __init__(self, arms: int, rate: float) -> None:
        self.preferences = np.zeros(arms)
        self.rate = rate
        self.baseline = 0.0
        self.n_step = 0

    def op_n_step(self) -> int:
        """Return how many rewards were learned from."""
        return self.n_step

    def op_get_preferences(self) -> tuple[np.ndarray[Any, Any], float]:
        """Return the preferences, and the mean reward."""
        return self.preferences, self.baseline

    def op_learn(
        self, gradient: np.ndarray[Any, Any], rewards: float, count: int
    ) -> tuple[np.ndarray[Any, Any], float]:
        """Learn from the gradient and rewards of `count` pulls; return the new preferences."""
        # A new array: agents may still hold the old one.
        self.preferences = self.preferences + self.rate * np.asarray(gradient)
        self.n_step += count
        self.baseline += (rewards / count - self.baseline) / min(100, self.n_step / count)
        return self.op_get_preferences()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        names = ("preferences", "baseline", "n_step")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring back what a checkpoint kept."""
        preferences = np.array(state["preferences"])
        if preferences.shape != self.preferences.shape:
            raise ValueError(
                f"it has {preferences.size} arms, and output/action_size is {self.preferences.size}"
            )
        self.preferences = preferences
        self.baseline, self.n_step = float(state["baseline"]), int(state["n_step"])
