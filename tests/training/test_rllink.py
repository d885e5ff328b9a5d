"""RLlib's own ends and ours, both ways: PPO by Ray over RLlink.

Ray is large and slow to begin, so this is no part of plain `pytest`: `pytest -m ray`, with the
extra `rllib`.
"""

import contextlib
import os
import random
import signal
import socket
import sys
import threading

import numpy as np
import pytest

import rlwire
from rlwire.transports.sockets import Backoff

ray = pytest.importorskip("ray", reason="Ray comes with the extra 'rllib'")
gymnasium = pytest.importorskip("gymnasium")

from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402
from ray.rllib.env.external.env_runner_server_for_external_inference import (  # noqa: E402
    EnvRunnerServerForExternalInference,
)

from rlwire.rllib import rllink  # noqa: E402
from rlwire.rllib.directory import runners  # noqa: E402
from rlwire.rllib.rllink import ModulePolicy, RLlinkEnvRunner  # noqa: E402
from tests.programs import running  # noqa: E402
from tests.raising import raised  # noqa: E402
from tests.waiting import eventually  # noqa: E402

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("cluster"),
    pytest.mark.timeout(900),
    # Ray's own, and its workers' sockets.
    pytest.mark.filterwarnings("ignore"),
]

# Ray may take minutes to begin again.
BACKOFF = Backoff(attempts=1000, first=0.1, longest=0.5, deadline=600)


def config(runner, port, count=0, steps=1000):
    return (
        PPOConfig()
        .environment(
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32),
            action_space=gymnasium.spaces.Discrete(2),
            env_config={"port": port, "steps": 250},
        )
        .env_runners(env_runner_cls=runner, num_env_runners=count)
        .training(train_batch_size_per_learner=steps, num_epochs=10, lr=0.001, vf_loss_coeff=0.01)
        .rl_module(model_config=DefaultModelConfig(vf_share_layers=True, fcnet_hiddens=[64, 64]))
        .fault_tolerance(restart_failed_env_runners=True)
    )


def free_port():
    """A port that is free, and so are the next two, which an algorithm's runners take.

    Not of those that the system gives to whoever wants any.
    """
    for _ in range(100):
        port = random.randrange(20_000, 30_000, 3)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for each in (port, port + 1, port + 2):
                stack.enter_context(socket.create_server(("127.0.0.1", each)))
            return port
    raise AssertionError("no three ports are free")


def by_chance(observation, weights):
    """A policy that takes no time, for where nothing is learnt."""
    inputs = np.zeros(2, np.float32)
    return random.randrange(2), {"action_dist_inputs": inputs, "action_logp": np.float32(-0.6931)}


def simulate(port, seed, steps, policy):
    """Play CartPole until the trainer is gone for good, by default with its weights."""
    policy = policy or ModulePolicy(config(RLlinkEnvRunner, port), seed=seed)
    with contextlib.suppress(Exception):
        rlwire.play(
            "gym:CartPole-v1", f"rllink://localhost:{port}", episodes=10**6, policy=policy,
            steps=steps, backoff=BACKOFF, seed=seed,
        )  # fmt: skip


def start_simulators(port, count, steps=None, policy=None):
    for number in range(count):
        threading.Thread(target=simulate, args=(port, number, steps, policy), daemon=True).start()


DUMMY = """
import sys
from ray.rllib.examples.envs.classes.utils.dummy_external_client import _dummy_external_client

_dummy_external_client(int(sys.argv[1]))
"""


def learns(algorithm):
    """Train to a mean return of 150; return the steps after each iteration."""
    steps = []
    for _ in range(60):
        results = algorithm.train()["env_runners"]
        steps.append(int(results["num_env_steps_sampled_lifetime"]))
        if results.get("episode_return_mean", 0.0) >= 150:
            return steps
    raise AssertionError(f"mean return of {results['episode_return_mean']} after {steps[-1]} steps")


@contextlib.contextmanager
def algorithm_of(config):
    algorithm = config.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()


@contextlib.contextmanager
def rays_client(port):
    """Run Ray's client in a process of its own, because it ends its process."""
    with running([sys.executable, "-c", DUMMY, str(port)]):
        yield


def sampled(algorithm):
    """Train once; return the steps that were sampled since the start."""
    return algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"]


def test_rlwire_client_trains_with_rays_runner():
    port = free_port()
    with algorithm_of(config(EnvRunnerServerForExternalInference, port)) as algorithm:
        # Ray's client asks RLlib's config how many steps a message has; its pickle is not opened.
        start_simulators(port, 1, 1000)
        steps = learns(algorithm)
        assert steps == [1000 * number for number in range(1, len(steps) + 1)]


