"""How much does `AgentProxy.update` add to a raw blocking exchange of the same byte counts?

Client and server are two processes, pinned to one core and to two; blocks of updates and blocks
of raw exchanges take turns. Updates follow one another without a pause, to an agent that keeps
nothing; that everything arrives unchanged is for `rlwire bench` to check.

`pytest benchmarks/bench_rlx_round_trip.py` times each, not pinned; `python
benchmarks/bench_rlx_round_trip.py` prints the ratios.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest
from pairs import TINY, Line, print_head, print_lines, run_benchmark

from rlwire.bench.floor import Floor
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import allowed_cores, pin
from rlwire.bench.provider import Cores
from rlwire.bench.providers.rlx import RLX, CountingAgent, RLXRow

SIDE = 8 if TINY else 84
SECONDS = 0.05 if TINY else 6.0
BLOCK = 20 if TINY else 400
COUNT = 32  # different observations
AGENT = f"{CountingAgent.__module__}:{CountingAgent.__name__}"
# The server's core, the seconds of Timeouts.spin at both ends, the target.
SETTINGS: dict[str, tuple[int, float | None, float]] = {
    "two cores": (1, None, 1.15),
    "two cores, spin": (1, 100e-6, 1.15),
    "one core": (0, None, 1.5),
}


def payloads() -> Iterator[Payload]:
    """Four floats, and four Atari frames."""
    random = np.random.default_rng(7)
    small = [Step(random.random(4).tolist(), 1.0, False) for _ in range(COUNT)]
    yield Payload("small", "small update", small)
    stacks = [
        Step(random.random((SIDE, SIDE, 4), dtype=np.float32), 1.0, False) for _ in range(COUNT)
    ]
    yield Payload("stack", f"{SIDE}x{SIDE}x4 float32", stacks)


PAYLOADS = {payload.name: payload for payload in payloads()}


def row_of(payload: Payload, cores: Cores, spin: float | None = None) -> RLXRow:
    """The row of the bench for a payload."""
    (row,) = RLX(AGENT, spin).rows([payload], cores)
    return row


@pytest.mark.benchmark(group="round trip")
@pytest.mark.parametrize("name", PAYLOADS)
def test_update(benchmark: Any, name: str) -> None:
    """`AgentProxy.update`."""
    with row_of(PAYLOADS[name], Cores()) as row:
        run_benchmark(benchmark, row.exchange, 0)


@pytest.mark.benchmark(group="round trip")
@pytest.mark.parametrize("name", PAYLOADS)
def test_raw_echo(benchmark: Any, name: str) -> None:
    """The floor."""
    row = row_of(PAYLOADS[name], Cores())
    with Floor(row.requests, row.reply_bytes, read_back=False) as floor:
        run_benchmark(benchmark, floor.exchange, 0)


def times(row: RLXRow, floor: Floor) -> tuple[float, float]:
    """Median microseconds of an update and of a raw exchange, taken in turn."""
    taken: tuple[list[int], list[int]] = ([], [])
    deadline = perf_counter_ns() + SECONDS * 1e9
    while perf_counter_ns() < deadline:
        for exchange, kept in ((row.exchange, taken[0]), (floor.exchange, taken[1])):
            block = []
            for index in range(BLOCK):
                begin = perf_counter_ns()
                exchange(index)
                block.append(perf_counter_ns() - begin)
            kept.extend(block[BLOCK // 10 :])  # the first ones warm the caches up
    return median(taken[0]) / 1e3, median(taken[1]) / 1e3


def lines() -> Iterator[Line]:
    """The ratios of medians and their targets, for each payload and what the machine allows."""
    allowed = allowed_cores()
    for payload, (where, (core, spin, target)) in itertools.product(
        PAYLOADS.values(), SETTINGS.items()
    ):
        if core >= len(allowed):
            print(f"{where}: left out, this process may choose among {len(allowed)} cores")
            continue
        cores = Cores(client=[allowed[0]], server=[allowed[core]])
        pin(cores.client)
        try:
            with (
                row_of(payload, cores, spin) as row,
                Floor(row.requests, row.reply_bytes, cores=cores.server, read_back=False) as floor,
            ):
                ours, raw = times(row, floor)
        finally:
            pin(allowed)
        yield Line(f"{payload.title}, {where}", ours, "raw echo", raw, target)


if __name__ == "__main__":
    print_head("A round trip of AgentProxy.update against a raw exchange of as many bytes.")
    print_lines(list(lines()))
