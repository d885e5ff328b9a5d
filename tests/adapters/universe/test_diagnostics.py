"""Lags and the difference of clocks, with times passed in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlwire.adapters.universe.diagnostics import Lags, Marker, Marking, Span
from rlwire.sessions.rewarder.steps import ClockEstimate

NAME = "stats.gauges.diagnostics."


def picture(now: float, probed: float = 0.0, at: tuple[int, int] = (3, 5)) -> Any:
    pixels = np.full((12, 20, 3), 7, np.uint8)
    Marker.write(pixels, Marking(now, probed), *at)
    return pixels


def tell(lags: Lags, **given: Any) -> dict[str, Any]:
    info: dict[str, Any] = given.pop("info", {})
    lags.tell(info, **{"now": 0.0, "picture": None, "painted": None, "clock": None, **given})
    return info


def test_a_marking_is_found_wherever_it_is() -> None:
    marker = Marker()
    assert marker.read(picture(1479493678.125, 12.5), 0.0) == (1479493678.125, 12.5)
    assert marker.read(picture(2.0), 0.1) == (2.0, 0.0)
    assert marker.read(picture(3.0, at=(0, 14)), 0.2) is None  # it has moved
    assert marker.read(picture(3.0, at=(0, 14)), 1.3) == (3.0, 0.0)
    assert marker.read(picture(3.0, at=(10, 0)), 2.5) == (3.0, 0.0)


def test_a_picture_without_one_is_searched_once_a_second() -> None:
    marker = Marker()
    empty = np.zeros((4, 9, 3), np.uint8)
    assert marker.read(empty, 0.0) is None
    assert marker.read(picture(1.0), 0.5) is None
    assert marker.read(picture(1.0), 1.0) == (1.0, 0.0)


def test_an_anchor_at_the_edge_is_none() -> None:
    edge = picture(1.0, at=(0, 0))[:, :5]
    assert Marker().read(np.ascontiguousarray(edge), 0.0) is None
    row = picture(1.0, at=(0, 0))[:1]
    assert Marker().read(np.ascontiguousarray(row), 0.0) is None


def test_four_channels_have_it_too() -> None:
    pixels = np.zeros((4, 9, 4), np.uint8)
    Marker.write(pixels, Marking(5.25, 1.0))
    assert Marker().read(pixels, 0.0) == (5.25, 1.0)


def test_the_clocks_by_pings() -> None:
    info = tell(Lags(), clock=ClockEstimate(100.0, 1.0))
    assert info == {NAME + "clock_skew": Span(-101.0, -99.0)}


def test_an_observation_is_as_old_as_its_picture() -> None:
    # The remote is 100 s ahead, give or take 1: drawn at 10 of ours, seen here at 13.
    lags = Lags()
    info = tell(lags, picture=picture(110.0), painted=13.0, clock=ClockEstimate(100.0, 1.0))
    assert info[NAME + "lag.observation"] == Span(2.0, 4.0)
    assert info["diagnostics.image_remote_time"] == 110.0
    again = tell(lags, picture=picture(110.0), painted=14.0, clock=ClockEstimate(100.0, 1.0))
    assert NAME + "lag.observation" not in again


def test_an_action_is_as_late_as_its_probe() -> None:
    lags, clock = Lags(), ClockEstimate(100.0, 1.0)
    assert NAME + "lag.action" not in tell(lags, picture=picture(1, 50), painted=0, clock=clock)
    assert lags.probe(20.0)
    assert not lags.probe(21.0)
    assert NAME + "lag.action" not in tell(lags, picture=picture(2, 50), painted=0, clock=clock)
    info = tell(lags, picture=picture(3, 123), painted=0, clock=clock)
    assert info[NAME + "lag.action"] == Span(2.0, 4.0)
    assert lags.probe(22.0)


def test_a_probe_that_is_lost_is_sent_again() -> None:
    lags = Lags()
    assert lags.probe(0.0)
    assert not lags.probe(9.9)
    assert lags.probe(10.0)
    lags.end_episode()
    assert lags.probe(10.1)
    assert not Lags(probes=False).probe(0.0)


def test_rewards_and_messages() -> None:
    info = {"rewarder.lag.observation.timestamp": 109.0, "reward_buffer.remote_time": 112.0}
    tell(Lags(), info=info, now=13.0, clock=ClockEstimate(100.0, 0.5))
    assert info[NAME + "lag.reward"] == Span(3.5, 4.5)
    assert info[NAME + "lag.rewarder_message"] == Span(0.5, 1.5)


def test_the_clocks_by_pixels() -> None:
    """Without pings: what is seen was drawn before, and a key comes after it was pressed."""
    lags = Lags()
    tell(lags, picture=picture(100.0, 90.0), painted=2.0)
    assert lags.skew_by_pixels() is None
    lags.probe(10.0)
    info = tell(lags, picture=picture(112.0, 111.0), painted=13.0)
    assert lags.skew_by_pixels() == Span(99.0, 101.0)
    assert info[NAME + "clock_skew"] == Span(-101.0, -99.0)
    assert info[NAME + "lag.action"] == Span(0.0, 2.0)
    lags.forget()
    assert lags.skew_by_pixels() is None


@pytest.mark.parametrize("seconds", [0.001, 281474976710.655])
def test_times_are_whole_milliseconds(seconds: float) -> None:
    assert Marker().read(picture(seconds), 0.0) == (seconds, 0.0)
