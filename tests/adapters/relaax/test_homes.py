"""A parameter server at home in this process and in one of its own: the same to agents."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import socket
import textwrap
import threading
import time

import numpy as np
import pytest

from rlwire.adapters.relaax import (
    Metrics,
    ParameterServerError,
    UpdatesLost,
    homes,
    load_algorithm,
    open_parameter_server,
)
from rlwire.adapters.relaax.homes import Connected
from rlwire.checkpoints import Checkpoints
from rlwire.errors import DeadlineExceeded, EncodeError, LocalProtocolError

PARAMETER_SERVER = """
    import os
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

        def op_pid(self):
            return os.getpid()

        def op_raise(self, text):
            raise ValueError(text)

        def op_exit(self):
            raise SystemExit(3)

        def op_object(self):
            self.steps += 1
            return object()

        def op_kill(self):
            os.kill(os.getpid(), 9)

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


@pytest.fixture(scope="module", params=["server", "process"])
def at_home(request, folder):
    """One for several tests, as a process takes its time to begin."""
    metrics = Recorder()
    handle = open_parameter_server(load_algorithm(folder), home=request.param, metrics=metrics)
    yield request.param, handle
    handle.close()


def test_ops_are_called(at_home):
    home, handle = at_home
    _, before = handle.session.policy.op_get()
    assert handle.session.policy.op_add(np.ones(3), scale=0.5) == before + 1
    weights, steps = handle.session.policy.op_get()
    assert (weights[0] - weights[1], steps) == (0.0, before + 1)
    assert handle.n_step() == before + 1
    assert handle.session.value.op_get()[1] == 0
    assert (handle.session.policy.op_pid() == os.getpid()) == (home == "server")
    large = np.arange(300_000, dtype=np.float32)
    (echo, kinds), named = handle.session.policy.op_echo(large, {"a": [1, None, b"x"]}, x=2.5)
    assert (echo == large).all()
    assert (kinds, named) == ({"a": [1, None, b"x"]}, {"x": 2.5})


def test_errors_of_ops_have_the_traceback_of_where_they_arose(at_home):
    _, handle = at_home
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


def test_measurements_arrive_with_their_step(at_home):
    _, handle = at_home
    handle.metrics.calls.clear()
    handle.session.policy.op_measure(0.25)
    step = handle.n_step()
    assert handle.metrics.calls == [("loss", 0.25, step), ("gradient", [0.25, 2.0], 7)]


def test_threads_call_at_once_and_ops_run_one_at_a_time(at_home):
    _, handle = at_home
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


@pytest.mark.parametrize("at_home", ["process"], indirect=True)
def test_what_cannot_be_sent(at_home):
    _, handle = at_home
    before = handle.n_step()
    with pytest.raises(ParameterServerError, match="was called, and what it returned cannot be"):
        handle.session.policy.op_object()
    assert handle.n_step() == before + 1
    with pytest.raises(EncodeError, match="object"):
        handle.session.policy.op_echo(object())
    with pytest.raises(ParameterServerError, match="SystemExit"):
        handle.session.policy.op_exit()
    assert handle.n_step() == before + 1


def called_from_elsewhere(handle, done):
    done.send(handle.session.policy.op_add(np.ones(3)))


@pytest.mark.parametrize("at_home", ["server"], indirect=True)
def test_a_handle_goes_to_another_process(at_home):
    _, handle = at_home
    before = handle.n_step()
    done, theirs = multiprocessing.Pipe(duplex=False)
    again = pickle.loads(pickle.dumps(handle))
    called_from_elsewhere(again, theirs)
    assert done.recv() == before + 1 == handle.n_step()
    assert isinstance(again, Connected)
    again.close()
    with pytest.raises(LocalProtocolError, match="has been closed"):
        again.n_step()
    assert handle.n_step() == before + 1


