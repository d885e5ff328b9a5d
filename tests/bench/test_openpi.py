"""openpi's rows: honest ones are measured, policies that lie are found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError
from rlwire.bench.provider import Cores, Mismatch
from rlwire.bench.providers.openpi import OpenpiRow
from rlwire.bench.runner import measure

LIARS = """
import os
from rlwire.bench.providers.openpi import KeepingPolicy

class Flips(KeepingPolicy):
    def infer(self, observation):
        if observation:
            observation["state"] = observation["state"].copy()
            observation["state"].view("u1").reshape(-1)[5] ^= 1
        return super().infer(observation)

class Rewards(KeepingPolicy):
    def infer(self, observation):
        if observation:
            observation["reward"] += 1
        return super().infer(observation)

class Forgets(KeepingPolicy):
    def infer(self, observation):
        observation.pop("terminal", None)
        return super().infer(observation)

class Miscounts(KeepingPolicy):
    def infer(self, observation):
        super().infer(observation)
        return super().infer(observation)

class Fails(KeepingPolicy):
    def infer(self, observation):
        raise ValueError("no such observation")

class Dies(KeepingPolicy):
    def infer(self, observation):
        os._exit(7)
"""


def payload(dtype: str = "float32", shape: tuple[int, ...] = (4,)) -> Payload:
    numbers = np.random.default_rng(1).normal(size=(3, *shape)) * 100
    steps = [Step(np.abs(each).astype(dtype), 1.0, False) for each in numbers]
    return Payload("made-up", f"made up, {dtype}", steps)


def row(policy: str | None = None, given: Payload | None = None) -> OpenpiRow:
    return OpenpiRow(given or payload(), Cores(), policy)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("shape", [(4,), (84, 84, 4)])
def test_all_of_it_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    with row(given=payload(dtype, shape)) as entered:
        assert len({len(request) for request in entered.requests}) == 1
        for message, received in zip(entered.messages, entered.received, strict=True):
            np.testing.assert_array_equal(entered.decode(received)["state"], message["state"])
        for index in range(7):
            entered.exchange(index)
            entered.check(index)


@pytest.mark.parametrize("policy", ["Flips", "Rewards", "Forgets", "Miscounts", "Fails", "Dies"])
def test_liars_are_found_out(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "liars.py").write_text(LIARS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(str(tmp_path))
    with row(f"liars:{policy}") as entered:

        def play() -> None:
            for index in range(3):
                entered.exchange(index)
                entered.check(index)

        with pytest.raises(BenchError if policy in ("Fails", "Dies") else Mismatch):
            play()


def test_it_can_be_measured() -> None:
    result = measure(row(), 0.2, Cores(), lambda *_: None)
    assert result.protocol == "openpi"
