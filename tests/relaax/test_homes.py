"""A parameter server in this process; on Ray it is in test_homes_ray.py."""

from __future__ import annotations

import pickle
import textwrap
import threading

import numpy as np
import pytest

from rlwire.errors import LocalProtocolError
from rlwire.relaax import ParameterServerError, load_algorithm, open_parameter_server
from rlwire.relaax.checkpoints import Checkpoints
from tests.agents import Recorder

PARAMETER_SERVER = """
    import numpy as np

    from rlwire.relaax import ParameterServer as Base, Session


    class Model:
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


    class ParameterServer(Base):
        def init_session(self):
            if self.config.get("fail"):
                raise RuntimeError("no model today")
            self.session = Session(policy=Model(self.config.get("size", 3)), value=Model(1))
            self.session.policy.op_measure = self.measure

        def measure(self, value):
            self.metrics.scalar("loss", value)
            self.metrics.histogram("gradient", (value, 2.0), np.int64(7))

        def n_step(self):
            return self.session.policy.steps
"""
AGENT = """
    class Agent:
        def __init__(self, parameter_server, metrics):
            self.ps = parameter_server
            self.metrics = metrics

        def init(self, exploit=False):
            return True

        def update(self, reward, state, terminal):
            return self.ps.session.policy.op_add(state)

        def reset(self):
            return True
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("algorithms") / "adding"
    folder.mkdir()
    (folder / "parameter_server.py").write_text(textwrap.dedent(PARAMETER_SERVER))
    (folder / "agent.py").write_text(textwrap.dedent(AGENT))
    return folder


@pytest.fixture
def handle(folder):
    handle = open_parameter_server(load_algorithm(folder), metrics=Recorder())
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
    with pytest.raises(ParameterServerError, match=r"no session\.policy\.op_nothing"):
        handle.session.policy.op_nothing()
    with pytest.raises(ParameterServerError, match="is no op"):
        handle.session.policy.state_dict()
    with pytest.raises(ParameterServerError, match=r"TypeError.*op_get"):
        handle.session.policy.op_get(1)


def test_measurements_arrive_with_their_step(handle):
    handle.metrics.calls.clear()
    handle.session.policy.op_measure(0.25)
    step = handle.n_step()
    assert handle.metrics.calls == [("loss", 0.25, step), ("gradient", (0.25, 2.0), 7)]


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


def test_it_goes_to_no_other_process(handle):
    with pytest.raises(TypeError, match="'ray'"):
        pickle.dumps(handle)


def test_it_begins_with_its_latest_checkpoint(folder, tmp_path):
    handle = open_parameter_server(
        load_algorithm(folder),
        checkpoints=Checkpoints(tmp_path, every_steps=3),
        metrics=Recorder(),
    )
    assert [handle.session.policy.op_add(np.ones(3)) for _ in range(4)] == [1, 2, 3, 4]
    handle.close()
    assert [each.step for each in Checkpoints(tmp_path).list()] == [4, 3]
    handle = open_parameter_server(load_algorithm(folder), checkpoints=tmp_path, metrics=Recorder())
    assert handle.session.policy.op_get()[0].tolist() == [4.0, 4.0, 4.0]
    handle.close()  # nothing was learned
    assert [each.step for each in Checkpoints(tmp_path).list()] == [4, 3]
    with pytest.raises(LocalProtocolError, match="has been closed"):
        handle.session.policy.op_add(np.ones(3))


def test_a_checkpoint_that_cannot_be_written_stops_nothing(folder, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    checkpoints = Checkpoints(tmp_path / "folder", every_steps=1)
    handle = open_parameter_server(
        load_algorithm(folder), checkpoints=checkpoints, metrics=Recorder()
    )
    (tmp_path / "folder").write_text("in the way")
    assert handle.session.policy.op_add(np.ones(3)) == 1
    assert "no checkpoint of adding" in caplog.text
    assert handle.session.policy.op_add(np.ones(3)) == 2
    (tmp_path / "folder").unlink()
    handle.close()
    assert [each.step for each in checkpoints.list()] == [2]


def test_one_that_cannot_be_made(folder):
    algorithm = load_algorithm(folder, {"fail": True})
    with pytest.raises(ParameterServerError, match="no model today"):
        open_parameter_server(algorithm, metrics=Recorder())


def test_arguments_that_make_no_sense(folder):
    algorithm = load_algorithm(folder)
    with pytest.raises(ValueError, match=r"at home in .*, not 'moon'"):
        open_parameter_server(algorithm, home="moon")
