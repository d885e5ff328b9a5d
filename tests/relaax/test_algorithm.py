"""Algorithms by name and folder, and a server of their agents over real sockets."""

import pickle
import textwrap

import numpy as np
import pytest

import rlwire
from rlwire.relaax import AlgorithmError, AlgorithmServer, load_algorithm
from rlwire.relaax.checkpoints import CheckpointMismatch, Checkpoints
from tests.agents import Recorder
from tests.raising import raised, raised_with
from tests.relaax import summing
from tests.relaax.kept import steps

SUMMING = summing.__file__


def make(folder, **files):
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def test_algorithm_is_loaded_from_a_relaax_folder(tmp_path):
    folder = make(
        tmp_path / "my-algorithm",
        agent="from . import model\nclass Agent(model.Base): pass",
        parameter_server="from .model import Base as ParameterServer",
        model="class Base: pass",
    )
    found = load_algorithm(folder, {"learning-rate": 0.5})
    assert found.name == "my-algorithm"
    assert issubclass(found.agent, found.parameter_server)
    assert found.config.learning_rate == 0.5
    again = pickle.loads(pickle.dumps(found))
    assert again.agent is found.agent
    assert again.config.learning_rate == 0.5
    assert load_algorithm(str(folder) + "/").agent is found.agent
    named = load_algorithm(folder, {"name": "mine", "path": str(folder)})
    assert (named.name, pickle.loads(pickle.dumps(named)).name) == ("mine", "mine")


def test_algorithm_is_loaded_from_a_package(tmp_path, monkeypatch):
    make(tmp_path / "pack", __init__="Agent = ParameterServer = int")
    make(tmp_path / "pack" / "deep", __init__="class Agent: pass", parameter_server="")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_algorithm("pack").agent is int
    with pytest.raises(AlgorithmError, match=r"pack\.deep has no ParameterServer: .*server\.py"):
        load_algorithm("pack.deep")


def test_error_of_importing_an_algorithm_propagates(tmp_path):
    folder = make(tmp_path / "wrong", agent="class Angel: pass", parameter_server="")
    raised_with(AlgorithmError, r"has no Agent: .*agent\.py", load_algorithm, folder)
    folder = make(tmp_path / "broken", agent="1 / 0", parameter_server="")
    raised(ZeroDivisionError, load_algorithm, folder)


def test_missing_algorithm_is_named(tmp_path):
    raised(AlgorithmError, load_algorithm, "nothing_of_that_name")
    raised(AlgorithmError, load_algorithm, tmp_path / "nothing")
    assert "nothing" in str(raised(AlgorithmError, load_algorithm, "nothing.at.all"))


def test_dependency_that_an_algorithms_package_lacks_is_named(tmp_path, monkeypatch):
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "__init__.py").write_text("import absent_library")
    monkeypatch.syspath_prepend(tmp_path)
    assert raised(ImportError, load_algorithm, "lacking.algorithm").name == "absent_library"


@pytest.mark.parametrize("workers", ["threads", "asyncio"])
def test_agents_share_a_parameter_server_and_its_checkpoint(tmp_path, workers):
    (tmp_path / "app.yaml").write_text("learning:\n  scale: 10\n")
    for begins in (0.0, 2.0):
        with rlwire.serve(
            f"algorithm:{SUMMING}",
            "rlx://localhost:0",
            config=f"{tmp_path}/app.yaml:learning",
            workers=workers,
            checkpoints=str(tmp_path / "checkpoints"),
            metrics=Recorder(),
        ) as server:
            assert isinstance(server, AlgorithmServer)
            with rlwire.connect(server.url) as one, rlwire.connect(server.url) as other:
                one.init()
                other.init()
                assert one.update(None, np.array([1.0])) == [10 * (begins + 1)]
                assert other.update(0.5, np.array([1.0])) == [10 * (begins + 2)]
            assert server.parameter_server.n_step() == begins + 2
        with pytest.raises(RuntimeError, match="parameter server"):
            _ = server.parameter_server
        assert steps(tmp_path / "checkpoints")[0] == begins + 2


def test_checkpoints_of_another_algorithm_are_rejected(tmp_path):
    folder = tmp_path / "checkpoints"
    Checkpoints(folder).save(1, {}, algorithm="other", version=1)
    with pytest.raises(Exception, match="of algorithm other, version 1, not summing") as e:
        rlwire.serve(f"algorithm:{SUMMING}", "rlx://localhost:0", checkpoints=folder)
    assert isinstance(e.value.__cause__, CheckpointMismatch)


def test_invalid_algorithm_options_are_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"'ray:NAME', not 'a:b'"):
        rlwire.serve(f"algorithm:{SUMMING}", "rlx://localhost:0", parameter_server="a:b")
    (tmp_path / "app.yaml").write_text("environment:\n  name: x\n")
    with pytest.raises(ValueError, match="has no section 'algorithm'"):
        rlwire.serve(f"algorithm:{SUMMING}", "rlx://localhost:0", config=f"{tmp_path}/app.yaml")
