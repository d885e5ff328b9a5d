"""Times environments by URL beside their protocol's own client, 64 of them, and gateways.

CartPole-v1 is served over dm_env_rpc by processes with ``workers="asyncio"``. The gateways are of
docs/howto/gateway.md, in lockstep and without pixels. Figures are medians of turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from pairs import TINY, print_head, print_table
from rounds import InBlocks, awaiting, block_of

import rlwire.aio
from rlwire.codecs.dm_env_rpc import EnvironmentStateType

TURNS = 1 if TINY else 21
BLOCK = 4 if TINY else 256
MANY = 4 if TINY else 64
NAMES = ("observation", "reward", "discount")
PROCESSES = multiprocessing.get_context("spawn")
CART, RPC, REWARDS = "gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", "universe://127.0.0.1:+0"


def simulated(stack: contextlib.ExitStack) -> Any:
    """Return the environment of an RLX simulator, which runs in another process."""
    env = stack.enter_context(rlwire.listen("rlx://127.0.0.1:0", like=CART))
    play = CART, env.callers.url
    process = PROCESSES.Process(target=rlwire.play, args=play, kwargs={"episodes": 10**9})
    process.start()
    stack.callback(process.terminate)
    return env


def serve(connection: Any, target: Any, url: str, options: dict[str, Any]) -> None:
    """Serve until the parent closes the pipe."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(rlwire.serve(target or simulated(stack), url, **options))
        connection.send(str(server.url))
        with contextlib.suppress(EOFError):
            connection.recv()


def start_server(stack: contextlib.ExitStack, target: Any, url: str, **options: Any) -> Any:
    """Start a server process for `target`, by default a simulator, and return its URL."""
    parent_end, child_end = PROCESSES.Pipe()
    process = PROCESSES.Process(target=serve, args=(child_end, target, url, options))
    process.start()
    child_end.close()
    stack.callback(process.join)
    stack.callback(parent_end.close)
    return parent_end.recv()


def environment_step(env: Any) -> Callable[[], None]:
    """Return a function that steps `env`, and resets it at the end of an episode."""
    env.reset(seed=1)

    def step() -> None:
        if any(env.step(1)[2:4]):
            env.reset()

    return step


def client_step(client: Any) -> Callable[[], None]:
    """The same with the protocol's own client."""
    client.join_world()
    client.step()

    def step() -> None:
        result = client.step({"action": 1}, NAMES)
        if result.state != EnvironmentStateType.RUNNING:
            client.step({}, NAMES)

    return step


def awaited_step(env: Any, loop: asyncio.AbstractEventLoop) -> InBlocks:
    """The same with `rlwire.aio.make`."""
    loop.run_until_complete(env.reset(seed=1))

    async def step() -> None:
        if any((await env.step(1))[2:4]):
            await env.reset()

    return awaiting(loop, step)


def row(name: str, one: Any, against: str, other: Any, most: float, times: int = 1) -> Any:
    """Return the medians of both, and of the ratios of each turn."""
    pairs = [
        (median(block_of(one, BLOCK)) / 1e3, times * median(block_of(other, BLOCK)) / 1e3)
        for _ in range(TURNS)
    ]
    ours, theirs = map(median, zip(*pairs, strict=True))
    ratio = median(mine / yours for mine, yours in pairs)
    met = "yes" if ratio <= most else "no"
    return name, f"{ours:,.0f}", against, f"{theirs:,.0f}", f"{ratio:.2f}x", f"{most:g}x", met


if __name__ == "__main__":
    print_head("Steps of environments that are somewhere else, CartPole-v1 over dm_env_rpc.")
    with contextlib.ExitStack() as stack:
        enter, start = stack.enter_context, functools.partial(start_server, stack)

        def at(url: str) -> Callable[[], None]:
            return environment_step(enter(rlwire.make(url)))

        near, far = (start(CART, RPC, workers="asyncio") for _ in range(2))
        one, other = (start(CART, REWARDS, lockstep=True) for _ in range(2))
        envs, loop = enter(rlwire.make_vec([near, far] * (MANY // 2))), asyncio.new_event_loop()
        envs.reset(seed=1)
        many = functools.partial(envs.step, np.ones(MANY, np.int64))
        env = loop.run_until_complete(rlwire.aio.make(near).__aenter__())
        stack.callback(lambda: loop.run_until_complete(env.close()))
        awaited = awaited_step(env, loop)
        client = client_step(enter(rlwire.connect(near)))
        played = environment_step(simulated(stack))
        browser, trainer, tool = start(far, REWARDS, lockstep=True), start("", RPC), start(one, RPC)
        rows = [
            row("make(url).step", at(near), "the client's step", client, 1.3),
            row("aio.make(url).step", awaited, "make(url).step", at(near), 1.3),
            row(f"make_vec of {MANY}", many, f"{MANY} times one step", at(near), 0.5, MANY),
            row("universe, behind it dm_env_rpc", at(browser), "dm_env_rpc", at(far), 8),
            row("dm_env_rpc, behind it RLX", at(trainer), "RLX", played, 4),
            row("dm_env_rpc, behind it universe", at(tool), "universe", at(other), 2),
        ]
    print_table(("work", "us", "against", "us", "ratio", "at most", "met"), rows)
