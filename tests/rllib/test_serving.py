"""RLlib's algorithms behind RLX: they train with environments that call, whatever happens."""

import contextlib
import logging
import os
import signal
import subprocess
import sys

import pytest

import rlwire
from tests.agents import Recorder
from tests.programs import free_port, running
from tests.waiting import eventually

ray = pytest.importorskip("ray", reason="Ray comes with the extra 'rllib'")
gymnasium = pytest.importorskip("gymnasium")

from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402

from rlwire.rllib.serving import RLlibServer, algorithm_config, saved  # noqa: E402

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("cluster"),
]


# What RELAAX's environments are: an AgentProxy, episodes, and another server when one is gone.
CLIENT = """
import sys
import gymnasium, numpy as np
from rlwire.rlx.client import TrainingBase

class Training(TrainingBase):
    def episode(self, number):
        state, _ = env.reset()
        action, over = self.agent.update(None, state), False
        while not over:
            state, reward, done, cut, _ = env.step(np.asarray(action))
            over = done or cut
            action = self.agent.update(float(reward), state, over)

env = gymnasium.make(sys.argv[2])
training = Training(sys.argv[1].removeprefix("rlx://"), infinite_run=True)
training.retries = 100
training.run()
"""


LONGEST = 400.0  # seconds that Ray may need to start


@contextlib.contextmanager
def environments(urls, name="CartPole-v1"):
    with contextlib.ExitStack() as stack:
        commands = [[sys.executable, "-c", CLIENT, url, name] for url in urls]
        quiet = {"stderr": subprocess.DEVNULL}
        yield [stack.enter_context(running(command, **quiet)) for command in commands]


def test_ppo_trains_and_resumes_from_its_checkpoint(tmp_path, caplog):
    sink = Recorder()
    logging.getLogger("ray").addHandler(caplog.handler)
    where = "rlx://localhost:0"
    server = RLlibServer(
        "PPO", where, like="CartPole-v1", iterations=60, checkpoints=tmp_path, metrics=sink,
        config={"train_batch_size_per_learner": 1000, "num_epochs": 6, "lr": 0.001,
                "vf_loss_coeff": 0.01, "num_envs_per_env_runner": 2},
    )  # fmt: skip
    with server, environments(server.urls * 2):
        eventually(
            lambda: (server.statistics()["episode_return_mean"] or 0.0) >= 60, LONGEST
        )  # chance: 22
        assert server.statistics()["iterations"] < 60
    assert max(y for name, y, _ in sink.calls if name == "episode_return_mean") >= 60
    [checkpoint] = saved(tmp_path)
    done = server.statistics()["iterations"]
    again = RLlibServer(
        "PPO", where, like="CartPole-v1", runners=0, checkpoints=tmp_path,
        config={"train_batch_size_per_learner": 200, "num_epochs": 1},
    )  # fmt: skip
    with again, environments(again.urls):
        eventually(lambda: again.statistics()["iterations"] > 0, LONGEST)
        assert again.statistics()["iterations"] > done
    assert saved(tmp_path)[0] == checkpoint
    logging.getLogger("ray").removeHandler(caplog.handler)
    assert "died" not in caplog.text  # the runners, which were ended


def test_clients_reconnect_when_a_runner_is_killed():
    port = free_port()  # where the new one listens, too
    server = RLlibServer(
        "PPO", f"rlx://localhost:{port}", like="CartPole-v1",
        config={"train_batch_size_per_learner": 200, "num_epochs": 1, "num_envs_per_env_runner": 2},
    )  # fmt: skip
    with server, environments(server.urls * 2) as processes:
        eventually(lambda: server.statistics()["iterations"] >= 1, LONGEST)
        group = server._running.algorithm.env_runner_group
        [pid] = group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)
        os.kill(pid, signal.SIGKILL)
        before = server.statistics()["steps"]
        eventually(lambda: server.statistics()["steps"] > before + 400, LONGEST)
        assert all(process.poll() is None for process in processes)


SMALL = {
    "DQN": {"num_steps_sampled_before_learning_starts": 200, "train_batch_size_per_learner": 32},
    "IMPALA": {"train_batch_size_per_learner": 200},
    "APPO": {"train_batch_size_per_learner": 200},
    "SAC": {"num_steps_sampled_before_learning_starts": 100, "train_batch_size_per_learner": 32},
}


LONG = ("IMPALA", "APPO")  # several processes of their own; test_calling.py has what they call


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in SMALL],
)
def test_server_samples_with_each_algorithm(algorithm):
    environment = "Pendulum-v1" if algorithm == "SAC" else "CartPole-v1"
    several = 1 if algorithm in LONG else 0
    server = RLlibServer(
        algorithm, "rlx://localhost:0", like=environment, runners=several, config=SMALL[algorithm]
    )
    with server, environments(server.urls * 2, environment):
        eventually(lambda: server.statistics()["steps"] > 300, LONGEST)
        assert server.wait(0) is False  # it has not failed


@pytest.mark.parametrize(
    ("name", "options", "error", "why"),
    [
        ("PPPO", {"like": "CartPole-v1"}, ValueError, "no algorithm 'PPPO'; expected one such as"),
        ("PPO", {}, ValueError, "observation_space="),
        ("PPO", {"like": "CartPole-v1", "wrokers": 2}, TypeError, "has no option 'wrokers'"),
        ("PPO", {"like": "CartPole-v1", "config": {"lrr": 1}}, ValueError, "no setting 'lrr'"),
        ("PPO", {"like": "CartPole-v1", "runners": -1}, ValueError, "runners.*-1"),
        ("PPO", {"like": "x", "action_space": "y:z"}, TypeError, "not both"),
        ("json:dumps", {"like": "CartPole-v1"}, TypeError, ""),
    ],
)
def test_invalid_algorithms_and_options_are_rejected(name, options, error, why):
    with pytest.raises(error, match=why):
        rlwire.serve(f"rllib:{name}", "rlx://localhost:0", **options)


def test_server_uses_a_custom_config_class():
    assert type(algorithm_config("ray.rllib.algorithms.ppo:PPOConfig")) is PPOConfig
    server = RLlibServer(
        "ray.rllib.algorithms.ppo:PPOConfig", "rlx://localhost",
        observation_space='{"box": "float32", "shape": [4]}', action_space='{"discrete": 2}',
    )  # fmt: skip
    assert server.config.action_space == gymnasium.spaces.Discrete(2)
    assert server.config.observation_space.shape == (4,)


def test_slot_of_a_lost_openpi_caller_is_reused():
    server = RLlibServer(
        "PPO", "openpi://localhost:0", like="CartPole-v1", runners=0,
        config={"train_batch_size_per_learner": 128, "num_epochs": 1},
    )  # fmt: skip
    with server:
        for _ in range(2):
            before = server.statistics()["steps"]
            with rlwire.connect(server.url) as policy:
                policy.infer({"observation": [0.0] * 4})
                policy.infer({"observation": [0.0] * 4, "reward": 1.0})
            totals = rlwire.play("gym:CartPole-v1", server.url, episodes=20)
            eventually(lambda before=before: server.statistics()["steps"] > before, LONGEST)
            assert len(totals) == 20
