"""RLlink's rows: honest ones are measured, learners that lie are found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError
from rlwire.bench.provider import Cores, Mismatch, Unfit
from rlwire.bench.providers.rllink import RLlinkRow
from rlwire.bench.runner import measure

LIARS = """
from rlwire.bench.providers.rllink import KeepingLearner, SetState

class Flips(KeepingLearner):
    def learn(self, episodes):
        episode = episodes[-1]
        episode.observations = episode.observations.copy()
        episode.observations.view("u1").reshape(-1)[5] ^= 1
        return super().learn(episodes)

class Rewards(KeepingLearner):
    def learn(self, episodes):
        episodes[-1].rewards = episodes[-1].rewards + 1
        return super().learn(episodes)

class Ends(KeepingLearner):
    def learn(self, episodes):
        episodes[-1].terminated = True
        return super().learn(episodes)

class Miscounts(KeepingLearner):
    def learn(self, episodes):
        super().learn(episodes)
        return super().learn(episodes)

class Fails(KeepingLearner):
    def learn(self, episodes):
        raise ValueError("no gradient")
"""

WRONG = ["Flips", "Rewards", "Ends", "Miscounts", "Fails"]


def payload(dtype: str = "float32", shape: tuple[int, ...] = (4,)) -> Payload:
    numbers = np.random.default_rng(1).normal(size=(3, *shape)) * 100
    steps = [Step(np.abs(each).astype(dtype), 1.0, False) for each in numbers]
    return Payload("made-up", f"made up, {dtype}", steps)


def row(learner: str | None = None, given: Payload | None = None) -> RLlinkRow:
    return RLlinkRow(given or payload(), Cores(), learner)


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (4,)), ("uint8", (84, 84, 4))])
def test_all_of_it_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    with row(given=payload(dtype, shape)) as entered:
        assert len({len(request) for request in entered.requests}) == 1
        for message, received in zip(entered.messages, entered.received, strict=True):
            back = entered.decode(received)
            np.testing.assert_array_equal(back.observations, message.observations)
        for index in range(7):
            entered.exchange(index)
            entered.check(index)


@pytest.mark.parametrize("learner", WRONG)
def test_liars_are_found_out(learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "liars.py").write_text(LIARS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(str(tmp_path))
    with row(f"liars:{learner}") as entered:

        def play() -> None:
            for index in range(3):
                entered.exchange(index)
                entered.check(index)

        with pytest.raises(BenchError if learner == "Fails" else Mismatch):
            play()


def test_it_can_be_measured() -> None:
    result = measure(row(), 0.2, Cores(), lambda *_: None)
    assert result.protocol == "rllink"


def test_a_number_alone_is_no_episode() -> None:
    with pytest.raises(Unfit, match="one step or more"):
        row(given=payload(shape=(1,)))
