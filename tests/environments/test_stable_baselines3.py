"""Vectors of environments as Stable-Baselines3 has them, and PPO that learns over the wire."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlwire
from rlwire.environments.vector import local
from tests.raising import raised, raised_with

pytestmark = pytest.mark.training

vec_env = pytest.importorskip("stable_baselines3.common.vec_env")


class Counting(gymnasium.Env):
    """Counts to three; then its episode is over, or cut off every second time."""

    observation_space = spaces.Box(-10, 10, (2,))
    action_space = spaces.Discrete(3)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        self.count = 0
        return self._seen(), {"episodes": self.episodes, "seed": seed, "options": options}

    def _seen(self):
        return np.array([self.count, self.episodes], np.float32)

    def step(self, action):
        self.count += 1
        over = self.count == 3
        odd = bool(self.episodes % 2)
        return self._seen(), float(action), over and odd, over and not odd, {"count": self.count}

    def add(self, number):
        return self.episodes + number


def ours(count, **options):
    from rlwire.environments.stable_baselines3 import VecEnv

    return VecEnv(local([Counting] * count, mode="SameStep", **options))


@pytest.mark.parametrize("workers", [0, 2])
def test_sb3_vector_equals_dummy_vec_env(workers):
    theirs = vec_env.DummyVecEnv([Counting] * 3)
    envs = ours(3, workers=workers)
    for each in (theirs, envs):
        each.seed(5)
        each.set_options({"x": 1})
    np.testing.assert_array_equal(envs.reset(), theirs.reset())
    assert envs.reset_infos == theirs.reset_infos
    for number in range(8):
        given = np.array([number % 3, 1, 2])
        one, other = envs.step(given), theirs.step(given)
        for mine, yours in zip(one[:3], other[:3], strict=True):
            assert mine.dtype == yours.dtype
            np.testing.assert_array_equal(mine, yours)
        for mine, yours in zip(one[3], other[3], strict=True):
            last = mine.pop("terminal_observation", None), yours.pop("terminal_observation", None)
            np.testing.assert_array_equal(*last)
            assert mine == yours
        assert envs.reset_infos == theirs.reset_infos
    assert envs.get_attr("episodes", [0, 2]) == theirs.get_attr("episodes", [0, 2]) == [3, 3]
    envs.set_attr("episodes", 7, indices=1)
    assert envs.get_attr("episodes") == [3, 7, 3]
    assert envs.env_method("add", 1, indices=[1, 0]) == [8, 4]
    assert envs.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [False] * 3
    envs.set_options([{"x": 1}, {}, {}])
    raised(ValueError, envs.reset)
    envs.close()
    theirs.close()


def test_sb3_vector_rejects_other_autoreset_modes_and_copy():
    from rlwire.environments.stable_baselines3 import VecEnv

    with local([Counting], workers=0) as envs:
        raised_with(ValueError, r"autoreset_mode='SameStep'", VecEnv, envs)
    assert "copy=" in str(raised(ValueError, ours, 1, workers=0, copy=False))


def test_ppo_learns_in_a_vector_of_remote_environments():
    from stable_baselines3 import PPO

    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        envs = rlwire.make_vec([server.url] * 2, sb3=True)
        assert envs.spec.max_episode_steps == 500
        with contextlib.closing(vec_env.VecMonitor(envs)) as monitored:
            model = PPO("MlpPolicy", monitored, n_steps=64, seed=1, device="cpu").learn(256)
        assert model.num_timesteps == 256
        assert model.ep_info_buffer
