"""`ParameterServer`: stores the mean reward of each arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlwire.relaax import parameter_server


class ParameterServer(parameter_server.ParameterServer):
    def init_session(self) -> None:
        arms = int(self.config.get("output/action_size", 4))
        self.session = parameter_server.Session(Values(arms))


class Values:
    def __init__(self, arms: int) -> None:
        self.values = np.zeros(arms)
        self.pulls = np.zeros(arms, np.int64)

    def op_n_step(self) -> int:
        return int(self.pulls.sum())

    def op_get_values(self) -> np.ndarray[Any, Any]:
        return self.values

    def op_learn(self, arm: int, reward: float) -> np.ndarray[Any, Any]:
        self.pulls[arm] += 1
        self.values = self.values.copy()  # agents may still use the old array
        self.values[arm] += (reward - self.values[arm]) / self.pulls[arm]
        return self.values

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "pulls": self.pulls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        values = np.array(state["values"])
        if values.shape != self.values.shape:
            raise ValueError(
                f"the checkpoint has {values.size} arms, output/action_size is {self.values.size}"
            )
        self.values, self.pulls = values, np.array(state["pulls"])
