"""`AsyncClient`; who may say what, and the servers, are the same as for `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rlwire.adapters.dm_env_rpc import AsyncClient, StatusError
from rlwire.codecs.dm_env_rpc import (
    AnyMessage,
    EnvironmentStateType,
    ReadPropertyRequest,
    encode_property_request,
)
from rlwire.errors import (
    ConnectionClosed,
    EncodeError,
    LocalProtocolError,
)
from rlwire.sessions.dm_env_rpc import Code, State
from rlwire.transports.sockets import Backoff

RUNNING = EnvironmentStateType.RUNNING
NAP = encode_property_request(ReadPropertyRequest("nap"))


def run(talk: Callable[[AsyncClient], Coroutine[Any, Any, Any]], address: Any, **options: Any):
    async def main() -> Any:
        async with AsyncClient(address, **options) as client:
            return await talk(client)

    return asyncio.run(main())


def test_the_life_of_a_world(reference_server, voyage) -> None:
    async def talk(client: AsyncClient) -> None:
        assert (client.closed, client.state, client.specs) == (False, State.NOT_JOINED, None)
        name = await client.create_world({"first": 3})
        specs = await client.join_world(name)
        assert (client.specs, client.world_name) == (specs, name)
        assert (await client.step()).observations["log.entry"] == "voyage 3, day 0 ✓"
        action = voyage.actions(3, 0)
        result = await client.step(action, ("log.day",))
        assert result.observations == {"log.day": 1}
        with pytest.raises(StatusError, match="missing"):
            await client.step({})
        with pytest.raises(EncodeError, match="fly"):
            await client.step({"fly": 1})
        assert await client.reset() == specs
        await client.reset_world()
        await client.leave_world()
        with pytest.raises(LocalProtocolError, match="join_world first"):
            await client.step()
        await client.destroy_world(name)
        with pytest.raises(StatusError) as raised:
            await client.destroy_world(name)
        assert raised.value.code == Code.NOT_FOUND
        with pytest.raises(StatusError, match="is not known"):
            await client.extension(AnyMessage("type.googleapis.com/some.Thing", b""))

    run(talk, reference_server)


def test_tasks_share_a_client(our_server, voyage) -> None:
    """Each gets its own answer, whoever receives it."""

    async def talk(client: AsyncClient) -> None:
        await client.join_world()
        days = []

        async def play() -> None:
            for _ in range(20):
                result = await client.step(voyage.actions(0, 0), ("log.day",))
                days.append(int(result.observations["log.day"]))

        await asyncio.gather(*(play() for _ in range(5)))
        local = voyage.Voyage()
        expected = [
            int(local.step(voyage.actions(0, 0)).observation["log"]["day"]) for _ in range(100)
        ]
        assert sorted(days) == sorted(expected)

        async def name(number: int) -> str:
            return await client.create_world({"first": number})

        names = await asyncio.gather(*map(name, range(10)))
        assert len(set(names)) == 10

    run(talk, our_server, ahead=3)


@pytest.mark.parametrize("mortal_server", ["threads"], indirect=True)
def test_a_cancelled_task_ends_the_connection(mortal_server) -> None:
    async def talk(client: AsyncClient) -> None:
        waits = asyncio.create_task(client.request(NAP))
        other = asyncio.create_task(client.request(NAP))
        await asyncio.sleep(0.2)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        with pytest.raises(ConnectionClosed, match="cancelled"):
            await other
        with pytest.raises(ConnectionClosed):
            await client.create_world()
        await client.reconnect(Backoff(attempts=3))
        assert await client.create_world()

    run(talk, mortal_server.address)
    mortal_server.kill()
