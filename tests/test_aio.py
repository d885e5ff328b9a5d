"""`rlwire.aio.make` and `make_vec`: Gymnasium's calls, awaited."""

import asyncio
import threading

import numpy as np
import pytest

import rlwire
import rlwire.aio
from rlwire.errors import EncodeError

gymnasium = pytest.importorskip("gymnasium")

URLS = ("dm-env-rpc://localhost:0", "perlert://localhost:0")


async def play(env, seed, steps=20):
    seen = [(await env.reset(seed=seed))[0]]
    for step in range(steps):
        observation, _, terminated, truncated, _ = await env.step(step % 2)
        seen.append(observation)
        if terminated or truncated:
            break
    return np.array(seen)


@pytest.mark.parametrize("url", URLS)
def test_async_environments_of_one_loop_play_concurrently(url):
    count = 50 if url == URLS[0] else 4  # a PERLERT instance plays one run at a time

    async def run(server):
        async def one(seed):
            async with rlwire.aio.make(server.url) as env:
                return await play(env, seed)

        return await asyncio.gather(*(one(seed) for seed in range(count)))

    with rlwire.serve("gym:CartPole-v1", url) as server:
        found = asyncio.run(run(server))
        if url == URLS[0]:
            with rlwire.make(server.url) as env:
                expected, _ = env.reset(seed=7)
            assert (found[7][0] == expected).all()
    assert all(len(seen) > 1 and seen.shape[1] == 4 for seen in found)


def test_async_vector_equals_gymnasiums_vector():
    async def run():
        async with rlwire.aio.make_vec("gym:CartPole-v1", 3, workers=0) as envs:
            observations, _ = await envs.reset(seed=1)
            return envs.num_envs, observations, await envs.step(np.ones(3, np.int64))

    count, observations, results = asyncio.run(run())
    envs = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    assert (observations == envs.reset(seed=1)[0]).all()
    assert (results[0] == envs.step(np.ones(3, np.int64))[0]).all()
    assert (count, len(results)) == (3, 5)


def test_async_calls_raise_the_errors_of_the_blocking_calls():
    async def run(url):
        env = await rlwire.aio.make(url)
        await env.reset()
        with pytest.raises(EncodeError):
            await env.step("left")
        assert env.action_space.n == 2
        await env.close()
        with pytest.raises(ValueError, match="nothing"):
            await rlwire.aio.make("nothing://localhost:0")

    with rlwire.serve("gym:CartPole-v1", URLS[0]) as server:
        asyncio.run(run(server.url))


def test_closed_async_vector_raises_closed_environment_error():
    async def run():
        async with rlwire.aio.make_vec("gym:CartPole-v1", 1, workers=0) as envs:
            await envs.reset()
            await envs.close()
            await envs.close()
            for call in (
                envs.reset,
                lambda: envs.step([0]),
                envs.render,
                lambda: envs.get_attr("spec"),
            ):
                with pytest.raises(gymnasium.error.ClosedEnvironmentError):
                    await call()

    asyncio.run(run())


def test_calls_of_a_vector_wait_for_the_step_in_progress():
    async def run():
        async with rlwire.aio.make_vec("gym:CartPole-v1", 2, workers=1) as envs:
            await envs.reset()
            step = asyncio.create_task(envs.step(np.ones(2, np.int64)))
            await asyncio.sleep(0)
            await envs.set_attr("gravity", 3.0)
            assert await envs.get_attr("gravity") == (3.0, 3.0)
            assert await envs.call("gravity") == (3.0, 3.0)
            assert step.done()

    asyncio.run(run())


def test_close_does_not_wait_for_a_cancelled_call(monkeypatch):
    began, go, closed = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(rlwire.aio, "_CLOSE_TIMEOUT", 0.01)

    class Reconnecting:
        def reset(self, **arguments):
            began.set()
            assert go.wait(60)

        def close(self):
            closed.set()

    async def run():
        async with rlwire.aio.Environment(Reconnecting) as env:
            await env.open()
            reset = asyncio.create_task(env.reset())
            assert await asyncio.to_thread(began.wait, 60)
            reset.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reset
        assert not closed.is_set()

    asyncio.run(run())
    go.set()
    assert closed.wait(60)
