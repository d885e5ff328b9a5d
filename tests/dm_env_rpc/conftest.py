"""What the tests of dm_env_rpc share: servers of the reference's parts and of ours."""

from functools import partial

import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc

from rlwire.dm_env_rpc import EnvironmentWorlds, Server
from tests.dm_env_rpc.reference_server import Servicer
from tests.dm_env_rpc.voyage import Voyage
from tests.dm_env_rpc.worlds import grpcio_server


@pytest.fixture(scope="module")
def reference_server():
    add = partial(dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server, Servicer())
    with grpcio_server(add) as address:
        yield address


@pytest.fixture(params=["threads", "asyncio"])
def workers(request):
    return request.param


@pytest.fixture
def our_server(workers):
    worlds = EnvironmentWorlds(Voyage, accepts=["first"])
    with Server(worlds, "127.0.0.1:0", workers=workers) as server:
        yield str(server.address)
