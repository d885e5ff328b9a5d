"""Episodes, by the steps that messages mean."""

import math

import pytest

from rlwire.recording.messages import EnvStep
from rlwire.recording.reading import EpisodeBuilder


def built(steps):
    builder = EpisodeBuilder()
    found = [(builder.add(step), builder.position) for step in steps]
    episodes = [*(episode for episode, _ in found), builder.end()]
    return [each for each in episodes if each is not None], [position for _, position in found]


RESET, ACT = EnvStep(begins=True), EnvStep(has_action=True)


def result(reward=1.0, terminated=False):
    return EnvStep(has_observation=True, reward=reward, terminated=terminated)


@pytest.mark.parametrize("together", [False, True])
def test_builder_groups_actions_and_results_into_episodes(together):
    steps = [RESET]
    for number in (1, 2, 3):
        step = result(number / 2, number == 3)
        if together:
            step.has_action = True
        else:
            steps.append(ACT)
        steps.append(step)
    steps += [RESET, ACT, result()]
    (first, second), _ = built(steps)
    assert (first.number, first.total, first.length) == (1, 3.0, 3)
    assert (first.terminated, first.truncated) == (True, False)
    assert (second.number, second.total, second.length) == (2, 1.0, 1)
    assert (second.terminated, second.truncated) == (False, False)


def test_action_and_result_share_a_position():
    steps = [RESET, ACT, result(), ACT, result(1.0, True)]
    steps += [ACT, RESET, ACT, result()]
    found = [(0, 1, 0), (1, 1, 1), (1, 1, 1), (2, 1, 2), (2, 1, 2)]
    found += [(3, 1, 3), (2, 2, 0), (3, 2, 1), (3, 2, 1)]  # the third action made a reset only
    assert built(steps)[1] == found


END = EnvStep(reward=1.0, terminated=True)
ODD = {
    "an action that is never answered": ([RESET, ACT], []),
    "another reset": ([RESET, RESET, ACT, result()], [1]),
    "no observation at the end": ([RESET, ACT, END], [1]),
    "an end alone": ([RESET, ACT, result(), EnvStep(terminated=True)], [1]),
    "an action that holds": ([RESET, result(), ACT, result(), result()], [2]),
    "actions that are replaced": ([RESET, ACT, ACT, result()], [1]),
    "a begin that is not recorded": ([ACT, result(), ACT, result()], [1]),
    "an end without a begin": ([ACT, result(1.0, True)], []),
    "no actions": ([RESET, result(1.0, True)], [1]),
}


@pytest.mark.parametrize("name", ODD)
def test_builder_counts_steps_in_incomplete_episodes(name):
    steps, episodes = ODD[name]
    assert [each.length for each in built(steps)[0]] == episodes


def test_builder_totals_numeric_rewards_and_ignores_others():
    rewards = [1, True, [1.5, 2], None, "three", math.nan, [[1], 2], 10**400]
    steps = [step for reward in rewards for step in (ACT, result(reward))]
    ((episode,), _) = built([RESET, *steps])
    assert (episode.total, episode.length) == (5.5, 8)
