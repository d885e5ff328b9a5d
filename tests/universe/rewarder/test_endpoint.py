"""`rlwire.make` over a rewarder: episodes in real time and in lockstep, losses, spaces."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import rlwire
from rlwire.errors import DecodeError, EncodeError, LocalProtocolError
from rlwire.universe.rewarder import RewarderServer

cartpole = functools.partial(gymnasium.make, "CartPole-v1")


class Nested(gymnasium.Env):
    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "pair": spaces.Tuple([spaces.Discrete(5, start=-2), spaces.Text(5)]),
        }
    )
    action_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def _seen(self) -> Any:
        image = np.full((2, 2), self.steps, np.uint8)
        return {"image": image, "pair": (np.int64(self.steps % 5 - 2), "abc")}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.steps += 1
        return self._seen(), float(action["a"][0]), False, self.steps == 3, {"steps": self.steps}


def serve(thing: Any, url: str = "universe://127.0.0.1:+0", **options: Any) -> Any:
    return rlwire.serve(thing, url, **{"lockstep": True, **options})


def test_lockstep_is_the_same_as_the_environment() -> None:
    theirs = cartpole()
    with serve(cartpole) as server, rlwire.make(server.url) as env:
        assert env.observation_space == theirs.observation_space
        assert env.action_space == theirs.action_space
        for seed in (3, 4):
            np.testing.assert_array_equal(env.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
            over = False
            for number in range(200):
                ours, original = env.step(number % 2), theirs.step(number % 2)
                np.testing.assert_array_equal(ours[0], original[0])
                assert ours[0].dtype == np.float32
                assert ours[1:4] == original[1:4]
                over = original[2]
                if over:
                    break
            assert over
            with pytest.raises(LocalProtocolError, match="call reset"):
                env.step(0)


def test_nested_spaces() -> None:
    action = {"a": np.array([0.5, 0], np.float32), "b": np.int64(2)}
    with serve(Nested) as server, rlwire.make(server.url) as env:
        assert env.observation_space == Nested.observation_space
        observation, _ = env.reset()
        assert observation in env.observation_space
        for number in range(1, 4):
            observation, reward, terminated, truncated, info = env.step(action)
            assert observation in env.observation_space
            assert observation["image"][0, 0] == number
            assert reward == 0.5
            assert info["steps"] == number
        assert (terminated, truncated) == (False, True)
        for wrong in ({"a": np.ones(2) * 2, "b": 1}, {"a": np.zeros(2)}, 3):
            env.reset()
            with pytest.raises(EncodeError):
                env.step(wrong)


@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_real_time_and_gymnasiums_checks() -> None:
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


def test_a_server_that_comes_back() -> None:
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
        with pytest.raises(OSError, match="127"):
            env.reset()
        with serve(cartpole, str(url)):
            np.testing.assert_array_equal(env.reset(seed=1)[0], cartpole().reset(seed=1)[0])
            assert env.step(0)[1] == 1.0


def test_spaces_that_are_not_told() -> None:
    with (
        RewarderServer("somewhere", "127.0.0.1:0") as server,
        pytest.raises(TypeError, match="does not tell its spaces"),
    ):
        rlwire.make(server.url)


def test_observations_of_another_kind() -> None:
    like = {"observation_space": spaces.Box(0, 1, (7,)), "action_space": spaces.Discrete(2)}
    with (
        serve(cartpole) as server,
        rlwire.make(server.url, **like) as env,
        pytest.raises(DecodeError, match="the observation is not in"),
    ):
        env.reset()
