"""What an algorithm is written with: sessions of one or several models, and their ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlwire.relaax import Handle, ParameterServer, Session
from rlwire.relaax.parameter_server import op
from rlwire.rlx.config import Options
from tests.agents import Recorder


class Model:
    inner: Any = None
    op_constant = 3

    def __init__(self, start=0.0):
        self.weights = np.full(3, start)

    def op_add(self, gradient, scale=1.0):
        self.weights = self.weights + scale * np.asarray(gradient)
        return self.weights

    def op_n_step(self):
        return np.int64(5)

    def state_dict(self):
        return {"weights": self.weights}

    def load_state_dict(self, state):
        self.weights = state["weights"]


def test_a_session_of_one_model():
    session = Session(Model(1.0))
    assert session.op_add([1.0, 0.0, 0.0], scale=2.0).tolist() == [3.0, 1.0, 1.0]
    state = session.state_dict()
    other = Session(Model())
    other.load_state_dict(state)
    assert other.model.weights.tolist() == [3.0, 1.0, 1.0]


def test_a_session_of_several_models():
    session = Session(policy=Model(1.0), critics={"first": Model(2.0), "second": Model(3.0)})
    assert session.critics.second.op_add(1.0).tolist() == [4.0, 4.0, 4.0]
    state = session.state_dict()
    assert set(state) == {"policy", "critics"}
    other = Session(policy=Model(), critics={"first": Model(), "second": Model()})
    other.load_state_dict(state)
    assert other.critics.second.weights.tolist() == [4.0, 4.0, 4.0]
    with pytest.raises(KeyError):
        other.load_state_dict({"policy": state["policy"]})


def test_a_session_of_nothing_or_of_too_much():
    for arguments, models in (((), {}), ((Model(),), {"policy": Model()})):
        with pytest.raises(TypeError, match="one model, or several"):
            Session(*arguments, **models)


def test_only_ops_can_be_called_from_elsewhere():
    session = Session(policy=Model())
    assert op(session, ["policy", "op_n_step"])() == 5
    for names, text in [
        ([], "is no op"),
        (["policy"], "is no op"),
        (["state_dict"], "is no op"),
        (["policy", "__class__", "op_x"], "is no op"),
        (["_private", "op_x"], "is no op"),
        (["policy", "op_nothing"], r"no session\.policy\.op_nothing"),
        (["value", "op_n_step"], "no session"),
        (["policy", "inner", "op_x"], "no session"),
        (["policy", "op_constant"], "no session"),
        (["\x1b[31m\n"], "is no op"),
    ]:
        with pytest.raises(AttributeError, match=text) as caught:
            op(session, names)
        assert str(caught.value).isprintable()


class Counting(ParameterServer):
    def init_session(self):
        self.session = Session(Model(float(self.config.start)))


def test_a_parameter_server_as_it_comes():
    recorder = Recorder()
    server = Counting(Options({"start": 2}), recorder)
    assert server.n_step() == 5
    server.metrics.scalar("loss", 0.5)
    assert recorder.calls == [("loss", 0.5, 5)]
    state = server.create_checkpoint()
    other = Counting(Options({"start": 0}), recorder)
    other.restore_checkpoint(state)
    assert other.session.model.weights.tolist() == [2.0, 2.0, 2.0]


def test_a_parameter_server_without_a_session():
    with pytest.raises(NotImplementedError, match="must define init_session"):
        ParameterServer(Options(), Recorder())

    class Forgets(ParameterServer):
        def init_session(self):
            pass

    with pytest.raises(TypeError, match=r"init_session must set self\.session"):
        Forgets(Options(), Recorder())


def test_a_handle_calls_by_path():
    class Told(Handle):
        def _call(self, names, args, kwargs):
            return [names, args, kwargs] if names else np.int64(4)

    handle = Told(Options(), Recorder())
    assert handle.session.a.op_b(1, c=2) == [("a", "op_b"), (1,), {"c": 2}]
    assert handle.n_step() == 4
    assert repr(handle.session.a) == "<session.a of a parameter server>"
    assert not hasattr(handle.session, "__array__")
