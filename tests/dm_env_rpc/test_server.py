"""`dm_env_rpc.Server` as a whole: what is served, and which requests are rejected."""

import socket

import grpc
import gymnasium
import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2

import rlwire
from rlwire.codecs.dm_env_rpc import StepRequest
from rlwire.dm_env_rpc import Client, Server, StatusError
from rlwire.dm_env_rpc.channel import METHOD
from rlwire.errors import ConnectionClosed, EncodeError
from rlwire.sessions.dm_env_rpc import Code
from tests.dm_env_rpc.voyage import Voyage
from tests.dm_env_rpc.worlds import World
from tests.raising import raised, raised_with


def test_bounds_are_checked_unless_disabled(workers):
    for check_bounds in (True, False):
        with (
            Server(World, "127.0.0.1:0", workers=workers, check_bounds=check_bounds) as server,
            Client(server.address, check_bounds=False) as client,
        ):
            client.join_world()
            client.step()
            if check_bounds:
                raised(StatusError, client.step, {"add": 10})
            else:
                assert client.step({"add": 10}).observations["count"] == 10


def test_server_answers_undecodable_requests_and_keeps_the_call_open(workers):
    create = dm_env_rpc_pb2.EnvironmentRequest(create_world=dm_env_rpc_pb2.CreateWorldRequest())
    messages = [b"\xff\xff", b"", b"\x0a\x05", create.SerializeToString()]
    with Server(World, "127.0.0.1:0", workers=workers) as server:
        with grpc.insecure_channel(str(server.address)) as channel:
            replies = list(channel.stream_stream(METHOD)(iter(messages)))
        with Client(server.address) as client:
            client.join_world()
    parsed = [dm_env_rpc_pb2.EnvironmentResponse.FromString(each) for each in replies]
    assert [each.WhichOneof("payload") for each in parsed] == ["error"] * 3 + ["create_world"]
    assert all(each.error.code == Code.INVALID_ARGUMENT for each in parsed[:3])
    assert all(each.error.message for each in parsed[:3])


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="no users of unix sockets")
def test_server_limits_calls_of_another_unix_user(tmp_path, monkeypatch):
    address = f"unix:{tmp_path}/s"
    with Server(World, address, max_connections_per_address=1):
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("os.geteuid", lambda: 4711)  # who connects is then somebody else
            with Client(address) as other:
                other.create_world()  # its call is counted before the second one comes
                with Client(address) as second:
                    raised_with(
                        ConnectionClosed, "max_connections_per_address", second.create_world
                    )
        with Client(address) as own, Client(address) as another:
            own.create_world()
            another.create_world()


class Kinds(gymnasium.Env):
    """Remembers its actions, of several dtypes; int16 and float16 travel as wider ones."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Dict(
        turn=gymnasium.spaces.Discrete(3),
        steer=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        gear=gymnasium.spaces.Box(-(2**15), 2**15 - 1, (), np.int16),
    )

    def __init__(self):
        self.actions = []

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        self.actions.append(action)
        return 0, 0.0, False, False, {}


OTHER_KINDS = [
    {"turn": 0.9}, {"turn": np.float32(1)}, {"turn": "1"}, {"turn": None}, {"steer": ["0", "1"]},
    {"steer": [2**24 + 1, 0]}, {"gear": 2.5},
]  # fmt: skip


def test_client_and_server_reject_actions_of_another_dtype_kind(workers):
    environment = Kinds()
    plain = {"turn": 1, "steer": [0.5, 0.0], "gear": 3}
    with (
        rlwire.serve(environment, "dm-env-rpc://127.0.0.1:0", workers=workers) as server,
        Client(server.address) as client,
    ):
        uids = {spec.name: uid for uid, spec in client.join_world().actions.items()}
        client.step()
        for wrong in OTHER_KINDS:
            (name,) = wrong
            with pytest.raises(EncodeError, match=rf" (not|does not fit) .*\.{name}$"):
                client.step(plain | wrong)
        sent = {uids["steer"]: np.float32([0.5, 0]), uids["gear"]: np.int32(3)}
        for value in (1.5, np.int32(1), "1", True):
            with pytest.raises(StatusError, match=r"'turn' .* dtype .*its spec "):
                client.request(StepRequest({**sent, uids["turn"]: value}))
        assert environment.actions == []
        # The same number in another dtype is no other kind.
        for turn in (1, True, np.uint8(1), np.array(1, ">i2")):
            client.step({"turn": turn, "steer": [1, 0], "gear": np.int64(-5)})
            assert environment.action_space.contains(environment.actions[-1])
            assert environment.actions.pop()["turn"] == 1


def test_invalid_server_arguments_are_rejected():
    raised(TypeError, Server, 5)
    assert "nowhere" in str(raised(ValueError, Server, World, "nowhere"))
    for kind, name, value in (
        (TypeError, "workers", 3), (ValueError, "max_connections", 0), (ValueError, "max_worlds", 0)
    ):  # fmt: skip
        assert name in str(raised(kind, Server, World, **{name: value}))
    with (
        Server(lambda settings: Voyage(), "127.0.0.1:0") as server,
        Client(server.address) as client,
    ):
        raised_with(StatusError, r"Voyage.*EnvironmentWorlds", client.create_world)
