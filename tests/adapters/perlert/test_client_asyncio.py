"""`AsyncClient` against a server in this process, on both event loops."""

from __future__ import annotations

import asyncio
import sys

import pytest

from rlwire.adapters.perlert import AsyncClient
from rlwire.errors import LocalProtocolError
from rlwire.sessions.perlert.registration import State

LOOPS = ["asyncio"] + (["uvloop"] if sys.platform != "win32" else [])


@pytest.fixture(params=LOOPS)
def run(request):
    """Runs a coroutine on either loop."""

    def on_asyncio(coroutine):
        return asyncio.run(coroutine)

    def on_uvloop(coroutine):
        uvloop = pytest.importorskip("uvloop")
        loop = uvloop.new_event_loop()
        try:
            return loop.run_until_complete(coroutine)
        finally:
            loop.close()

    return on_asyncio if request.param == "asyncio" else on_uvloop


def test_many_agents_on_one_loop(worlds, serving, run):
    server = serving(worlds.Crowd)

    async def play(number):
        async with AsyncClient(server.address, "crowd", tag=f"tag{number}") as client:
            await client.register(f"walker_{number}")
            client.ready()
            await client.wait_start(5)
            client.act(number)
            frames = [await client.frame(5)]
            while not frames[-1].done:
                frames += await client.frames(5)
            with pytest.raises(LocalProtocolError, match="is over"):
                await client.frame()
            assert client.statistics()["frames"] == len(frames)
            return frames

    async def main():
        return await asyncio.gather(*(play(number) for number in range(3)))

    played = run(main())
    for number, frames in enumerate(played):
        assert [frame.step for frame in frames] == list(range(number + 4))


def test_frames_that_come_while_nobody_waits(worlds, serving, run):
    server = serving(lambda: worlds.Walk(length=5))

    async def main():
        async with AsyncClient(server.address, "Walk") as client:
            await client.register()
            client.ready()
            while client.state is not State.DONE:
                await asyncio.sleep(0.01)
            assert await client.wait_start(1) == "agent0"
            frames = [await client.frame(1)]
            frames += await client.frames(1)
            assert [frame.step for frame in frames] == list(range(6))
            await client.register()
            client.ready()
            await client.wait_start(5)
            assert (await client.frame(5)).step == 0

    run(main())
