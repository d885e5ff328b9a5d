"""`rlwire.make` over a rewarder: episodes in real time and in lockstep, losses, spaces."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import rlwire
from rlwire.errors import DecodeError, EncodeError, LocalProtocolError
from rlwire.universe.rewarder import RewarderServer
from tests.raising import raised, raised_with

cartpole = functools.partial(gymnasium.make, "CartPole-v1")


def serve(thing, url="universe://127.0.0.1:+0", **options):
    return rlwire.serve(thing, url, **{"lockstep": True, **options})


def test_lockstep_step_after_the_episode_requires_a_reset():
    with serve(cartpole) as server, rlwire.make(server.url) as env:
        assert env.observation_space == cartpole().observation_space
        env.reset()
        while not env.step(1)[2]:
            pass
        raised(LocalProtocolError, env.step, 0)


@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_real_time_environment_passes_the_gymnasium_checker():
    with (
        serve(cartpole, lockstep=False, rate=500, auth="hush") as server,
        rlwire.make(server.url, auth="hush") as env,
    ):
        check_env(env)
        env.reset()
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(1)
            total, over = total + reward, terminated or truncated
        assert total >= 8  # none of the rewards is lost
        assert "hush" not in repr(env.spec)


def test_client_reconnects_to_a_restarted_server():
    server = serve(cartpole)
    url = server.url
    with rlwire.make(url) as env:
        env.reset(seed=1)
        last = env.step(0)[0]
        server.stop()
        observation, reward, terminated, truncated, info = env.step(0)
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["lost"]
        np.testing.assert_array_equal(observation, last)
        assert "127" in str(raised(OSError, env.reset))
        with serve(cartpole, str(url)):
            np.testing.assert_array_equal(env.reset(seed=1)[0], cartpole().reset(seed=1)[0])
            assert env.step(0)[1] == 1.0


def test_make_requires_spaces_if_the_server_describes_none():
    with RewarderServer("somewhere", "127.0.0.1:0") as server:
        raised_with(TypeError, "observation_space=", rlwire.make, server.url)


def test_observation_outside_the_given_space_is_rejected():
    like = {"observation_space": spaces.Box(0, 1, (7,)), "action_space": spaces.Discrete(2)}
    with serve(cartpole) as server, rlwire.make(server.url, **like) as env:
        raised_with(DecodeError, "the observation is not in", env.reset)


class Recorder(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(3, start=-1)

    def reset(self, seed=None, options=None):
        self.actions = []
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.actions.append(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_discrete_actions_are_cast_to_elements_of_the_space():
    recorder = Recorder()
    with serve(recorder) as server, rlwire.make(server.url) as env:
        env.reset()
        for action in (-1, 1, True, np.int64(0), np.array(1)):
            env.step(action)
        for action in (2, -2, 0.5, "1", None):
            raised(EncodeError, env.step, action)
    assert recorder.actions == [-1, 1, 1, 0, 1]
    assert {type(action) for action in recorder.actions} == {np.int64}
