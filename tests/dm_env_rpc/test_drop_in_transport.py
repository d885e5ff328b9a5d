"""The package's connections over rlwire's HTTP/2: what a program sees is the same."""

import gc
import socket

import grpc
import numpy as np
import pytest
from dm_env_rpc.v1 import (
    async_connection,
    connection,
    dm_env_adaptor,
    dm_env_rpc_pb2,
    dm_env_rpc_pb2_grpc,
    error,
    spec_manager,
)

import rlwire
from rlwire.dm_env_rpc import EnvironmentWorlds, Server, drop_in

INSECURE, SECURE = grpc.insecure_channel, grpc.secure_channel


@pytest.fixture(autouse=True)
def _installed():
    rlwire.install("dm_env_rpc", transport=True)
    rlwire.install("dm_env_rpc", transport=True)
    yield
    rlwire.uninstall("dm_env_rpc")
    assert (grpc.insecure_channel, grpc.secure_channel) == (INSECURE, SECURE)


@pytest.fixture(params=["reference", "threads", "asyncio"])
def address(request, voyage):
    if request.param == "reference":
        yield request.getfixturevalue("reference_server")
        return
    worlds = EnvironmentWorlds(voyage.Voyage, accepts=["first"])
    with Server(worlds, "localhost:0", workers=request.param) as server:
        yield str(server.address)


@pytest.fixture
def no_grpcio(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a stream of grpcio's is made")

    monkeypatch.setattr(dm_env_rpc_pb2_grpc, "EnvironmentStub", refuse)


@pytest.mark.usefixtures("no_grpcio")
def test_an_agent_plays(address, voyage):
    with grpc.insecure_channel(address) as channel:
        environment, name = dm_env_adaptor.create_and_join_world(
            connection.Connection(channel), {"first": 11}, {}
        )
        local = voyage.Voyage(11)
        for episode in range(5):
            ours, theirs, day = environment.reset(), local.reset(), 0
            while not theirs.last():
                for key, value in voyage.flat(theirs.observation).items():
                    seen = voyage.flat(ours.observation)[key]
                    assert np.asarray(seen).tobytes() == value.tobytes()
                action = voyage.actions(episode, day)
                day += 1
                ours, theirs = environment.step(action), local.step(action)
        environment.close()
        with connection.Connection(channel) as second:
            second.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=name))


def test_unreachable_server_times_out_or_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(grpc.FutureTimeoutError):
        connection.create_secure_channel_and_connect(address, timeout=0.5)
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as raised:
        connection.Connection(channel).send(dm_env_rpc_pb2.CreateWorldRequest())
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert address in raised.value.details()


@pytest.mark.usefixtures("no_grpcio")
def test_errors_and_metadata():
    with (
        Server(lambda settings: None, "127.0.0.1:0", auth="sesame") as server,
        grpc.insecure_channel(str(server.address)) as channel,
    ):
        their = connection.Connection(channel, [("authorization", "Bearer sesame")])
        with pytest.raises(error.DmEnvRpcError, match="not a NoneType"):
            their.send(dm_env_rpc_pb2.CreateWorldRequest())
        their = connection.Connection(channel)
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as raised:
                their.send(dm_env_rpc_pb2.CreateWorldRequest())
            assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert "token" in raised.value.details()


def test_messages_over_the_limit_of_the_channel(voyage):
    with (
        Server(EnvironmentWorlds(voyage.Voyage), "127.0.0.1:0") as server,
        grpc.insecure_channel(
            str(server.address), options=[("grpc.max_receive_message_length", 100)]
        ) as channel,
    ):
        their = connection.Connection(channel)
        name = their.send(dm_env_rpc_pb2.CreateWorldRequest()).world_name
        with pytest.raises(grpc.RpcError) as raised:
            their.send(dm_env_rpc_pb2.JoinWorldRequest(world_name=name))
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "vs. 100" in raised.value.details()


@pytest.mark.usefixtures("no_grpcio")
def test_garbage_collected_connection_is_closed(voyage):
    with (
        Server(EnvironmentWorlds(voyage.Voyage), "127.0.0.1:0") as server,
        grpc.insecure_channel(str(server.address)) as channel,
    ):
        with connection.Connection(channel) as their:
            name = their.send(dm_env_rpc_pb2.CreateWorldRequest()).world_name
            their.send(dm_env_rpc_pb2.JoinWorldRequest(world_name=name))
        gc.collect()
        with connection.Connection(channel) as other:
            while True:  # until the server has seen it go
                try:
                    other.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=name))
                    break
                except error.DmEnvRpcError:
                    continue


@pytest.mark.usefixtures("no_grpcio")
async def test_asyncio(address, voyage):
    made = await async_connection.create_secure_async_channel_and_connect(address)
    with made as their:
        name = (await their.send(dm_env_rpc_pb2.CreateWorldRequest())).world_name
        joined = await their.send(dm_env_rpc_pb2.JoinWorldRequest(world_name=name))
        actions = spec_manager.SpecManager(joined.specs.actions)
        for day in range(-1, 20):
            request = dm_env_rpc_pb2.StepRequest(actions=actions.pack(voyage.actions(0, day)))
            assert (await their.send(request)).state
        with pytest.raises(error.DmEnvRpcError, match="code: 9"):
            await their.send(dm_env_rpc_pb2.JoinWorldRequest(world_name=name))
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await async_connection.AsyncConnection(channel).send(
                dm_env_rpc_pb2.CreateWorldRequest()
            )
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


def test_other_methods_are_sent_by_grpcio(reference_server):
    requests = [dm_env_rpc_pb2.EnvironmentRequest()] * 2
    with grpc.insecure_channel(reference_server) as channel:
        stub = dm_env_rpc_pb2_grpc.EnvironmentStub(channel)
        assert len(list(stub.Process(iter(requests)))) == 2
        call = channel.unary_unary("/some.Service/Method")
        with pytest.raises(grpc.RpcError) as raised:
            call(b"")
        assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "make",
    [
        lambda: grpc.insecure_channel("host", options=[("grpc.keepalive_time_ms", 5)]),
        lambda: grpc.insecure_channel("xds:///host:1"),
        lambda: grpc.insecure_channel("localhost:1", compression=grpc.Compression.Gzip),
        lambda: grpc.secure_channel(
            "localhost:1",
            grpc.composite_channel_credentials(
                grpc.ssl_channel_credentials(), grpc.access_token_call_credentials("t")
            ),
        ),
        lambda: grpc.secure_channel("localhost:1", grpc.ssl_channel_credentials()),
        lambda: grpc.secure_channel("example.org:1", grpc.local_channel_credentials()),
    ],
)
def test_channels_with_options_or_credentials_are_left_to_grpcio(make):
    with make() as channel:
        assert channel not in drop_in._targets
