"""A parameter server in this process; on Ray it is in test_homes_ray.py."""

from __future__ import annotations

import pickle
import textwrap
import threading
import time

import numpy as np
import pytest

from rlwire.adapters.relaax import (
    Metrics,
    ParameterServerError,
    load_algorithm,
    open_parameter_server,
)
from rlwire.checkpoints import Checkpoints
from rlwire.errors import DeadlineExceeded, LocalProtocolError

PARAMETER_SERVER = """
    import time

    import numpy as np

    from rlwire.adapters.relaax import ParameterServer as Base, Session


    class Model:
        def __init__(self, size):
            self.weights = np.zeros(size)
            self.steps = self.met = 0

        def op_get(self):
            return self.weights.copy(), self.steps

        def op_add(self, gradient, scale=1.0):
            self.weights += scale * np.asarray(gradient)
            self.steps += 1
            return self.steps

        def op_echo(self, *args, **kwargs):
            return [args, kwargs]

        def op_meet(self, count, seconds):
            self.met += 1
            return self.wait_for(lambda: self.met >= count, seconds)

        def op_met(self):
            return self.met

        def op_raise(self, text):
            raise ValueError(text)

        def op_sleep(self, seconds):
            time.sleep(seconds)

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
            self.session.policy.wait_for = self.wait_for

        def measure(self, value):
            self.metrics.scalar("loss", value)
            self.metrics.histogram("gradient", (value, 2.0), np.int64(7))

        def n_step(self):
            return self.session.policy.steps

        def score(self):
            return self.config.get("score")
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


class Recorder(Metrics):
    def __init__(self):
        self.calls = []

    def scalar(self, name, y, x=None):
        self.calls.append((name, y, x))

    def histogram(self, name, y, x=None):
        self.calls.append((name, np.asarray(y).tolist(), x))


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


def test_errors_of_ops_have_the_traceback_of_where_they_arose(handle):
    with pytest.raises(
        ParameterServerError, match=r"session\.policy\.op_raise: ValueError: no"
    ) as e:
        handle.session.policy.op_raise("no")
    assert "parameter_server.py" in e.value.traceback
    assert "raise ValueError(text)" in e.value.traceback
    with pytest.raises(ParameterServerError, match=r"session\.policy has no op_nothing"):
        handle.session.policy.op_nothing()
    with pytest.raises(ParameterServerError, match="is no op"):
        handle.session.policy.state_dict()
    with pytest.raises(ParameterServerError, match=r"TypeError.*op_get"):
        handle.session.policy.op_get(1)


def test_measurements_arrive_with_their_step(handle):
    handle.metrics.calls.clear()
    handle.session.policy.op_measure(0.25)
    step = handle.n_step()
    assert handle.metrics.calls == [("loss", 0.25, step), ("gradient", [0.25, 2.0], 7)]


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


def test_one_that_is_slow(folder):
    handle = open_parameter_server(load_algorithm(folder), metrics=Recorder(), deadline=0.2)
    sleeps = threading.Thread(target=handle.session.policy.op_sleep, args=(2.0,))
    sleeps.start()
    wait(lambda: handle._host._turn._lock.locked())
    with pytest.raises(DeadlineExceeded, match=r"op_add: other ops took longer.*was not called"):
        handle.session.policy.op_add(np.ones(3))
    sleeps.join()
    handle.close()
    with pytest.raises(LocalProtocolError, match="has been closed"):
        handle.session.policy.op_add(np.ones(3))


def test_it_begins_with_its_latest_checkpoint(folder, tmp_path):
    handle = open_parameter_server(
        load_algorithm(folder),
        checkpoints=Checkpoints(tmp_path, every_steps=3),
        metrics=Recorder(),
    )
    assert [handle.session.policy.op_add(np.ones(3)) for _ in range(4)] == [1, 2, 3, 4]
    wait(Checkpoints(tmp_path).list)
    handle.close()
    assert [each.step for each in Checkpoints(tmp_path).list()] == [4, 3]
    handle = open_parameter_server(
        load_algorithm(folder, {"score": 2.0}), checkpoints=tmp_path, metrics=Recorder()
    )
    assert handle.session.policy.op_get()[0].tolist() == [4.0, 4.0, 4.0]
    handle.close()  # nothing was learned
    assert [each.score for each in Checkpoints(tmp_path).list()] == [None, None]


def wait(condition):
    until = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_slow_disk_is_in_no_op_s_way_and_the_latest_is_written(folder, tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, every_steps=1)
    handle = open_parameter_server(
        load_algorithm(folder), checkpoints=checkpoints, metrics=Recorder()
    )
    begun, goes_on = threading.Event(), threading.Event()
    write = checkpoints._files.write

    def slow(name, data):
        begun.set()
        assert goes_on.wait(60)
        write(name, data)

    monkeypatch.setattr(checkpoints._files, "write", slow)
    add = handle.session.policy.op_add
    assert add(np.ones(3)) == 1
    assert begun.wait(60)
    assert [add(np.ones(3)) for _ in range(4)] == [2, 3, 4, 5]  # nobody waits for the disk
    assert checkpoints.list() == []
    goes_on.set()
    handle.close()  # waits for it
    assert [each.step for each in checkpoints.list()] == [5, 1]
    step, state = checkpoints.restore("adding")
    assert state["policy"]["weights"].tolist() == [step] * 3
    (tmp_path / "checkpoint-000000000005.safetensors").unlink()
    # What was written late is of the moment at which it was due.
    step, state = checkpoints.restore("adding")
    assert (step, state["policy"]["weights"].tolist()) == (1, [1.0] * 3)


def test_an_op_that_waits_for_other_agents(folder):
    handle = open_parameter_server(load_algorithm(folder), metrics=Recorder())
    met = []
    threads = [
        threading.Thread(target=lambda: met.append(handle.session.policy.op_meet(3, 60.0)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    wait(lambda: handle.session.policy.op_met() == 2)  # an op beside those that wait
    assert met == []
    assert handle.session.policy.op_meet(3, 60.0) is True
    for thread in threads:
        thread.join(60)
    assert met == [True, True]
    assert handle.session.policy.op_meet(9, 0.01) is False
    handle.close()


def test_an_op_that_waits_ends_with_the_server(folder):
    handle = open_parameter_server(load_algorithm(folder), metrics=Recorder())
    told = []

    def meet():
        with pytest.raises(ParameterServerError) as caught:
            handle.session.policy.op_meet(9, 600.0)
        told.append(str(caught.value))

    waits = threading.Thread(target=meet, daemon=True)
    waits.start()
    wait(lambda: handle.session.policy.op_met() == 1)
    handle.close()
    waits.join(30)
    assert len(told) == 1
    assert "ConnectionClosed: the parameter server is closed" in told[0]


def test_a_score_goes_with_the_checkpoint(folder, tmp_path):
    algorithm = load_algorithm(folder, {"score": 2.5})
    handle = open_parameter_server(algorithm, checkpoints=tmp_path, metrics=Recorder())
    handle.session.policy.op_add(np.ones(3))
    handle.close()
    (found,) = Checkpoints(tmp_path).list()
    assert (found.score, found.algorithm, found.version) == (2.5, "adding", 1)


def test_a_checkpoint_that_cannot_be_written_stops_nothing(folder, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    checkpoints = Checkpoints(tmp_path / "folder", every_steps=1)
    handle = open_parameter_server(
        load_algorithm(folder), checkpoints=checkpoints, metrics=Recorder()
    )
    (tmp_path / "folder").write_text("in the way")
    assert handle.session.policy.op_add(np.ones(3)) == 1
    wait(lambda: "no checkpoint of adding" in caplog.text)
    assert handle.session.policy.op_add(np.ones(3)) == 2
    assert caplog.text.count("no checkpoint of adding") == 1
    (tmp_path / "folder").unlink()
    handle.close()
    assert [each.step for each in checkpoints.list()] == [2]


def test_one_that_cannot_be_made(folder):
    algorithm = load_algorithm(folder, {"fail": True})
    with pytest.raises(ParameterServerError, match="no model today") as caught:
        open_parameter_server(algorithm, metrics=Recorder())
    assert "init_session" in caught.value.traceback


def test_arguments_that_make_no_sense(folder):
    algorithm = load_algorithm(folder)
    with pytest.raises(ValueError, match=r"at home in .*, not 'moon'"):
        open_parameter_server(algorithm, home="moon")
    with pytest.raises(ValueError, match="deadline must be positive"):
        open_parameter_server(algorithm, deadline=0)
