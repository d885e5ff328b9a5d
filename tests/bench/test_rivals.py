"""The rivals' rows: honest ones are measured, those that lie are found out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError
from rlwire.bench.provider import Absent, Cores, Mismatch, Row
from rlwire.bench.providers import RIVALS, load
from rlwire.bench.runner import BLOCK, WARM_UP, measure

LIARS = """
import os
from rlwire.bench.providers.rivals import Shown

class Flips(Shown):
    def answer(self, number):
        state, reward, terminal = super().answer(number)
        state = state.copy()
        state.view("u1").reshape(-1)[5] ^= 1
        return state, reward, terminal

class Rewards(Shown):
    def answer(self, number):
        state, reward, terminal = super().answer(number)
        return state, reward + 1, terminal

class Deaf(Shown):
    def answer(self, number):
        return super().answer(2) if number == -1 else super().answer(number)

class Dies(Shown):
    def answer(self, number):
        os._exit(7)
"""


@pytest.fixture(autouse=True)
def liars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process can import too."""
    (tmp_path / "bench_test_shown.py").write_text(LIARS)
    monkeypatch.syspath_prepend(tmp_path)


def made_up(shape: tuple[int, ...] = (3, 5)) -> Payload:
    random = np.random.default_rng(1)
    steps = [Step(random.random(shape, dtype=np.float32), float(i), i % 3 == 2) for i in range(4)]
    return Payload("made-up", "made up", steps)


def row_of(name: str, peer: str | None = None, payload: Payload | None = None) -> Row:
    try:
        kind = load(name)
    except Absent as error:
        pytest.skip(str(error))
    return kind(payload or made_up(), Cores(), peer and f"bench_test_shown:{peer}")


@pytest.mark.parametrize("name", RIVALS)
def test_an_honest_row(name: str) -> None:
    row = row_of(name, payload=made_up((21, 16, 3)))
    result = measure(row, 0.02, Cores(), lambda done: None, stages=True)
    assert (result.protocol, result.payload) == (name, "made-up")
    assert result.request_bytes == len(row.requests[0])
    assert (result.reply_bytes >= 21 * 16 * 3 * 4) is (name != "AsyncVec")  # whose memory is shared
    assert result.checked >= WARM_UP * BLOCK
    if name == "rlmesh":  # whose codec cannot be called by itself
        assert result.encode is result.decode is None
        assert result.stages == ()
    else:
        assert result.encode is not None
        assert result.encode.p50 > 0
        assert len(result.stages) == 8
        # Of what it says, and not of the observation where that goes through shared memory.
        assert (len(row.received[0]) >= 21 * 16 * 3 * 4) is (name != "AsyncVec")
    with pytest.raises(ProcessLookupError):
        os.kill(row.server_pid if name in ("pipe", "zeromq", "dm_env_rpc.v1") else 1 << 22, 0)


@pytest.mark.parametrize(
    ("name", "peer", "message"),
    [
        *((name, "Flips", "byte 5 of the state differs") for name in RIVALS),
        ("pipe", "Rewards", r"reward 0.0 came back as 1.0"),
        ("pipe", "Deaf", "was asked for step 0 and heard 2"),
    ],
)
def test_a_lying_one_is_found_out(name: str, peer: str, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        measure(row_of(name, peer), 0.01, Cores(), lambda done: None)


@pytest.mark.parametrize("name", ["pipe", "AsyncVec"])
def test_one_that_dies_says_so(name: str) -> None:
    with pytest.raises(BenchError, match="exit code 7"):
        measure(row_of(name, "Dies"), 0.01, Cores(), lambda done: None)


def test_a_pipe_whose_other_end_is_killed() -> None:
    with row_of("pipe") as row:
        row.exchange(0)
        os.kill(row.server_pid, signal.SIGKILL)
        with pytest.raises(BenchError, match="signal 9"):
            row.exchange(1)