def test_a_lost_connection_loses_nothing(folder, monkeypatch):
    """The answer is cut off on its way; the call comes again and is answered, not made again.

    Someone is in between, on a unix socket: it is as where no memory can be shared.
    """
    monkeypatch.setattr(homes, "AVAILABLE", False)
    handle = open_parameter_server(load_algorithm(folder), metrics=Recorder())
    there = pickle.loads(pickle.dumps(handle))
    address = there._address.removeprefix("unix:")
    path = address + "-between"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def between():
        # The first connection ends as soon as the answer has come back; the second is passed on.
        for number in range(2):
            ours, _ = listener.accept()
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(address)
            with ours, theirs:
                while data := ours.recv(65536):
                    theirs.sendall(data)
                    answer = theirs.recv(65536)
                    if number == 0:
                        break
                    ours.sendall(answer)

    thread = threading.Thread(target=between)
    thread.start()
    agent = Connected(there.config, there.metrics, 10.0, f"unix:{path}")
    assert agent.session.policy.op_add(np.ones(3)) == 1
    assert agent.session.policy.op_add(np.ones(3)) == 2
    agent.close()
    thread.join()
    listener.close()
    assert handle.n_step() == 2
    handle.close()


def test_one_that_is_slow(folder):
    handle = open_parameter_server(load_algorithm(folder), metrics=Recorder(), deadline=0.2)
    there = pickle.loads(pickle.dumps(handle))
    with pytest.raises(DeadlineExceeded, match=r"op_sleep: no answer .* deadline=0\.2 s"):
        there.session.policy.op_sleep(2.0)
    with pytest.raises(DeadlineExceeded, match=r"op_add: other ops took longer.*was not called"):
        handle.session.policy.op_add(np.ones(3))
    there.close()
    handle.close()


def test_one_that_dies_comes_back_from_its_checkpoint(folder, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    handle = open_parameter_server(
        load_algorithm(folder),
        home="process",
        checkpoints=Checkpoints(tmp_path, every_steps=3),
        metrics=Recorder(),
    )
    add = handle.session.policy.op_add
    assert [add(np.ones(3)) for _ in range(4)] == [1, 2, 3, 4]
    wait(Checkpoints(tmp_path).list)
    # An op that its server dies in is not called by the next one, though it is its agent's first.
    agent = pickle.loads(pickle.dumps(handle))
    with pytest.raises(UpdatesLost, match="came back from its checkpoint of step 3"):
        agent.session.policy.op_kill()
    assert agent.n_step() == 3
    agent.close()
    with pytest.raises(UpdatesLost, match="came back from its checkpoint of step 3"):
        add(np.ones(3))
    assert add(np.ones(3)) == 4
    handle.close()
    assert [each.step for each in Checkpoints(tmp_path).list()] == [4, 3]
    # And at home elsewhere.
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
    (tmp_path / "checkpoint-000000000005.msgpack").unlink()
    # What was written late is of the moment at which it was due.
    step, state = checkpoints.restore("adding")
    assert (step, state["policy"]["weights"].tolist()) == (1, [1.0] * 3)


@pytest.mark.parametrize("home", ["server", "process"])
def test_an_op_that_waits_for_other_agents(folder, home):
    handle = open_parameter_server(load_algorithm(folder), home=home, metrics=Recorder())
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


@pytest.mark.parametrize("home", ["server", "process"])
def test_an_op_that_waits_ends_with_the_server(folder, home):
    handle = open_parameter_server(load_algorithm(folder), home=home, metrics=Recorder())
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
    wait(lambda: "no checkpoint" in caplog.text)
    assert handle.session.policy.op_add(np.ones(3)) == 2
    assert caplog.text.count("no checkpoint of adding; the next try is in 60 s") == 1
    (tmp_path / "folder").unlink()
    handle.close()
    assert [each.step for each in checkpoints.list()] == [2]


@pytest.mark.parametrize("home", ["server", "process"])
def test_one_that_cannot_be_made(folder, home):
    algorithm = load_algorithm(folder, {"fail": True})
    with pytest.raises(ParameterServerError, match="no model today") as caught:
        open_parameter_server(algorithm, home=home, metrics=Recorder())
    assert "init_session" in caught.value.traceback


def test_arguments_that_make_no_sense(folder):
    algorithm = load_algorithm(folder)
    with pytest.raises(ValueError, match=r"at home in .*, not 'moon'"):
        open_parameter_server(algorithm, home="moon")
    with pytest.raises(ValueError, match="deadline must be positive"):
        open_parameter_server(algorithm, deadline=0)
