"""AsyncPolicyClient against our server and openpi's, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme
import websockets.asyncio.server

from rlwire.adapters.openpi import AsyncPolicyClient, PolicyServer
from rlwire.codecs import msgpack
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    PeerError,
)
from rlwire.sessions.websocket import Refused
from rlwire.transports.sockets import Backoff, Timeouts

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


def test_a_late_action_is_not_taken_for_the_next(policy: Policy, server: PolicyServer) -> None:
    async def main() -> None:
        async with client_of(server, timeouts=Timeouts(idle=1.0)) as client:
            with pytest.raises(DeadlineExceeded):
                await client.infer({"prompt": "wait", "number": 1})
        policy.go_on.set()
        async with client_of(server) as client:
            assert (await client.infer({"number": 2}))["seen"] == {"number": 2}

    run(main)


def test_it_goes_on_after_an_error_of_the_policy(server: PolicyServer) -> None:
    async def main() -> None:
        async with client_of(server) as client:
            for _ in range(3):
                with pytest.raises(PeerError, match="KeyError: 'observation/image'"):
                    await client.infer({"prompt": "raise"})
                assert "actions" in await client.infer({})
            with pytest.raises(EncodeError):
                await client.infer({"prompt": object()})
            assert "actions" in await client.infer({})
        async with client_of(server, reconnect=False) as client:
            with pytest.raises(PeerError):
                await client.infer({"prompt": "raise"})
            with pytest.raises(ConnectionClosed):
                await client.infer({})

    run(main)


def test_it_reconnects_to_a_server_that_was_away(policy: Policy) -> None:
    async def main() -> None:
        server = await asyncio.to_thread(PolicyServer(policy, LOOPBACK).start)
        address = str(server.address)
        async with client_of(server) as client:
            assert "actions" in await client.infer({})
            await asyncio.to_thread(server.stop)
            with pytest.raises((ConnectionClosed, OSError)):
                await client.infer({})
            again = PolicyServer(policy, address, metadata={"new": 1})
            await asyncio.to_thread(again.start)
            try:
                assert "actions" in await client.infer({})
                assert client.metadata == {"new": 1}
            finally:
                await asyncio.to_thread(again.stop)

    run(main)


def test_it_waits_for_a_server_that_starts(policy: Policy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    server = PolicyServer(policy, address)

    async def main() -> None:
        backoff = Backoff(attempts=1000, first=0.02, longest=0.05)
        client = AsyncPolicyClient(address, backoff=backoff)
        connecting = asyncio.create_task(client.connect())
        await asyncio.sleep(0.1)
        assert not connecting.done()
        await asyncio.to_thread(server.start)
        await connecting
        assert client.metadata == METADATA
        await client.close()

    try:
        run(main)
    finally:
        server.stop()


def test_closed_and_not_yet_open(server: PolicyServer) -> None:
    async def main() -> None:
        client = client_of(server)
        assert client.metadata == {}
        with pytest.raises(ConnectionClosed, match="is not connected"):
            await client.infer({})
        await client.connect()
        await client.connect()  # anew
        assert "actions" in await client.infer({})
        await client.close()
        await client.close()
        with pytest.raises(ConnectionClosed, match="is closed"):
            await client.infer({})
        assert repr(client) == f"<AsyncPolicyClient of ws://{server.address}>"

    run(main)


def test_a_wrong_key_is_refused(policy: Policy) -> None:
    async def main(server: PolicyServer) -> None:
        async with client_of(server, auth="s3cret") as client:
            assert "actions" in await client.infer({})
        with pytest.raises(Refused, match="401 the API key is wrong"):
            await client_of(server, auth="guess").connect()

    with PolicyServer(policy, LOOPBACK, auth="s3cret") as server:
        run(lambda: main(server))


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


@pytest.mark.parametrize("first", ["no policy", [1, 2]])
def test_a_server_that_first_says_something_else(first: Any) -> None:
    async def complain(connection: Any) -> None:
        await connection.send(first if isinstance(first, str) else msgpack.encode(first))
        await connection.wait_closed()

    async def main() -> None:
        async with websockets.asyncio.server.serve(complain, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = AsyncPolicyClient(f"127.0.0.1:{port}")
            with pytest.raises(Exception, match=r"no policy|is a map of names"):
                await client.connect()
            with pytest.raises(ConnectionClosed, match="not connected"):
                await client.infer({})

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
