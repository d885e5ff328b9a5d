"""An agent of RELAAX's: what tests need more of it they say in a class of their own."""

from __future__ import annotations

from typing import Any

__all__ = ["Agent"]


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
