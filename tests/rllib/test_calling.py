"""RLlib's runner for environments that call, alone: what it makes of callers, without a cluster."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlwire
from rlwire.rlx import AgentProxy, AgentProxyException

ray: Any = pytest.importorskip("ray", reason="Ray comes with the extra 'rllib'")
gymnasium: Any = pytest.importorskip("gymnasium")

from ray.rllib.algorithms.dqn import DQNConfig  # noqa: E402
from ray.rllib.algorithms.impala import IMPALAConfig  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402
from ray.rllib.algorithms.sac import SACConfig  # noqa: E402
from ray.rllib.core.columns import Columns  # noqa: E402
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner  # noqa: E402

from rlwire.rllib.calling import CallersEnvRunner  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

SEEN = gymnasium.spaces.Box(-10.0, 10.0, (3,), np.float32)
CHOICES = gymnasium.spaces.Discrete(5)
TORQUE = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)


@pytest.fixture
def runner() -> Iterator[Callable[..., Any]]:
    made = []

    def make(
        config: Any = None,
        url: str = "rlx://localhost:0",
        action_space: Any = CHOICES,
        **server: Any,
    ) -> Any:
        config = (config or PPOConfig()).environment(
            observation_space=SEEN, action_space=action_space,
            env_config={"url": url, "server": server},
        ).env_runners(env_runner_cls=CallersEnvRunner, num_env_runners=0)  # fmt: skip
        made.append(CallersEnvRunner(config=config))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def state(number: int) -> Any:
    return np.full(3, number / 100, np.float32)


class Client:
    """Plays episodes of so many steps in a thread of its own; each reward is the step's number."""

    def __init__(self, url: str, lengths: list[int], exploit: bool = False) -> None:
        self.actions: list[Any] = []
        self.failed: Exception | None = None
        self.thread = threading.Thread(target=self._play, args=(url, lengths, exploit), daemon=True)
        self.thread.start()

    def _play(self, url: str, lengths: list[int], exploit: bool) -> None:
        try:
            with connected(url, exploit) as agent:
                for length in lengths:
                    self.actions.append(agent.update(None, state(0), False))
                    for step in range(1, length + 1):
                        over = step == length
                        self.actions.append(agent.update(float(step), state(step), over))
        except AgentProxyException as error:
            self.failed = error


@contextlib.contextmanager
def connected(url: str, exploit: bool = False) -> Iterator[AgentProxy]:
    agent = AgentProxy(url.removeprefix("rlx://"))
    agent.connect()
    try:
        agent.init(exploit)
        yield agent
    finally:
        agent.disconnect()


def sampled(runner: Any, done: Callable[[list[Any]], bool], **options: Any) -> list[Any]:
    """Samples until it is done; a minute at the longest."""
    samples: list[Any] = []
    until = time.monotonic() + 60
    while not done(samples) and time.monotonic() < until:
        samples += runner.sample(**options)
    assert done(samples)
    return samples


def ended(count: int) -> Callable[[list[Any]], bool]:
    return lambda samples: sum(episode.is_done for episode in samples) >= count


def test_episodes_are_what_callers_said_and_did(runner: Any) -> None:
    one = runner()
    clients = [Client(one.url, [7, 5]), Client(one.url, [6])]
    samples = sampled(one, ended(3), num_timesteps=4)
    by_id: dict[str, list[Any]] = {}
    for episode in samples:
        episode.validate()
        by_id.setdefault(episode.id_, []).append(episode)
    lengths = sorted(sum(map(len, parts)) for parts in by_id.values())
    assert lengths == [5, 6, 7]
    for parts in by_id.values():
        rewards = np.concatenate([part.get_rewards() for part in parts])
        np.testing.assert_array_equal(rewards, np.arange(1, len(rewards) + 1))
        seen = [part.get_observations()[1:] for part in parts]
        np.testing.assert_array_equal(
            np.concatenate(seen), [state(step) for step in range(1, len(rewards) + 1)]
        )
        assert parts[-1].is_terminated
        assert not parts[-1].is_truncated
    for client in clients:
        client.thread.join(10)
        assert set(client.actions) <= set(range(5))
    longest = max(by_id.values(), key=lambda parts: sum(map(len, parts)))
    did = np.concatenate([part.get_actions() for part in longest])
    np.testing.assert_array_equal(did, clients[0].actions[:7])
    metrics = one.get_metrics()
    assert metrics["num_episodes"].peek() == 3
    assert metrics["num_env_steps_sampled"].peek() == 18
    assert metrics["episode_len_max"].peek() == 7


@pytest.mark.parametrize("config", [PPOConfig, DQNConfig])
def test_columns_are_those_of_rllib_s_own_runner(runner: Any, config: Any) -> None:
    register()
    own = SingleAgentEnvRunner(config=config().environment("rlwire/Counts-v0"))
    [theirs, *_] = own.sample(num_timesteps=5)
    one = runner(config())
    Client(one.url, [5])
    [ours] = sampled(one, ended(1), num_timesteps=5)
    assert set(ours.extra_model_outputs) == set(theirs.extra_model_outputs)
    for name in theirs.extra_model_outputs:
        mine, other = (episode.get_extra_model_outputs(name) for episode in (ours, theirs))
        assert (mine.shape[1:], mine.dtype) == (other.shape[1:], other.dtype)
    assert ours.get_actions().dtype == theirs.get_actions().dtype


