"""docs/howto/own_algorithm.md as written: the folder learns, and so does a copy of pg."""

import contextlib
import os
import signal
import threading

import pytest

import rlwire
from tests import howtos
from tests.programs import Serving, run
from tests.relaax.kept import steps

PAGE = howtos.PAGES["own_algorithm"]
SERVER, AGENT = howtos.code(PAGE)
_, COMMANDS, _, PG, COPY = howtos.code(PAGE, "sh")
(SETTINGS,) = howtos.code(PAGE, "yaml")


@contextlib.contextmanager
def serving(command, folder):
    """Run a command of the page at a free port, yield its URL, and stop it as Ctrl-C does."""
    words = command.removesuffix(" &").replace("localhost:7001", "localhost:0").split()
    assert words[:2] == ["rlwire", "serve"]
    with Serving(folder, "-m", *words) as server:
        yield server.url
        server.stop(signal.SIGINT if os.name == "posix" else signal.SIGTERM)


def test_algorithm_folder_learns(tmp_path):
    pytest.importorskip("gymnasium")
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "parameter_server.py").write_text(SERVER)
    (tmp_path / "search" / "agent.py").write_text(AGENT)
    serve, _, play, _ = COMMANDS.splitlines()
    assert "rlwire play gym:CartPole-v1 rlx://localhost:7001" in play
    totals = []
    with serving(serve, tmp_path) as url:

        def call(seed):
            # The order of the callers' episodes is by chance: of 1,500 runs one needed 920.
            while max(totals, default=0.0) < 150.0 and len(totals) < 5000:
                totals.extend(rlwire.play("gym:CartPole-v1", url, episodes=5, seed=seed))

        threads = [threading.Thread(target=call, args=[seed]) for seed in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert max(totals) >= 150.0
        # Without exploring, the best policy plays again and again; some episodes fall early.
        best = {"episodes": 5, "exploit": True, "seed": 1}
        played, again = (rlwire.play("gym:CartPole-v1", url, **best) for _ in range(2))
        assert played == again
        assert sum(played) / 5 > 20.0
    assert steps(tmp_path / "kept") == [len(totals)]


@pytest.mark.training
def test_copied_pg_algorithm_plays_and_saves_a_checkpoint(tmp_path):
    for package in ("gymnasium", "torch", "ruamel.yaml", "tensorboardX"):
        pytest.importorskip(package)
    (tmp_path / "app.yaml").write_text(SETTINGS)
    copy, serve = COPY.splitlines()
    environment = howtos.shell(tmp_path / "shell")
    run(["sh", "-ec", copy], cwd=tmp_path, env=environment, check=True)
    with serving(serve + PG.splitlines()[0].partition(" --config app.yaml")[2], tmp_path) as url:
        assert len(rlwire.play("gym:CartPole-v1", url, episodes=30, seed=1)) == 30
    assert len(steps(tmp_path / "checkpoints")) == 1
    assert any((tmp_path / "logs").iterdir())
