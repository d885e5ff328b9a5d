"""Environments of all kinds, driven in one way."""

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from rlwire.environments.driver import Game, drive, is_environment, maker
from rlwire.environments.fitting import fitting
from rlwire.errors import EncodeError
from tests.raising import raised, raised_with

NAMES = "terminated", "truncated"


class Walk(gymnasium.Env):
    observation_space = spaces.Discrete(10)
    action_space = spaces.Discrete(3)

    def __init__(self, length=2):
        self.length = length
        self.closed = False

    def reset(self, *, seed=None, options=None):
        self.seed, self.options, self.place = seed, options, 0
        return 0, {"seed": seed}

    def step(self, action):
        self.place += int(action)
        return self.place, 1.0, self.place >= self.length, False, {}

    def close(self):
        self.closed = True


class Fall(dm_env.Environment):
    closed = False

    def observation_spec(self):
        return specs.Array((), np.float64)

    def action_spec(self):
        return specs.DiscreteArray(2)

    def reset(self):
        return dm_env.restart(np.float64(1.0))

    def step(self, action):
        end = dm_env.termination if action else dm_env.truncation
        return end(2.0, np.float64(0.0))

    def close(self):
        self.closed = True


class Pair:
    metadata: dict[str, str] = {}  # noqa: RUF012
    possible_agents = ("a", "b")

    def observation_space(self, agent):
        return spaces.Discrete(3 if agent == "a" else 4)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = ["a", "b"]
        return {"a": 0, "b": 1}, {"a": {"seed": seed}, "b": {}}

    def step(self, actions):
        assert set(actions) == set(self.agents), "only those that play act"
        reported = self.agents
        self.agents = ["b"]  # and no word of a
        return (
            {"b": 2}, dict.fromkeys(reported, 0.5), dict.fromkeys(reported, False),
            dict.fromkeys(reported, False), {"b": {"n": 1}},
        )  # fmt: skip

    def close(self):
        pass


def test_driver_drives_gymnasium_environments():
    driven = drive(Walk, {"length": 1})
    assert (driven.name, driven.agents, driven.reward_space) == ("Walk", (), None)
    assert driven.action_space == spaces.Discrete(3)
    assert driven.reset(7, {"x": 1}) == (0, {"seed": 7})
    assert driven.environment.options == {"x": 1}
    assert driven.step(1) == (1, 1.0, True, False, {})
    driven.close()
    assert driven.environment.closed
    assert drive("gym:CartPole-v1", {"max_episode_steps": 3}).name == "CartPole-v1"


def test_driver_drives_dm_env_environments():
    driven = drive(Fall())
    assert driven.name == "Fall"
    assert driven.observation_space.shape == ()
    assert driven.reset(3) == (1.0, {})
    assert driven.step(0) == (0.0, 2.0, False, True, {"discount": 1.0})
    assert driven.step(1) == (0.0, 2.0, True, False, {"discount": 0.0})


def test_driver_drives_pettingzoo_environments():
    driven = drive(Pair)
    assert (driven.name, driven.agents) == ("Pair", ("a", "b"))
    assert driven.observation_space == {"a": spaces.Discrete(3), "b": spaces.Discrete(4)}
    assert driven.reset(5) == ({"a": 0, "b": 1}, {"a": {"seed": 5}, "b": {}})
    assert driven.step({"a": 0, "b": 0}) == {
        "a": (0, 0.5, True, False, {}),  # dropped without a word: its last observation
        "b": (2, 0.5, False, False, {"n": 1}),
    }
    assert driven.step({"a": 0, "b": 0})["b"][0] == 2
    raised_with(TypeError, r"2 agents \(a, b\).*dm_env_rpc", driven.one, "dm_env_rpc")


@pytest.mark.parametrize("kind", [Walk, Fall])
def test_only_environments_made_by_the_driver_are_owned(kind):
    assert not drive(kind()).owned
    driven = drive(kind)
    assert driven.owned
    driven.close()
    assert driven.environment.closed


def test_environment_made_but_unsupported_is_closed():
    class Turns(Walk):
        possible_agents = agent_iter = ()

    made = []

    def make():
        made.append(Turns())
        return made[0]

    assert "aec_to_parallel" in str(raised(TypeError, drive, make))
    assert made[0].closed


