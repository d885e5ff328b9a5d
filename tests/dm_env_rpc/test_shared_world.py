"""Agents that share one environment of PettingZoo over dm_env_rpc."""

import contextlib
import functools
import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from mpe2 import simple_spread_v3
from pettingzoo import ParallelEnv

import rlwire
from rlwire.codecs.dm_env_rpc import EnvironmentStateType
from rlwire.dm_env_rpc import Client, StatusError
from rlwire.environments.pettingzoo import ParallelEnvironment
from tests.raising import raised
from tests.waiting import eventually

RUNNING, INTERRUPTED = EnvironmentStateType.RUNNING, EnvironmentStateType.INTERRUPTED
URL = "dm-env-rpc://127.0.0.1:0"
SPREAD = functools.partial(simple_spread_v3.parallel_env, max_cycles=7)
NAMES = [f"agent_{number}" for number in range(3)]


class Relay(ParallelEnv):
    """Agents that leave one after the other, the first after two steps; actions are added up."""

    metadata = {"name": "relay"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self):
        self.closed = 0
        self.fails = False

    def observation_space(self, agent):
        return spaces.Box(0, 100, (1 if agent == "a" else 2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(5)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.time, self.sum = 0, float(seed or 0)
        return self._seen(self.agents), {}

    def step(self, actions):
        if self.fails:
            raise ValueError("out of order")
        acting = list(self.agents)
        assert sorted(actions) == acting
        self.time += 1
        self.sum += sum(map(int, actions.values()))
        over = {name: self.time >= (2 if name == "a" else 4) for name in acting}
        self.agents = [name for name in acting if not over[name]]
        rewards = {name: float(actions[name]) for name in acting}
        return self._seen(acting), rewards, over, dict.fromkeys(acting, False), {}

    def _seen(self, names):
        return {name: np.full(1 if name == "a" else 2, self.sum, np.float32) for name in names}

    def close(self):
        self.closed += 1


@contextlib.contextmanager
def together(thing, names, **options):
    with rlwire.serve(thing, URL, **options) as server:
        agents = {name: rlwire.make(server.url, agent=name) for name in names}
        with contextlib.closing(ParallelEnvironment(agents)) as env:
            yield env


def test_shared_world_equals_the_local_environment(workers):
    chance = np.random.default_rng(3)
    with contextlib.closing(SPREAD()) as local, together(SPREAD, NAMES, workers=workers) as env:
        for episode in range(3):
            ours, theirs = env.reset(seed=episode), local.reset(seed=episode)
            assert data_equivalence(ours[0], theirs[0], exact=True)
            while local.agents:
                assert env.agents == local.agents
                actions = {name: int(chance.integers(5)) for name in local.agents}
                ours, theirs = env.step(actions), local.step(actions)
                assert data_equivalence(ours[0], theirs[0], exact=True)
                assert ours[1] == pytest.approx(theirs[1], abs=0)
                assert ours[2:4] == theirs[2:4]
            assert env.agents == []


def test_agents_of_a_shared_world_may_end_at_different_steps():
    with together(Relay, "ab") as env:
        for _ in range(2):
            observations, _ = env.reset(seed=10)
            assert (observations["a"].tolist(), observations["b"].tolist()) == ([10], [10, 10])
            env.step({"a": 1, "b": 2})
            found = env.step({"a": 3, "b": 4})
            assert found[1] == {"a": 3.0, "b": 4.0}
            assert found[2] == {"a": True, "b": False}
            assert env.agents == ["b"]
            assert env.step({"b": 1})[0]["b"].tolist() == [21, 21]
            env.step({"b": 1})
            assert env.agents == []


def test_shared_world_can_be_reset_within_an_episode():
    with together(Relay, "ab") as env:
        env.reset(seed=1)
        env.step({"a": 1, "b": 2})
        assert env.reset(seed=5)[0]["a"].tolist() == [5]
        assert env.step({"a": 1, "b": 2})[0]["a"].tolist() == [8]


@contextlib.contextmanager
def apart(make):
    """Make something in a thread of its own; yield it, and a function that begins a call of it."""
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(make).result(20)
        try:
            yield (
                made,
                lambda method, *given, **named: pool.submit(getattr(made, method), *given, **named),
            )
        finally:
            pool.submit(made.close).result(20)


def alone(url, agent=None):
    return apart(functools.partial(rlwire.make, url, agent=agent))


def test_leaving_agent_ends_the_episode_of_the_others(workers):
    with rlwire.serve(Relay, URL, workers=workers) as server, alone(server.url, "a") as (_, a):
        with alone(server.url, "b") as (_, b):
            first = a("reset", seed=2)
            b("reset").result(20)
            first.result(20)
            waits = a("step", 1)  # for b
            b("close").result(20)
        observation, reward, terminated, truncated, _ = waits.result(20)
        assert (observation.tolist(), reward, terminated, truncated) == ([2], 0.0, False, True)
        again = a("reset", seed=3)
        with alone(server.url) as (other, b):  # the one that is free
            assert other.observation_space.shape == (2,)
            assert b("reset").result(20)[0].tolist() == [3, 3]
            assert again.result(20)[0].tolist() == [3]
        assert a("step", 1).result(20)[3]  # told when it acts


def test_agent_lost_during_a_reset_rejoins(caplog):
    caplog.set_level(logging.INFO, "rlwire.dm_env_rpc.client")
    with rlwire.serve(Relay, URL) as server, alone(server.url, "a") as (env, a):
        waits = a("reset", seed=4)
        assert "'a'" in str(raised(StatusError, rlwire.make, server.url, agent="a"))
        env.endpoint.client.cancel()
        eventually(lambda: "joined world" in caplog.text)  # else b resets with the lost one
        with alone(server.url, "b") as (_, b):
            assert b("reset").result(20)[0].tolist() == [4, 4]
            assert waits.result(20)[0].tolist() == [4]


def test_reset_world_ends_pending_steps():
    def make():
        client = Client(server.address)
        client.connect()
        return client

    with rlwire.serve(Relay, URL) as server, Client(server.address) as b, apart(make) as (_, a):
        a("join_world", "", {"agent": "a"}).result(20)
        b.join_world("", {"agent": "b"})
        first = a("step")
        assert b.step().state == RUNNING
        assert first.result(20).state == RUNNING
        waits = a("step", {"action": 1})
        b.reset_world("", {"seed": 7})
        assert waits.result(20).state == INTERRUPTED
        again = a("step")
        assert b.step().observations["observation"].tolist() == [7, 7]
        assert again.result(20).state == RUNNING


def test_unknown_agents_and_settings_are_rejected():
    with rlwire.serve(Relay, URL) as server, Client(server.address) as client:
        for settings, text in (
            ({"agent": "c"}, "no agent 'c'; there are a, b"),
            ({"size": 3}, "'size' not accepted"),
        ):
            assert text in str(raised(StatusError, client.join_world, "", settings))
        with rlwire.make(server.url) as a, rlwire.make(server.url):
            assert a.observation_space.shape == (1,)
            raised(StatusError, rlwire.make, server.url)
    assert "'x'" in str(raised(ValueError, rlwire.serve, Relay, URL, accepts=["x"]))


def test_environment_error_is_sent_to_every_waiting_agent():
    relay = Relay()
    relay.reset()
    with together(relay, "ab") as env:
        env.reset()
        relay.fails = True
        raised(StatusError, env.step, {"a": 1, "b": 1})
        relay.fails = False
        assert env.step({"a": 1, "b": 1})[3] == {"a": True, "b": True}
        env.reset(seed=6)
        assert env.step({"a": 1, "b": 1})[0]["a"].tolist() == [8]
    assert relay.closed == 0  # it was handed in
