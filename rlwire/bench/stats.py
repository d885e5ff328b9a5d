"""The arithmetic of a measurement: percentiles, ratios, units.

Not here: clocks and loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ratio", "Spread", "rates", "ratios", "spread"]


@dataclass(frozen=True)
class Spread:
    """Times of one thing done many times, in microseconds: median, 99 %, how many, quartiles."""

    p50: float
    p99: float
    count: int
    p25: float
    p75: float


def spread(nanoseconds: Sequence[float]) -> Spread:
    """Percentiles of times in nanoseconds, as microseconds."""
    p25, p50, p75, p99 = np.percentile(nanoseconds, (25.0, 50.0, 75.0, 99.0)) / 1000.0
    return Spread(float(p50), float(p99), len(nanoseconds), float(p25), float(p75))


@dataclass(frozen=True)
class Ratio:
    """How many times as long one thing takes as another, or how often it is done in a second.

    It is found again and again, in turn.

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
    medians = (np.median(np.reshape(each, (-1, size)), axis=1) for each in (values, references))
    return _quartiles(np.divide(*medians))


def rates(nanoseconds: Sequence[float], size: int) -> Ratio:
    """How often a second it was done, repetition by repetition, of `size` times each.

    All times of a repetition count, the slow ones too.
    """
    return _quartiles(1e9 / np.mean(np.reshape(nanoseconds, (-1, size)), axis=1))


def _quartiles(found: NDArray[np.float64]) -> Ratio:
    p25, p50, p75 = np.percentile(found, (25.0, 50.0, 75.0))
    return Ratio(float(p50), float(p25), float(p75), len(found))
