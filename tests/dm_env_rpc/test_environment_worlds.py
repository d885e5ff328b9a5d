"""Environments of dm_env and Gymnasium as worlds, without any connection."""

import functools
import itertools

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from rlwire.codecs import dm_env_rpc as d
from rlwire.dm_env_rpc import EnvironmentWorlds, StatusError
from rlwire.dm_env_rpc.step_converter import StepConverter
from rlwire.environments.driver import driver_of
from rlwire.errors import EncodeError
from rlwire.sessions.dm_env_rpc import Code
from tests.raising import raised

_, RUNNING, TERMINATED, INTERRUPTED = d.EnvironmentStateType


class Walk(dm_env.Environment):
    """A walk along a line of `length` places; it ends there, or after 5 steps."""

    def __init__(self, length=3, kind="plain", task=None, map=None):
        if length < 1:
            raise ValueError("length must be positive")
        self.length = length
        self.kind = kind
        self.task, self.map = task, map
        self.closed = False
        self.place = self.steps = 0
        Walk.made.append(self)

    def observation_spec(self):
        return specs.BoundedArray((1,), np.int32, 0, self.length, name="place")

    def action_spec(self):
        return specs.DiscreteArray(3, name="stride")

    def reset(self):
        self.place = self.steps = 0
        return dm_env.restart(self._observation())

    def step(self, action):
        if action == 2:
            raise RuntimeError("the legs are too short")
        self.place += int(action)
        self.steps += 1
        if self.place == self.length:
            return dm_env.termination(1.0, self._observation())
        if self.steps == 5:
            return dm_env.truncation(-1.0, self._observation(), 0.5)
        return dm_env.transition(0.25, self._observation(), 0.9)

    def close(self):
        self.closed = True

    def _observation(self):
        return np.array([self.place], np.int32)


class Dice(gymnasium.Env):
    """Throws dice; the sum is the reward."""

    observation_space = spaces.Dict(
        {"dice": spaces.MultiDiscrete([6, 6]), "odd": spaces.Discrete(2)}
    )
    action_space = spaces.Dict(
        {"count": spaces.Discrete(2, start=1), "cheat": spaces.MultiBinary(1)}
    )

    def __init__(self, most=4):
        self.most = most
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append((seed, options))
        self.throws = 0
        return self._throw(2), {"hidden": 1}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.throws += int(action["count"])
        seen = self._throw(6 if action["cheat"][0] else 2)
        return seen, int(seen["dice"].sum()), self.throws == 3, self.throws >= self.most, {}

    def _throw(self, sides):
        dice = self.np_random.integers(0, sides, 2)
        return {"dice": dice, "odd": int(dice.sum() % 2)}


def made_world(make, settings=None, **options):
    return EnvironmentWorlds(make, **options)(settings or {})


@pytest.fixture(autouse=True)
def nothing_made():
    Walk.made = []


def check(agent, result):
    manager = d.SpecManager(agent.specs.observations)
    wire = d.encode_step_response(manager, result.state, result.observations)
    _state, seen = d.decode_step_response(manager, wire)
    return result.state, {name: value.tolist() for name, value in seen.items()}


def refusal(call, *arguments):
    return raised(StatusError, call, *arguments).message


def test_agent_plays_a_dm_env_environment():
    agent = made_world(Walk).join({})
    assert [spec.name for spec in agent.specs.actions.values()] == ["stride"]
    assert {uid: (spec.name, spec.dtype) for uid, spec in agent.specs.observations.items()} == {
        1: ("place", d.DataType.INT32),
        2: ("reward", d.DataType.DOUBLE),
        3: ("discount", d.DataType.DOUBLE),
    }
    one, none = {"stride": np.int32(1)}, {"stride": np.int32(0)}
    for _ in range(2):
        assert check(agent, agent.begin()) == (RUNNING, {"place": [0], "reward": 0, "discount": 1})
        for place in (1, 2):
            step = check(agent, agent.step(one))
            assert step == (RUNNING, {"place": [place], "reward": 0.25, "discount": 0.9})
        last = check(agent, agent.step(one))
        assert last == (TERMINATED, {"place": [3], "reward": 1.0, "discount": 0.0})
    agent.begin()
    for _ in range(4):
        assert agent.step(none).state == RUNNING
    last = check(agent, agent.step(none))
    assert last == (INTERRUPTED, {"place": [0], "reward": -1.0, "discount": 0.5})


def test_reward_and_discount_observation_names_are_configurable():
    class Plain(gymnasium.Env):
        observation_space = action_space = spaces.Discrete(2)

    agent = made_world(Plain).join({})
    assert [spec.name for spec in agent.specs.observations.values()] == [
        "observation", "reward", "discount",
    ]  # fmt: skip
    assert [spec.name for spec in agent.specs.actions.values()] == ["action"]
    agent = made_world(Plain, reward="score", discount="").join({})
    assert [spec.name for spec in agent.specs.observations.values()] == ["observation", "score"]


