"""`RemoteEnvironment`: dm_env's own tests, and what it does besides them."""

from __future__ import annotations

import sys

import dm_env
import numpy as np
import pytest
import tree
from absl.testing import absltest
from dm_env import specs, test_utils

import rlwire
from rlwire.adapters.dm_env_rpc import (
    Client,
    DmEnvRpcServer,
    EnvironmentWorlds,
    Names,
    RemoteEnvironment,
    StatusError,
)
from rlwire.adapters.dm_env_rpc.dm_env_client import to_dm_env_spec
from rlwire.codecs.dm_env_rpc import (
    ActionObservationSpecs,
    DataType,
    EnvironmentStateType,
    StepResult,
    TensorSpec,
    make_spec,
)
from rlwire.errors import EncodeError, RemoteProtocolError


@pytest.mark.usefixtures("voyage")
class TestAsDmEnvTestsIt(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """dm_env's own tests, through actions that end sequences."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = rlwire.serve(sys.modules["voyage"].Voyage, "dm-env-rpc://127.0.0.1:0")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.stop()
        super().tearDownClass()

    def make_object_under_test(self):
        return RemoteEnvironment.connect(self.server.address)

    def make_action_sequence(self):
        for day in range(30):
            yield sys.modules["voyage"].actions(0, day)


def test_what_it_looks_like(reference_server, voyage) -> None:
    with RemoteEnvironment.connect(reference_server) as remote:
        local = voyage.Voyage()
        for method in ("observation_spec", "action_spec"):
            ours, theirs = getattr(remote, method)(), getattr(local, method)()
            tree.map_structure(check_same_spec, ours, theirs)
        assert remote.reward_spec() == specs.Array((), float)
        assert remote.discount_spec() == specs.BoundedArray((), float, 0.0, 1.0)


def check_same_spec(one: specs.Array, other: specs.Array) -> None:
    assert type(one) is type(other)
    assert one == other


def test_what_is_shown(reference_server) -> None:
    connect = RemoteEnvironment.connect
    with connect(reference_server, requested_observations=["log.day", "reward"]) as remote:
        assert remote.observation_spec() == {
            "log": {"day": specs.DiscreteArray(9)},
            "reward": specs.Array((), float),
        }
        first = remote.reset()
        assert (first.reward, first.discount) == (None, None)
        assert first.observation == {"log": {"day": 0}, "reward": 0.0}
        second = remote.step({"course": 0, "sail": [0.5, 0]})
        assert second.reward == second.observation["reward"]
        assert second.discount == 0.99
    with connect(reference_server, nested=False) as remote:
        assert "log.day" in remote.observation_spec()
        assert remote.reset().observation["log.day"] == 0
    with connect(reference_server, reward="place", discount=None) as remote:
        assert remote.reward_spec().shape == (2,)
        assert "place" not in remote.reset().observation
        step = remote.step({"course": 0, "sail": [0.5, 0]})
        assert step.reward.shape == (2,)
        assert step.discount == 1.0
        assert "discount" in step.observation
    with pytest.raises(ValueError, match="there is no observation 'sound'"):
        connect(reference_server, requested_observations=["sound"])


def test_sequences(reference_server, voyage) -> None:
    with RemoteEnvironment.connect(reference_server) as remote:
        assert remote.step({"ignored": "altogether"}).first()
        assert remote.step(voyage.actions(0, 0)).mid()
        with pytest.raises(EncodeError, match="a mapping of names"):
            remote.step(3)
        with pytest.raises(EncodeError, match="fly"):
            remote.step({"fly": 1})
        with pytest.raises(StatusError, match="missing"):
            remote.step({})
        step = remote.step(voyage.actions(0, 1))
        assert step.observation["log"]["day"] == 2
        assert remote.reset().first()
        assert remote.reset().observation["log"]["day"] == 0


def test_without_reward_and_discount(voyage) -> None:
    worlds = EnvironmentWorlds(voyage.Voyage, names=Names(reward=None, discount=None))
    with (
        DmEnvRpcServer(worlds, "127.0.0.1:0") as server,
        RemoteEnvironment.connect(server.address) as remote,
    ):
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
        reward = {"good": float(action), "bad": np.float32([1, 2])}
        return dm_env.transition(reward, np.ones(1))


def test_nested_rewards() -> None:
    with (
        rlwire.serve(Nested, "dm-env-rpc://127.0.0.1:0") as server,
        RemoteEnvironment.connect(server.address) as remote,
    ):
        assert remote.reward_spec() == Nested().reward_spec()
        assert remote.observation_spec() == {"x": specs.Array((1,), float)}
        assert remote.reset().reward is None
        reward = remote.step({"do": 1}).reward
        assert reward["good"] == 1.0
        assert reward["bad"].tolist() == [1, 2]


def test_closing_takes_back_what_connect_did(voyage) -> None:
    with rlwire.serve(
        voyage.Voyage, "dm-env-rpc://127.0.0.1:0", accepts=["first"], keep_abandoned=True
    ) as server:
        remote = RemoteEnvironment.connect(server.address, {"first": 4})
        assert len(server.worlds) == 1
        remote.close()
        remote.close()
        assert len(server.worlds) == 0
        assert remote.client.closed
        for method, *arguments in ((remote.reset,), (remote.step, {})):
            with pytest.raises(RuntimeError, match="closed"):
                method(*arguments)
        with pytest.raises(StatusError, match="setting 'depth' not accepted"):
            RemoteEnvironment.connect(server.address, {"depth": 4})
        with pytest.raises(StatusError, match="setting 'depth' not accepted"):
            RemoteEnvironment.connect(server.address, {}, {"depth": 4})
        with pytest.raises(ValueError, match="not created"):
            RemoteEnvironment.connect(server.address, {"first": 4}, world_name="x")


def test_closing_when_nobody_listens_or_the_world_is_needed(voyage, caplog) -> None:
    worlds = EnvironmentWorlds(voyage.Voyage, agents=2)
    with DmEnvRpcServer(worlds, "127.0.0.1:0") as server:
        lost, left, other = (RemoteEnvironment.connect(server.address) for _ in range(3))
        other.client.leave_world()
        other.client.join_world(left.client.world_name)
        name = left.client.world_name
        left.close()
        assert f"the world {name!r} stays" in caplog.text
        assert other.reset().first()
        other.close()
        lost.client.cancel()
        lost.close()
        assert lost.client.closed


def test_a_client_of_ones_own(voyage) -> None:
    with (
        rlwire.serve(voyage.Voyage, "dm-env-rpc://127.0.0.1:0", accepts=["first"]) as server,
        Client(server.address) as client,
    ):
        with pytest.raises(ValueError, match="has joined no world"):
            RemoteEnvironment(client)
        name = client.create_world({"first": 9})
        client.join_world(name)
        remote = RemoteEnvironment(client)
        assert remote.reset().observation["log"]["entry"] == "voyage 9, day 0 ✓"
        remote.close()
        assert not client.closed
        assert client.world_name is None
        with RemoteEnvironment.connect(server.address, world_name=name) as other:
            assert other.reset().first()
        client.destroy_world(name)


def test_reconnecting(voyage, caplog) -> None:
    with rlwire.serve(voyage.Voyage, "dm-env-rpc://127.0.0.1:0", accepts=["first"]) as server:
        remote = RemoteEnvironment.connect(server.address, {"first": 2})
        remote.reset()
        remote.client.cancel()
        with pytest.raises(ConnectionError):
            remote.step(voyage.actions(0, 0))
        remote.reconnect()
        step = remote.step(voyage.actions(0, 0))
        assert step.first()
        assert step.observation["log"]["entry"] == "voyage 2, day 0 ✓"
        remote.close()
        assert len(server.worlds) == 0


class Changing:
    """Sees more after each reset."""

    def __init__(self, settings) -> None:
        self.count = 0
        self.reset({})

    def join(self, settings):
        return self

    def reset(self, settings) -> None:
        self.count += 1
        self.specs = ActionObservationSpecs({}, {1: make_spec("x", (self.count,), bool)})

    def begin(self):
        return StepResult(EnvironmentStateType.RUNNING, {"x": np.zeros(self.count, bool)})

    def step(self, actions):
        return self.begin()

    def close(self) -> None:
        pass


def test_an_environment_that_changes() -> None:
    with (
        DmEnvRpcServer(Changing, "127.0.0.1:0") as server,
        RemoteEnvironment.connect(server.address) as remote,
    ):
        assert remote.reset().observation["x"].shape == (1,)
        with pytest.raises(RuntimeError, match="join again"):
            remote.reset()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (TensorSpec("a", (), DataType.STRING), specs.StringArray((), name="a")),
        (TensorSpec("a", (2, -1), DataType.BOOL), specs.Array((2, -1), bool, "a")),
        (TensorSpec("a", (), DataType.PROTO), specs.Array((), object, "a")),
        (make_spec("a", (), np.int32, 0, 4), specs.DiscreteArray(5, np.int32, "a")),
        (make_spec("a", (), np.uint8, None, 4), specs.DiscreteArray(5, np.uint8, "a")),
        (make_spec("a", (), np.int32, 1, 4), specs.BoundedArray((), np.int32, 1, 4, "a")),
        (make_spec("a", (), np.int32, 0), specs.BoundedArray((), np.int32, 0, 2**31 - 1, "a")),
        (make_spec("a", (1,), np.int32, 0, 4), specs.BoundedArray((1,), np.int32, 0, 4, "a")),
        (
            make_spec("a", (2,), np.float32, [0, 1], 4),
            specs.BoundedArray((2,), np.float32, [0, 1], 4, "a"),
        ),
        (make_spec("a", (-1,), np.float32, 0, 4), specs.Array((-1,), np.float32, "a")),
    ],
)
def test_specs(spec, expected) -> None:
    found = to_dm_env_spec(spec)
    check_same_spec(found, expected)
    assert found.name == "a"


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("a", (), DataType.INVALID_DATA_TYPE),
        TensorSpec("a", (), DataType.INT32, np.int32(3), np.int32(2)),
        TensorSpec("a", (), DataType.INT32, np.int64(3)),
    ],
)
def test_specs_that_are_none(spec) -> None:
    with pytest.raises(RemoteProtocolError, match="'a' cannot be used"):
        to_dm_env_spec(spec)
