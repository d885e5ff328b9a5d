"""Agents of dm_env_rpc's servers as endpoints: spaces, episodes, losses."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

from rlwire.codecs.dm_env_rpc import DataType, make_spec
from rlwire.dm_env_rpc import EnvironmentWorlds, Server, StatusError
from rlwire.dm_env_rpc.agent_spaces import check_sizes, space_of_specs
from rlwire.dm_env_rpc.environment import DmEnvRpcEndpoint
from rlwire.environments.remote import RemoteEnvironment
from rlwire.errors import EncodeError, LimitExceeded, LocalProtocolError, RemoteProtocolError
from rlwire.limits import DEFAULT
from rlwire.transports.sockets import Backoff
from tests.dm_env_rpc.worlds import Canvas
from tests.raising import raised, raised_with

NESTED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (3, 2), np.uint8),
        "pair": spaces.Tuple([spaces.Discrete(5, start=-2), spaces.MultiBinary(3)]),
        "deep": spaces.Dict({"word": spaces.Text(5), "low": spaces.Box(-1, 1, (2,), np.float64)}),
    }
)
ACTIONS = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.MultiDiscrete([3, 4])})
ACTION = {"a": np.array([0.25, 0], np.float32), "b": np.array([2, 3])}


class Nested(gymnasium.Env):
    observation_space = NESTED
    action_space: Any = ACTIONS

    def __init__(self, ends=4, high=1.0):
        self.ends = ends
        self.action_space = spaces.Dict(
            {"a": spaces.Box(-high, high, (2,)), "b": spaces.MultiDiscrete([3, 4])}
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0 if options is None else int(options["from"])
        return self._seen(), {}

    def _seen(self):
        return {
            "image": self.np_random.integers(0, 255, (3, 2), np.uint8),
            "pair": (np.int64(self.steps % 5 - 2), np.array([1, 0, 1], np.int8)),
            "deep": {"word": "abc", "low": np.array([0.5, -1])},
        }

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        over = self.steps >= self.ends
        return self._seen(), float(action["a"][0]), False, over, {}


@pytest.fixture
def serve(stack):
    def start(make, address="127.0.0.1:0", **options):
        return stack.enter_context(Server(EnvironmentWorlds(make, **options), address))

    return start


def cartpole():
    return gymnasium.make("CartPole-v1")


def test_nested_spaces_and_values_equal_the_local_environments(serve):
    server = serve(Nested, accepts=["options.from"])
    for given in ({}, {"observation_space": NESTED, "action_space": ACTIONS}):
        with RemoteEnvironment(DmEnvRpcEndpoint(server.address, **given)) as env:
            assert env.action_space == ACTIONS
            assert env.observation_space["pair"] == NESTED["pair"]
            assert env.observation_space["image"] == NESTED["image"]
            theirs = Nested()
            given = {"seed": 3, "options": {"from": 2}}
            assert data_equivalence(env.reset(**given), theirs.reset(**given), exact=True)
            for over in (False, True):
                ours = env.step(ACTION)
                assert data_equivalence(ours, theirs.step(ACTION), exact=True)
                assert ours[2:4] == (False, over)
            raised(LocalProtocolError, env.step, ACTION)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"observation_space": spaces.Box(-1, 1, (3,))}, r"FLOAT of shape \(4,\) at the server"),
        ({"observation_space": spaces.Box(-1, 1, (4,), np.float64)}, "and DOUBLE of shape"),
        ({"observation_space": spaces.Dict({"x": spaces.Discrete(2)})}, r"needs 'x'.*observation"),
        ({"action_space": spaces.Box(-1, 1, (1,))}, "action 'action' is INT64 of shape"),
        ({"action_space": spaces.Dict({})}, "lacks the server's 'action'"),
    ],
)
def test_client_rejects_spaces_that_mismatch_the_servers_specs(serve, given, expected):
    raised_with(EncodeError, expected, DmEnvRpcEndpoint, serve(cartpole).address, **given)


@pytest.mark.parametrize(
    ("specs", "space"),
    [
        ({"observation": ((), np.int64, -1, 3)}, spaces.Discrete(5, start=-1)),
        ({"observation": ((2,), np.int8, 0, 1)}, spaces.MultiBinary(2)),
        ({"observation": ((2,), np.int64, 0, 3)}, spaces.Box(0, 3, (2,), np.int64)),
        ({"observation": ((), np.uint8, None, None)}, spaces.Box(0, 255, (), np.uint8)),
        ({"observation": ((2,), np.float32, None, None)}, spaces.Box(-np.inf, np.inf, (2,))),
        ({"observation": ((2,), np.bool_, None, None)}, spaces.Box(0, 1, (2,), np.bool_)),
        (
            {"observation.0": ((), np.int64, 0, 1), "observation.1": ((1,), np.float32, 0, 1)},
            spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]),
        ),
        ({"board": ((1,), np.float32, 0, 1)}, spaces.Dict({"board": spaces.Box(0, 1, (1,))})),
        (
            {"a.x": ((), np.int64, 0, 1), "b": ((), np.int64, 0, 2)},
            spaces.Dict({"a": spaces.Dict({"x": spaces.Discrete(2)}), "b": spaces.Discrete(3)}),
        ),
    ],
)
def test_specs_convert_to_gymnasium_spaces(specs, space):
    made = {name: make_spec(name, *spec) for name, spec in specs.items()}
    assert space_of_specs(made, "observation") == space


def test_specs_of_gigabytes_exceed_the_limit():
    spec = make_spec("reward", (100_000, 100_000), np.dtype(np.uint8))
    assert raised(LimitExceeded, check_sizes, [spec], DEFAULT).limit == "expanded"
    check_sizes([make_spec("x", (1000, 1000), np.dtype(np.uint8))], DEFAULT)


@pytest.mark.parametrize("spec", [((3, -1), np.float32), ((2, 2), DataType.STRING)])
def test_specs_without_a_fixed_size_are_rejected_by_name(spec):
    with pytest.raises(EncodeError, match=r"'x' has no fixed size.*observation_space="):
        space_of_specs({"x": make_spec("x", *spec)}, "observation")


def test_client_destroys_its_world_at_close():
    worlds = EnvironmentWorlds(Nested, accepts=["ends"])
    with Server(worlds, "127.0.0.1:0", keep_abandoned=True) as server:
        endpoint = DmEnvRpcEndpoint(server.address, settings={"ends": 1})
        world = endpoint.client.world_name
        assert server.worlds.names == [world]
        with RemoteEnvironment(endpoint) as env:
            env.reset()
            assert env.step(ACTION)[3]
        assert len(server.worlds) == 0
        for kind, name, options, text in (
            (StatusError, world, {}, "NOT_FOUND"),
            (ValueError, world, {"settings": {"ends": 1}}, "join_settings="),
            (StatusError, "", {"settings": {"depth": 4}}, "'depth' not accepted"),
            (StatusError, "", {"join_settings": {"depth": 4}}, "'depth' not accepted"),
        ):
            url = f"dm-env-rpc://{server.address}/{name}"
            assert text in str(raised(kind, DmEnvRpcEndpoint, url, **options))


def test_client_reconnects_to_a_restarted_server_of_the_same_spaces(serve):
    server = serve(Nested)
    address = server.address
    with RemoteEnvironment(
        DmEnvRpcEndpoint(address, reconnect=Backoff(attempts=100, deadline=30, longest=0.2))
    ) as env:
        env.reset(seed=1)
        last = env.step(ACTION)[0]
        server.stop()
        observation, reward, terminated, truncated, info = env.step(ACTION)
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["lost"]
        assert data_equivalence(observation, last)
        raised(LocalProtocolError, env.step, ACTION)
        again = serve(Nested, address)
        assert data_equivalence(env.reset(seed=1), Nested().reset(seed=1), exact=True)
        assert not env.step(ACTION)[3]
        again.stop()
        serve(lambda: Nested(high=2.0), address)
        raised(RemoteProtocolError, env.reset)


def test_interrupted_reply_is_not_used_for_the_next_request(serve):
    endpoint = DmEnvRpcEndpoint(serve(cartpole).address)
    with RemoteEnvironment(endpoint) as env:
        env.reset(seed=1)
        endpoint.begin_step(0)  # and nobody waits for it
        np.testing.assert_array_equal(env.reset(seed=1)[0], cartpole().reset(seed=1)[0])
        endpoint.begin_reset(5, None)
        np.testing.assert_array_equal(env.reset(seed=1)[0], cartpole().reset(seed=1)[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64, np.float16])
def test_later_steps_do_not_overwrite_held_observations(serve, dtype):
    server = serve(lambda: Canvas((60, 90), dtype))
    with RemoteEnvironment(DmEnvRpcEndpoint(address=server.address)) as env:
        env.reset()
        held = [env.step(0)[0] for _ in range(20)]
    for number, seen in enumerate(held, 1):
        assert (seen == number).all()
        assert seen.flags.carray
        if np.dtype(dtype).kind != "i" and dtype != np.float16:  # these are not sent as memory
            assert (seen.base is not None, seen.ctypes.data % 64) == (True, 0)
        seen[:] = 0  # the user's own
