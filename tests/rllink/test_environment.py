"""Policies that act where the simulator is."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlwire.errors import MissingExtra, RemoteProtocolError
from rlwire.rllink import SetState
from rlwire.rllink.environment import OnnxPolicy, acted, resolve_policy


class Model:
    """Stands in for onnxruntime's: its file is the names of its inputs, its output their logits."""

    started = 0

    def __init__(self, file: bytes) -> None:
        Model.started += 1
        self.names = file.decode().split()

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.names]

    def run(self, outputs: None, given: dict[str, Any]) -> list[Any]:
        (batch,) = given.values()
        assert batch.dtype == np.float32
        assert batch.shape == (1, 3)
        return [batch]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Model))
    monkeypatch.setattr(Model, "started", 0)


@pytest.mark.usefixtures("runtime")
def test_actions_are_drawn_as_the_model_says() -> None:
    policy, weights = OnnxPolicy(seed=0), SetState(1, None, b"obs")
    logits = np.log([0.2, 0.5, 0.3]).astype(np.float32)
    counts = np.zeros(3)
    for _ in range(3000):
        action, outputs = policy(logits, weights)
        counts[action] += 1
        np.testing.assert_array_equal(outputs["action_dist_inputs"], logits)
        assert outputs["action_logp"] == pytest.approx(logits[action], abs=1e-6)
    np.testing.assert_allclose(counts / 3000, [0.2, 0.5, 0.3], atol=0.05)
    assert Model.started == 1
    policy(logits, SetState(2, None, b"obs"))
    assert Model.started == 2


@pytest.mark.usefixtures("runtime")
def test_weights_that_are_no_such_model() -> None:
    policy = OnnxPolicy()
    with pytest.raises(RemoteProtocolError, match="no file of ONNX"):
        policy(np.zeros(3), SetState(1, {"w": 0}))
    with pytest.raises(RemoteProtocolError, match="2 inputs"):
        policy(np.zeros(3), SetState(1, None, b"obs state"))


def test_onnxruntime_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match="'rlwire\\[onnx\\]'"):
        resolve_policy(None)


def test_what_a_policy_may_be() -> None:
    class Policy:
        def __call__(self, observation: Any, weights: SetState) -> Any:
            return 3, {"logp": 1}

    assert acted(resolve_policy(Policy)(0, SetState())) == (3, {"logp": 1})
    assert acted((1, 2)) == ((1, 2), {})  # the action of a Tuple space
    with pytest.raises(TypeError, match="called with observation and weights"):
        resolve_policy(3)
