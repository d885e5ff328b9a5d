"""`BlockingReset` around a vector that follows a test's script."""

import numpy as np
import pytest

from rlwire.errors import DeadlineExceeded
from rlwire.universe.environment import BlockingReset
from rlwire.universe.input import PEEK, key


def seen(number, *text):
    return {"vision": np.full((6, 8, 3), number, np.uint8), "text": list(text)}


def number(observation):
    return None if observation is None else int(observation["vision"][0, 0, 0])


class Vector:
    def __init__(self, *script, n=1):
        self.script = list(script)
        self.n = n
        self.actions = []
        self.closed = False
        self.waits = []

    def wait(self, timeout=None, *, status=False):
        self.waits.append((timeout, status))
        return True

    def reset(self, seed=None):
        return [None] * self.n

    def step(self, action_n):
        self.actions.append(list(action_n))
        step = self.script.pop(0) if self.script else [(None, 0.0, False, {})] * self.n
        observations, rewards, dones, infos = map(list, zip(*step, strict=True))
        return observations, rewards, dones, {"n": [dict(info) for info in infos]}

    def close(self):
        self.closed = True


NONE = (None, 0.0, False, {})


def test_a_wrapper_is_the_vector_within():
    inner = Vector(n=3)
    with BlockingReset(inner) as outer:
        assert outer.n == 3
        with pytest.raises(AttributeError):
            _ = outer.nothing_of_the_kind
    assert inner.closed


def test_a_reset_blocks_until_all_run():
    inner = Vector(
        [NONE, (seen(1, "a"), 1.0, False, {"x": 1})],
        [NONE, (seen(2, "b"), 2.0, False, {"x": 2})],
        [(seen(9), 5.0, False, {}), (seen(3), 0.5, False, {})],
        n=2,
    )
    env = BlockingReset(inner)
    first, second = env.reset(seed=1)
    assert (number(first), number(second)) == (9, 3)
    assert second["text"] == ["a", "b"]
    assert inner.waits == [(None, True)] * 2
    inner.script = [[(seen(10, "c"), 1.0, False, {}), (seen(4, "d"), 0.0, True, {"x": 3})]]
    observations, rewards, dones, info = env.step([[key("a", True)], []])
    # What came while it waited is in the first step, but for texts, which the reset gave.
    assert list(map(number, observations)) == [10, 4]
    assert [each["text"] for each in observations] == [["c"], ["d"]]
    assert rewards == [6.0, 3.5]
    assert dones == [False, True]
    assert info["n"][1]["x"] == 3


def test_step_blocks_where_an_index_resets_and_leaves_the_next_episode():
    inner = Vector(
        [(seen(1), 0.0, False, {}), (seen(1), 0.0, False, {})],
        [(None, 7.0, True, {}), (seen(2), 1.0, False, {})],
        [NONE, (seen(3), 1.0, False, {})],
        [(seen(5), 0.0, False, {}), (seen(4), 1.0, False, {})],
        n=2,
    )
    env = BlockingReset(inner)
    env.reset()
    inner.actions.clear()
    observations, rewards, dones, _ = env.step([[], []])
    assert list(map(number, observations)) == [5, 4]
    assert (rewards, dones) == ([7.0, 3.0], [True, False])
    assert inner.actions == [[[], []], [[PEEK], []], [[PEEK], []]]


def test_reset_over_its_timeout_names_the_status():
    inner = Vector([(None, 0.0, True, {"error": "it is gone"})])
    env = BlockingReset(inner, timeout=0.05)
    with pytest.raises(DeadlineExceeded, match=r"\[0\].*0\.05 s: it is gone"):
        env.reset()
    assert all(status and 0 < left <= 0.05 for left, status in inner.waits)
