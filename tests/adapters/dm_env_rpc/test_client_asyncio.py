"""`AsyncClient`; who may say what, and the servers, are the same as for `Client`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from rlwire.adapters.dm_env_rpc import AsyncClient, DmEnvRpcServer, EnvironmentWorlds, StatusError
from rlwire.codecs.dm_env_rpc import (
    AnyMessage,
    EnvironmentStateType,
    ReadPropertyRequest,
    ResetRequest,
    Step,
    encode_property_request,
)
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
)
from rlwire.sessions.dm_env_rpc import Code, State
from rlwire.transports.sockets import Backoff, Timeouts

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


def test_many_steps_at_once(our_server, voyage) -> None:
    async def talk(client: AsyncClient) -> None:
        await client.join_world(await client.create_world({"first": 3}))
        local = voyage.Voyage(3)
        actions = [voyage.actions(3, day % 6) for day in range(300)]
        results = await client.step_many(actions)
        for result, action in zip(results, actions, strict=True):
            for name, value in voyage.flat(local.step(action).observation).items():
                np.testing.assert_array_equal(result.observations[name], value)
        await client.reset()
        assert await client.step_many([]) == []
        good = {"course": 0, "sail": [0.0, 0.0]}
        await client.step()
        local.reset()
        with pytest.raises(StatusError, match="missing"):
            await client.step_many([good, {}, good], ())
        with pytest.raises(EncodeError, match="fly"):
            await client.step_many([good, {"fly": 1}, good], ())
        for _ in range(3):
            local.step(good)
        entry = (await client.step(good, ["log.entry"])).observations["log.entry"]
        assert entry == local.step(good).observation["log"]["entry"]

    run(talk, our_server, ahead=7)


def test_submitted_requests(reference_server, voyage) -> None:
    async def talk(client: AsyncClient) -> None:
        await client.join_world(await client.create_world())
        good = voyage.actions(0, 0)
        await client.step()
        first = await client.submit(Step(good, ("log.day",)))
        wrong = await client.submit(Step({}, ()))
        reset = await client.submit(ResetRequest())
        last = await client.submit(Step({}, ("log.day",)))
        assert not last.done
        assert (await last.result()).observations["log.day"] == 0
        assert first.done
        assert (await first.result()).observations["log.day"] == 1
        assert (await reset.result()).specs == client.specs
        with pytest.raises(StatusError, match="missing"):
            await wrong.result()

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


def test_a_server_that_dies_is_seen_at_once(mortal_server) -> None:
    async def talk(client: AsyncClient) -> None:
        waiting = [await client.submit(NAP) for _ in range(3)]
        begun = time.monotonic()
        asyncio.get_running_loop().call_later(0.3, mortal_server.kill)
        results = await asyncio.gather(*(w.result() for w in waiting), return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionClosed] * 3
        assert 0.2 < time.monotonic() - begun < 5
        assert client.closed
        with pytest.raises(ConnectionClosed):
            await client.create_world()

    run(talk, mortal_server.address)


def test_no_answer_in_time(mortal_server) -> None:
    async def talk(client: AsyncClient) -> None:
        with pytest.raises(DeadlineExceeded):
            await client.request(NAP)
        assert client.closed

    run(talk, mortal_server.address, timeouts=Timeouts(idle=0.3))
    mortal_server.kill()


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


def test_before_connecting_and_after_closing(our_server) -> None:
    async def main() -> None:
        client = AsyncClient(our_server)
        for _ in range(2):
            assert (client.closed, client.state, client.specs) == (True, State.CLOSED, None)
            with pytest.raises(ConnectionClosed, match=r"connect\(\) or reconnect\(\)"):
                await client.step()
            client.cancel()
            await client.connect()
            await client.join_world()
            left = await client.submit(Step())
            await client.close()
            with pytest.raises(ConnectionClosed, match="closed here"):
                await left.result()

    asyncio.run(main())


def test_reconnecting(voyage, caplog) -> None:
    caplog.set_level(logging.INFO, "rlwire.adapters.dm_env_rpc.client")

    async def main() -> None:
        worlds = EnvironmentWorlds(voyage.Voyage, accepts=["first"])
        with DmEnvRpcServer(worlds, "127.0.0.1:0") as server:
            client = AsyncClient(server.address)
            await client.connect()
            assert await client.reconnect() is None
            name = await client.create_world({"first": 4})
            specs = await client.join_world(name)
            client.cancel()
            with pytest.raises(ConnectionClosed):
                await client.step()
            # The world takes one agent, and the server may not have seen yet that it is gone.
            assert await client.reconnect() == specs
            assert client.world_name == name
            assert (await client.step()).observations["log.entry"] == "voyage 4, day 0 ✓"
            address = str(server.address)
        with pytest.raises(ConnectionClosed):
            await client.step()
        with pytest.raises(OSError, match="2 attempts"):
            await client.reconnect(Backoff(attempts=2, first=0.01))
        with DmEnvRpcServer(worlds, address):
            await client.reconnect()
            assert (await client.step()).observations["log.entry"] == "voyage 4, day 0 ✓"
            await client.leave_world()
            await client.destroy_world(await client.create_world())
            await client.close()

    asyncio.run(main())
    assert "joined the world 'world-" in caplog.text
    assert "has forgotten the world 'world-" in caplog.text
