"""The bandit algorithm: it finds the arm that pays, keeps it, and plays it."""

import random

import numpy as np
import pytest

from rlwire.relaax import load_algorithm, open_parameter_server
from rlwire.rlx.config import Options
from tests.agents import Recorder

CHANCES = (0.2, 0.8, 0.5)


@pytest.fixture
def config():
    return Options({"name": "bandit", "output": {"action_size": 3}})


def play(agent, pulls, rng):
    counts = np.zeros(3, int)
    arm = agent.update(None, [], False)
    for _ in range(pulls):
        counts[arm] += 1
        arm = agent.update(1.0 if rng.random() < CHANCES[arm] else -1.0, [], False)
    return counts


def test_bandit_agents_learn_the_best_arm_and_restore_it(config, tmp_path):
    algorithm = load_algorithm("bandit", config)
    metrics, rng = Recorder(), random.Random(1)
    server = open_parameter_server(algorithm, checkpoints=tmp_path, metrics=metrics)
    try:
        agents = [algorithm.agent(server, metrics) for _ in range(2)]
        for number, agent in enumerate(agents):
            agent.random = np.random.default_rng(number)
            assert agent.init()
        for _ in range(10):
            for agent in agents:
                counts = play(agent, 100, rng)
        assert counts[1] > 80
        assert server.n_step() == 2000
    finally:
        server.close()
    assert metrics.calls[-1][:2] == ("paying_arm", 1)
    server = open_parameter_server(algorithm, checkpoints=tmp_path, metrics=metrics)
    try:
        agent = algorithm.agent(server, metrics)
        agent.init(exploit=True)
        assert list(play(agent, 20, rng)) == [0, 20, 0]
        assert server.n_step() == 2000
        assert agent.update(1.0, [], True) is None
        assert agent.reset()
        config = Options({"output": {"action_size": 2}})
        with pytest.raises(Exception, match="has 3 arms, output/action_size is 2"):
            open_parameter_server(load_algorithm("bandit", config), checkpoints=tmp_path)
    finally:
        server.close()
