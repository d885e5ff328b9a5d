"""`DmEnvironment` over dm_env_rpc and others: dm_env's own tests, and what it does besides them."""

import functools

import dm_env
import gymnasium
import numpy as np
import pytest
import tree
from absl.testing import absltest
from dm_env import specs, test_utils
from gymnasium import spaces

import rlwire
from rlwire.dm_env_rpc import EnvironmentWorlds, Server
from rlwire.dm_env_rpc.environment import DmEnvRpcEndpoint
from rlwire.environments.dm_env import DmEnvironment, specs_of
from rlwire.environments.remote import RemoteEnvironment
from rlwire.errors import EncodeError
from tests.dm_env_rpc import voyage
from tests.raising import raised

URL = "dm-env-rpc://127.0.0.1:0"
cartpole = functools.partial(gymnasium.make, "CartPole-v1")


def face(address, **options):
    return DmEnvironment(RemoteEnvironment(DmEnvRpcEndpoint(address, **options)))


class TestDmEnvConformance(test_utils.EnvironmentTestMixin, absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = rlwire.serve(voyage.Voyage, URL)
        cls.addClassCleanup(cls.server.stop)

    def make_object_under_test(self):
        return DmEnvironment(rlwire.make(self.server.url))

    def make_action_sequence(self):
        for day in range(30):
            yield voyage.actions(0, day)


def test_remote_specs_equal_the_local_environments(reference_server):
    with face(reference_server) as remote:
        local = voyage.Voyage()
        theirs = local.observation_spec()
        theirs["stars"] = specs.BoundedArray((3,), np.int64, -(2**63), 2**63 - 1, "stars")
        tree.map_structure(check_same_spec, remote.observation_spec(), theirs)
        tree.map_structure(check_same_spec, remote.action_spec(), local.action_spec())
        assert remote.reward_spec() == specs.Array((), float)
        assert remote.discount_spec() == specs.BoundedArray((), float, 0.0, 1.0)


def check_same_spec(one, other):
    assert type(one) is type(other)
    assert one == other
    assert one.name == other.name


def test_observation_space_option_selects_the_observations(reference_server):
    shown = spaces.Dict({"log": spaces.Dict({"day": spaces.Discrete(9, dtype=np.int32)})})
    with face(reference_server, observation_space=shown) as remote:
        assert remote.observation_spec() == {"log": {"day": specs.DiscreteArray(9)}}
        first = remote.reset()
        assert (first.reward, first.discount) == (None, None)
        assert first.observation == {"log": {"day": 0}}
        second = remote.step({"course": 0, "sail": np.float32([0.5, 0])})
        assert type(second.reward) is float
        assert second.discount == 0.99
    with face(reference_server, reward="place", discount="") as remote:
        assert remote.reward_spec().shape == (2,)
        assert "place" not in remote.reset().observation
        step = remote.step({"course": 0, "sail": np.float32([0.5, 0])})
        assert step.reward.shape == (2,)
        assert step.discount == 1.0
        assert "discount" in step.observation


def test_remote_environment_numbers_first_mid_and_last_steps(reference_server):
    with face(reference_server) as remote:
        assert remote.step({"ignored": "altogether"}).first()
        assert remote.step(voyage.actions(0, 0)).mid()
        assert "must be a mapping" in str(raised(EncodeError, remote.step, 3))
        assert "no entry 'course'" in str(raised(EncodeError, remote.step, {"fly": 1}))
        assert remote.step(voyage.actions(0, 1)).observation["log"]["day"] == 2
        assert remote.reset().first()
        assert remote.reset().observation["log"]["day"] == 0


def test_missing_reward_and_discount_observations_have_defaults():
    worlds = EnvironmentWorlds(voyage.Voyage, reward="", discount="")
    with Server(worlds, "127.0.0.1:0") as server, face(server.address) as remote:
        assert remote.reward_spec() == specs.Array((), float)
        seen = set()
        for day in range(60):
            step = remote.step(voyage.actions(0, day))
            if not step.first():
                assert step.reward == 0.0
                seen.add((step.last(), step.discount))
        assert seen >= {(False, 1.0), (True, 0.0)}


class Nested(dm_env.Environment):
    def observation_spec(self):
        return specs.Array((1,), float, "x")

    def action_spec(self):
        return specs.DiscreteArray(2, name="do")

    def reward_spec(self):
        return {"good": specs.Array((), float), "bad": specs.Array((2,), np.float32)}

    def reset(self):
        return dm_env.restart(np.zeros(1))

    def step(self, action):
        return dm_env.transition({"good": float(action), "bad": np.float32([1, 2])}, np.ones(1))


def test_nested_reward_reaches_dm_env_clients_and_the_info():
    with rlwire.serve(Nested, URL) as server:
        with rlwire.make(server.url) as env:
            env.reset()
            _, reward, _, _, info = env.step(env.action_space.sample())
            assert (reward, info["reward"]["bad"].tolist()) == (0.0, [1, 2])
        with DmEnvironment(rlwire.make(server.url)) as remote:
            assert remote.reward_spec()["bad"] == Nested().reward_spec()["bad"]
            assert remote.reward_spec()["good"].shape == ()
            assert remote.observation_spec() == specs.Array((1,), float, "observation")
            assert remote.reset().reward is None
            reward = remote.step(1).reward
            assert reward["good"] == 1.0
            assert reward["bad"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (URL, {}),
        ("universe://127.0.0.1:+0", {"lockstep": True}),
        ("perlert://127.0.0.1:0/cartpole", {"rate": 500}),
    ],
)
def test_dm_env_adapter_plays_environments_of_each_protocol(url, options):
    with (
        rlwire.serve(cartpole, url, **options) as server,
        DmEnvironment(rlwire.make(server.url, like="CartPole-v1")) as env,
    ):
        assert env.action_spec() == specs.DiscreteArray(2, np.int64)
        assert env.observation_spec().shape == (4,)
        steps = [env.reset()]
        assert steps[0].first()
        while not steps[-1].last():
            env.observation_spec().validate(steps[-1].observation)
            steps.append(env.step(1))
        assert 0 < sum(step.reward for step in steps[1:]) < 500
        assert steps[-1].discount == 0.0
        assert env.step(1).first()


