"""An agent of RELAAX's and a sink for metrics, which tests derive their own from."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rlwire.rlx import Metrics

__all__ = ["Agent", "CountingAgent", "Recorder"]


class Agent:
    """Its action is always 1."""

    exploit = None

    def __init__(self, *_):
        pass

    def init(self, exploit=False):
        self.exploit = exploit
        return True

    def update(self, reward, state, terminal):
        return 1

    def reset(self):
        return True


class CountingAgent(Agent):
    """Answers with the number of its update and what it was told, or does what `actions` has."""

    actions: Mapping[str, Any] = MappingProxyType({})
    updates = 0

    def update(self, reward, state, terminal):
        self.updates += 1
        if isinstance(state, str):
            return self.actions[state](self)
        return [self.updates, reward, state, terminal]

    def reset(self):
        self.updates = 0
        return True


class Recorder(Metrics):
    """Keeps the measurements, each as (name, y, x)."""

    def __init__(self):
        self.calls = []
        self.closed = 0

    def scalar(self, name, y, x=None):
        self.calls.append((name, y, x))

    histogram = scalar

    def close(self):
        self.closed += 1
