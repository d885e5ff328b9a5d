"""What does a rewarder's step cost on one core, against a raw exchange of as many bytes?

An action, and the observation that is pushed then, of 4 float32: `RewarderServer` in a process, and
a client in this one, blocking or asyncio, on the same core. Blocks of each take turns with blocks
of a blocking exchange of as many bytes; figures are medians.

`python benchmarks/bench_rewarder_step.py` prints the table. Linux only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
from pairs import TINY, print_head, print_table

from rlwire.bench.processes import ServerProcess, allowed_cores, pin
from rlwire.bench.raw import Relay, Sizes, raw_exchange
from rlwire.universe.rewarder import AsyncRewarderClient, RewarderClient, RewarderServer

QUESTION = "What does a rewarder's step cost on one core, against a raw exchange of as many bytes?"
SECONDS = 0.2 if TINY else 6.0
BLOCK = 32
LEAD_IN = 2  # of a block, untimed
CORES = allowed_cores()[-1:]
QUIET = {"attach": True}
ACTIONS = [[("Show", f"{number:06}")] for number in range(BLOCK)]

Block = Callable[[], list[int]]


def serve(report: Callable[[str], None]) -> None:
    """Push a recorded observation for each action, which is its number."""
    states = np.random.default_rng(1).normal(size=(BLOCK, 4)).astype(np.float32)

    def act(message: Any) -> None:
        ((_, number),) = message.action
        server.observation(states[int(number)])

    server = RewarderServer(
        "bench", "127.0.0.1:0", auth="openai", on_action=act, ping_interval=None, backlog=1 << 26
    )
    server.start()
    report(str(server.address))
    threading.Event().wait()


def served(stack: ExitStack) -> str:
    """Start a server, and return its address."""
    address: str = stack.enter_context(ServerProcess("rewarder", serve, cores=CORES)).address
    return address


def blocking(stack: ExitStack, address: str | None = None) -> Block:
    """Steps of `RewarderClient`."""
    client = stack.enter_context(RewarderClient(address or served(stack), **QUIET))

    def block() -> list[int]:
        times = []
        for action in ACTIONS:
            begin = perf_counter_ns()
            client.act(action)
            step = client.step(10.0)
            times.append(perf_counter_ns() - begin)
            assert step.observation is not None
        return times

    return block


def on_a_loop(stack: ExitStack) -> Block:
    """Steps of `AsyncRewarderClient`, a block in one run of its loop."""
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    client = AsyncRewarderClient(served(stack), **QUIET)
    loop.run_until_complete(client.connect())
    stack.callback(lambda: loop.run_until_complete(client.close()))

    async def steps() -> list[int]:
        times = []
        for action in ACTIONS:
            begin = perf_counter_ns()
            client.act(action)
            step = await client.step(10.0)
            times.append(perf_counter_ns() - begin)
            assert step.observation is not None
        return times

    return lambda: loop.run_until_complete(steps())


def counted() -> Sizes:
    """Bytes of an action and of an observation, as a relay counts them."""
    with ExitStack() as stack:
        host, port = served(stack).rsplit(":", 1)
        relay = Relay(host, int(port))
        stack.callback(relay.close)
        block = blocking(stack, f"127.0.0.1:{relay.port}")
        block()
        before = relay.sent, relay.answered
        block()
        now = relay.sent, relay.answered
    return Sizes(*(round((late - early) / BLOCK) for late, early in zip(now, before, strict=True)))


def raw(stack: ExitStack) -> Block:
    """Raw exchanges of as many bytes."""
    exchange = stack.enter_context(raw_exchange(counted(), CORES))

    def block() -> list[int]:
        times = []
        for _ in range(BLOCK):
            begin = perf_counter_ns()
            exchange()
            times.append(perf_counter_ns() - begin)
        return times

    return block


RIVALS: dict[str, Any] = {"raw": raw, "RewarderClient": blocking, "AsyncRewarderClient": on_a_loop}


def measure(seconds: float = SECONDS) -> dict[str, float]:
    """Median microseconds of a step of each."""
    pin(CORES)
    with ExitStack() as stack:
        blocks = {name: make(stack) for name, make in RIVALS.items()}
        taken: dict[str, list[int]] = {name: [] for name in blocks}
        until = perf_counter() + seconds
        while perf_counter() < until:
            for name, block in blocks.items():
                taken[name] += block()[LEAD_IN:]
    return {name: median(times) / 1e3 for name, times in taken.items()}


if __name__ == "__main__":
    print_head(QUESTION)
    found = measure()
    print_table(
        ("client", "us a step", "of the raw exchange"),
        [(name, f"{us:.1f}", f"{us / found['raw']:.1f}x") for name, us in found.items()],
    )
