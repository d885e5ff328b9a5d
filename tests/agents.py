"""An agent of RELAAX's and a sink for metrics, which tests derive their own from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rlwire.rlx import Metrics

__all__ = ["Agent", "CountingAgent", "Recorder"]


class Agent:
    """Its action is always 1."""

    exploit: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def init(self, exploit: bool = False) -> bool:
        self.exploit = exploit
        return True

    def update(self, reward: Any, state: Any, terminal: Any) -> Any:
        return 1

    def reset(self) -> bool:
        return True


class CountingAgent(Agent):
    """Answers with the number of its update and what it was told, or does what `actions` has."""

    actions: Mapping[str, Any] = MappingProxyType({})
    updates = 0

    def update(self, reward: Any, state: Any, terminal: Any) -> Any:
        self.updates += 1
        if isinstance(state, str):
            return self.actions[state](self)
        return [self.updates, reward, state, terminal]

    def reset(self) -> bool:
        self.updates = 0
        return True


class Recorder(Metrics):
    """Keeps the measurements, each as (name, y, x)."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.closed = 0

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        self.calls.append((name, y, x))

    histogram = scalar

    def close(self) -> None:
        self.closed += 1
