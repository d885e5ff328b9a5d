"""The arithmetic of a measurement: percentiles, ratios, units.

Not here: clocks and loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Ratio", "Spread", "percentile", "ratios", "spread"]


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


@dataclass(frozen=True)
class Spread:
    """Times of one thing done many times, in microseconds."""

    p50: float
    p99: float
    count: int


def spread(nanoseconds: Sequence[float]) -> Spread:
    """Median and 99th percentile of times in nanoseconds, as microseconds."""
    return Spread(
        p50=percentile(nanoseconds, 50.0) / 1000.0,
        p99=percentile(nanoseconds, 99.0) / 1000.0,
        count=len(nanoseconds),
    )


@dataclass(frozen=True)
class Ratio:
    """How many times as long one thing takes as another, found again and again, in turn.

    Attributes:
        p50: the median of the repetitions.
        p25: their lower quartile: a quarter of them found less.
        p75: their upper quartile.
        count: how many repetitions there were.
    """

    p50: float
    p25: float
    p75: float
    count: int


def ratios(values: Sequence[float], references: Sequence[float], size: int) -> Ratio:
    """What `values` are to `references`, repetition by repetition.

    Args:
        values: times of one thing, `size` of them in each repetition.
        references: as many times of the other, taken in turn with those.
        size: each repetition's ratio is that of the two medians of so many.
    """
    if len(values) != len(references):
        raise ValueError(f"{len(values)} values and {len(references)} references are no pairs")
    found = [
        percentile(values[at : at + size], 50.0) / percentile(references[at : at + size], 50.0)
        for at in range(0, len(values), size)
    ]
    return Ratio(
        p50=percentile(found, 50.0),
        p25=percentile(found, 25.0),
        p75=percentile(found, 75.0),
        count=len(found),
    )
