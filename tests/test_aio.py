"""`rlwire.aio.make` and `make_vec`: Gymnasium's calls, awaited."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rlwire
import rlwire.aio
from rlwire.errors import EncodeError, LocalProtocolError
from rlwire.transports.sockets import Timeouts
from tests.waiting import eventually_async

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


class Echo(gymnasium.Env):
    """Observes the action; `held` holds up steps with an action of 1 and resets with a seed."""

    def __init__(self, size=1):
        self.observation_space = self.action_space = gymnasium.spaces.Box(0, 9, (size,), np.float32)
        self.steps, self.held = 0, threading.Event()

    def reset(self, *, seed=None, options=None):
        assert seed is None or self.held.wait(60)
        return np.zeros(self.action_space.shape, np.float32), {"steps": self.steps}

    def step(self, action):
        assert action[0] != 1 or self.held.wait(60)
        self.steps += 1
        return action, 1.0, False, False, {"steps": self.steps}


def action(value, size=1):
    return np.full(size, value, np.float32)


@contextlib.asynccontextmanager
async def halving(port):
    """Relay to a server; yield the port, and an event that the second half of each reply awaits."""
    go, tasks = asyncio.Event(), []

    async def relay(reader, writer, halve):
        with contextlib.closing(writer):
            while data := await reader.read(1 << 16):
                if halve and not go.is_set():
                    writer.write(data[: len(data) // 2])
                    data = data[len(data) // 2 :]
                    await go.wait()
                writer.write(data)

    async def accept(reader, writer):
        theirs, to_them = await asyncio.open_connection("127.0.0.1", port)
        for one in (relay(reader, to_them, False), relay(theirs, writer, True)):
            tasks.append(asyncio.create_task(one))

    go.set()
    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], go  # to clients that close their connections
        await asyncio.gather(*tasks, return_exceptions=True)


def watched(env):
    """Return whether the loop takes the steps."""
    return env._watching


@pytest.mark.parametrize("scheme", ["dm-env-rpc", "dm-env-rpc+tls", "dm-env-rpc+unix", "universe"])
def test_quick_steps_need_no_thread(scheme, tmp_path, monkeypatch):
    monkeypatch.setattr(rlwire.aio, "_PATIENCE", 60)

    async def run(url):
        async with rlwire.aio.make(url) as env:
            for episode in range(2):
                _, info = await env.reset()
                assert info == {"steps": 20 * episode}
                put, env._put = env._put, None  # calls of the thread
                for step in range(20):
                    observation, *_, info = await env.step(action(2 + step % 3))
                    assert observation == 2 + step % 3
                env._put = put
            assert info == {"steps": 40}
        return env

    where, ours, options = f"{scheme}://localhost:0", "", {}
    if "unix" in scheme:
        where = f"{scheme}://{tmp_path}/s"
    elif "tls" in scheme:
        authority = pytest.importorskip("trustme").CA()
        authority.cert_pem.write_to_path(tmp_path / "ca")
        issued = authority.issue_cert("localhost").private_key_and_cert_chain_pem
        issued.write_to_path(tmp_path / "own")
        where, ours = f"{where}?tls.cert={tmp_path}/own", f"?tls.ca={tmp_path}/ca"
    elif scheme == "universe":
        where, options = "universe://localhost:+0", {"lockstep": True}
    with rlwire.serve(Echo, where, **options) as server:
        assert not watched(asyncio.run(run(f"{server.url}{ours}")))


def test_quick_steps_over_udp_need_no_thread(monkeypatch):
    monkeypatch.setattr(rlwire.aio, "_PATIENCE", 60)

    async def run(url):
        async with rlwire.aio.make(url) as env:
            for _ in range(2):
                await env.reset()
                put, env._put = env._put, None
                terminated = False
                while not terminated:
                    _, _, terminated, _, info = await env.step(0)
                env._put = put
                assert info["step"] >= 7

    with rlwire.serve("gym:CartPole-v1", "perlert://localhost:0") as server:
        asyncio.run(run(server.url))


@pytest.mark.parametrize("patience", [0.01, 60])
def test_slow_replies_and_large_actions_do_not_stop_the_loop(patience, monkeypatch):
    monkeypatch.setattr(rlwire.aio, "_PATIENCE", patience)
    size = 1 << 20

    async def run(port):
        make = rlwire.aio.make
        async with halving(port) as (there, go):
            slow, quick = f"dm-env-rpc://127.0.0.1:{there}", f"dm-env-rpc://127.0.0.1:{port}"
            async with make(slow) as env, make(quick) as other:
                await asyncio.gather(env.reset(), other.reset())
                go.clear()
                step = asyncio.create_task(env.step(action(2, size)))
                for value in range(2, 9):
                    assert ((await other.step(action(value, size)))[0] == value).all()
                if patience < 1:
                    await eventually_async(lambda: not watched(env))
                assert not step.done()
                go.set()
                assert ((await step)[0] == 2).all()
                assert ((await env.step(action(3, size)))[0] == 3).all()

    with rlwire.serve(lambda: Echo(size), "dm-env-rpc://127.0.0.1:0") as server:
        asyncio.run(run(server.address.port))


LOCKSTEP = ("universe://127.0.0.1:+0", {"lockstep": True})


@pytest.mark.parametrize(("url", "options"), [("dm-env-rpc://127.0.0.1:0", {}), LOCKSTEP])
def test_cancelled_step_ends_before_the_next_call(url, options):
    world = Echo()

    async def run(url):
        async with rlwire.aio.make(url) as env:
            await env.reset()
            for others in ([], [env.step(action(3)), env.step(action(4))]):
                world.held.clear()
                step = asyncio.create_task(env.step(action(1)))
                await asyncio.sleep(0)
                assert watched(env)
                others = [asyncio.create_task(other) for other in others]
                await asyncio.sleep(0)
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
                world.held.set()
                for value, other in enumerate(others, 3):
                    assert (await other)[0] == value
                assert (await env.step(action(2)))[0] == 2
                assert (await env.step(action(5)))[0] == 5
            return (await env.reset())[1]

    with rlwire.serve(lambda: world, url, **options) as server:
        assert asyncio.run(run(server.url)) == {"steps": 8}


def test_steps_have_the_timeouts_and_losses_of_blocking_ones(monkeypatch):
    world = Echo()

    async def run(server, idle):
        monkeypatch.setattr(rlwire.aio, "_PATIENCE", 0.01 if idle else 60)
        async with rlwire.aio.make(server.url, timeout=Timeouts(idle=idle)) as env:
            await env.reset()
            assert (await env.step(action(2)))[0] == 2
            step = asyncio.create_task(env.step(action(1)))
            if not idle:
                await asyncio.sleep(0)
                await asyncio.to_thread(server.stop, 0.0)
            observation, _, terminated, truncated, info = await step
            assert (observation, terminated, truncated) == (2, False, True)
            assert (f"idle={idle}" if idle else "connection") in info["lost"]
            with pytest.raises(LocalProtocolError, match="reset"):
                await env.step(action(2))
            world.held.set()
            if idle:
                await env.reset()
                assert (await env.step(action(1)))[0] == 1

    with rlwire.serve(lambda: world, "dm-env-rpc://127.0.0.1:0") as server:
        asyncio.run(run(server, 4.0))
        world.held.clear()
        asyncio.run(run(server, None))


@pytest.mark.parametrize(("url", "options"), [("dm-env-rpc://127.0.0.1:0", {}), LOCKSTEP])
def test_step_behind_a_cancelled_one_waits_for_the_call_in_progress(url, options):
    world = Echo()

    async def run(url):
        async with rlwire.aio.make(url) as env:
            await env.reset()
            reset = asyncio.create_task(env.reset(seed=1))
            await asyncio.sleep(0)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(env.step(action(2)), 0.01)
            step = asyncio.create_task(env.step(action(3)))
            await asyncio.sleep(0.05)
            world.held.set()
            await reset
            assert (await asyncio.wait_for(step, 20))[0] == 3

    with rlwire.serve(lambda: world, url, **options) as server:
        asyncio.run(run(server.url))


def test_exception_after_a_step_was_sent_leaves_the_replies_in_order():
    async def run(url):
        async with rlwire.aio.make(url) as env:
            await env.reset()
            await env.step(action(2))
            endpoint = env.environment.endpoint
            send = endpoint.send_step

            def interrupted(encoded):
                endpoint.send_step = send
                send(encoded)
                raise ZeroDivisionError

            endpoint.send_step = interrupted
            with pytest.raises(ZeroDivisionError):
                await env.step(action(3))
            for value in (4, 5):
                assert (await env.step(action(value)))[0] == value

    with rlwire.serve(Echo, "dm-env-rpc://127.0.0.1:0") as server:
        asyncio.run(run(server.url))


@pytest.mark.parametrize(("url", "options"), [("dm-env-rpc://127.0.0.1:0", {}), LOCKSTEP])
def test_step_to_a_server_that_has_gone_ends_without_a_timer(url, options, monkeypatch):
    monkeypatch.setattr(rlwire.aio, "_PATIENCE", 60)

    async def run(server):
        async with rlwire.aio.make(server.url) as env:
            await env.reset()
            await env.step(action(2))
            server.stop(0.0)  # not in a thread: the loop does not see it before the step
            *_, truncated, info = await asyncio.wait_for(env.step(action(3)), 20)
            assert truncated
            assert info["lost"]

    with rlwire.serve(Echo, url, **options) as server:
        asyncio.run(run(server))


def test_environment_serves_one_loop_after_another(monkeypatch):
    monkeypatch.setattr(rlwire.aio, "_PATIENCE", 60)

    async def step(env, value):
        assert (await env.step(action(value)))[0] == value
        assert watched(env)

    async def make(url):
        env = await rlwire.aio.make(url)
        await env.reset()
        await step(env, 2)
        return env

    with rlwire.serve(Echo, "dm-env-rpc://127.0.0.1:0") as server:
        env = asyncio.run(make(server.url))
        asyncio.run(step(env, 3))
        asyncio.run(env.close())


@pytest.mark.parametrize("when", ["starts", "has started"])
def test_server_whose_task_is_cancelled_while_it_starts_is_stopped(when, monkeypatch):
    starting, may_start, servers, serve = threading.Event(), threading.Event(), [], rlwire.serve

    def slow(*arguments):
        starting.set()
        assert may_start.wait(20)
        servers.append(serve(*arguments))
        return servers[0]

    async def block():
        async with rlwire.aio.serve("gym:CartPole-v1", URLS[0]):
            raise AssertionError

    async def run():
        executor = ThreadPoolExecutor()
        asyncio.get_running_loop().set_default_executor(executor)
        task = asyncio.create_task(block())
        assert await asyncio.to_thread(starting.wait, 20)
        if when == "has started":  # and the loop has not seen the result
            may_start.set()
            executor.shutdown()  # waits for its threads
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_start.set()
        await eventually_async(lambda: servers and not servers[0].running)

    monkeypatch.setattr(rlwire, "serve", slow)
    asyncio.run(run())


def test_environment_whose_task_is_cancelled_while_it_is_made_is_closed(monkeypatch):
    made, may_make, closed = threading.Event(), threading.Event(), threading.Event()

    class Made:
        close = staticmethod(closed.set)

    def make(*_):
        made.set()
        assert may_make.wait(20)
        return Made

    async def run():
        task = asyncio.ensure_future(rlwire.aio.make(URLS[0]))
        assert await asyncio.to_thread(made.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_make.set()
        assert await asyncio.to_thread(closed.wait, 20)

    monkeypatch.setattr(rlwire, "make", make)
    asyncio.run(run())


def test_server_is_stopped_though_its_task_is_cancelled_while_the_executor_is_busy():
    async def block(entered, leave):
        async with rlwire.aio.serve("gym:CartPole-v1", URLS[0]) as server:
            entered.set_result(server)
            await leave.wait()

    async def run():
        loop, leave, free = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        task = asyncio.create_task(block(entered := loop.create_future(), leave))
        server = await entered
        busy = loop.run_in_executor(None, free.wait, 20)
        leave.set()
        await asyncio.sleep(0)  # the block ends
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        free.set()
        assert await busy
        await eventually_async(lambda: not server.running)

    asyncio.run(run())
