"""Each how-to's programs, in an environment that has what the page's install line installs."""

import os
import re
import shutil
import subprocess
import sys

import pytest

import rlwire
from tests import (
    howtos,
    test_howto_c_simulator,
    test_howto_gateway,
    test_howto_own_algorithm,
    test_howto_watch_and_play,
)
from tests.relaax.applications import test_templates
from tests.test_howto_train import PYTHON_CALLERS, check_that_it_learns
from tests.training import test_train


def bench(folder):
    words = "bench --env gym:Acrobot-v1 --protocol rlx --seconds 0.05"
    subprocess.run(["rlwire", *words.split()], cwd=folder, check=True)


def build(folder):
    """Run the page's program, and then its commands in a checkout in which nothing is built."""
    test_howto_c_simulator.test_c_simulator_trains_its_trainer(folder)
    not_built = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    for name in ("rlwire", "tests/consumers"):
        shutil.copytree(howtos.ROOT / name, folder / name, ignore=not_built)
    (lists,) = howtos.code(howtos.PAGES["c_simulator"], "cmake")
    (folder / "CMakeLists.txt").write_text(lists, "utf-8")
    commands = howtos.code(howtos.PAGES["c_simulator"], "sh")
    if shutil.which("cmake") is None:
        commands = [each for each in commands if not each.startswith("cmake ")]
    words = ["sh", "-ec", "".join(commands).replace("pip install", "true")]
    output = subprocess.check_output(words, cwd=folder, text=True)
    assert "city:7:1590853116323:5;obs=1,-2;reward=1.26;done=false" in output  # perlert
    assert shutil.which("cmake") is None or (folder / "made" / "corridor").exists()


def inspect(folder):
    """Run the commands of inspect.md on the recording that its program makes."""
    page = howtos.PAGES["inspect"]
    howtos.run(page, folder)
    commands = [each for each in howtos.code(page, "sh") if not each.startswith("pip")]
    environment = {**os.environ, "COLUMNS": "160"}
    words = ["sh", "-ec", "".join(commands)]
    text = subprocess.check_output(words, cwd=folder, env=environment, text=True)
    _head, asked, answer, *rest = text.splitlines()
    assert asked.split()[3:6:2] == ["StepRequest", "#10412"]
    assert answer.split()[3:6:2] == ["StepResponse", "#10412"]
    assert ['"step": 10412' in line for line in rest[:2]] == [True, True]
    assert "TERMINATED" in rest[3]
    assert [line.split()[2] for line in rest[4:] if line.endswith("terminated")] == ["471"]
    assert (folder / "run-foxglove.mcap").stat().st_size > 10_000
    assert (folder / "run-foxglove.json").exists()
    assert rest[-1].startswith("1 passed")  # the test against a recording


def drop_ins(folder):
    howtos.run(howtos.PAGES["drop_ins"], folder)
    (line,) = re.findall(r"&& pip install (.*openpi-client)$", howtos.PAGES["drop_ins"], re.M)
    pip = [os.environ["OUTER_PYTHON"], "-m", "pip", "--python", sys.executable, "install", "-q"]
    subprocess.run([*pip, *line.split()], check=True)
    use = "import rlwire, openpi_client.websocket_client_policy; rlwire.install('openpi_client')"
    subprocess.run([sys.executable, "-c", use], cwd=folder, check=True)


def rllib(folder):
    from tests import test_howto_rllib
    from tests.training import test_howto_ray_cluster

    test_howto_rllib.test_rllib_program_trains_with_an_rlx_caller(folder, "", True)
    test_howto_ray_cluster.test_environments_find_runners_by_name("local", folder)


def train(folder):
    test_train.test_howto_trainer_learns_cartpole_over_each_protocol(
        0, test_train.TRAINER_CALLS[0], folder
    )
    check_that_it_learns(PYTHON_CALLERS, folder, {**os.environ})


def watch(folder):
    howtos.run(howtos.PAGES["watch_and_play"], folder)
    test_howto_watch_and_play.test_viewers_receive_pixels_from_each_command(
        test_howto_watch_and_play.LINES[0], folder
    )


# What to run of a page, if it is more than programs that end. The lane `ray` has those for RLlib.
OWN = {
    "applications": test_templates.test_howto_commands_create_and_run_an_application,
    "c_simulator": build,
    "gateway": lambda to: [test(to) for test in test_howto_gateway.PAIRS],
    "inspect": inspect,
    "drop_ins": drop_ins,
    "measure": bench,
    "rllib": rllib,
    "own_algorithm": test_howto_own_algorithm.test_algorithm_folder_learns,
    "train": train,
    "watch_and_play": watch,
}
ENDING = "agents_together many_environments policy_server secure serve universe"
MARKS = {"train": pytest.mark.training, "rllib": pytest.mark.ray}
made = {}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=MARKS.get(page, pytest.mark.consumers))
        for page in (*OWN, *ENDING.split())
    ],
)
def test_howto_runs_with_only_the_packages_it_installs(page, tmp_path_factory, monkeypatch):
    packages = tuple(howtos.requirements(page))
    if packages not in made:
        folder = tmp_path_factory.mktemp("fresh")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        subprocess.run([*pip, "install", "-q", "--no-compile", *packages], check=True)
        made[packages] = folder / "bin" / "python"
    monkeypatch.setenv("OUTER_PYTHON", sys.executable)
    monkeypatch.setattr(sys, "executable", str(made[packages]))
    for name, value in howtos.shell(tmp_path_factory.mktemp("shell")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(rlwire, "__path__", [os.environ["PYTHONPATH"] + "/rlwire"])
    run = OWN.get(page, lambda folder: howtos.run(howtos.PAGES[page], folder))
    run(tmp_path_factory.mktemp(page))
