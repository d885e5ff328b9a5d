"""When an index is masked."""

from __future__ import annotations

import pytest

from rlwire.universe._links import EpisodeMask

RUNS = ("1", "running")


@pytest.mark.parametrize(
    ("before", "told", "opens"),
    [
        ([], (None, None), False),
        ([], ("1", "resetting"), False),
        ([("1", "resetting")], RUNS, True),
        ([RUNS], ("1", "resetting"), True),  # its end is told before its successor
        ([RUNS], ("2", "resetting"), False),
        ([RUNS, ("2", "resetting")], ("2", "running"), True),
        ([RUNS], ("2", "running"), True),
        ([RUNS], (None, None), False),
    ],
)
def test_an_index_is_open_while_its_episode_runs(
    before: list[tuple[str, str]], told: tuple[str, str], opens: bool
) -> None:
    mask = EpisodeMask(True)
    assert not mask.open
    for each in before:
        mask.follow(*each)
    assert mask.follow(*told) is mask.open is opens
    mask.close()  # for a reset
    assert not mask.follow(None, None)


def test_without_a_rewarder_it_is_always_open() -> None:
    mask = EpisodeMask(False)
    mask.close()
    assert mask.open
    assert mask.follow(None, None)
