"""Agents in processes of their own play a PettingZoo environment together, in real time."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PLAYER = str(Path(__file__).with_name("player.py"))


class Recorded:
    def __init__(self, environment):
        self._environment = environment
        self.runs = []

    def __getattr__(self, name):
        return getattr(self._environment, name)

    def reset(self, seed=None, options=None):
        observations, infos = self._environment.reset(seed=seed, options=options)
        self.runs.append([(observations, {}, {})])
        return observations, infos

    def step(self, actions):
        result = self._environment.step(actions)
        self.runs[-1].append((result[0], result[1], dict(actions)))
        return result


@pytest.fixture
def spread():
    from mpe2 import simple_spread_v3

    return Recorded(simple_spread_v3.parallel_env(N=3, max_cycles=60))


@pytest.fixture
def start(tmp_path):
    players = []

    def start_all(server, key="-"):
        players.extend(_start(server, tmp_path, key))
        return list(players)

    yield start_all
    for player in players:
        player.kill()
        player.communicate()


def _start(server, tmp_path, key):
    return [
        subprocess.Popen(
            [
                *[sys.executable, PLAYER, str(server.address), "simple_spread_v3:0"],
                *[f"agent_{number}", how, key],
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, how in enumerate(("client", "async", "environment"))
    ]


def finish(players):
    results = []
    for player in players:
        out, errors = player.communicate(timeout=60)
        assert player.returncode == 0, errors
        results.append(json.loads(out))
    return results


@pytest.mark.parametrize(
    ("decimals", "key"), [(None, "-"), (3, bytes(range(32)).hex())], ids=["exact", "ciphered"]
)
def test_three_processes(spread, serving, start, decimals, key):
    server = serving(
        spread,
        decimals=decimals,
        auth=None if key == "-" else bytes.fromhex(key),
        rate=100,
        totals=True,
    )
    results = finish(start(server, key))
    (run,) = spread.runs
    assert len(run) == 61
    acted = set()
    for number, (seen, total, statistics) in enumerate(results):
        agent = f"agent_{number}"
        steps = [step for step, _, _ in seen]
        assert steps == sorted(set(steps))
        assert steps[-1] == 60
        assert len(steps) > 20
        for step, observation, reward in seen:
            shown, rewards, _ = run[step]
            reported = np.array(observation, np.float32)
            if decimals is None:
                assert reported.tobytes() == shown[agent].tobytes()
            else:
                assert np.abs(reported - shown[agent]).max() <= 0.5e-3 + 1e-6
            if agent != "agent_2" and step:  # whose frames are its steps
                assert math.isclose(reward, rewards[agent], abs_tol=0 if decimals is None else 6e-4)
        everything = math.fsum(rewards[agent] for _, rewards, _ in run[1:])
        assert math.isclose(
            total, everything, rel_tol=1e-9, abs_tol=1e-9 if decimals is None else 1e-3
        )
        assert statistics["malformed"] == statistics["foreign"] == statistics["stale"] == 0
        acted |= {actions[agent] for _, _, actions in run[1:]}
    assert acted == set(range(5))
    dropped = server.statistics()["session"]["dropped"]
    assert "invalid_action" not in dropped
    assert not dropped.get("malformed")
