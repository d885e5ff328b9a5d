"""Ticks at a fixed rate that never drift: tick n is due at start + n / rate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Pacer:
    """Computes when the next tick is due, and waits for it.

    A late tick is due at once. Ticks whose whole period has passed are skipped and counted in
    `missed`, so a slow step is not followed by a burst. `tick` is -1 before the first.
    """

    __slots__ = ("_clock", "_sleep", "_start", "missed", "rate", "tick")

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not (rate > 0 and math.isfinite(rate)):
            raise ValueError(f"rate must be positive and finite, not {rate!r}")
        self.rate = rate
        self.tick = -1
        self.missed = 0
        self._clock = clock
        self._sleep = sleep
        self._start: float | None = None

    def restart(self, *, at: float | None = None) -> None:
        """Restart: tick 0 is due at `at`, by default now. `missed` is not reset."""
        self._start = self._clock() if at is None else at
        self.tick = -1

    def due(self) -> float:
        """Return when the next tick is due, on the pacer's clock."""
        if self._start is None:
            self._start = self._clock()
        return self._start + (self.tick + 1) / self.rate

    def advance(self) -> int:
        """Advance to the next tick without waiting; return how many were skipped before it."""
        skipped = max(0, math.floor((self._clock() - self.due()) * self.rate))
        self.tick += 1 + skipped
        self.missed += skipped
        return skipped

    def wait(self) -> int:
        """Wait until the next tick is due; return how many were skipped before it."""
        while (delay := self.due() - self._clock()) > 0:
            self._sleep(delay)
        return self.advance()
