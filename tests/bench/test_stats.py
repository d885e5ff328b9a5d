"""`rlwire.bench.stats` by hand."""

from __future__ import annotations

import pytest

from rlwire.bench.stats import Ratio, Spread, ratios, spread


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
