"""`rlwire.bench.stats` against NumPy and by hand."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from rlwire.bench.stats import Ratio, Spread, percentile, ratios, spread


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
@pytest.mark.parametrize("percent", [0, 12.5, 50, 99, 100])
def test_percentile_is_numpys(count: int, percent: float) -> None:
    values = [random.Random(count).uniform(-5, 5) for _ in range(count)]
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


def test_percentile_leaves_its_input_alone() -> None:
    values = [3, 1, 2]
    assert percentile(values, 50) == 2
    assert values == [3, 1, 2]


@pytest.mark.parametrize("percent", [-0.1, 100.1, math.nan])
def test_percentile_refuses_what_is_no_percentage(percent: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        percentile([1.0], percent)


def test_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 50)


def test_ratios_are_of_each_repetition() -> None:
    # The machine slows down threefold between the first repetition and the last; one spike.
    references = [10, 10, 10, 20, 20, 20, 30, 30, 30]
    values = [20, 900, 20, 40, 44, 48, 90, 90, 90]
    assert ratios(values, references, 3) == Ratio(p50=2.2, p25=2.1, p75=2.6, count=3)
    assert ratios([3], [2], 1) == Ratio(1.5, 1.5, 1.5, 1)
    with pytest.raises(ValueError, match="no pairs"):
        ratios([1, 2], [1], 1)


def test_spread_is_in_microseconds() -> None:
    assert spread([1000, 2000, 3000]) == Spread(p50=2.0, p99=pytest.approx(2.98), count=3)
