"""Our server and clients against the reference's own: its compliance classes, its clients, a server
of its parts (`reference_server.py`)."""

from typing import Any, ClassVar

import grpc
import numpy as np
import pytest
from dm_env import specs
from dm_env_rpc.v1 import (
    async_connection,
    compliance,
    connection,
    dm_env_adaptor,
    dm_env_rpc_pb2,
    error,
    spec_manager,
    tensor_utils,
)

from rlwire.codecs.dm_env_rpc import ActionObservationSpecs, make_spec
from rlwire.dm_env_rpc import EnvironmentWorlds, Server
from rlwire.dm_env_rpc.environment import DmEnvRpcEndpoint
from rlwire.environments.dm_env import DmEnvironment
from rlwire.environments.remote import RemoteEnvironment
from tests.dm_env_rpc import voyage
from tests.dm_env_rpc.worlds import World

# The compliance test itself casts float64's least value to float32.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")

NUMBERS = [np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64]


def all_specs():
    specs = []
    for kind in NUMBERS:
        name = np.dtype(kind).name
        low = 0 if name.startswith("u") else -2
        each = np.arange(6).reshape(2, 3)
        specs += [
            make_spec(f"{name}.{kind_of}", shape, kind, *bounds)
            for kind_of, shape, *bounds in (
                ("free", ()), ("scalar", (), low, 5), ("below", (3,), None, 5),
                ("above", (1, 2), low, None), ("each", (2, 3), each, each + 3),
                ("variable", (2, -1)),
            )
        ]  # fmt: skip
    for kind in (bool, str):
        for name, shape in (("scalar", ()), ("array", (2, 2)), ("variable", (-1,))):
            specs.append(make_spec(f"{np.dtype(kind).name}.{name}", shape, kind))
    return specs


class Everything(World):
    def __init__(self, settings):
        if set(settings) != {"size"}:
            raise ValueError(f"size is the one setting, and needed; not {sorted(settings)}")
        if settings["size"] < 1:
            raise ValueError("size must be positive")
        super().__init__(settings)
        specs = all_specs()
        # UIDs from 3 on: 0 is what the tests take for one that does not exist.
        self.specs = ActionObservationSpecs(dict(enumerate(specs, 3)), dict(enumerate(specs, 7)))

    def on_call(self, what, given):
        if what == "join" and set(given) - {"race"}:
            raise ValueError(f"unknown settings {sorted(given)}")

    class agent(World.agent):
        def seen(self, actions):
            seen = {}
            for spec in self.specs.observations.values():
                shape = tuple(4 if size < 0 else size for size in spec.shape)
                dtype = tensor_utils.data_type_to_np_type(int(spec.dtype))
                value = np.zeros(shape, dtype)
                for bound, choose in ((spec.min, np.maximum), (spec.max, np.minimum)):
                    if bound is not None:
                        value = choose(value, bound).astype(dtype)
                seen[spec.name] = value
            return seen


class Served:
    """A server for a class of tests, and a connection of the reference's for each test."""

    workers: Any = "threads"
    make_worlds: Any = Everything
    settings: ClassVar[dict[str, Any]] = {"size": 3}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server(cls.make_worlds, "127.0.0.1:0", workers=cls.workers).start()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        super().setUp()
        channel = grpc.insecure_channel(str(self.server.address))
        self.addCleanup(channel.close)
        self._connection = connection.Connection(channel)
        self.addCleanup(self._connection.close)
        self._world = None

    @property
    def connection(self):
        return self._connection

    @property
    def required_world_settings(self):
        return {key: tensor_utils.pack_tensor(value) for key, value in self.settings.items()}

    @property
    def world_name(self):
        if self._world is None:
            self._world = self._connection.send(
                dm_env_rpc_pb2.CreateWorldRequest(settings=self.required_world_settings)
            ).world_name
        return self._world

    def join_world(self, **kwargs):
        kwargs.setdefault("world_name", self.world_name)
        return self._connection.send(dm_env_rpc_pb2.JoinWorldRequest(**kwargs)).specs


class CreateDestroy(Served):
    invalid_world_settings: ClassVar = {
        "shape": tensor_utils.pack_tensor(1), "colour": tensor_utils.pack_tensor("red"),
    }  # fmt: skip
    has_multiple_world_support = True


