"""What dm_env_rpc's client and server promise about their calls, with grpcio at the other end."""

import grpc
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2

from rlwire.codecs.dm_env_rpc import AnyMessage
from rlwire.dm_env_rpc import Client, Server, StatusError
from rlwire.dm_env_rpc.channel import METHOD
from rlwire.errors import LimitExceeded
from rlwire.limits import Limits
from tests.dm_env_rpc.worlds import World, grpcio_server
from tests.raising import raised

CREATE = dm_env_rpc_pb2.EnvironmentRequest(
    create_world=dm_env_rpc_pb2.CreateWorldRequest()
).SerializeToString()


def echo(message, world):
    return message


@pytest.fixture
def make(workers, stack):
    return lambda **options: stack.enter_context(
        Server(World, "127.0.0.1:0", workers=workers, extensions={"a/b": echo}, **options)
    )


def status(call):
    error = raised(grpc.RpcError, list, call)
    return error.code(), error.details()


LARGE = AnyMessage("a/b", bytes(5000))


def exceeded(client):
    with client:
        error = raised(LimitExceeded, client.extension, LARGE)
        assert client.closed
    return error


def test_server_rejects_requests_over_its_received_limit(make):
    server = make(limits=Limits(received=1000))
    with grpc.insecure_channel(str(server.address)) as channel:
        code, details = status(channel.stream_stream(METHOD)(iter([bytes(1001)])))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "Received message larger than max (1001 vs. 1000)" in details
    error = exceeded(Client(server.address))
    assert (error.limit, error.maximum) == ("received", 1000)
    assert "of the server" in str(error)


def test_reply_over_a_limit_of_either_side_raises_limit_exceeded(make):
    assert "max_sent=1000" in str(exceeded(Client(make(max_sent=1000).address)))
    client = Client(make().address, limits=Limits(received=1000), max_sent=10_000)
    assert exceeded(client).limit == "received"


def test_client_reports_the_received_limit_of_a_grpcio_server():
    def add(server):
        handler = grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)
        service, method = METHOD.split("/")[1:]
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )

    options = [("grpc.max_receive_message_length", 1000)]
    with grpcio_server(add, options) as address, Client(address) as client:
        assert client.extension(AnyMessage("a/b", b"c")) == AnyMessage("a/b", b"c")
        assert exceeded(client).limit == "received"


def test_clients_over_the_limit_receive_resource_exhausted(make):
    server = make(max_connections=2, max_connections_per_address=1)
    with grpc.insecure_channel(str(server.address)) as channel, Client(server.address) as client:
        raised(StatusError, client.destroy_world, "x")
        code, details = status(channel.stream_stream(METHOD)(iter([CREATE])))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "max_connections_per_address" in details
