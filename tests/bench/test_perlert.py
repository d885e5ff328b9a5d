"""The PERLERT rows: honest ones are measured, worlds that lie are found out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError
from rlwire.bench.provider import Cores, Mismatch, Unfit
from rlwire.bench.providers.perlert import PerlertRow
from rlwire.bench.runner import BLOCK, LEAD_IN, WARM_UP, measure
from rlwire.codecs import perlert

LIARS = """
import os
import numpy as np
from rlwire.bench.providers.perlert import RecordedWorld

class Honest(RecordedWorld):
    pass

class Flips(RecordedWorld):
    def show(self, number):
        state, *rest = super().show(number)
        state = state.copy()
        state.view("u1").reshape(-1)[5] ^= 1
        return state, *rest

class Repeats(RecordedWorld):
    def show(self, number):
        return super().show(0)

class Rewards(RecordedWorld):
    def show(self, number):
        state, reward, *rest = super().show(number)
        return state, reward + 1e-9, *rest

class Ends(RecordedWorld):
    def show(self, number):
        state, reward, done, extra = super().show(number)
        return state, reward, done, extra.replace("terminal:0", "terminal:1")

class Widens(RecordedWorld):
    def show(self, number):
        state, reward, done, extra = super().show(number)
        return state, reward, done, extra + "0"

class Words(RecordedWorld):
    def show(self, number):
        return "over there", *super().show(number)[1:]

class Deaf(RecordedWorld):
    def act(self, action):
        shown = super().act(action)
        self._told = "000002"
        return shown

class Raises(RecordedWorld):
    def act(self, action):
        raise RuntimeError("no more")

class Dies(RecordedWorld):
    def act(self, action):
        os._exit(7)

class Ceases(RecordedWorld):
    def act(self, action):
        state, reward, _done, extra = super().act(action)
        return state, reward, True, extra
"""


@pytest.fixture(autouse=True)
def liars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds that a spawned server can import too."""
    (tmp_path / "bench_test_arenas.py").write_text(LIARS)
    monkeypatch.syspath_prepend(tmp_path)


def made_up(shape: tuple[int, ...] = (3, 5), kind: type = np.float32) -> Payload:
    random = np.random.default_rng(1)
    steps = [Step(random.normal(size=shape).astype(kind), float(i), i % 3 == 2) for i in range(4)]
    return Payload("made-up", "made up", steps)


def row_of(world: str, payload: Payload | None = None) -> PerlertRow:
    return PerlertRow(payload or made_up(), Cores(), f"bench_test_arenas:{world}")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((3, 5), np.float32), ((2, 2), np.float64), ((), np.float64), ((9,), np.uint8)],
)  # fmt: skip
def test_an_honest_row(shape: tuple[int, ...], kind: type) -> None:
    row = row_of("Honest", made_up(shape, kind))
    result = measure(row, 0.02, Cores(), lambda done: None)
    assert (result.protocol, result.payload) == ("perlert", "made-up")
    assert result.request_bytes == len(row.requests[0])
    assert result.round_trip.count == result.echo.count
    blocks = result.round_trip.count // (BLOCK - LEAD_IN)
    assert result.checked == blocks + WARM_UP * BLOCK
    assert result.encode.p50 > 0
    assert result.decode.p50 > 0


def test_list_states_and_what_is_no_number() -> None:
    steps = [Step([0.1, -0.0, 2.5], 1.0, False), Step([np.nan, -np.inf, 1e300], 0.1, True)]
    row = row_of("Honest", Payload("list", "list", steps))
    assert measure(row, 0.01, Cores(), lambda done: None).checked >= BLOCK


def test_sizes_are_those_on_the_wire() -> None:
    row = row_of("Honest")
    assert row.requests[3] == b"bench:0;action=000003"
    assert len({len(request) for request in row.requests}) == 1
    assert {len(frame) for frame in row.received} == {row.reply_bytes}
    frame = perlert.decode_server_message(row.received[2])
    assert isinstance(frame, perlert.RolloutStep)
    assert frame.extra is not None
    assert frame.extra.startswith("terminal:1,fill:0")
    with row:
        for index in range(3):
            row.exchange(index)
            row.check(index)
            frame = row._frame
            on_the_wire = perlert.RolloutStep(
                "bench", 0, frame.timestamp, frame.step, frame.observation, frame.reward,
                frame.done, frame.extra,
            )  # fmt: skip
            assert len(perlert.encode(on_the_wire)) == row.reply_bytes


def test_what_does_not_fit_into_a_datagram_is_left_out() -> None:
    with pytest.raises(Unfit, match=r"^28,224 numbers as text do not fit into a datagram of 1,200"):
        PerlertRow(made_up((84, 84, 4)), Cores())


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ("Flips", r"round trip 1: byte 5 of the state differs, 1 in all"),
        ("Repeats", r"round trip 2: byte \d+ of the state differs"),
        ("Rewards", r"reward 0.0 came back as 1e-09"),
        ("Ends", r"extra 'terminal:0,fill:0*' came back as 'terminal:1,fill:0*'"),
        ("Widens", r"extra 'terminal:0,fill:0*' came back as"),
        ("Words", r"round trip 0: the observation cannot be read: .*number"),
        ("Deaf", r"the server was asked for step 0 and heard 'told:000002'"),
    ],
)
def test_a_lying_server_is_found_out(world: str, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        measure(row_of(world), 0.01, Cores(), lambda done: None)


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ("Raises", "perlert server process has ended with exit code 1: RuntimeError: no more"),
        ("Dies", "perlert server process has ended with exit code 7"),
        ("Ceases", "act is not possible in the state DONE"),
        ("NoSuchWorld", "perlert server did not start: .*NoSuchWorld"),
    ],
)
def test_a_failing_server_is_named(world: str, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        measure(row_of(world), 0.01, Cores(), lambda done: None)


def test_a_server_killed_between_two_steps() -> None:
    with row_of("Honest") as row:
        row.exchange(0)
        row.check(0)
        os.kill(row.server_pid, signal.SIGTERM)
        with pytest.raises(BenchError, match="perlert server process has ended with signal 15"):
            step_many(row)


def step_many(row: PerlertRow) -> None:
    for index in range(1000):
        row.exchange(index)
        row.check(index)
