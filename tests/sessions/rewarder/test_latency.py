"""Clock offsets against clocks whose offset is known, and counted times."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.sessions.rewarder.steps import ClockEstimate, ClockOffset

seconds = st.floats(0, 10)


def trip(clocks, *, offset, there, back, runtime=0.0, now=0.0, told=None):
    """A round trip that takes so long there and back, to a clock that is ahead by `offset`."""
    sent = 1000.0
    clocks.add(
        now=now,
        received=sent + there + runtime + back,
        elapsed=there + runtime + back,
        replied=sent + there + runtime + offset,
        runtime=runtime if told is None else told,
    )


def best(clocks, now):
    estimate = clocks.estimate(now)
    assert isinstance(estimate, ClockEstimate)
    return estimate.offset, estimate.error


@given(
    st.floats(-1e3, 1e3), seconds, seconds, seconds,
    st.sampled_from([-0.1, 1000.0, math.inf, math.nan]),
)  # fmt: skip
def test_clock_offset_estimate_is_within_its_error(offset, there, back, runtime, wrong):
    clocks = ClockOffset()
    trip(clocks, offset=offset, there=there, back=back, runtime=runtime)
    # The same without what the server says of its own time, or if that cannot be: worse, not wrong.
    blind = ClockOffset()
    trip(blind, offset=offset, there=there, back=back, runtime=runtime, told=wrong)
    for one in (clocks, blind):
        estimate = one.estimate(0.0)
        assert abs(estimate.offset - offset) <= estimate.error + 1e-6


@pytest.mark.parametrize("replied", [math.inf, math.nan])
def test_round_trips_with_invalid_times_are_ignored(replied):
    clocks = ClockOffset()
    clocks.add(now=0.0, received=0.0, elapsed=1.0, replied=replied)
    assert clocks.estimate(0.0) is None


def test_error_of_a_round_trip_grows_with_its_age():
    clocks = ClockOffset()
    trip(clocks, offset=1.0, there=0.001, back=0.001, now=0.0)
    trip(clocks, offset=2.0, there=0.002, back=0.002, now=600.0)
    assert best(clocks, 0.0) == (pytest.approx(1.0), pytest.approx(0.001))
    # 15 microseconds a second: the first may then be wrong by 9 ms more.
    assert best(clocks, 600.0) == (pytest.approx(2.0), pytest.approx(0.002))
    assert best(clocks, 60.0) == (pytest.approx(1.0), pytest.approx(0.001 + 60 * 15e-6))
