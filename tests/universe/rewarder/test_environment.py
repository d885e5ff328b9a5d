"""Environments of Gymnasium behind a rewarder, among them one served by a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs

from rlwire.environments.spaces import space_of
from rlwire.errors import EncodeError, PeerError
from rlwire.registry import parse_url
from rlwire.sessions.rewarder.steps import RewarderStep
from rlwire.universe.rewarder import RewarderClient
from rlwire.universe.rewarder.environment import SPACES, EnvironmentRewarder

gymnasium = pytest.importorskip("gymnasium")


def same(seen: Any, observation: Any) -> bool:
    """Numbers are written with as many digits as it takes to read the same float32 again."""
    return np.array_equal(seen.astype(observation.dtype), observation)


def whole(client: RewarderClient) -> RewarderStep:
    """The next step that has a reward in it: the observation is told before it."""
    for _ in range(10):
        step = client.step(5)
        if step.count:
            return step
    raise AssertionError("no reward")


@pytest.fixture
def serving(tmp_path: Path) -> Any:
    """Starts `rlwire serve` in a process; returns where it listens, and the process."""
    processes = []

    def serve(*arguments: str, env: dict[str, str] | None = None) -> tuple[str, Any]:
        process = subprocess.Popen(
            [sys.executable, "-m", "rlwire", "serve", *arguments],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        processes.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"serving (universe\S+), ", line)
            if found:
                return str(parse_url(found[1]).address), process
        raise AssertionError("it does not serve")

    yield serve
    for process in processes:
        process.kill()
        process.communicate()


def test_a_thousand_steps_of_cartpole(serving: Any, tmp_path: Path) -> None:
    """All that a local environment gives, in order, and an observer sees the same."""
    (tmp_path / "secret").write_text("sesame\n")
    address, process = serving(
        "gym:CartPole-v1", "universe://127.0.0.1:+0", "--auth-file", "secret", "--lockstep"
    )
    with pytest.raises(PeerError, match="password"):
        RewarderClient(address).connect()
    local = gymnasium.make("CartPole-v1")
    observation, _ = local.reset(seed=5)
    with (
        RewarderClient(address, auth="sesame") as client,
        RewarderClient(address, auth="sesame", observer=True) as observer,
    ):
        client.reset(seed=5)
        step = client.step(10)
        assert same(step.observation, observation)
        random = np.random.default_rng(1)
        for _ in range(1000):
            action = int(random.integers(2))
            client.act([("Action", action)])
            observation, reward, terminated, truncated, _ = local.step(action)
            step = whole(client)
            assert step.reward == reward
            assert step.done == (terminated or truncated)
            assert same(step.observation, observation)
            seen = whole(observer)
            assert (seen.reward, seen.done) == (step.reward, step.done)
            if step.done:
                client.reset(seed=9)
                observation, _ = local.reset(seed=9)
                assert same(client.step(10).observation, observation)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.mark.parametrize("mode", [("--rate", "50"), ("--lockstep",)], ids=lambda mode: mode[0])
def test_ctrl_c(serving: Any, mode: tuple[str, ...]) -> None:
    """Clients are told, and the status is 0, whether steps are under way or not."""
    address, process = serving("gym:CartPole-v1", "universe://127.0.0.1:+0?password=openai", *mode)
    with RewarderClient(address) as client, RewarderClient(address, observer=True) as observer:
        client.reset()
        assert client.step(10).observation is not None
        process.send_signal(signal.SIGINT)
        for each in (client, observer):
            with pytest.raises(PeerError, match="the rewarder stops"):  # noqa: PT012
                for _ in range(1000):
                    each.step(20)
    log = process.stderr.read()
    assert process.wait(20) == 0
    assert "stopping: SIGINT" in log
    assert "Traceback" not in log


def test_in_real_time(serving: Any) -> None:
    address, _ = serving(
        "gym:CartPole-v1", "universe://127.0.0.1:+0", "--rate", "100", "--auth-env", "SECRET",
        env={"SECRET": "abc"},
    )  # fmt: skip
    with RewarderClient(address, auth="abc") as client:
        begun, count, episodes = time.monotonic(), 0, 0
        client.reset(fps=200)
        assert client.session.fps == 200
        while count < 200:
            step = client.step(10)
            count += step.count
            episodes += step.done
        assert 0.7 < time.monotonic() - begun < 10
        assert episodes > 2


def test_wrong_actions_and_resets_are_refused() -> None:
    with (
        EnvironmentRewarder("gym:Pendulum-v1", "127.0.0.1:0", lockstep=True) as server,
        RewarderClient(str(server.address), auth=server.auth or "") as client,
    ):
        assert client.session.env_id == "Pendulum-v1"
        client.reset("Pendulum-v1")
        for action, text in (
            ([("Action", "up")], r"numbers.*'up'"),
            ([("Action", [3.0])], r"Box\(-2"),
            ([("Action", [1.0, 1.0])], r"shape \(1,\)"),
            ([("KeyEvent", 97, True)], r'\["Action", value\]'),
            ([], r'\["Action", value\]'),
        ):
            client.act(action)
            with pytest.raises(PeerError, match=text):  # noqa: PT012
                for _ in range(1000):
                    client.step(10)
        with pytest.raises(PeerError, match="No such environment: llama"):
            client.reset("llama")
        with pytest.raises(PeerError, match="Seed"):
            client.reset(seed=-1)
        client.reset()  # after one that failed there is no episode
        client.act([("Action", [1.5])])
        step = whole(client)
        assert step.reward < 0
        assert step.observation.shape == (3,)


class Strange(gymnasium.Env):
    """Says what JSON cannot carry, counts in NumPy's numbers, and is cut short."""

    observation_space = gymnasium.spaces.Discrete(10)
    action_space = gymnasium.spaces.MultiDiscrete([3, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.int64(0), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return (
            np.int64(self.steps),
            np.float32(action[0]),
            False,
            self.steps == 3,
            {"a": object(), "action_mask": np.array([1, 0], np.int8)},
        )


def test_what_an_environment_may_say() -> None:
    with (
        EnvironmentRewarder(Strange(), "127.0.0.1:0", lockstep=True, env_id="strange") as server,
        RewarderClient(str(server.address), auth=server.auth or "") as client,
    ):
        client.reset()
        for number in (1, 2, 3):
            client.act([("Action", [2, number - 1])])
            step = whole(client)
            assert (step.reward, step.observation) == (2.0, number)
        assert step.done
        mask = step.info.pop("action_mask")
        assert (mask.dtype, mask.tolist()) == (np.int8, [1, 0])
        assert step.info == {"rlwire.truncated": True}
        assert server.statistics()["infos_dropped"] == 3
        assert client.step(10).observation == 0


class Count(dm_env.Environment):
    """Counts to 3, by dm_env's rules."""

    def observation_spec(self) -> Any:
        return {"count": specs.BoundedArray((), np.int32, 0, 3)}

    def action_spec(self) -> Any:
        return specs.DiscreteArray(2)

    def reset(self) -> Any:
        self.count = 0
        return dm_env.restart({"count": np.int32(0)})

    def step(self, action: Any) -> Any:
        self.count += int(action)
        seen = {"count": np.int32(self.count)}
        if self.count == 3:
            return dm_env.truncation(1.0, seen, 0.5)
        return dm_env.transition(0.25, seen)


def test_an_environment_of_dm_env() -> None:
    with (
        EnvironmentRewarder(Count, "127.0.0.1:0", lockstep=True) as server,
        RewarderClient(str(server.address), auth=server.auth or "") as client,
    ):
        assert client.session.env_id == "Count"
        assert space_of(client.session.about[SPACES]["observation"])["count"].n == 4
        client.reset()
        for count in (1, 2, 3):
            client.act([("Action", 1)])
            step = whole(client)
            assert (step.observation["count"], step.done) == (count, count == 3)
        assert (step.reward, step.info) == (1.0, {"discount": 0.5, "rlwire.truncated": True})


def test_spaces_whose_description_is_long() -> None:
    class Far(Strange):
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Box(np.arange(9000.0), np.inf, dtype=float)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.observation_space.low, {}

    with (
        EnvironmentRewarder(Far, "127.0.0.1:0", lockstep=True, about={"x": 1}) as server,
        RewarderClient(str(server.address), auth=server.auth or "") as client,
    ):
        assert client.session.about["x"] == 1
        assert space_of(client.session.about[SPACES]["observation"]) == Far.observation_space
    Far.observation_space = gymnasium.spaces.Box(np.arange(90000.0), np.inf, dtype=float)
    with pytest.raises(EncodeError, match=r"dm_env_rpc: observation space Box"):
        EnvironmentRewarder(Far)


def test_what_a_rewarder_cannot_carry() -> None:
    from mpe2 import simple_spread_v3

    class Endless(Strange):
        observation_space = gymnasium.spaces.Dict(
            a=gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))
        )

    with pytest.raises(EncodeError, match=r"the observation has a Sequence at a, .* rewarder"):
        EnvironmentRewarder(Endless)
    with pytest.raises(TypeError, match=r"agent_0.*the rewarder"):
        EnvironmentRewarder(simple_spread_v3.parallel_env)

    class Two(Count):
        def reward_spec(self) -> Any:
            return specs.Array((2,), float)

    with pytest.raises(EncodeError, match=r"Two .*reward.* the rewarder"):
        EnvironmentRewarder(Two)


def test_an_environment_that_fails_stops_the_server(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Strange):
        def step(self, action: Any) -> Any:
            raise RuntimeError("broken")

    with EnvironmentRewarder(Broken, "127.0.0.1:0", rate=100) as server:
        client = RewarderClient(str(server.address), auth=server.auth or "")
        with client, pytest.raises(PeerError, match="stops"):  # noqa: PT012
            client.reset()
            for _ in range(1000):
                client.step(10)
        assert server.wait(5)
    assert "the environment failed" in caplog.text