class JoinLeave(Served):
    invalid_join_settings: ClassVar = {"name": tensor_utils.pack_tensor("x")}


class Stepping(Served):
    specs: Any = None

    def setUp(self):
        super().setUp()
        self.specs = self.join_world()


class Voyages:
    settings: ClassVar[dict[str, Any]] = {}

    @classmethod
    def setUpClass(cls):
        class Sea(voyage.Voyage):
            def action_spec(self):
                return {**super().action_spec(), "flag": specs.StringArray((), name="flag")}

        cls.make_worlds = EnvironmentWorlds(
            Sea, default_actions={"course": 0, "sail": [0.0, 0.0], "flag": "white"}
        )
        super().setUpClass()


# The reference's own compliance tests: each of our worlds, with threads and on a loop.
_COMPLIANCE = [
    (CreateDestroy, compliance.create_destroy_world.CreateDestroyWorld),
    (JoinLeave, compliance.join_leave_world.JoinLeaveWorld),
    (Served, compliance.reset.Reset),
    (Served, compliance.reset_world.ResetWorld),
    (Stepping, compliance.step.Step),
]
for _ours, _theirs in _COMPLIANCE:
    for _workers in ("threads", "asyncio"):
        _name = f"Test{_theirs.__name__}_{_workers}"
        globals()[_name] = type(_name, (_ours, _theirs), {"workers": _workers})
    if _theirs not in (
        compliance.create_destroy_world.CreateDestroyWorld,
        compliance.reset_world.ResetWorld,
    ):
        _name = f"Test{_theirs.__name__}_of_an_environment"
        globals()[_name] = type(_name, (Voyages, _ours, _theirs), {})
del _ours, _theirs  # pytest would collect them


def play(environment, episodes, first):
    local = voyage.Voyage(first)
    steps = 0
    for episode in range(episodes):
        ours, theirs = environment.reset(), local.reset()
        day = 0
        while True:
            voyage.compare(ours, theirs, f"episode {episode}, day {day}")
            steps += 1
            if theirs.last():
                break
            action = voyage.actions(episode, day)
            day += 1
            ours, theirs = environment.step(action), local.step(action)
    return steps


def remote_voyage(address, first):
    return DmEnvironment(RemoteEnvironment(DmEnvRpcEndpoint(address, settings={"first": first})))


many_episodes = pytest.mark.parametrize(
    "episodes", [50, pytest.param(1000, marks=pytest.mark.long)]
)


@many_episodes
def test_reference_client_plays_on_the_rlwire_server(our_server, episodes):
    with grpc.insecure_channel(our_server) as channel:
        environment, name = dm_env_adaptor.create_and_join_world(
            connection.Connection(channel), {"first": 11}, {}
        )
        assert play(environment, episodes, 11) > 6 * episodes
        environment.close()
        with connection.Connection(channel) as second:
            second.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=name))


@many_episodes
def test_remote_environment_plays_on_the_reference_server(reference_server, episodes):
    with remote_voyage(reference_server, 11) as environment:
        assert play(environment, episodes, 11) > 6 * episodes


async def test_reference_async_connection_plays_on_the_rlwire_server(our_server):
    channel = grpc.aio.insecure_channel(our_server)
    with async_connection.AsyncConnection(channel) as their:
        name = (await their.send(dm_env_rpc_pb2.CreateWorldRequest())).world_name
        joined = await their.send(dm_env_rpc_pb2.JoinWorldRequest(world_name=name))
        actions = spec_manager.SpecManager(joined.specs.actions)
        observations = spec_manager.SpecManager(joined.specs.observations)
        local = voyage.Voyage()
        for day in range(-1, 30):
            action = voyage.actions(0, day)
            theirs = local.step(action)
            response = await their.send(
                dm_env_rpc_pb2.StepRequest(
                    actions=actions.pack(action), requested_observations=observations.uids()
                )
            )
            seen = observations.unpack(response.observations)
            for key, value in voyage.flat(theirs.observation).items():
                assert np.asarray(seen[key]).tobytes() == value.tobytes()
        with pytest.raises(error.DmEnvRpcError, match="leave_world first"):
            await their.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=name))
        await their.send(dm_env_rpc_pb2.LeaveWorldRequest())
        await their.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=name))
    await channel.close()
