"""`rlwire.bench.stats` by hand."""

from __future__ import annotations

import pytest

from rlwire.bench.stats import Ratio, Spread, rates, ratios, spread


def test_ratios_are_of_each_repetition() -> None:
    # The machine slows down threefold between the first repetition and the last; one spike.
    references = [10, 10, 10, 20, 20, 20, 30, 30, 30]
    values = [20, 900, 20, 40, 44, 48, 90, 90, 90]
    assert ratios(values, references, 3) == Ratio(p50=2.2, p25=2.1, p75=2.6, count=3)
    assert ratios([3], [2], 1) == Ratio(1.5, 1.5, 1.5, 1)
    with pytest.raises(ValueError, match="no pairs"):
        ratios([1, 2], [1], 1)


def test_rates_count_the_slow_ones_too() -> None:
    # Three repetitions of two: 1 ms, 2 ms and 4 ms each on average.
    times = [500_000, 1_500_000, 2_000_000, 2_000_000, 1_000_000, 7_000_000]
    assert rates(times, 2) == Ratio(p50=500.0, p25=375.0, p75=750.0, count=3)


def test_spread_is_in_microseconds() -> None:
    assert spread([1000, 2000, 3000]) == Spread(
        p50=2.0, p99=pytest.approx(2.98), count=3, p25=1.5, p75=2.5
    )
