"""Four one-armed bandits."""

from __future__ import annotations

import random


class Bandit:
    """Each arm pays 1 or costs 1; the last one pays most often."""

    chances = (0.4, 0.5, 0.6, 0.8)

    def pull(self, arm: int) -> float:
        """Return what an arm pays."""
        return 1.0 if random.random() < self.chances[arm] else -1.0
