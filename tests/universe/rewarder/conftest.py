"""What the tests of the rewarder share: servers and clients that are closed again."""

from contextlib import ExitStack

import pytest

from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests.waiting import eventually


@pytest.fixture
def serving():
    """Starts servers."""
    with ExitStack() as stack:

        def serve(env_id="test.Game-v0", **options):
            options.setdefault("auth", "openai")  # which clients give
            return stack.enter_context(RewarderServer(env_id, "127.0.0.1:0", **options))

        yield serve


@pytest.fixture
def join():
    """Connects clients."""
    with ExitStack() as stack:

        def connect(server, auth="openai", **options):
            client = RewarderClient(str(server.address), auth=auth, **options)
            return stack.enter_context(client)

        yield connect


@pytest.fixture
def wait_for():
    return eventually
