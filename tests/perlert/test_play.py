"""Agents of three kinds play a PettingZoo environment together, in real time."""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gymnasium import spaces
from mpe2 import simple_spread_v3

import rlwire
from rlwire.codecs.perlert import text_to_array, text_to_mapping
from rlwire.perlert import AsyncClient, Client
from rlwire.transports.waits import drive, drive_async
from tests.waiting import eventually

NAME = "simple_spread_v3:0"
SPACE = spaces.Box(-np.inf, np.inf, (18,), np.float32)


class Recorded:
    """Records its runs. A step waits for as many actions as three agents send until then."""

    def __init__(self, environment):
        self._environment = environment
        self.runs = []
        self.actions = None  # counts those that the server has received

    def __getattr__(self, name):
        return getattr(self._environment, name)

    def reset(self, seed=None, options=None):
        observations, infos = self._environment.reset(seed=seed, options=options)
        self.runs.append([(observations, {}, {})])
        return observations, infos

    def step(self, actions):
        result = self._environment.step(actions)
        eventually(lambda: self.actions() >= 3 * len(self.runs[-1]))
        self.runs[-1].append((result[0], result[1], dict(actions)))
        return result


def seen_in(frame):
    return frame.step, text_to_array(frame.observation, np.float32, shape=(18,)), frame.reward


def steps_of(client, agent, shift):
    """Play with a client of either kind, whose calls a driver waits for."""
    seen = []
    yield client.register(agent)
    yield client.ready()
    yield client.wait_start(30)
    while not (frame := (yield client.frame(10))).done:
        seen.append(seen_in(frame))
        yield client.act(str((frame.step + shift) % 5))
    seen.append(seen_in(frame))
    return seen, text_to_mapping(frame.extra)["total"], client.statistics()


def with_client(address, agent, auth):
    with Client(address, NAME, tag=agent, auth=auth) as client:
        return drive(steps_of(client, agent, 0))


async def play_async(address, agent, auth):
    async with AsyncClient(address, NAME, tag=agent, auth=auth) as client:
        return await drive_async(steps_of(client, agent, 1))


def with_environment(address, agent, auth):
    url, given = f"perlert://{address}/{NAME}", {"tag": agent, "auth": auth}
    like = {"observation_space": SPACE, "action_space": spaces.Discrete(5)}
    with rlwire.make(url, agent=agent, **like, **given) as env:
        observation, info = env.reset()
        seen, over = [(info["step"], observation, 0.0)], False
        while not over:
            observation, reward, _, over, info = env.step((info["step"] + 2) % 5)
            seen.append((info["step"], observation, reward))
        total = sum(reward for _, _, reward in seen)
        return seen, total, env.unwrapped.endpoint.client.statistics()


@pytest.mark.parametrize(
    ("decimals", "key"), [(None, None), (3, bytes(range(32)))], ids=["exact", "ciphered"]
)
def test_three_kinds_of_client_receive_the_frames_of_one_run(serving, decimals, key):
    spread = Recorded(simple_spread_v3.parallel_env(N=3, max_cycles=60))
    server = serving(spread, decimals=decimals, auth=key, rate=100, totals=True, threads=1)
    spread.actions = lambda: server.statistics()["session"]["actions"]
    ways = (with_client, lambda *given: asyncio.run(play_async(*given)), with_environment)
    with ThreadPoolExecutor() as pool:
        playing = [
            pool.submit(play, server.address, f"agent_{number}", key)
            for number, play in enumerate(ways)
        ]
        results = [each.result(60) for each in playing]
    (run,) = spread.runs
    assert len(run) == 61
    near = 1e-9 if decimals is None else 1e-3
    acted = set()
    for number, (seen, total, statistics) in enumerate(results):
        agent = f"agent_{number}"
        steps = [step for step, _, _ in seen]
        assert steps == sorted(set(steps))
        assert steps[-1] == 60
        assert len(steps) > 20
        for step, observation, reward in seen:
            shown, rewards, _ = run[step]
            if decimals is None:
                assert observation.tobytes() == shown[agent].tobytes()
            else:
                assert np.abs(observation - shown[agent]).max() <= 0.5e-3 + 1e-6
                rounded = np.round(observation.astype(np.float64), decimals)
                assert np.array_equal(observation, rounded.astype(np.float32))
            if agent != "agent_2" and step:  # whose frames are its steps
                assert math.isclose(reward, rewards[agent], abs_tol=0 if decimals is None else 6e-4)
        everything = math.fsum(rewards[agent] for _, rewards, _ in run[1:])
        assert math.isclose(total, everything, rel_tol=1e-9, abs_tol=near)
        assert statistics["malformed"] == statistics["foreign"] == statistics["stale"] == 0
        acted |= {actions[agent] for _, _, actions in run[1:]}
    assert acted == set(range(5))
    assert not {"invalid_action", "malformed"} & server.statistics()["session"]["dropped"].keys()
