"""AsyncPolicyClient against our server and openpi's, over real sockets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

from rlwire.adapters.openpi import AsyncPolicyClient, PolicyServer
from rlwire.errors import (
    LocalProtocolError,
    PeerError,
)

LOOPBACK = "127.0.0.1:0"
METADATA = {"robot": "aloha", "horizon": 50}


class Policy:
    """Fails, or waits for `go_on`, if the prompt says so; else says what it saw."""

    metadata = METADATA

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked = threading.Semaphore(0)

    def infer(self, obs: dict[str, Any]) -> dict[str, Any]:
        prompt = obs.get("prompt")
        self.asked.release()
        if prompt == "raise":
            raise KeyError("observation/image")
        if prompt == "wait":
            assert self.go_on.wait(20)
        return {"actions": np.zeros((50, 7)), "seen": obs}


@pytest.fixture
def policy() -> Policy:
    return Policy()


@pytest.fixture
def server(policy: Policy) -> Iterator[PolicyServer]:
    with PolicyServer(policy, LOOPBACK) as running:
        yield running


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def client_of(server: PolicyServer, **options: Any) -> AsyncPolicyClient:
    return AsyncPolicyClient(str(server.address), **options)


@pytest.mark.parametrize("arrays", ["openpi", "msgpack_numpy"])
def test_observations_and_actions(server: PolicyServer, arrays: Any) -> None:
    async def main() -> None:
        async with client_of(server, arrays=arrays) as client:
            assert client.metadata == client.get_server_metadata() == METADATA
            for number in range(5):
                image = np.full((64, 64, 3), number, np.uint8)
                action = await client.infer({"image": image, "prompt": "fold"})
                np.testing.assert_array_equal(action["seen"]["image"], image)
                assert action["seen"]["prompt"] == "fold"
                assert action["actions"].shape == (50, 7)
            await client.reset()
        assert server.statistics().actions == 5

    run(main)


def test_other_tasks_run_while_the_policy_thinks(policy: Policy, server: PolicyServer) -> None:
    async def main() -> None:
        async with client_of(server) as slow:
            thinking = asyncio.create_task(slow.infer({"prompt": "wait"}))
            await asyncio.to_thread(policy.asked.acquire)
            async with client_of(server) as other:
                assert other.metadata == METADATA
            assert not thinking.done()
            policy.go_on.set()
            assert "actions" in await thinking

    run(main)


def test_one_observation_at_a_time(policy: Policy, server: PolicyServer) -> None:
    async def main() -> None:
        async with client_of(server) as client:
            first = asyncio.create_task(client.infer({"prompt": "wait", "number": 1}))
            await asyncio.to_thread(policy.asked.acquire)
            with pytest.raises(LocalProtocolError):
                await client.infer({"number": 2})
            policy.go_on.set()
            assert (await first)["seen"]["number"] == 1  # the first has not been disturbed
            assert (await client.infer({"number": 3}))["seen"] == {"number": 3}

    run(main)


def test_a_cancelled_task_leaves_no_action_to_the_next(
    policy: Policy, server: PolicyServer
) -> None:
    async def main() -> None:
        async with client_of(server) as client:
            task = asyncio.create_task(client.infer({"prompt": "wait", "number": 1}))
            await asyncio.to_thread(policy.asked.acquire)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            policy.go_on.set()
            assert (await client.infer({"number": 2}))["seen"] == {"number": 2}

    run(main)


def test_tls(policy: Policy) -> None:
    import ssl

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def main() -> None:
        async with AsyncPolicyClient(f"wss://localhost:{server.address.port}", tls=trusting) as it:
            assert (await it.infer({"x": 1}))["seen"] == {"x": 1}

    with PolicyServer(policy, LOOPBACK, tls=lambda: context) as server:
        run(main)


SERVER = Path(__file__).with_name("openpi_peer.py")


def test_openpis_server() -> None:
    pytest.importorskip("openpi_client")
    process = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)

    async def main(port: int) -> None:
        async with AsyncPolicyClient(f"127.0.0.1:{port}") as client:
            assert client.metadata == {"server": "websockets"}
            for number in range(3):
                state = np.full(8, number, np.float32)
                action = await client.infer({"state": state})
                np.testing.assert_array_equal(action["seen"]["state"], state)
            with pytest.raises(PeerError, match="no such prompt"):
                await client.infer({"prompt": "raise"})
            assert "seen" in await client.infer({})

    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline()))
        run(lambda: main(port))
    finally:
        process.kill()
        process.communicate()
