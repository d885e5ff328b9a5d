"""When an index is masked."""

from __future__ import annotations

from rlwire.adapters.universe.links import Mask


def test_it_opens_when_an_episode_runs() -> None:
    mask = Mask(True)
    assert not mask.open
    assert not mask.follow(None, None)
    assert not mask.follow("1", "resetting")
    assert mask.follow("1", "running")
    assert mask.episode_id == "1"


def test_the_same_episode_keeps_it_open() -> None:
    """What is said of its end comes before its successor is told of."""
    mask = Mask(True)
    mask.follow("1", "running")
    assert mask.follow("1", "resetting")


def test_a_successor_that_does_not_run_closes_it() -> None:
    mask = Mask(True)
    mask.follow("1", "running")
    assert not mask.follow("2", "resetting")
    assert mask.follow("2", "running")


def test_a_successor_that_runs_does_not() -> None:
    mask = Mask(True)
    mask.follow("1", "running")
    assert mask.follow("2", "running")
    assert mask.episode_id == "2"


def test_no_successor_yet_closes_it() -> None:
    mask = Mask(True)
    mask.follow("1", "running")
    assert not mask.follow(None, None)


def test_a_reset_closes_it() -> None:
    mask = Mask(True)
    mask.follow("1", "running")
    mask.close()
    assert not mask.open
    assert not mask.follow(None, None)
    assert mask.follow("2", "running")


def test_without_a_rewarder_it_is_always_open() -> None:
    mask = Mask(False)
    mask.close()
    assert mask.open
    assert mask.follow(None, None)
