"""An agent and its parameter server, without a network between them."""

import contextlib

import numpy as np
import pytest

from rlwire.relaax.algorithm import load_algorithm
from rlwire.relaax.server import open_parameter_server
from tests.agents import Recorder

pytestmark = pytest.mark.training

torch = pytest.importorskip("torch")


@contextlib.contextmanager
def opened(metrics=None, **more):
    config = {"input": {"shape": [2]}, "output": {"action_size": 3}, "seed": 1, **more}
    algorithm = load_algorithm("pg", config)
    handle = open_parameter_server(algorithm, metrics=metrics or Recorder())
    try:
        yield handle, lambda: algorithm.agent(handle, handle.metrics)
    finally:
        handle.close()


STATE = [0.5, -0.5]


def test_agent_submits_one_gradient_per_batch():
    metrics = Recorder()
    with opened(metrics, batch_size=4) as (handle, make):
        agent = make()
        assert agent.init(False) is True
        before, _ = handle.session.op_get_weights_signed()
        assert agent.update(None, STATE, False) in (0, 1, 2)
        for _ in range(3):
            assert agent.update(1.0, np.array(STATE), False) in (0, 1, 2)
        assert handle.n_step() == 0
        assert agent.update([1.0, 1.0], STATE, False) in (0, 1, 2)
        after, n_step = handle.session.op_get_weights_signed()
        assert n_step == 4
        assert all((after[one] != before[one]).any() for one in ("actor.4.bias", "critic.4.bias"))
        assert [name for name, *_ in metrics.calls] == ["policy_loss", "critic_loss", "entropy"]
        assert np.isfinite([y for _, y, _ in metrics.calls]).all()
        assert agent.update(1.0, None, True) is None


def test_update_without_reward_ends_the_previous_episode():
    with opened(batch_size=4) as (_, make):
        agent = make()
        agent.init()
        agent.update(None, STATE, False)
        agent.update(1.0, STATE, False)
        agent.update(1.0, STATE, False)
        agent.update(None, STATE, False)  # the last action's reward is never told
        assert agent.ends == [False, True]
        agent.update(5.0, STATE, False)
        assert agent.rewards == [1.0, 1.0, 5.0]
        agent.reset()
        assert agent.update(7.0, STATE, False) is not None  # of no action of this agent's
        assert agent.rewards == []


def test_exploiting_agent_is_greedy_and_submits_no_gradient():
    with opened(batch_size=2) as (handle, make):
        learner, agent = make(), make()
        learner.init(False)
        agent.init(True)
        weights = agent.network.weights()
        weights["actor.4.bias"][:] = [0, 3, 0]
        agent.network.load(weights)
        agent.update(None, STATE, False)
        assert [agent.update(1.0, STATE, False) for _ in range(20)] == [1] * 20
        assert handle.n_step() == 0
        learner.update(None, STATE, False)
        learner.update(1.0, STATE, False)
        learner.update(-1.0, STATE, False)
        assert handle.n_step() == 2
        agent.update(1.0, None, True)
        newest, _ = handle.session.op_get_weights_signed()
        for name, value in agent.network.weights().items():
            np.testing.assert_array_equal(value, newest[name])


def test_agent_clips_continuous_actions_to_their_bounds():
    box = {"action_size": 2, "continuous": True, "action_low": [-0.1, 0], "action_high": [0.1, 9]}
    with opened(output=box) as (_, make):
        agent = make()
        agent.init()
        agent.update(None, STATE, False)
        sent = [agent.update(0.0, STATE, False) for _ in range(50)]
        assert all(type(each) is list and type(each[0]) is float for each in sent)
        assert all(-0.1 <= first <= 0.1 and 0 <= second <= 9 for first, second in sent)
        assert len({first for first, _ in sent}) > 2
        assert np.abs(np.stack(agent.actions)).max() > 0.5  # as they were drawn


def test_agent_learns_the_best_arm():
    with opened(input={"shape": [0]}, output={"action_size": 4}, batch_size=20) as (_, make):
        agent = make()
        agent.init()
        random = np.random.default_rng(1)
        action = agent.update(None, [], False)
        taken = []
        for _ in range(4000):
            taken.append(action)
            pays = random.normal() > [0.2, 0, -0.2, -5][action]
            action = agent.update(1 if pays else -1, [], False)
        assert taken[-500:].count(3) > 400