def register() -> None:
    gymnasium.registry.pop("rlwire/Counts-v0", None)
    gymnasium.register("rlwire/Counts-v0", Counts)


class Counts(gymnasium.Env):
    observation_space, action_space = SEEN, CHOICES

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.count = 0
        return state(0), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return state(self.count), 1.0, self.count == 5, False, {}


def test_who_leaves_has_truncated_its_episode(runner: Any) -> None:
    one = runner()
    other = Client(one.url, [3] * 200)

    def leave() -> None:
        with connected(one.url) as agent:
            agent.update(None, state(50), False)
            agent.update(1.0, state(51), False)
            agent.update(1.0, state(52), False)

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    samples = sampled(
        one, lambda found: any(episode.is_truncated for episode in found), num_timesteps=100
    )
    thread.join(10)
    [cut] = [episode for episode in samples if episode.is_truncated]
    np.testing.assert_array_equal(cut.get_observations(-1), state(52))
    assert not cut.is_terminated
    assert one.statistics().lost == 1
    before = one.statistics().steps
    sampled(one, lambda found: one.statistics().steps > before + 20, num_timesteps=5)
    assert other.failed is None


def test_who_exploits_gets_the_likeliest_and_sends_no_samples(runner: Any) -> None:
    one = runner()
    clients = [Client(one.url, [20], exploit=True) for _ in range(4)]
    for client in clients:  # nobody samples meanwhile
        client.thread.join(60)
        assert len(client.actions) == 21
    torch = pytest.importorskip("torch")
    batch = {Columns.OBS: torch.as_tensor(np.stack([state(step) for step in range(21)]))}
    logits = one.module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS]
    for client in clients:
        assert client.actions == logits.argmax(1).tolist()
    assert one.sample(num_timesteps=1) == []
    assert "episode_return_mean" not in one.get_metrics()


def test_new_weights_are_acted_with(runner: Any) -> None:
    one = runner()
    first = Client(one.url, [30], exploit=True)
    first.thread.join(60)
    weights = {name: -part for name, part in one.module.get_state().items()}
    one.set_state({"rl_module": weights, "weights_seq_no": 7})
    second = Client(one.url, [30], exploit=True)
    second.thread.join(60)
    assert first.actions != second.actions
    assert one.get_state()["weights_seq_no"] == 7


def test_continuous_actions_are_in_the_space(runner: Any) -> None:
    one = runner(SACConfig(), action_space=TORQUE)
    client = Client(one.url, [40])
    [episode] = sampled(one, ended(1), num_timesteps=40)
    told = np.asarray(client.actions[:40], np.float32)  # it waits for the last one
    assert np.abs(told).max() <= 2.0
    assert np.abs(told).max() > 1.0  # what is learnt from is between -1 and 1
    np.testing.assert_allclose(episode.get_actions() * 2.0, told, rtol=1e-5)


def test_openpi_s_callers_play_too(runner: Any) -> None:
    one = runner(url="openpi://localhost:0")
    register()
    totals: list[float] = []
    thread = threading.Thread(
        target=lambda: totals.extend(rlwire.play("gym:rlwire/Counts-v0", one.url, episodes=3)),
        daemon=True,
    )
    thread.start()
    samples = sampled(one, ended(3), num_timesteps=4)
    thread.join(10)
    assert totals == [5.0, 5.0, 5.0]
    assert sum(map(len, samples)) == 15


def test_what_is_none_of_the_space_is_told_its_caller_alone(runner: Any) -> None:
    one = runner()
    good = Client(one.url, [5] * 100)
    with connected(one.url) as bad, pytest.raises(AgentProxyException, match="observation"):
        bad.update(None, np.zeros(4, np.float32), False)
    sampled(one, ended(5), num_timesteps=5)
    assert good.failed is None


@pytest.mark.usefixtures("cluster")
def test_algorithms_that_take_no_empty_samples_wait_for_callers(runner: Any) -> None:
    one = runner(IMPALAConfig())
    assert one.sample(num_timesteps=1) == []  # nobody calls yet
    timer = threading.Timer(1.0, Client, [one.url, [10**6]])
    timer.start()
    samples, _, metrics = one.sample_get_state_and_metrics()
    timer.join()
    steps = sum(map(len, ray.get(samples)))
    assert steps > 0
    assert metrics["num_env_steps_sampled"].peek() == steps


def test_a_runner_that_is_stopped_lets_callers_go(runner: Any) -> None:
    one = runner()
    client = Client(one.url, [10**6])
    sampled(one, lambda found: sum(map(len, found)) > 10, num_timesteps=5)
    one.end()
    assert one.sample() == []
    one.stop()
    client.thread.join(20)
    assert client.failed is not None
