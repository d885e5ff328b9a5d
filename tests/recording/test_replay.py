"""Recordings of real conversations, replayed against servers and clients on loopback."""

import socket
import threading
import time
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlwire
from rlwire.cli import main
from rlwire.codecs.rllink import Episode
from rlwire.errors import DecodeError, RemoteProtocolError, RlwireError
from rlwire.testing import Difference, replay
from tests import agents
from tests.raising import raised
from tests.recording.captures import AgentAndPolicy, finish

pytest.importorskip("mcap")


class Game(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    bonus = 0.0

    def reset(self, **_):
        self.steps = 0
        return np.zeros((2, 3), np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = self.steps + self.bonus * (self.steps == 3)
        return np.full((2, 3), self.steps, np.float32), reward, self.steps == 5, False, {}


class Richer(Game):
    bonus = 0.25


class Failing(Game):
    def step(self, action):
        raise ValueError("no more steps")


class Agent(agents.Agent):
    count = 0

    def update(self, reward, state, terminal):
        self.count += 1
        return np.arange(3.0) * self.count


class OtherAgent(Agent):
    def update(self, reward, state, terminal):
        found = super().update(reward, state, terminal)
        return np.add(found, [0.0, 0.0, 0.5]) if self.count == 2 else found


def use_game(url, **options):
    with rlwire.make(url, **options) as env:
        for _ in range(2):
            env.reset(seed=3)
            for action in (0, 1, 0, 1):
                env.step(action)


def use_agent(url, **options):
    with rlwire.connect(url, **options) as agent:
        agent.init()
        for number in range(4):
            agent.update(1.0, np.full(3, number, np.float32), number == 3)
        agent.reset()
        agent.metrics.scalar("score", 2.0)


def use_policy(url, **options):
    with rlwire.connect(url, **options) as policy:
        for number in range(3):
            policy.infer({"state": np.full((2, 2), number, np.float32)})


def use_learner(url, **options):
    episode = Episode(np.ones((4, 2), np.float32), np.zeros(3, np.int64), np.ones(3), id="one")
    with rlwire.connect(url, **options) as learner:
        learner.get_config()
        learner.get_state()
        learner.send([episode], wait=False)
        learner.send([episode], wait=True)


CASES = {  # and counts of replies
    "dm-env-rpc": (Game, use_game, 14),
    "rlx": (Agent, use_agent, 7),
    "openpi": (AgentAndPolicy(), use_policy, 4),
    "rllink": (AgentAndPolicy(), use_learner, 4),
}


def recorded(folder, scheme, use=None, **options):
    path = str(folder / "run.mcap")
    with rlwire.serve(CASES[scheme][0], f"{scheme}://127.0.0.1:0", **options) as server:
        (use or CASES[scheme][1])(server.url, record=path, **options)
    finish()
    return path


@pytest.mark.parametrize("scheme", CASES)
def test_replay_to_an_equal_server_finds_no_difference(tmp_path, scheme):
    secret = {} if scheme == "rlx" else {"auth": "a-secret-of-a-test"}
    path = recorded(tmp_path, scheme, **secret)
    with rlwire.serve(CASES[scheme][0], f"{scheme}://127.0.0.1:0", **secret) as server:
        assert replay(path, server.url, ignore=["response.server_*"], **secret) == CASES[scheme][2]
        if secret:
            assert "message" in str(raised(RlwireError, replay, path, server.url))


@pytest.mark.parametrize(
    ("scheme", "thing", "difference"),
    [
        ("dm-env-rpc", Richer, r"message 12 .*response.observations.reward\S*: .* 3.0,.* 3.25"),
        ("rlx", OtherAgent, r"message 6 .*response.data\[2\].* 4.0,.* 4.5"),
        ("dm-env-rpc", Failing, r"message 8 .*StepResult.*no more steps"),
    ],
)
def test_replay_raises_at_the_first_difference(tmp_path, scheme, thing, difference):
    path = recorded(tmp_path, scheme)
    with rlwire.serve(thing, f"{scheme}://127.0.0.1:0") as server:
        with pytest.raises(AssertionError, match=difference) as caught:
            replay(path, server.url, tolerance=1e-3)
        assert caught.type is Difference
        if thing is OtherAgent:
            assert replay(path, server.url, ignore=["response.data[2]"]) == 7


def test_replay_allows_tolerated_and_ignored_differences(tmp_path, capsys):
    path = recorded(tmp_path, "dm-env-rpc")
    with rlwire.serve(Richer, "dm-env-rpc://127.0.0.1:0") as server:
        assert replay(path, server.url, tolerance=0.1) == 14
        assert replay(path, server.url, ignore=["*.observations.rew*"]) == 14
        command = ["replay", path, server.url, "--speed", "0"]
        assert main(command) == 1
        assert "response.observations.reward" in capsys.readouterr().out
        assert main([*command, "--ignore", "response.observations.reward"]) == 0
        assert main([*command[:-1], "2", "--tolerance", "0.1"]) == 0


def test_replay_tolerates_differences_of_complex_arrays(tmp_path, monkeypatch):
    class Turned(agents.Agent):
        turn = 0.0

        def update(self, reward, state, terminal):
            return np.exp(1j * (np.arange(3) + self.turn))

    monkeypatch.setitem(CASES, "rlx", (Turned, use_agent, 7))
    path = recorded(tmp_path, "rlx")
    monkeypatch.setattr(Turned, "turn", 1e-4)
    with rlwire.serve(Turned, "rlx://127.0.0.1:0") as server:
        assert replay(path, server.url, tolerance=1e-3) == 7
        caught = raised(Difference, replay, path, server.url, tolerance=1e-5)
    assert "response.data[0]" in str(caught)


def test_replay_uses_the_world_names_of_the_live_server(tmp_path):
    def use(url, **options):
        with rlwire.connect(url, **options) as client, rlwire.connect(url, **options) as other:
            world = client.create_world()
            other.join_world(world)
            other.step()
            other.leave_world()
            client.destroy_world(world)

    path = recorded(tmp_path, "dm-env-rpc", use)
    with rlwire.serve(Game, "dm-env-rpc://127.0.0.1:0") as server:
        assert replay(path, server.url) == 5


def test_replay_keeps_the_recorded_speed(tmp_path):
    def use(url, **options):
        with rlwire.connect(url, **options) as agent:
            agent.init()
            time.sleep(0.3)
            agent.reset()

    path = recorded(tmp_path, "rlx", use)
    with rlwire.serve(Agent, "rlx://127.0.0.1:0") as server:
        for speed in (1.0, 2.0):
            begun = time.monotonic()
            assert replay(path, server.url, speed=speed) == 2
            assert time.monotonic() - begun >= 0.3 / speed


@pytest.mark.parametrize("silent", [True, False])
def test_replay_times_out_on_a_silent_peer(tmp_path, silent):
    path = recorded(tmp_path, "rlx")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"rlx://127.0.0.1:{listener.getsockname()[1]}"
        if not silent:
            threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        raised(RlwireError, replay, path, url, timeout=0.3)


def test_replay_rejects_unsupported_protocols_and_foreign_files(tmp_path):
    path = recorded(tmp_path, "rlx")
    assert "rlx" in str(raised(RemoteProtocolError, replay, path, "openpi://127.0.0.1:1"))
    assert "universe" in str(raised(ValueError, replay, path, "universe://127.0.0.1:+1"))
    assert main(["replay", path, "perlert://127.0.0.1:1"]) == 1
    (tmp_path / "foreign").write_bytes(b"PK\3\4" + bytes(100))
    caught = raised(DecodeError, replay, str(tmp_path / "foreign"), "rlx://127.0.0.1:1")
    assert "byte" in str(caught)
