"""The dm_env_rpc rows: honest ones are measured, worlds that lie are found out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import BenchError
from rlwire.bench.provider import Cores, Mismatch
from rlwire.bench.providers.dm_env_rpc import DmEnvRpcRow
from rlwire.bench.runner import BLOCK, LEAD_IN, WARM_UP, measure
from rlwire.codecs.dm_env_rpc import StepResponse, decode_request, decode_response

LIARS = """
import os
import numpy as np
from rlwire.bench.providers.dm_env_rpc import RecordedWorld
from rlwire.codecs.dm_env_rpc import EnvironmentStateType, StepResult

class Honest(RecordedWorld):
    pass

class Flips(RecordedWorld):
    def show(self, number):
        seen = super().show(number)
        seen["observation"] = seen["observation"].copy()
        seen["observation"].view("u1").reshape(-1)[5] ^= 1
        return seen

class Repeats(RecordedWorld):
    def show(self, number):
        return super().show(0)

class Rewards(RecordedWorld):
    def show(self, number):
        seen = super().show(number)
        seen["reward"] += 1e-9
        return seen

class Ends(RecordedWorld):
    def show(self, number):
        seen = super().show(number)
        seen["discount"] = 1 - seen["discount"]
        return seen

class Deaf(RecordedWorld):
    def step(self, actions):
        self._told = 2.0
        return StepResult(EnvironmentStateType.RUNNING, self.show(max(0, int(actions["number"]))))

class Interrupts(RecordedWorld):
    def step(self, actions):
        return StepResult(EnvironmentStateType.INTERRUPTED, self.show(0))

class Raises(RecordedWorld):
    def step(self, actions):
        raise RuntimeError("no more")

class Dies(RecordedWorld):
    def step(self, actions):
        os._exit(7)

class Declines(RecordedWorld):
    def join(self, settings):
        raise ValueError("not you")
"""


@pytest.fixture(autouse=True)
def liars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds that a spawned server can import too."""
    (tmp_path / "bench_test_worlds.py").write_text(LIARS)
    monkeypatch.syspath_prepend(tmp_path)


def made_up(shape: tuple[int, ...] = (3, 5)) -> Payload:
    random = np.random.default_rng(1)
    steps = [Step(random.random(shape, dtype=np.float32), float(i), i % 3 == 2) for i in range(4)]
    if shape:
        steps[1].state.flat[0] = np.nan  # equal to itself on the wire
    return Payload("made-up", "made up", steps)


def row_of(world: str, payload: Payload | None = None) -> DmEnvRpcRow:
    return DmEnvRpcRow(payload or made_up(), Cores(), f"bench_test_worlds:{world}")


@pytest.mark.parametrize("shape", [(3, 5), (84, 84, 4), ()])
def test_an_honest_row(shape: tuple[int, ...]) -> None:
    row = row_of("Honest", made_up(shape))
    result = measure(row, 0.02, Cores(), lambda done: None)
    assert (result.protocol, result.payload) == ("dm_env_rpc", "made-up")
    assert result.request_bytes == len(row.requests[0])
    assert result.round_trip.count == result.echo.count
    blocks = result.round_trip.count // (BLOCK - LEAD_IN)
    assert result.checked == blocks + WARM_UP * BLOCK
    assert result.encode.p50 > 0
    assert result.decode.p50 > 0


def test_list_states() -> None:
    steps = [Step([0.1, -0.0, 2.5], 1.0, False), Step([1.0, 2.0, 3.0], 1.0, True)]
    row = row_of("Honest", Payload("list", "list", steps))
    assert measure(row, 0.01, Cores(), lambda done: None).checked >= BLOCK


def test_sizes_are_those_on_the_wire() -> None:
    row = row_of("Honest", made_up((84, 84, 4)))
    assert len({len(request) for request in row.requests}) == 1
    frame, message = row.requests[0][:14], row.requests[0][14:]
    assert frame == len(message + b"12345").to_bytes(3, "big") + b"\0\0\0\0\0\1" + bytes(4) + (
        len(message).to_bytes(1, "big")
    )
    decoded = decode_request(message)
    assert decoded is not None
    assert decoded.requested_observations == [1, 2, 3]
    response = row.received[0]
    assert isinstance(decode_response(response), StepResponse)
    assert row.reply_bytes == len(response) + 5 + 9  # both ends take any message in one frame


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ("Flips", r"round trip 1: byte 5 of the state differs, 1 in all"),
        ("Repeats", r"round trip 2: byte \d+ of the state differs"),
        ("Rewards", r"reward np.float64\(0.0\) came back as np.float64\(1e-09\)"),
        ("Ends", r"discount np.float64\(1.0\) came back as np.float64\(0.0\)"),
        ("Deaf", r"the server was asked for step 0 and heard 2"),
        ("Interrupts", r"a running step with observation, reward, discount was expected"),
    ],
)
def test_a_lying_server_is_found_out(world: str, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        measure(row_of(world), 0.01, Cores(), lambda done: None)


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ("Raises", "no more"),
        ("Dies", "dm_env_rpc server process has ended with exit code 7"),
        ("Declines", "not you"),
        ("NoSuchWorld", "dm_env_rpc server did not start: .*NoSuchWorld"),
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
        with pytest.raises(BenchError, match="dm_env_rpc server process has ended with signal 15"):
            step_many(row)


def step_many(row: DmEnvRpcRow) -> None:
    for index in range(1000):
        row.exchange(index)
        row.check(index)
