"""What docs/protocols/rlx.md tells RELAAX's users to write, put together and run."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


AGENT = """
class Agent:
    def __init__(self, parameter_server, metrics): ...

    def init(self, exploit=False):
        self.steps = -1
        return True

    def update(self, reward, state, terminal):
        self.steps += 1
        return 0

    reset = init
"""


@pytest.fixture
def served(tmp_path):
    (tmp_path / "my_agents.py").write_text(AGENT, "utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "rlwire", "serve", "my_agents:Agent", "rlx://127.0.0.1:0"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for line in process.stderr:
            found = re.search(r"serving rlx://(\S+), ", line)
            if found:
                yield found[1]
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_an_environment_of_relaax_plays_against_the_pages_agent(served, tmp_path):
    program = (
        "from rlwire.rlx import TrainingBase, options\n"
        'steps = options.get("environment/steps", 1000)\n'
        "class Training(TrainingBase):\n"
        "    def episode(self, number):\n"
        "        for step in range(steps):\n"
        "            action = self.agent.update(reward=None, state=[0.1, 0.2, 0.3, 0.4])\n"
        "            print(number, step, action, options.show_ui)\n"
        "        return 1.0\n"
        "Training().run()\n"
    )
    (tmp_path / "training.py").write_text(program, "utf-8")
    pytest.importorskip("ruamel.yaml")
    (tmp_path / "app.yaml").write_text(
        "environment: {steps: 2, max_episodes: 2}\n"
        f"relaax-rlx-server: {{bind: '{served}'}}\n"
        "relaax-metrics-server: {enable_unknown_metrics: false, metrics: {episode_reward: true}}\n"
        "log_level: WARNING\n",
        "utf-8",
    )
    text = (ROOT / "docs/protocols/rlx.md").read_text("utf-8")
    [arguments] = re.findall(r"starts an environment as `training.py ([^`]+)`", text)
    done = subprocess.run(
        [sys.executable, "training.py", *arguments.split()],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["0 0 0 False", "0 1 0 False", "1 0 0 False", "1 1 0 False"]
