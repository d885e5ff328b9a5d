"""`rlwire.bench.payloads`: what is recorded, and that it is the same each time."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rlwire.bench import payloads
from rlwire.bench.processes import BenchError
from rlwire.errors import MissingExtra

SHAPES = {
    "cartpole": ((4,), np.float32),
    "pong": ((210, 160, 3), np.uint8),
    "pong-stack": ((84, 84, 4), np.float32),
}


def require(name: str) -> None:
    pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    if name != "cartpole":
        pytest.importorskip("ale_py", reason="ale-py comes with the extra 'bench'")


def test_every_payload_is_tested() -> None:
    assert set(SHAPES) == set(payloads.PAYLOADS)


@pytest.mark.parametrize("name", SHAPES)
def test_recorded_states(name: str) -> None:
    require(name)
    shape, dtype = SHAPES[name]
    payload = payloads.record(name, 6)
    assert payload.name == name
    assert len(payload.steps) == 6
    for step in payload.steps:
        assert step.state.shape == shape
        assert step.state.dtype == dtype
        assert step.state.flags.c_contiguous
        assert type(step.reward) is float
        assert type(step.terminal) is bool
    first, *_, last = payload.steps
    assert not np.array_equal(first.state, last.state)  # the environment moved


@pytest.mark.parametrize("name", SHAPES)
def test_recording_is_seeded(name: str) -> None:
    require(name)
    one, other = payloads.record(name, 6), payloads.record(name, 6)
    for step, same in zip(one.steps, other.steps, strict=True):
        assert np.array_equal(step.state, same.state)
        assert (step.reward, step.terminal) == (same.reward, same.terminal)


def test_cartpole_goes_through_episodes() -> None:
    require("cartpole")
    steps = payloads.record("cartpole").steps
    assert any(step.terminal for step in steps)
    assert not steps[0].terminal
    after = [steps[i + 1] for i, step in enumerate(steps[:-1]) if step.terminal]
    assert all(step.reward == 0.0 and not step.terminal for step in after)


def test_stack_holds_frames_of_the_game() -> None:
    require("pong-stack")
    steps = payloads.record("pong-stack", 2).steps
    assert 0.0 <= steps[0].state.min() < steps[0].state.max() <= 1.0
    # Each observation is the last one, a frame further.
    assert np.array_equal(steps[0].state[..., 1:], steps[1].state[..., :-1])


@pytest.mark.parametrize(
    ("module", "package", "name"),
    [("gymnasium", "gymnasium", "cartpole"), ("ale_py", "ale-py", "pong")],
)
def test_missing_package_names_the_extra(
    module: str, package: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module == "ale_py":
        pytest.importorskip("gymnasium", reason="gymnasium comes with the extra 'bench'")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"{package} is not installed.*rlwire\[bench\]"):
        payloads.record(name, 1)


OWN = """
import numpy as np

def frames():
    return [np.full((3, 2), number, np.int16) for number in range(5)]

def steps():
    for number in range(4):
        yield [float(number), 2.0], 0.5 * number, number == 3

def nothing():
    return []

def texts():
    return ["one", "two"]

def uneven():
    return [np.zeros(3), np.zeros(4)]

def ragged():
    return [[[1.0], [1.0, 2.0]]]

def fails():
    raise ValueError("no frames today")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench_test_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bench_test_own", raising=False)


@pytest.mark.usefixtures("own")
def test_observations_of_ones_own() -> None:
    payload = payloads.made_by("bench_test_own:frames")
    assert (payload.name, payload.title) == (
        "bench_test_own:frames",
        "bench_test_own:frames 3x2 int16",
    )
    assert [step.state[0, 0] for step in payload.steps] == [0, 1, 2, 3, 4]
    assert {(step.reward, step.terminal) for step in payload.steps} == {(0.0, False)}
    steps = payloads.made_by("bench_test_own:steps").steps
    assert [step.state.tolist() for step in steps] == [
        [0.0, 2.0],
        [1.0, 2.0],
        [2.0, 2.0],
        [3.0, 2.0],
    ]
    assert [(step.reward, step.terminal) for step in steps][2:] == [(1.0, False), (1.5, True)]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("bench_test_own:nothing", "gave no observations"),
        ("bench_test_own:texts", "sends arrays of numbers, not str"),
        ("bench_test_own:uneven", r"must be alike, not float64 \(3,\) and then float64 \(4,\)"),
        ("bench_test_own:ragged", "makes no array"),
        ("bench_test_own:fails", "no frames today"),
        ("bench_test_own:missing", "no attribute 'missing'"),
        ("bench_test_none:frames", "No module named 'bench_test_none'"),
        ("bench_test_own:", "expected 'module:function'"),
    ],
)
def test_observations_that_cannot_be_sent(function: str, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        payloads.made_by(function)


def test_an_environment_of_ones_own() -> None:
    require("cartpole")
    payload = payloads.played("gym:CartPole-v1", 40)
    assert payload.title == "CartPole-v1 4 float32"
    assert len(payload.steps) == 40
    assert any(step.terminal for step in payload.steps)  # and goes on with the next episode
    again = payloads.played("gym:CartPole-v1", 40)
    for step, same in zip(payload.steps, again.steps, strict=True):
        assert np.array_equal(step.state, same.state)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("gym:CartPole-v99", "--env gym:CartPole-v99: "),
        ("no_such_module:make", "No module named 'no_such_module'"),
        ("CartPole-v1", "expected"),
    ],
)
def test_environments_that_cannot_be_played(environment: str, message: str) -> None:
    require("cartpole")
    with pytest.raises(BenchError, match=message):
        payloads.played(environment)
