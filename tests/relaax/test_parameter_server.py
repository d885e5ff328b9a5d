"""Sessions, their ops, and a parameter server in this process; Ray has its own file."""

import threading

import numpy as np
import pytest

from rlwire import relaax
from rlwire.errors import LocalProtocolError
from rlwire.relaax.checkpoints import Checkpoints
from rlwire.relaax.parameter_server import op
from rlwire.rlx.config import Options
from tests.agents import Recorder
from tests.raising import raised, raised_with
from tests.relaax import summing
from tests.relaax.kept import steps
from tests.relaax.summing import Model


def test_session_restores_the_state_of_one_model():
    session = relaax.Session(Model())
    assert session.op_add([1.0, 0.0], scale=2.0) == 1
    other = relaax.Session(Model())
    other.load_state_dict(session.state_dict())
    assert other.model.total.tolist() == [2.0, 0.0]


def test_session_restores_the_state_of_several_models():
    def make():
        return relaax.Session(policy=Model(), critics={"first": Model(), "second": Model()})

    session, other = make(), make()
    assert session.critics.second.op_add(4.0) == 1
    state = session.state_dict()
    assert set(state) == {"policy", "critics"}
    other.load_state_dict(state)
    assert [other.critics.first.total, other.critics.second.total] == [0.0, 4.0]
    raised(KeyError, other.load_state_dict, {"policy": state["policy"]})


def test_session_exposes_only_ops_to_remote_callers():
    session = relaax.Session(policy=Model())
    assert op(session, ["policy", "op_n_step"])() == 0
    session.policy.inner = None
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
        assert str(raised_with(AttributeError, text, op, session, names)).isprintable()


def test_parameter_server_saves_state_and_reports_metrics():
    recorder = Recorder()
    server, other = (summing.ParameterServer(Options(), recorder) for _ in range(2))
    server.session.op_add(2.0)
    assert server.n_step() == 1
    server.metrics.scalar("loss", 0.5)
    assert recorder.calls == [("loss", 0.5, 1)]
    other.restore_checkpoint(server.create_checkpoint())
    assert other.session.model.total == 2.0


def test_parameter_server_without_a_session_is_rejected():
    raised(NotImplementedError, relaax.ParameterServer, Options(), Recorder())

    class Forgets(relaax.ParameterServer):
        def init_session(self):
            pass

    raised(TypeError, Forgets, Options(), Recorder())
    Forgets.init = Forgets.init_session
    raised(TypeError, Forgets, Options(), Recorder())


def test_init_of_relaax_s_document_is_called():
    class Documented(relaax.ParameterServer):
        def init(self):
            self.session = relaax.Session(Model())

    assert Documented(Options(), Recorder()).n_step() == 0


class Two(summing.ParameterServer):
    def init_session(self):
        super().init_session()
        self.session = relaax.Session(policy=self.session.model, value=Model())

    def n_step(self):
        return self.session.policy.steps


def two(kind=Two, **config):
    return relaax.Algorithm("two", object, kind, Options(config))


@pytest.fixture
def handle():
    handle = relaax.open_parameter_server(two(), metrics=Recorder())
    yield handle
    handle.close()


def test_handle_calls_ops_with_their_arguments(handle):
    assert handle.session.policy.op_add([1.0, 1.0], scale=0.5) == 1
    total, count = handle.session.policy.op_get()
    assert (total.tolist(), count) == ([0.5, 0.5], 1)
    assert handle.n_step() == 1
    assert handle.session.value.op_get()[1] == 0
    large = np.arange(300_000, dtype=np.float32)
    (echo, kinds), named = handle.session.policy.op_echo(large, {"a": [1, None, b"x"]}, x=2.5)
    assert (echo == large).all()
    assert (kinds, named) == ({"a": [1, None, b"x"]}, {"x": 2.5})


def test_handle_raises_the_errors_of_ops(handle):
    error = raised(relaax.ParameterServerError, handle.session.policy.op_raise, "no")
    assert "session.policy.op_raise: ValueError: no" in str(error)
    assert isinstance(error.__cause__, ValueError)
    error = raised(relaax.ParameterServerError, handle.session.policy.op_nothing)
    assert "session.policy.op_nothing" in str(error)
    assert "op_" in str(raised(relaax.ParameterServerError, handle.session.policy.state_dict))
    error = raised(relaax.ParameterServerError, handle.session.policy.op_get, 1)
    assert isinstance(error.__cause__, TypeError)


def test_ops_of_concurrent_threads_run_one_at_a_time(handle):
    def add():
        for _ in range(20):
            handle.session.policy.op_add(np.ones(3))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handle.n_step() == 80


def test_parameter_server_starts_from_its_latest_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path, every_steps=3)
    handle = relaax.open_parameter_server(two(), checkpoints=checkpoints, metrics=Recorder())
    assert [handle.session.policy.op_add(1.0) for _ in range(4)] == [1, 2, 3, 4]
    handle.close()
    assert steps(tmp_path) == [4, 3]
    handle = relaax.open_parameter_server(two(), checkpoints=tmp_path, metrics=Recorder())
    assert handle.session.policy.op_get()[0] == 4.0
    handle.close()  # nothing was learned
    assert steps(tmp_path) == [4, 3]
    raised(LocalProtocolError, handle.session.policy.op_add, 1.0)


def test_close_is_called_once_after_the_last_checkpoint(tmp_path):
    kept = []

    class Closing(Two):
        def close(self):
            kept.append(steps(tmp_path))

    handle = relaax.open_parameter_server(two(Closing), checkpoints=tmp_path, metrics=Recorder())
    handle.session.policy.op_add(1.0)
    handle.close()
    handle.close()
    assert kept == [[1]]


def test_failed_checkpoint_does_not_stop_training(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path / "folder", every_steps=1)
    handle = relaax.open_parameter_server(two(), checkpoints=checkpoints, metrics=Recorder())
    (tmp_path / "folder").write_text("in the way")
    assert handle.session.policy.op_add(1.0) == 1
    assert "two: saving a checkpoint failed" in caplog.text
    assert handle.session.policy.op_add(1.0) == 2
    (tmp_path / "folder").unlink()
    handle.close()
    assert steps(checkpoints.folder) == [2]


def test_failing_constructor_and_unknown_home_are_rejected():
    start = relaax.open_parameter_server
    raised(relaax.ParameterServerError, start, two(fail=True), metrics=Recorder())
    assert "'ray:NAME'" in str(raised(ValueError, start, two(), home="moon"))
