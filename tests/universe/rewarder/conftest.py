"""What the tests of the rewarder share: servers and clients that are closed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests.waiting import eventually


@pytest.fixture
def serving() -> Iterator[Callable[..., RewarderServer]]:
    """Starts servers."""
    with ExitStack() as stack:

        def serve(env_id: str | None = "test.Game-v0", **options: Any) -> RewarderServer:
            options.setdefault("auth", "openai")  # which clients give
            return stack.enter_context(RewarderServer(env_id, "127.0.0.1:0", **options))

        yield serve


@pytest.fixture
def join() -> Iterator[Callable[..., RewarderClient]]:
    """Connects clients."""
    with ExitStack() as stack:

        def connect(server: RewarderServer, auth: str = "openai", **options: Any) -> RewarderClient:
            client = RewarderClient(str(server.address), auth=auth, **options)
            return stack.enter_context(client)

        yield connect


@pytest.fixture
def wait_for() -> Callable[..., None]:
    return eventually
