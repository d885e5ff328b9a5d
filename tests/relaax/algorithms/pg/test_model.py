"""Advantages and gradients, against what they are by definition."""

import numpy as np
import pytest

from rlwire.relaax.algorithms.pg.settings import Settings

pytestmark = pytest.mark.training

torch = pytest.importorskip("torch")

from rlwire.relaax.algorithms.pg.model import ActorCritic, advantages, gradients  # noqa: E402


def test_advantages_match_their_definition():
    random = np.random.default_rng(1)
    rewards = random.normal(size=7).astype(np.float32)
    values = random.normal(size=8).astype(np.float32)
    ends = np.array([0, 0, 1, 0, 0, 0, 0], bool)
    found = advantages(rewards, values, ends, 0.9, 0.8)
    for first in range(7):
        expected, weight = 0.0, 1.0
        for step in range(first, 7):
            following = 0.0 if ends[step] else values[step + 1]
            expected += weight * (rewards[step] + 0.9 * following - values[step])
            if ends[step]:
                break
            weight *= 0.9 * 0.8
        assert found[first] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("continuous", [False, True])
def test_gradient_step_makes_rewarded_actions_likelier(continuous):
    torch.manual_seed(1)
    settings = Settings((2,), 3, continuous=continuous, entropy_beta=0.0)
    network = ActorCritic(settings)
    states = np.ones((9, 2), np.float32)
    if continuous:
        actions = np.tile(np.array([1, -1, 0], np.float32), (8, 1))
        actions[4:] *= -1
    else:
        actions = np.repeat(np.array([1, 2]), 4)
    rewards = np.repeat(np.array([1, -1], np.float32), 4)

    def likely():
        with torch.no_grad():
            return network.policy(torch.from_numpy(states[:8])).log_prob(torch.from_numpy(actions))

    before = likely()
    found, losses = gradients(network, settings, states, actions, rewards, np.ones(8, bool))
    assert set(found) == set(network.weights())
    assert set(losses) == {"policy_loss", "critic_loss", "entropy"}
    assert np.sqrt(sum(np.sum(each**2) for each in found.values())) <= 0.5 + 1e-5
    network.load({name: value - 0.1 * found[name] for name, value in network.weights().items()})
    better = likely() - before
    assert bool((better[:4] > 0).all())
    assert bool((better[4:] < 0).all())
