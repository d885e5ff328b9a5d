"""The rewarder's rows: honest ones are measured, worlds that lie are found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError
from rlwire.bench.provider import Cores, Mismatch
from rlwire.bench.providers.rewarder import RewarderRow
from rlwire.bench.runner import measure

LIARS = """
import os
from rlwire.bench.providers.rewarder import RecordedRewards

class Flips(RecordedRewards):
    def show(self, number):
        state = super().show(number).copy()
        state.view("u1").reshape(-1)[5] ^= 1
        return state

class Repeats(RecordedRewards):
    def show(self, number):
        return super().show(0)

class Words(RecordedRewards):
    def show(self, number):
        return "over there"

class Deaf(RecordedRewards):
    def act(self, action):
        super().act(action)
        self._told = "000002"

class Dies(RecordedRewards):
    def act(self, action):
        os._exit(7)
"""


def payload(dtype: str = "float32", shape: tuple[int, ...] = (4,)) -> Payload:
    numbers = np.random.default_rng(1).normal(size=(3, *shape)) * 100
    steps = [Step(np.abs(each).astype(dtype), 1.0, False) for each in numbers]
    return Payload("made-up", f"made up, {dtype}", steps)


def row(world: str | None = None, given: Payload | None = None) -> RewarderRow:
    return RewarderRow(given or payload(), Cores(), world)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("shape", [(4,), (84, 84, 4)])
def test_all_of_it_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    with row(given=payload(dtype, shape)) as entered:
        assert len({len(request) for request in entered.requests}) == 1
        for index in range(7):
            entered.exchange(index)
            entered.check(index)


@pytest.mark.parametrize("world", ["Flips", "Repeats", "Words", "Deaf", "Dies"])
def test_liars_are_found_out(world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "liars.py").write_text(LIARS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(str(tmp_path))
    with row(f"liars:{world}") as entered:

        def play() -> None:
            for index in range(3):
                entered.exchange(index)
                entered.check(index)

        with pytest.raises(BenchError if world == "Dies" else Mismatch):
            play()


def test_it_can_be_measured() -> None:
    result = measure(row(), 0.2, Cores(), lambda *_: None)
    assert result.protocol == "rewarder"