def test_observation_called_reward_is_rejected_unless_renamed():
    class Rewarding(Walk):
        def observation_spec(self):
            return {"reward": specs.Array((1,), np.int32)}

        def _observation(self):
            return {"reward": np.array([self.place], np.int32)}

    assert "reward=''" in str(raised(EncodeError, made_world, Rewarding))
    assert Walk.made[0].closed
    agent = made_world(Rewarding, reward="").join({})
    assert check(agent, agent.begin()) == (RUNNING, {"reward": [0], "discount": 1})


def test_every_action_is_given_or_has_a_default():
    agent = made_world(Dice).join({})
    agent.begin()
    error = raised(StatusError, agent.step, {})
    assert error.code == Code.INVALID_ARGUMENT
    assert "'cheat', 'count'" in error.message
    agent.step({"count": np.int64(1), "cheat": np.int8([0])})
    agent = made_world(Dice, default_actions={"cheat": [0]}).join({})
    agent.begin()
    agent.step({"count": np.int64(1)})
    assert refusal(agent.step, {}).endswith("missing: 'count'")
    for actions, text in (({"jump": 1}, "no action 'jump'"), ({"count": 3}, "out of bounds")):
        assert text in str(raised(EncodeError, made_world, Dice, default_actions=actions))


def test_world_settings_become_factory_arguments():
    given = {"length": np.int32(2), "kind": np.str_("steep"), "task.a.b": np.float32([1, 2])}
    given |= {"map.x.a": 1, "map.x.b": 2}
    world = made_world(Walk, given, accepts=["length", "kind", "task", "map.x"])
    (walk,) = Walk.made
    assert (walk.length, type(walk.length), walk.kind, type(walk.kind)) == (2, int, "steep", str)
    assert walk.task["a"]["b"].tolist() == [1, 2]
    assert walk.map == {"x": {"a": 1, "b": 2}}
    assert world.join({}).specs.observations[1].max == 2
    assert len(Walk.made) == 1  # the agent has the environment that was made


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"depth": 1}, "setting 'depth' not accepted; accepted: length, map.x, seed, task; "),
        ({"kind": 1, "x": 2}, "settings 'kind', 'x' not accepted; accepted: "),
        ({"lengths": 1}, "setting 'lengths' not accepted"),
        ({"options.a": 1}, "setting 'options.a' not accepted"),
        ({"seed": 1}, "setting 'seed' not accepted; accepted: length, map.x, task; "),
        ({"task" + 100 * ".a": 1}, "101 is over the limit depth=64"),
        ({"task": 1, "task.a": 2}, "cannot be nested"),
        *(({name: 1}, "not accepted") for name in ("map", "map.path", "map.xs", "map.")),
    ],
)
def test_unaccepted_settings_are_rejected_by_name(given, text):
    error = raised(StatusError, made_world, Walk, given, accepts=["length", "task", "map.x"])
    assert error.code == Code.INVALID_ARGUMENT
    assert text in error.message
    assert all(walk.closed for walk in Walk.made)


def test_missing_required_settings_are_rejected_by_name():
    def make(size, *, colour="red", place):
        return Walk(size)

    worlds = EnvironmentWorlds(make, accepts=["size", "colour", "place"])
    error = raised(StatusError, worlds, {"colour": np.str_("blue")})
    assert error.code == Code.INVALID_ARGUMENT
    assert error.message == "settings 'size', 'place' must be given when a world is created"
    text = refusal(worlds, {"shape": np.int32(1)})
    assert "accepted: colour, place (required), seed, size (required); " in text
    worlds({"size": np.int32(1), "place": np.int32(1)})


def test_invalid_accepts_are_rejected():
    def make(size, colour="red"):
        return Walk(size)

    assert EnvironmentWorlds(make, accepts=["size"]).accepts == {"size", "seed"}
    EnvironmentWorlds(functools.partial(make, size=3))({})
    for kind, accepts, text in (
        (TypeError, (), "make needs 'size'"),
        (ValueError, ["sizes"], "make has no argument 'sizes'; it has size, colour"),
        (TypeError, "size", "such as ['size']"),
    ):
        assert text in str(raised(kind, EnvironmentWorlds, make, accepts=accepts))
    anything = EnvironmentWorlds(lambda **given: make(**given), accepts=["depth"])
    assert "unexpected keyword argument 'depth'" in refusal(anything, {"depth": np.int32(2)})
    assert Walk.made[1:] == []


def test_settings_of_a_join_and_a_reset_make_another_environment():
    world = made_world(Walk, {"length": np.int32(2)}, accepts=["length", "kind"])
    agent = world.join({"length": np.int32(4), "kind": np.str_("steep")})
    assert agent.specs.observations[1].max == 4
    agent.begin()
    before = agent.specs
    agent.reset({})
    assert agent.specs is before
    for _ in range(2):
        agent.reset({"length": np.int32(5)})
        assert [(walk.length, walk.kind, walk.closed) for walk in Walk.made] == [
            (2, "plain", True), (4, "steep", True), (5, "steep", False),
        ]  # fmt: skip
    assert agent.specs.observations[1].max == 5
    raised(ValueError, agent.reset, {"length": np.int32(0)})
    assert check(agent, agent.begin())[1]["place"] == [0]  # the old one is still there
    assert not Walk.made[2].closed
    for call in (world.join, agent.reset, world.reset):
        assert "'depth' not accepted" in refusal(call, {"depth": 1})


