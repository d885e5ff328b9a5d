"""How far away the other end is: clocks compared, and times counted, in bounded memory.

Pure arithmetic; all times are passed in, in seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["ClockEstimate", "ClockOffset", "Latencies", "LatencySummary"]

_DRIFT: Final = 15e-6  # of a clock, in seconds a second: RFC 5905 assumes no more


class ClockEstimate(NamedTuple):
    """How the peer's clock differs from ours.

    Attributes:
        offset: seconds to add to our time to have the peer's.
        error: half the round trip of the sample it is from, and what the clocks may have drifted
            since: the true offset is at most so far away.
    """

    offset: float
    error: float


class ClockOffset:
    """Estimates a clock's offset from round trips, as NTP does.

    A request leaves at t1 of our clock and arrives at t2 of the peer's, the reply leaves at t3 and
    arrives at t4: the offset is ((t2 - t1) + (t3 - t4)) / 2 if both ways took the same time. The
    faster the round trip, the less they can differ; so the fastest of the last ones counts, and an
    old one the less the older it is (RFC 5905, section 10).

    Args:
        samples: how many are remembered.
    """

    __slots__ = ("_samples",)

    def __init__(self, samples: int = 16) -> None:
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=samples)

    def add(
        self,
        *,
        now: float,
        received: float,
        elapsed: float,
        replied: float,
        runtime: float | None = None,
    ) -> None:
        """Take one round trip.

        Args:
            now: of a clock that only goes forward.
            received: t4, when the reply arrived, by the clock that is compared.
            elapsed: t4 - t1.
            replied: t3, the reply's ``sent_at``.
            runtime: t3 - t2, the reply's ``parent_runtime``. What cannot be true counts as 0: then
                the estimate is worse, and its error says so.
        """
        if not math.isfinite(replied):
            return
        if runtime is None or not 0.0 <= runtime <= elapsed:
            runtime = 0.0
        trip = elapsed - runtime
        # ((t2 - t1) + (t3 - t4)) / 2 with t1 = t4 - elapsed, t2 = t3 - runtime
        offset = replied - received + trip / 2
        self._samples.append((now, trip / 2, offset))

    def estimate(self, now: float) -> ClockEstimate | None:
        """Return the best estimate there is, None before the first round trip."""
        best = None
        for at, error, offset in self._samples:
            error += max(0.0, now - at) * _DRIFT
            if best is None or error <= best.error:
                best = ClockEstimate(offset, error)
        return best


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """What `Latencies` has counted, in seconds.

    Attributes:
        count: of all.
        mean: of all.
        p50, p95: of the last ones; the smallest value that so many percent do not exceed.
        max: of all.
    """

    count: int
    mean: float
    p50: float
    p95: float
    max: float


class Latencies:
    """Counts times.

    Args:
        window: how many are remembered for the percentiles.
    """

    __slots__ = ("_count", "_last", "_max", "_sum")

    def __init__(self, window: int = 512) -> None:
        self._last: deque[float] = deque(maxlen=window)
        self._count = 0
        self._sum = 0.0
        self._max = -math.inf

    def __len__(self) -> int:
        return self._count

    def add(self, seconds: float) -> None:
        """Count one time."""
        self._last.append(seconds)
        self._count += 1
        self._sum += seconds
        if seconds > self._max:
            self._max = seconds

    def summary(self) -> LatencySummary | None:
        """Return what was counted, None if nothing was."""
        if not self._count:
            return None
        ordered = sorted(self._last)
        return LatencySummary(
            self._count,
            self._sum / self._count,
            ordered[math.ceil(0.50 * len(ordered)) - 1],
            ordered[math.ceil(0.95 * len(ordered)) - 1],
            self._max,
        )
