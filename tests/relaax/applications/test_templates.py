"""Each environment of `rlwire new`, run as it is made, but for ports and fewer episodes."""

import re
from pathlib import Path

import pytest

from rlwire import cli
from rlwire.relaax.applications import new
from tests import howtos, programs
from tests.programs import free_port
from tests.reference.events import read_events
from tests.relaax.applications.test_running import running
from tests.relaax.kept import steps

pytestmark = pytest.mark.consumers

pytest.importorskip("ruamel.yaml")
pytest.importorskip("honcho")
pytest.importorskip("tensorboardX")

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "applications.md"


@pytest.fixture
def make(tmp_path):
    def make(environment, *changes, algorithm=None):
        folder = new(tmp_path / "demo", environment, algorithm)
        change(folder, ("localhost:7001", f"127.0.0.1:{free_port()}"))
        change(folder, *changes)
        return folder

    return make


def change(folder, *changes):
    config = folder / "app.yaml"
    text = config.read_text()
    for before, after in changes:
        text = text.replace(before, after)
    config.write_text(text)


def run(folder, *arguments):
    with running(folder, *arguments) as process:
        written, _ = process.communicate(timeout=100)
    assert process.returncode == 0, written
    return written


def rewards(folder):
    return [value for _, value in read_events(folder / "logs" / "metrics")["episode_reward"]]


def play_at_random(folder, actions):
    config = folder / "app.yaml"
    text = config.read_text()
    text = text[: text.index("algorithm:")]
    config.write_text(f"{text}algorithm: {{name: bandit, output: {{action_size: {actions}}}}}\n")


def test_gym_application_runs_and_reports_rewards(make):
    pytest.importorskip("gymnasium")
    folder = make("gym", ("max_episodes: 1000", "max_episodes: 3"))
    play_at_random(folder, 2)
    written = run(folder, "all", "-n", "2")
    assert len(re.findall(r"environment-\d \| episode [0-2]: \d+", written)) == 6
    assert len(rewards(folder)) == 6


def test_gym_application_runs_a_generated_copy_of_pg(make):
    pytest.importorskip("gymnasium")
    pytest.importorskip("torch")
    folder = make("gym", ("max_episodes: 1000", "max_episodes: 30"))
    # A copy of it, which is to be changed.
    assert cli.main(["generate", "-a", "pg", "-c", str(folder / "app.yaml")]) == 0
    assert "episode 29:" in run(folder)
    assert steps(folder / "logs" / "checkpoints")[0] >= 128


def test_ale_application_runs_and_reports_rewards(make):
    pytest.importorskip("gymnasium")
    pytest.importorskip("ale_py")
    short = ("obs_type: ram", "obs_type: ram\n    max_episode_steps: 30")
    folder = make("ale", ("max_episodes: 1000", "max_episodes: 2"), short)
    play_at_random(folder, 6)
    assert "episode 1:" in run(folder)
    assert len(rewards(folder)) == 2


def test_howto_commands_create_and_run_an_application(tmp_path):
    """Its first commands, but for what is installed and the port."""
    (commands,) = re.findall(r"```sh\n(.*?)```", HOWTO.read_text("utf-8"), re.S)
    install, make, enter, start = commands.splitlines()
    assert install.startswith("pip install '.[relaax,metrics]'")
    port = f"sed -i s/localhost:7001/127.0.0.1:{free_port()}/ app.yaml"
    words = ["sh", "-c", " && ".join([make, enter, port, start])]
    done = programs.run(words, cwd=tmp_path, env=howtos.shell(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "episode 29:" in done.stdout
    assert rewards(tmp_path / "demo")[-1] > 0.3
