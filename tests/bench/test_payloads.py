"""`rlwire.bench.payloads`: what is recorded, and that it is the same each time."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rlwire.bench import payloads
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
