"""What does a rewarder's step cost on one core, against a raw exchange of as many bytes?

An action, and the observation that is pushed then, of 4 float32: `RewarderServer` in a process, and
a client in this one, blocking or asyncio, on the same core. Blocks of each take turns with blocks
of a blocking exchange of as many bytes; figures are medians.

`python benchmarks/bench_rewarder_step.py` prints the table. Linux only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
import pytest
from pairs import TINY, print_head, print_table

from rlwire.adapters.rewarder import AsyncRewarderClient, ClientSettings, RewarderClient
from rlwire.bench.floor import Floor
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import allowed_cores, pin
from rlwire.bench.provider import Cores
from rlwire.bench.providers.rewarder import RewarderRow

QUESTION = "What does a rewarder's step cost on one core, against a raw exchange of as many bytes?"
SECONDS = 0.2 if TINY else 6.0
BLOCK = 32
LEAD_IN = 2  # of a block, untimed
CORES = allowed_cores()[-1:]
QUIET = {"attach": True, "session_settings": ClientSettings(ping_interval=None, first_pings=0)}

Block = Callable[[], list[int]]


def row() -> RewarderRow:
    """A server of recorded observations, not yet started."""
    states = np.random.default_rng(1).normal(size=(BLOCK, 4)).astype(np.float32)
    steps = [Step(state, 1.0, False) for state in states]
    return RewarderRow(Payload("small", "4 float32", steps), Cores(CORES, CORES))


def blocking(served: RewarderRow, stack: ExitStack) -> Block:
    """Steps of `RewarderClient`."""
    client = stack.enter_context(RewarderClient(served._server.address, **QUIET))

    def block() -> list[int]:
        times = []
        for action in served._actions:
            begin = perf_counter_ns()
            client.act(action)
            step = client.step(10.0)
            times.append(perf_counter_ns() - begin)
            assert step.observations == 1
        return times

    return block


def on_a_loop(served: RewarderRow, stack: ExitStack) -> Block:
    """Steps of `AsyncRewarderClient`, a block in one run of its loop."""
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    client = AsyncRewarderClient(served._server.address, **QUIET)
    loop.run_until_complete(client.connect())
    stack.callback(lambda: loop.run_until_complete(client.close()))

    async def steps() -> list[int]:
        times = []
        for action in served._actions:
            begin = perf_counter_ns()
            client.act(action)
            step = await client.step(10.0)
            times.append(perf_counter_ns() - begin)
            assert step.observations == 1
        return times

    return lambda: loop.run_until_complete(steps())


def raw(served: RewarderRow, stack: ExitStack) -> Block:
    """The floor's exchanges."""
    floor = stack.enter_context(
        Floor(served.requests, served.reply_bytes, cores=CORES, read_back=0)
    )

    def block() -> list[int]:
        times = []
        for index in range(BLOCK):
            begin = perf_counter_ns()
            floor.exchange(index)
            times.append(perf_counter_ns() - begin)
        return times

    return block


RIVALS: dict[str, Any] = {"raw": raw, "RewarderClient": blocking, "AsyncRewarderClient": on_a_loop}


def measure(seconds: float = SECONDS) -> dict[str, float]:
    """Median microseconds of a step of each."""
    pin(CORES)
    with ExitStack() as stack:
        blocks = {}
        for name, make in RIVALS.items():
            served = row()
            stack.enter_context(served._server)
            blocks[name] = make(served, stack)
        taken: dict[str, list[int]] = {name: [] for name in blocks}
        until = perf_counter() + seconds
        while perf_counter() < until:
            for name, block in blocks.items():
                taken[name] += block()[LEAD_IN:]
    return {name: median(times) / 1e3 for name, times in taken.items()}


@pytest.mark.parametrize("name", list(RIVALS))
def test_step(benchmark: Any, name: str) -> None:
    """Blocks of steps."""
    with ExitStack() as stack:
        served = row()
        stack.enter_context(served._server)
        benchmark.pedantic(RIVALS[name](served, stack), rounds=2 if TINY else 50)


if __name__ == "__main__":
    print_head(QUESTION)
    found = measure()
    print_table(
        ("client", "us a step", "of the raw exchange"),
        [(name, f"{us:.1f}", f"{us / found['raw']:.1f}x") for name, us in found.items()],
    )
