"""A deterministic environment of dm_env: its number and the actions determine every observation."""

import dm_env
import numpy as np
from dm_env import specs
from dm_env_rpc.v1.dm_env_flatten_utils import flatten_dict


class Voyage(dm_env.Environment):
    def __init__(self, first=0):
        self._number = first - 1
        self._day = 0
        self._place = np.zeros(2, np.float32)
        self._over = True

    def observation_spec(self):
        return {
            "place": specs.BoundedArray((2,), np.float32, -4.0, 4.0, name="place"),
            "log": {
                "day": specs.DiscreteArray(9, np.int32, name="day"),
                "entry": specs.StringArray((), name="entry"),
                "calm": specs.Array((), bool, name="calm"),
            },
            "sea": specs.BoundedArray((5, 5, 3), np.uint8, 0, 255, name="sea"),
            "stars": specs.Array((3,), np.int64, name="stars"),
        }

    def action_spec(self):
        return {
            "course": specs.DiscreteArray(4, np.int32, name="course"),
            "sail": specs.BoundedArray((2,), np.float32, [0.0, -1.0], [1.0, 1.0], name="sail"),
        }

    def reset(self):
        self._number += 1
        self._day = 0
        self._place = np.zeros(2, np.float32)
        self._over = False
        return dm_env.restart(self._observation())

    def step(self, action):
        if self._over:
            return self.reset()
        course = int(action["course"])
        wind = np.float32(((self._number * 7 + self._day * 3) % 5) / 5)
        stride = np.float32(0.5) + wind * np.asarray(action["sail"], np.float32)[0]
        way = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)][course], np.float32)
        self._place = np.clip(self._place + way * stride, np.float32(-4), np.float32(4))
        self._day += 1
        observation = self._observation()
        if (self._number + self._day) % 11 == 0:  # a reef
            self._over = True
            return dm_env.termination(-1.0, observation)
        if np.abs(self._place).max() >= 2.5:  # the harbour
            self._over = True
            return dm_env.termination(10.0 + float(wind), observation)
        if self._day == 8:
            self._over = True
            return dm_env.truncation(0.0, observation, 0.75)
        return dm_env.transition(float(self._place.sum()) / 7, observation, 0.99)

    def _observation(self):
        sea = np.zeros((5, 5, 3), np.uint8)
        sea[..., self._number % 3] = np.arange(25).reshape(5, 5) * (self._day + 1) % 256
        return {
            "place": self._place.copy(),
            "log": {
                "day": np.int32(self._day),
                "entry": f"voyage {self._number}, day {self._day} ✓",
                "calm": np.bool_((self._number + self._day) % 2 == 0),
            },
            "sea": sea,
            "stars": np.array([self._number, -self._day, 2**40 + self._number]),
        }


def actions(voyage, day):
    number = voyage * 31 + day * 17
    return {
        "course": np.int32(number // 3 % 4 if number % 5 else 0),
        "sail": np.array([number % 11 / 10, number % 21 / 10 - 1], np.float32),
    }


def flat(observation):
    return {name: np.asarray(value) for name, value in flatten_dict(observation, ".").items()}


def compare(one, other, where):
    """Raise an AssertionError where two steps differ in any bit."""
    assert one.step_type == other.step_type, where
    for name in ("reward", "discount"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if one.first() and theirs is None:
            continue  # some say 0 or 1 here, which is no part of dm_env's first step
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes(), (where, name)
    mine, theirs = flat(one.observation), flat(other.observation)
    assert mine.keys() == theirs.keys(), where
    for name, value in theirs.items():
        same = (mine[name].dtype, mine[name].shape) == (value.dtype, value.shape)
        assert same, (where, name, mine[name].dtype, mine[name].shape)
        assert mine[name].tobytes() == value.tobytes(), (where, name)
