"""A parameter server as an actor of Ray's: as the others to agents, and started again by Ray."""

import os
import pickle
import signal

import numpy as np
import pytest

import rlwire
from rlwire.errors import DeadlineExceeded, EncodeError, LocalProtocolError
from rlwire.relaax import (
    AlgorithmServer,
    ParameterServerError,
    load_algorithm,
    open_parameter_server,
    parameter_server_ray,
)
from rlwire.relaax.checkpoints import Checkpoints
from rlwire.rlx import Metrics
from tests.programs import python
from tests.raising import raised, raised_with
from tests.relaax import summing
from tests.relaax.kept import steps

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


class Written(Metrics):
    """A sink that is found where it was written, by another process too."""

    def __init__(self, path):
        self.path = path

    def scalar(self, name, y, x=None):
        with open(self.path, "a") as file:
            print(name, y, x, file=file)


@pytest.fixture(scope="module")
def algorithm(cluster):
    return load_algorithm(summing.__file__)


def test_parameter_server_in_ray_runs_ops_and_restarts(algorithm, tmp_path):
    metrics = Written(tmp_path / "metrics")
    checkpoints = Checkpoints(tmp_path / "kept", every_steps=2)
    handle = open_parameter_server(algorithm, home="ray", checkpoints=checkpoints, metrics=metrics)
    session = handle.session
    assert [session.op_add(np.ones(200_000, np.float32)) for _ in range(3)] == [1, 2, 3]
    total, _ = session.op_get()
    assert total.dtype == np.float32
    assert (total == 3.0).all()
    session.op_measure()
    assert metrics.path.read_text() == "loss 0.5 3\n"
    caught = raised_with(ParameterServerError, r"op_raise: ValueError: no", session.op_raise, "no")
    assert "summing.py" in str(caught.__cause__)
    raised(ParameterServerError, session.op_nothing)
    assert "lock" in str(raised(ParameterServerError, session.op_lock))
    assert "Ray" in str(raised(EncodeError, session.op_add, (x for x in [])))
    there = pickle.loads(pickle.dumps(handle))
    assert there.session.op_add(np.float32(0)) == 4
    there.close()
    assert steps(checkpoints.folder) == [4, 2]
    # Ray starts it again, and it begins with its checkpoint.
    session.op_add(np.float32(0))
    os.kill(session.op_pid(), signal.SIGKILL)
    assert session.op_add(np.float32(0)) == 5
    handle.close()
    assert steps(checkpoints.folder)[0] == 5
    raised(LocalProtocolError, session.op_get)


def test_slow_and_failing_parameter_servers_in_ray_are_errors(algorithm, monkeypatch):
    handle = open_parameter_server(algorithm, home="ray")
    monkeypatch.setattr(parameter_server_ray, "_DEADLINE", 0.5)
    raised_with(DeadlineExceeded, r"op_sleep: .*0\.5 s", handle.session.op_sleep, 2.0)
    monkeypatch.undo()
    handle.close()
    broken = load_algorithm(algorithm._source[0], {"fail": True})
    raised(ParameterServerError, open_parameter_server, broken, home="ray")


ELSEWHERE = """
import sys

from rlwire.relaax import load_algorithm, open_parameter_server
from rlwire.rlx import Metrics

if __name__ == "__main__":
    algorithm = load_algorithm(sys.argv[1])
    handle = open_parameter_server(algorithm, home="ray:shared", metrics=Metrics())
    print("steps", handle.session.op_add(1.0))
    handle.close()
"""


def test_agents_of_several_processes_share_a_ray_parameter_server(algorithm, cluster, tmp_path):
    """One program makes it; worker processes and another program on the cluster find it."""
    server = AlgorithmServer(algorithm, "localhost:0", parameter_server="ray:shared", workers=1)
    with server:
        assert server.parameter_server.session.op_add(1.0) == 1
        with rlwire.connect(server.url) as agent:
            agent.init()
            assert agent.update(None, [1.0]) == [2.0]
        (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
        environment = {**os.environ, "RAY_ADDRESS": cluster}
        done = python(tmp_path / "elsewhere.py", algorithm._source[0], env=environment)
        assert "steps 3" in done.stdout, done.stderr
        assert server.parameter_server.n_step() == 3