def test_environment_receives_seed_and_options_at_its_next_reset():
    made = []

    def make(most=4):
        made.append(Dice(most))
        return made[-1]

    given = {"seed": np.int64(1), "options.a": np.int32(5)}
    world = made_world(make, given, accepts=["most", "options"])
    agent = world.join({})
    agent.begin()
    agent.begin()
    agent.reset({"seed": np.uint8(3), "options.b.c": np.str_("x")})
    agent.begin()
    agent.begin()
    agent.close()
    other = world.join({"seed": np.int64(2)})
    other.begin()
    (dice,) = made
    assert dice.seeds == [
        (1, {"a": 5}), (None, None), (3, {"b": {"c": "x"}}), (None, None), (2, {"a": 5}),
    ]  # fmt: skip
    for wrong in (np.int64(-1), np.float32(1), np.str_("x"), np.int64([1]), np.bool_(True)):
        assert "seed must be an integer" in refusal(other.reset, {"seed": wrong})
    assert "options.NAME" in refusal(other.reset, {"options": np.int32(1)})


def test_factory_with_a_seed_parameter_receives_accepted_seeds():
    seeds = []

    def make(seed=0):
        seeds.append(seed)
        return Dice()

    for accepts, expected in ((["seed"], [1, 2]), ([], [0])):  # unlisted, it is the reset's
        seeds.clear()
        agent = made_world(make, {"seed": np.int64(1)}, accepts=accepts).join({})
        agent.begin()
        agent.reset({"seed": np.int64(2)})
        agent.begin()
        assert seeds == expected


def test_reset_world_settings_apply_to_the_next_reset_of_an_agent():
    world = made_world(Walk, accepts=["length", "kind"])
    agent = world.join({"kind": np.str_("steep")})
    world.reset({"length": np.int32(7), "kind": np.str_("flat")})
    agent.reset({})
    assert [(walk.length, walk.kind) for walk in Walk.made[2:]] == [(7, "steep")]
    assert agent.specs.observations[1].max == 7


def test_environment_is_reused_for_the_next_agent_unless_it_has_failed():
    world = made_world(Walk)
    first = world.join({})
    assert raised(StatusError, world.join, {}).code == Code.RESOURCE_EXHAUSTED
    first.close()
    agent = world.join({})
    assert len(Walk.made) == 1
    agent.begin()
    raised(RuntimeError, agent.step, {"stride": np.int32(2)})
    assert agent.step({"stride": np.int32(1)}).state == RUNNING
    agent.close()
    assert Walk.made[0].closed
    world.join({}).close()
    world.close()
    assert [walk.closed for walk in Walk.made] == [True, True]


def test_given_instance_is_used_and_not_closed():
    walk = Walk()
    worlds = EnvironmentWorlds(walk)
    first = worlds({})
    assert raised(StatusError, worlds, {}).code == Code.RESOURCE_EXHAUSTED
    agent = first.join({})
    assert raised(StatusError, first.join, {}).code == Code.RESOURCE_EXHAUSTED
    agent.begin()
    raised(RuntimeError, agent.step, {"stride": np.int32(2)})
    agent.close()
    first.join({}).close()
    first.close()
    assert not walk.closed
    assert worlds({}).join({}).begin().state == RUNNING


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3), np.float32),
        spaces.Box(-1, 1, (2,), np.float16),
        spaces.Discrete(5),
        spaces.MultiBinary(3),
        spaces.Text(5),
        spaces.Dict(a=spaces.Box(0, 9, (2,), np.int16), b=spaces.Tuple([spaces.Discrete(2)] * 2)),
    ],
)
@pytest.mark.parametrize("omitted", [{}, {"reward": ""}, {"discount": ""}])
def test_fast_step_conversion_equals_the_general_conversion(space, omitted):
    environment = gymnasium.Env()
    environment.observation_space, environment.action_space = space, spaces.Discrete(2)
    # An info takes the general way.
    converter = StepConverter(driver_of(environment), **omitted, infos=False)

    def result(observation, reward, ends, info):
        try:
            return converter.stepped(observation, reward, *ends, info)
        except EncodeError as error:
            return str(error)

    for reward in (1, 2.5, True, np.float32(3), np.array([4.0]), np.nan, "much", [1, 2]):
        for ends in itertools.product((False, True), repeat=2):
            for observation in (space.sample(), "wrong", None):
                given = observation, reward, ends
                assert repr(result(*given, {})) == repr(result(*given, {"some": 1}))
