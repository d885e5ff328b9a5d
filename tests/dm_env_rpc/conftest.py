"""What the tests of dm_env_rpc share: servers of the reference's parts and of ours."""

import pytest

from rlwire.dm_env_rpc import EnvironmentWorlds, Server
from tests.dm_env_rpc import reference_server as reference
from tests.dm_env_rpc.voyage import Voyage


@pytest.fixture(scope="module")
def reference_server():
    server, port = reference.serve()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.fixture(params=["threads", "asyncio"])
def workers(request):
    return request.param


@pytest.fixture
def our_server(workers):
    worlds = EnvironmentWorlds(Voyage, accepts=["first"])
    with Server(worlds, "127.0.0.1:0", workers=workers) as server:
        yield str(server.address)
