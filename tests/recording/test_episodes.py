"""Episodes, by the steps that messages mean."""

import math

import pytest

from rlwire.recording.messages import UNKNOWN, EnvStep
from rlwire.recording.reading import EpisodeBuilder


def built(steps):
    builder = EpisodeBuilder()
    found = [(builder.add(step), builder.position) for step in steps]
    episodes = [*(episode for episode, _ in found), builder.end()]
    return [each for each in episodes if each is not None], [position for _, position in found]


def reset(observation):
    return EnvStep(begins=True, observation=observation)


def act(action):
    return EnvStep(action=action)


def result(observation, reward=1.0, terminated=False):
    return EnvStep(observation=observation, reward=reward, terminated=terminated, truncated=False)


@pytest.mark.parametrize("together", [False, True])
def test_builder_groups_actions_and_results_into_episodes(together):
    steps = [reset(0)]
    for number in (1, 2, 3):
        step = result(number, number / 2, number == 3)
        if together:
            step.action = number * 10
        else:
            steps.append(act(number * 10))
        steps.append(step)
    steps += [reset(4), act(50), result(5)]
    (first, second), _ = built(steps)
    assert (first.number, first.total, first.length) == (1, 3.0, 3)
    assert (first.terminated, first.truncated) == (True, False)
    assert (second.number, second.total, second.length) == (2, 1.0, 1)
    assert (second.terminated, second.truncated) == (False, False)


def test_action_and_result_share_a_position():
    steps = [reset(0), act(1), result(1), act(2), result(2, 1.0, True)]
    steps += [act(3), reset(3), act(4), result(4)]
    found = [(0, 1, 0), (1, 1, 1), (1, 1, 1), (2, 1, 2), (2, 1, 2)]
    found += [(3, 1, 3), (2, 2, 0), (3, 2, 1), (3, 2, 1)]  # the third action made a reset only
    assert built(steps)[1] == found


END = EnvStep(reward=1.0, terminated=True)
ODD = {
    "an action that is never answered": ([reset(0), act(1)], []),
    "another reset": ([reset(0), reset(1), act(1), result(2)], [1]),
    "no observation at the end": ([reset(0), act(1), END], [1]),
    "an end alone": ([reset(0), act(1), result(1), EnvStep(terminated=True)], [1]),
    "an action that holds": ([reset(0), result(1), act(1), result(2), result(3)], [2]),
    "actions that are replaced": ([reset(0), act(1), act(2), result(1)], [1]),
    "a begin that is not recorded": ([act(1), result(0), act(2), result(1)], [1]),
    "an end without a begin": ([act(1), result(0, 1.0, True)], []),
    "no actions": ([reset(0), result(1, 1.0, True)], [1]),
    "flags that are none": ([reset(0), act(1), result(1, 1.0, [[1], [2, 3]])], [1]),
}


@pytest.mark.parametrize("name", ODD)
def test_builder_counts_steps_in_incomplete_episodes(name):
    steps, episodes = ODD[name]
    assert [each.length for each in built(steps)[0]] == episodes


def test_builder_totals_numeric_rewards_and_ignores_others():
    rewards = [1, True, [1.5, 2], None, "three", math.nan, [[1], 2], UNKNOWN, 10**400]
    steps = [step for reward in rewards for step in (act(1), result(1, reward))]
    ((episode,), _) = built([reset(0), *steps])
    assert (episode.total, episode.length) == (5.5, 9)
