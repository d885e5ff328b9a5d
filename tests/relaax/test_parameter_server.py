"""Sessions, their ops, and a parameter server in this process; Ray has its own file."""

import threading
from typing import Any

import numpy as np
import pytest

from rlwire.errors import LocalProtocolError
from rlwire.relaax import (
    Algorithm,
    ParameterServer,
    ParameterServerError,
    Session,
    open_parameter_server,
)
from rlwire.relaax.checkpoints import Checkpoints
from rlwire.relaax.parameter_server import op
from rlwire.rlx.config import Options
from tests.agents import Recorder
from tests.raising import raised
from tests.relaax.kept import steps


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
    raised(KeyError, other.load_state_dict, {"policy": state["policy"]})


def test_only_ops_can_be_called_from_elsewhere():
    session = Session(policy=Model())
    assert op(session, ["policy", "op_n_step"])() == 5
    for names, text in [
        ([], "op_"),
        (["policy"], "op_"),
        (["state_dict"], "op_"),
        (["policy", "__class__", "op_x"], "op_"),
        (["_private", "op_x"], "op_"),
        (["policy", "op_nothing"], r"no session\.policy\.op_nothing"),
        (["value", "op_n_step"], "no session"),
        (["policy", "inner", "op_x"], "no session"),
        (["policy", "op_constant"], "no session"),
        (["\x1b[31m\n"], "op_"),
    ]:
        with pytest.raises(AttributeError, match=text) as caught:
            op(session, names)
        assert str(caught.value).isprintable()


class Counting(ParameterServer):
    def init_session(self):
        self.session = Session(Model(float(self.config.start)))


def test_plain_parameter_server_is_served_as_it_is():
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
    raised(NotImplementedError, ParameterServer, Options(), Recorder())

    class Forgets(ParameterServer):
        def init_session(self):
            pass

    raised(TypeError, Forgets, Options(), Recorder())
    Forgets.init = Forgets.init_session
    raised(TypeError, Forgets, Options(), Recorder())


def test_init_of_relaax_s_document_is_called():
    class Documented(ParameterServer):
        def init(self):
            self.session = Session(Model(3.0))

    assert Documented(Options(), Recorder()).session.model.weights.tolist() == [3.0, 3.0, 3.0]


class AddingModel:
    def __init__(self, size):
        self.weights = np.zeros(size)
        self.steps = 0

    def op_get(self):
        return self.weights.copy(), self.steps

    def op_add(self, gradient, scale=1.0):
        self.weights += scale * np.asarray(gradient)
        self.steps += 1
        return self.steps

    def op_echo(self, *args, **kwargs):
        return [args, kwargs]

    def op_raise(self, text):
        raise ValueError(text)

    def state_dict(self):
        return {"weights": self.weights, "steps": self.steps}

    def load_state_dict(self, state):
        self.weights, self.steps = np.array(state["weights"]), state["steps"]


class Adding(ParameterServer):
    def init_session(self):
        if self.config.get("fail"):
            raise RuntimeError("no model today")
        self.session = Session(policy=AddingModel(3), value=AddingModel(1))
        self.session.policy.op_measure = self.measure

    def measure(self, value):
        self.metrics.scalar("loss", value)
        self.metrics.histogram("gradient", (value, 2.0), np.int64(7))

    def n_step(self):
        return self.session.policy.steps


def adding(**config):
    return Algorithm("adding", object, Adding, Options(config))


@pytest.fixture
def handle():
    handle = open_parameter_server(adding(), metrics=Recorder())
    yield handle
    handle.close()


def test_ops_are_called(handle):
    _, before = handle.session.policy.op_get()
    assert handle.session.policy.op_add(np.ones(3), scale=0.5) == before + 1
    weights, steps = handle.session.policy.op_get()
    assert (weights[0] - weights[1], steps) == (0.0, before + 1)
    assert handle.n_step() == before + 1
    assert handle.session.value.op_get()[1] == 0
    large = np.arange(300_000, dtype=np.float32)
    (echo, kinds), named = handle.session.policy.op_echo(large, {"a": [1, None, b"x"]}, x=2.5)
    assert (echo == large).all()
    assert (kinds, named) == ({"a": [1, None, b"x"]}, {"x": 2.5})


def test_errors_of_ops(handle):
    with pytest.raises(
        ParameterServerError, match=r"session\.policy\.op_raise: ValueError: no"
    ) as e:
        handle.session.policy.op_raise("no")
    assert isinstance(e.value.__cause__, ValueError)
    caught = raised(ParameterServerError, handle.session.policy.op_nothing)
    assert "session.policy.op_nothing" in str(caught)
    assert "op_" in str(raised(ParameterServerError, handle.session.policy.state_dict))
    with pytest.raises(ParameterServerError, match=r"TypeError.*op_get"):
        handle.session.policy.op_get(1)


def test_threads_call_at_once_and_ops_run_one_at_a_time(handle):
    before = handle.n_step()

    def add():
        for _ in range(20):
            handle.session.policy.op_add(np.ones(3))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handle.n_step() == before + 80


def test_parameter_server_starts_from_its_latest_checkpoint(tmp_path):
    handle = open_parameter_server(
        adding(), checkpoints=Checkpoints(tmp_path, every_steps=3), metrics=Recorder()
    )
    assert [handle.session.policy.op_add(np.ones(3)) for _ in range(4)] == [1, 2, 3, 4]
    handle.close()
    assert steps(tmp_path) == [4, 3]
    handle = open_parameter_server(adding(), checkpoints=tmp_path, metrics=Recorder())
    assert handle.session.policy.op_get()[0].tolist() == [4.0, 4.0, 4.0]
    handle.close()  # nothing was learned
    assert steps(tmp_path) == [4, 3]
    raised(LocalProtocolError, handle.session.policy.op_add, np.ones(3))


def test_close_is_called_once_after_the_last_checkpoint(tmp_path):
    kept = []

    class Closing(Adding):
        def close(self):
            kept.append(steps(tmp_path))

    algorithm = Algorithm("adding", object, Closing, Options())
    handle = open_parameter_server(algorithm, checkpoints=tmp_path, metrics=Recorder())
    handle.session.policy.op_add(np.ones(3))
    handle.close()
    handle.close()
    assert kept == [[1]]


def test_failed_checkpoint_does_not_stop_training(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    checkpoints = Checkpoints(tmp_path / "folder", every_steps=1)
    handle = open_parameter_server(adding(), checkpoints=checkpoints, metrics=Recorder())
    (tmp_path / "folder").write_text("in the way")
    assert handle.session.policy.op_add(np.ones(3)) == 1
    assert "adding: saving a checkpoint failed" in caplog.text
    assert handle.session.policy.op_add(np.ones(3)) == 2
    (tmp_path / "folder").unlink()
    handle.close()
    assert steps(checkpoints.folder) == [2]


def test_failing_constructor_is_a_parameter_server_error():
    algorithm = adding(fail=True)
    raised(ParameterServerError, open_parameter_server, algorithm, metrics=Recorder())


def test_unknown_home_is_rejected():
    algorithm = adding()
    assert "'ray:NAME'" in str(raised(ValueError, open_parameter_server, algorithm, home="moon"))
