"""RELAAX's own program at either end: it is called by agents that learn here, and learns itself.

RELAAX 1.1.0 runs on Python 3.6 with TensorFlow 1.15 (``pip install tensorflow==1.15.5
'protobuf<3.20' 'ruamel.yaml<0.17' grpcio-tools pillow scipy psutil honcho==0.7.1 h5py click future
boto3``, and RELAAX itself), and no package registry has it: ``RELAAX_PYTHON=/path/to/its/python
pytest -m training tests/training/test_relaax.py`` runs these by hand.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import rlwire
from tests.agents import Recorder
from tests.programs import end, start

PYTHON = os.environ.get("RELAAX_PYTHON", "")

pytestmark = [
    pytest.mark.training,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PYTHON, reason="RELAAX_PYTHON names no Python that has RELAAX"),
]

# The sign that is shown is the action to take; an episode has twenty of them.
ENVIRONMENT = """
import random
from relaax.environment.config import options
from relaax.environment.training import TrainingBase


class Training(TrainingBase):
    def episode(self, number):
        total = 0
        shown = random.choice([-1.0, 1.0])
        action = self.agent.update(reward=None, state=[shown, 1.0])
        for step in range(1, 21):
            reward = 1.0 if action == (shown > 0) else 0.0
            total += reward
            shown = random.choice([-1.0, 1.0])
            action = self.agent.update(reward=reward, state=[shown, 1.0], terminal=step == 20)
        return total


if __name__ == "__main__":
    Training().run()
"""
APPLICATION = """
version: 1.1.0
environment:
  run: {python} environment/training.py
  max_episodes: {episodes}
relaax-rlx-server:
  bind: localhost:{rlx}
  log-level: INFO
relaax-parameter-server:
  bind: localhost:{parameters}
  checkpoint-dir: logs/checkpoints
  log-level: INFO
relaax-metrics-server:
  bind: localhost:{metrics}
  enable_unknown_metrics: true
  log_level: INFO
algorithm:
  name: policy_gradient
  input: {{shape: [2], use_convolutions: false}}
  output: {{continuous: false, action_size: 2}}
  hidden_sizes: [12]
  batch_size: 50
  initial_learning_rate: 1e-2
  rewards_gamma: 0.99
"""


class Signs(gymnasium.Env):
    """The same, for RELAAX's server."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def _seen(self):
        self.shown = self.np_random.choice([-1.0, 1.0])
        return np.array([self.shown, 1.0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._seen(), {}

    def step(self, action):
        reward = float(action == (self.shown > 0))
        self.count += 1
        return self._seen(), reward, self.count == 20, False, {}


def free_ports():
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        names = ("rlx", "parameters", "metrics")
        return {n: int(s.getsockname()[1]) for n, s in zip(names, found, strict=True)}


@pytest.fixture
def application(tmp_path):
    def make(**values):
        (tmp_path / "environment").mkdir()
        (tmp_path / "environment" / "training.py").write_text(ENVIRONMENT, "utf-8")
        text = APPLICATION.format(**{"python": PYTHON, "episodes": 10**6, **free_ports(), **values})
        (tmp_path / "app.yaml").write_text(text, "utf-8")
        return tmp_path

    return make


@contextlib.contextmanager
def started(folder, *command):
    path = os.pathsep.join([str(Path(PYTHON).parent), os.environ["PATH"]])
    environ = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    with open(folder / "log.txt", "ab") as log:
        process = start(command, cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        end(process)


def environment(folder, url):
    address = url.partition("://")[2]
    arguments = ["--config", "app.yaml", "--exploit", "False", "--show-ui", "False"]
    program = [PYTHON, "environment/training.py", *arguments, "--rlx-server-address", address]
    return started(folder, *program)


def test_relaax_environment_trains_pg(application):
    pytest.importorskip("torch")
    folder = application()
    config = {"input": {"shape": [2]}, "output": {"action_size": 2}, "batch_size": 50}
    url = "rlx://localhost:0"
    sink = Recorder()
    with (
        rlwire.serve("algorithm:pg", url, config=config, metrics=sink) as server,
        environment(folder, server.url) as running,
    ):
        rewards = [0.0]
        while np.mean(rewards[-100:]) < 18:
            rewards = [0.0, *(y for name, y, _ in sink.calls if name == "episode_reward")]
            assert server.parameter_server.n_step() < 200_000
            assert running.poll() is None, (folder / "log.txt").read_text("utf-8")
            time.sleep(0.1)


def test_relaax_environments_are_stepped_by_a_vector_environment(application):
    folder = application()
    spaces = {"observation_space": Signs.observation_space, "action_space": Signs.action_space}
    with (
        rlwire.listen_vec("rlx://localhost:0", 2, **spaces) as envs,
        environment(folder, envs.callers.url),
        environment(folder, envs.callers.url),
    ):
        observations, _ = envs.reset()
        totals, ended = np.zeros(2), 0
        while ended < 50:
            actions = (observations[:, 0] > 0).astype(np.int64)
            observations, rewards, terminated, truncated, _ = envs.step(actions)
            totals += rewards
            assert not truncated.any()
            for place in np.flatnonzero(terminated):
                assert totals[place] == 20
                totals[place] = 0
                ended += 1


def test_relaax_application_runs_under_rlwire(application):
    pytest.importorskip("torch")
    folder = application(episodes=300)
    with started(folder, sys.executable, "-m", "rlwire", "run", "all", "-n", "2") as process:
        assert process.wait(300) == 0, (folder / "log.txt").read_text("utf-8")
    assert re.search(r"\bpg .*policy_gradient", (folder / "log.txt").read_text("utf-8"))
    assert list((folder / "logs" / "checkpoints").iterdir())


def test_relaax_trainer_learns_from_an_rlwire_environment(application):
    ports = free_ports()
    folder = application(**ports)
    returns = []
    with started(folder, "relaax", "run", "servers"):
        for _ in range(100):
            with contextlib.suppress(OSError):
                socket.create_connection(("localhost", ports["rlx"])).close()
                break
            time.sleep(0.3)
        url = f"rlx://localhost:{ports['rlx']}"

        def play():
            while len(returns) < 2000 and np.mean([0.0, *returns[-20:]]) < 18:
                returns.extend(rlwire.play(Signs, url, episodes=100, seed=len(returns)))

        player = threading.Thread(target=play)
        player.start()
        player.join(300)
    # How many episodes it needs is chance's, as its first weights are.
    assert np.mean(returns[:20]) < 15, (folder / "log.txt").read_text("utf-8")[-3000:]
    assert np.mean(returns[-20:]) > 17, (returns, (folder / "log.txt").read_text("utf-8")[-3000:])