def test_driver_rejects_structured_rewards_where_a_number_is_needed():
    class Two(Fall):
        def reward_spec(self):
            return {"x": specs.Array((), float)}

    raised(EncodeError, drive(Two()).one, "X")
    assert drive(Fall()).one("X").name == "Fall"


@pytest.mark.parametrize("reward", ["1", b"1", 1j, 10**400, np.zeros(2)], ids=str)
def test_game_rejects_rewards_that_are_not_one_number(reward):
    class Odd(Walk):
        def step(self, action):
            return 0, reward, False, False, {}

    game = Game(drive(Odd()), None)
    game.reset()
    assert "the reward must be one number" in str(raised(EncodeError, game.step, 1))
    assert game.total == 0


def test_objects_that_are_not_environments_are_rejected():
    for thing in (3, "sys:version", lambda: 3):
        assert "observation_space" in str(raised(TypeError, drive, thing))
    raised(TypeError, drive, gymnasium.make_vec("CartPole-v1", num_envs=2))
    assert "length" in str(raised(ValueError, drive, Walk(), {"length": 3}))
    assert "nonsense" in str(raised(ValueError, drive, "nonsense://127.0.0.1:1"))
    assert all(map(is_environment, (Walk, Walk(), Fall, Fall(), Pair, Pair())))
    assert not any(map(is_environment, (3, object, dict)))
    made, make = maker(Walk)
    assert made is None
    assert make is not None
    assert isinstance(make(), Walk)


@pytest.mark.parametrize(
    ("method", "result", "count"),
    [
        ("step", (0, 1.0, False, {}), "4 items"),
        ("step", None, "NoneType"),
        ("step", [0, 1.0, False, False], "4 items"),
        ("reset", 0, "int"),
        ("reset", (0,), "1 items"),
    ],
)
def test_results_of_the_old_api_are_named(monkeypatch, method, result, count):
    monkeypatch.setattr(Walk, method, lambda self, *_, **__: result)
    driven = drive(Walk)
    with pytest.raises(TypeError, match=rf"Walk: {method}\(\).*observation.*info.*{count}"):
        driven.step(0) if method == "step" else driven.reset()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.float32, [2**24 + 1, 0]), (np.bool_, [2, 0]), (np.uint8, [-1.0, 0.0]),
        (np.uint8, [300, 0]), (np.uint8, [np.nan, 0.0]), (np.uint8, [2.0**60, 0.0]),
        (np.float32, np.ma.array([1.0, 2.0], mask=[False, True])),
    ],
)  # fmt: skip
def test_values_that_the_dtype_of_a_space_cannot_represent_are_rejected(dtype, value):
    space = spaces.Box(0, 1, (2,), dtype)
    raised_with(EncodeError, "^it ", fitting(space, "it"), value)


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_flag_of_an_environment_that_is_no_boolean_is_named(name):
    class Odd(Walk):
        def step(self, action):
            return 0, 1.0, *(self.flag if each == name else False for each in NAMES), {}

    game = Game(drive(Odd()), None)
    game.reset()
    for game.environment.environment.flag in ("False", np.array([True, False])):
        raised_with(EncodeError, f"^{name} must be true or false", game.step, 1)
    game.environment.environment.flag = [False]  # to Python, true
    game.step(1)
    assert game.ended is getattr(game, name) is False


def test_flag_of_an_agent_that_is_no_boolean_is_named():
    class Odd(Pair):
        def step(self, actions):
            observations, rewards, _, truncations, infos = super().step(actions)
            return observations, rewards, {"b": np.array([True, False])}, truncations, infos

    pair = drive(Odd())
    pair.reset()
    raised_with(EncodeError, "^b: terminated must be", pair.step, dict.fromkeys("ab", 0))


def test_reward_of_an_agent_that_is_none_is_rejected():
    """PERLERT and dm_env_rpc would send 0, as for dm_env's None."""

    class Odd(Pair):
        def step(self, actions):
            observations, _, *flags_infos = super().step(actions)
            return observations, {"b": None}, *flags_infos

    pair = drive(Odd())
    pair.reset()
    raised_with(EncodeError, "reward of b must be", pair.step, dict.fromkeys("ab", 0))


def test_observation_that_contains_itself_is_rejected():
    seen = [1.0]
    seen.append(seen)
    game = Game(drive(Walk()), None)
    game.environment.environment.reset = lambda **_: (seen, {})
    raised_with(EncodeError, "observation contains itself", game.reset)
