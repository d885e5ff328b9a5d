"""The arithmetic of a measurement: percentiles, ratios, units.

Not here: clocks and loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

__all__ = ["Spread", "percentile", "ratio", "spread"]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` per cent of `values` lie, interpolated linearly.

    This is NumPy's default method, without turning a list of a few thousand ints into an array.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    if not 0.0 <= percent <= 100.0:
        raise ValueError(f"percent must lie between 0 and 100, not {percent!r}")
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100.0
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def ratio(value: float, reference: float) -> float:
    """How many times `reference` goes into `value`; NaN when there is nothing to compare with."""
    return value / reference if reference > 0 else math.nan


@dataclass(frozen=True)
class Spread:
    """Times of one thing done many times, in microseconds."""

    p50: float
    p99: float
    count: int

    def as_dict(self) -> dict[str, float]:
        """The fields by name."""
        return asdict(self)


def spread(nanoseconds: Sequence[float]) -> Spread:
    """Median and 99th percentile of times in nanoseconds, as microseconds."""
    return Spread(
        p50=percentile(nanoseconds, 50.0) / 1000.0,
        p99=percentile(nanoseconds, 99.0) / 1000.0,
        count=len(nanoseconds),
    )