@pytest.mark.each(
    ("space", "expected"),
    [
        (spaces.Text(3), specs.StringArray((), name="a")),
        (spaces.Discrete(5, dtype=np.int32), specs.DiscreteArray(5, np.int32, "a")),
        (spaces.Discrete(5, start=2), specs.BoundedArray((), np.int64, 2, 6, "a")),
        (spaces.MultiBinary((2, 3)), specs.BoundedArray((2, 3), np.int8, 0, 1, "a")),
        (spaces.MultiDiscrete([3, 4], start=[0, 2]),
         specs.BoundedArray((2,), np.int64, [0, 2], [2, 5], "a")),
        (spaces.Box(0, 255, (2, 2), np.uint8), specs.BoundedArray((2, 2), np.uint8, 0, 255, "a")),
        (spaces.Box(0, 1, (2,), np.bool_), specs.Array((2,), bool, "a")),
        (spaces.Box(-np.inf, np.inf, (2,)), specs.Array((2,), np.float32, "a")),
        (spaces.Box(np.float32([0, 1]), np.float32([4, 4])),
         specs.BoundedArray((2,), np.float32, [0, 1], 4, "a")),
    ],
)  # fmt: skip
def test_spaces_convert_to_dm_env_specs(space, expected):
    check_same_spec(specs_of(space, "a"), expected)
    expected.validate(space.sample())


def test_nested_spaces_convert_to_nested_specs():
    found = specs_of(spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), spaces.Text(1)])}))
    assert found == {"a": (specs.DiscreteArray(2, np.int64), specs.StringArray(()))}
    unsupported = spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))})
    assert "Sequence at a, " in str(raised(EncodeError, specs_of, unsupported))