def test_rays_client_trains_with_rlwire_runner():
    port = free_port()
    with algorithm_of(config(RLlinkEnvRunner, port)) as algorithm, rays_client(port):
        learns(algorithm)


def test_rays_example_client_connects_to_rlwire_runner():
    """As in `env_connecting_to_rllib_w_tcp_client.py`: one runner, and a client at port + 1."""
    port = free_port()
    with algorithm_of(config(RLlinkEnvRunner, port, 1)) as algorithm, rays_client(port + 1):
        assert sampled(algorithm) >= 1000
        assert runners()[1] == f"rllink://localhost:{port + 1}"


def test_runner_without_samples_logs_its_address(caplog):
    port = free_port()
    given = config(RLlinkEnvRunner, port, 2).env_runners(sample_timeout_s=0.5)
    runner = RLlinkEnvRunner(config=given, worker_index=2)
    try:
        assert runner.sample() == []
        output = [each.getMessage() for each in caplog.records if each.name == rllink.__name__]
        assert f"rllink://localhost:{port + 2}" in output[0]
        caplog.clear()
        start_simulators(port + 2, 1, policy=by_chance)
        while not runner.sample():
            pass
    finally:
        runner.stop()
    assert runner.sample() == []  # at once


def test_two_simulators_train_with_rlwire_runner():
    port = free_port()
    two = config(RLlinkEnvRunner, port, steps=2000)
    with algorithm_of(two.environment(env_config={**two.env_config, "name": "two"})) as algorithm:
        start_simulators(port, 2)
        for number in (1, 2, 3):
            assert sampled(algorithm) >= 2000 * number  # whole messages, so a little more
        url = f"rllink://localhost:{port}"
        assert runners("two") == {0: url}
        assert url not in runners().values()  # nor in another algorithm's slot
    assert runners("two") == {}


def test_killed_runner_is_restarted():
    port = free_port()
    with algorithm_of(config(RLlinkEnvRunner, port, 2).training(num_epochs=1)) as algorithm:
        assert {1, 2} <= set(runners())
        for number in (1, 2):
            start_simulators(port + number, 4, policy=by_chance)
        for _ in range(2):
            before = sampled(algorithm)

        def steps():
            """Return what came to each runner, by its process."""
            return dict(
                algorithm.env_runner_group.foreach_env_runner(
                    lambda runner: (os.getpid(), runner.server.statistics()["steps"]),
                    local_env_runner=False,
                )
            )

        def both_sample():
            nonlocal after
            after, now = sampled(algorithm), steps()
            return killed not in now and len(now) == 2 and all(now.values())

        killed, after = min(steps()), 0
        os.kill(killed, signal.SIGKILL)
        eventually(both_sample, 600)  # Ray takes its time to start another
        assert after > before


def exchanged(send, message):
    near, far = socket.socketpair()
    with near, far:
        thread = threading.Thread(target=send, args=(near, message))
        thread.start()
        data = b""
        while len(data) < 8 or len(data) < 8 + int(data[:8]):
            data += far.recv(1_000_000)
        thread.join()
        return data


def test_install_replaces_rays_message_functions():
    from ray.rllib.env.external import rllink
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.examples.envs.classes.utils import dummy_external_client

    episode = SingleAgentEpisode(observations=[np.zeros(4, np.float32)])
    for number in range(20):
        episode.add_env_step(
            action=1, reward=0.5, observation=np.full(4, number, np.float32),
            extra_model_outputs={"action_logp": -0.5, "x": np.float32(3)},
        )  # fmt: skip
    message = {"type": "EPISODES", "episodes": [episode.get_state()], "timesteps": 20}
    theirs, own_get = rllink.send_rllink_message, rllink.get_rllink_message
    expected = exchanged(theirs, message)
    rlwire.install("rllib")
    try:
        ours = rllink.send_rllink_message
        assert dummy_external_client.send_rllink_message is ours is not theirs
        assert exchanged(ours, message) == expected
        near, far = socket.socketpair()
        with near, far:
            near.sendall(expected)
            kind, body = rllink.get_rllink_message(far)
            assert kind is rllink.RLlink.EPISODES
            got = SingleAgentEpisode.from_state(body["episodes"][0])
            np.testing.assert_array_equal(got.get_observations(), episode.get_observations())
            for wrong in (b"0000000x", b"00000002\xc1\xc1", b"00000010\x81\xa4type\xa3abc!"):
                near.sendall(wrong)
                raised(ConnectionError, rllink.get_rllink_message, far)
            near.close()
            raised(ConnectionError, rllink.get_rllink_message, far)
    finally:
        rlwire.uninstall("rllib")
    assert rllink.send_rllink_message is theirs
    assert rllink.get_rllink_message is own_get
    assert dummy_external_client.send_rllink_message is theirs
