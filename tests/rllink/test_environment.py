"""The default policy of `rlwire.play` over RLlink."""

import numpy as np
import pytest

import rlwire
from rlwire.errors import RemoteProtocolError
from rlwire.rllink import SetState
from rlwire.rllink.environment import OnnxPolicy
from tests.raising import raised


def message(**fields):
    """A message of protobuf; each field is named ``_NUMBER``."""
    written = b""
    for name, value in fields.items():
        key = int(name[1:]) << 3
        if isinstance(value, int):
            written += bytes([key, value])
        else:
            value = value.encode() if isinstance(value, str) else value
            size = len(value)  # below 2**14, in two bytes of seven bits
            written += bytes([key | 2, size & 0x7F | 0x80, size >> 7]) + value
    return written


def linear(weights):
    """An ONNX file: ``logits = obs @ weights``; numbers are fields of onnx.proto3."""

    def value(name, size):
        shape = message(_1=message(_2="batch")) + message(_1=message(_1=size))
        return message(_1=name, _2=message(_1=message(_1=1, _2=shape)))

    rows, columns = weights.shape
    node = message(_1="obs") + message(_1="weights", _2="logits", _4="MatMul")
    tensor = message(_1=rows) + message(_1=columns, _2=1, _8="weights", _9=weights.tobytes())
    ends = {"_11": value("obs", rows), "_12": value("logits", columns)}
    return message(_1=8, _7=message(_1=node, _2="policy", _5=tensor, **ends), _8=message(_2=13))


class Learner:
    """Sends a new ONNX file after each batch; pushes left or right with equal chances."""

    def __init__(self):
        self.episodes = []

    def get_state(self):
        file = linear(np.zeros((4, 2), np.float32))
        return SetState(1 + len(self.episodes), None, file)

    def learn(self, episodes):
        self.episodes += episodes
        return self.get_state()


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_play_without_a_policy_samples_actions_from_the_model(form):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("gymnasium")
    learner = Learner()
    with rlwire.serve(learner, "rllink://127.0.0.1:0", steps=20) as server:
        totals = rlwire.play("gym:CartPole-v1", server.url, episodes=5, seed=1, form=form)
    assert sum(map(len, learner.episodes)) == sum(totals)
    for one in learner.episodes:
        np.testing.assert_allclose(one.outputs["action_logp"], np.log(0.5), rtol=1e-6)
    assert set(np.concatenate([one.actions for one in learner.episodes])) == {0, 1}


def test_onnx_policy_samples_actions_from_the_logits():
    pytest.importorskip("onnxruntime")
    policy, chances = OnnxPolicy(seed=0), np.array([0.2, 0.5, 0.3])
    weights = SetState(1, None, linear(np.log(chances)[None].astype(np.float32)))
    counts = np.zeros(3)
    for _ in range(3000):
        action, outputs = policy([1.0], weights)
        counts[action] += 1
        np.testing.assert_allclose(outputs["action_dist_inputs"], np.log(chances), rtol=1e-6)
        assert outputs["action_logp"] == pytest.approx(np.log(chances[action]), abs=1e-6)
    np.testing.assert_allclose(counts / 3000, chances, atol=0.05)
    assert "policy=" in str(raised(RemoteProtocolError, policy, [1.0], SetState(2, {"w": 0})))
