"""`rlwire.bench.runner` on rows that take no time and on a row of RLX with made-up states."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError
from rlwire.bench.provider import Cores, Mismatch
from rlwire.bench.providers import PROVIDERS, load
from rlwire.bench.providers.rlx import RLXRow
from rlwire.bench.runner import BLOCK, LEAD_IN, WARM_UP, measure

LIARS = """
import os
from rlwire.bench.providers.rlx import KeepingAgent

class Honest(KeepingAgent):
    pass

class Flips(KeepingAgent):
    def update(self, reward, state, terminal):
        if state is None:
            state, reward, terminal = super().update(reward, state, terminal)
            state = state.copy()
            state.view("u1").reshape(-1)[5] ^= 1
            return [state, reward, terminal]
        return super().update(reward, state, terminal)

class Widens(KeepingAgent):
    def update(self, reward, state, terminal):
        if state is None:
            state, reward, terminal = super().update(reward, state, terminal)
            return [state.astype("f8"), reward, terminal]
        return super().update(reward, state, terminal)

class Reshapes(KeepingAgent):
    def update(self, reward, state, terminal):
        if state is None:
            state, reward, terminal = super().update(reward, state, terminal)
            return [state.reshape(-1), reward, terminal]
        return super().update(reward, state, terminal)

class Rewards(KeepingAgent):
    def update(self, reward, state, terminal):
        return super().update(None if reward is None else reward + 1e-9, state, terminal)

class Ends(KeepingAgent):
    def update(self, reward, state, terminal):
        return super().update(reward, state, not terminal)

class Forgets(KeepingAgent):
    def update(self, reward, state, terminal):
        return None if state is None else super().update(reward, state, terminal)

class Skips(KeepingAgent):
    def update(self, reward, state, terminal):
        answer = super().update(reward, state, terminal)
        return answer if state is None or answer < 3 else answer + 1

class FlipsLater(KeepingAgent):
    def update(self, reward, state, terminal):
        answer = super().update(reward, state, terminal)
        if state is None and self._count > 200:
            answer[0] = -answer[0]
        return answer

class Raises(KeepingAgent):
    def update(self, reward, state, terminal):
        raise RuntimeError("no more")

class Dies(KeepingAgent):
    def update(self, reward, state, terminal):
        os._exit(7)

class Declines(KeepingAgent):
    def init(self, exploit=False):
        return False
"""


@pytest.fixture(autouse=True)
def liars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that a spawned server can import too."""
    (tmp_path / "bench_test_agents.py").write_text(LIARS)
    monkeypatch.syspath_prepend(tmp_path)


def made_up(shape: tuple[int, ...] = (3, 5)) -> Payload:
    random = np.random.default_rng(1)
    steps = [Step(random.random(shape, dtype=np.float32), float(i), i % 3 == 2) for i in range(4)]
    steps[1].state.flat[0] = np.nan  # equal to itself on the wire
    return Payload("made-up", "made up", steps)


def row_of(agent: str, payload: Payload | None = None) -> RLXRow:
    return RLXRow(payload or made_up(), Cores(), f"bench_test_agents:{agent}")


@pytest.mark.parametrize("shape", [(3, 5), (84, 84, 4), ()])
def test_an_honest_row(shape: tuple[int, ...]) -> None:
    shares: list[float] = []
    row = row_of("Honest", made_up(shape))
    result = measure(row, 0.02, Cores(), shares.append)
    assert (result.protocol, result.payload) == ("rlx", "made-up")
    assert result.request_bytes == len(row.requests[0])
    assert result.round_trip.count == result.echo.count
    blocks = result.round_trip.count // (BLOCK - LEAD_IN)
    assert result.round_trip.count == blocks * (BLOCK - LEAD_IN)
    assert result.checked == blocks + WARM_UP * BLOCK
    assert result.encode.p50 > 0
    assert result.decode.p50 > 0
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert gc.isenabled()


def test_list_states() -> None:
    steps = [Step([0.1, -0.0, 2.5], 1.0, False), Step([1.0, 2.0, 3.0], 1.0, True)]
    result = measure(
        row_of("Honest", Payload("list", "list", steps)), 0.01, Cores(), lambda done: None
    )
    assert result.checked >= BLOCK


def test_sizes_are_those_on_the_wire() -> None:
    row = row_of("Honest")
    request = row.requests[0]
    length, _, rest = request.partition(b":")
    assert int(length) == len(rest) - 1
    assert rest.endswith(b",")
    assert row.reply_bytes == len(b"40:" + b"\0" * 40 + b",")


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("Flips", r"round trip 1: byte 5 of the state differs, 1 in all"),
        ("Widens", r"a state of float32 \(3, 5\) came back as float64 \(3, 5\)"),
        ("Reshapes", r"a state of float32 \(3, 5\) came back as float32 \(15,\)"),
        ("Rewards", r"reward 0.0 came back as 1e-09"),
        ("Ends", r"terminal False came back as True"),
        ("Forgets", r"was expected back, not a NoneType"),
        ("Skips", r"round trip 3: the server answered 4, not 3"),
        ("FlipsLater", r"round trip 2\d\d: .* of the state differ"),
    ],
)
def test_a_lying_server_is_found_out(agent: str, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        measure(row_of(agent), 0.01, Cores(), lambda done: None)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("Raises", "no more"),
        ("Dies", "rlx server process has ended with exit code 7"),
        ("Declines", "can't initialize agent"),
        ("NoSuchAgent", "rlx server did not start: .*NoSuchAgent"),
    ],
)
def test_a_failing_server_is_named(agent: str, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        measure(row_of(agent), 0.01, Cores(), lambda done: None)


def test_a_server_killed_between_two_steps() -> None:
    with row_of("Honest") as row:
        row.exchange(0)
        row.check(0)
        os.kill(row.server_pid, signal.SIGTERM)
        with pytest.raises(BenchError, match="rlx server process has ended with signal 15"):
            step_many(row)


def step_many(row: RLXRow) -> None:
    for index in range(1000):
        row.exchange(index)
        row.check(index)


def test_registered_providers_load_by_name() -> None:
    for name in PROVIDERS:
        assert load(name).protocol == name
