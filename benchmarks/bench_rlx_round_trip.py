"""How much does `AgentProxy.update` add to a raw blocking exchange of the same byte counts?

Client and server are two processes, pinned to one core and to two; blocks of updates and blocks
of raw exchanges take turns. `pytest benchmarks/bench_rlx_round_trip.py` times each, not pinned;
`python benchmarks/bench_rlx_round_trip.py` prints the ratios.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pairs import TINY, Line, print_head, print_lines, run_benchmark

from rlwire.bench.floor import Floor
from rlwire.bench.payloads import Payload, Step
from rlwire.bench.processes import allowed_cores, pin
from rlwire.bench.provider import Cores
from rlwire.bench.providers.rlx import RLX, RLXRow
from rlwire.bench.runner import Result, measure

SIDE = 8 if TINY else 84
SECONDS = 0.05 if TINY else 6.0
COUNT = 32  # different observations
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
    (row,) = RLX(spin=spin).rows([payload], cores)
    return row


@pytest.mark.benchmark(group="round trip")
@pytest.mark.parametrize("name", PAYLOADS)
def test_update(benchmark: Any, name: str) -> None:
    """`AgentProxy.update`, then what the server got is compared."""
    with row_of(PAYLOADS[name], Cores()) as row:
        run_benchmark(benchmark, row.exchange, 0)
        row.check(0)


@pytest.mark.benchmark(group="round trip")
@pytest.mark.parametrize("name", PAYLOADS)
def test_raw_echo(benchmark: Any, name: str) -> None:
    """The floor."""
    row = row_of(PAYLOADS[name], Cores())
    with Floor(row.requests, row.reply_bytes, read_back=False) as floor:
        run_benchmark(benchmark, floor.exchange, 0)


def results() -> Iterator[tuple[str, float, Result]]:
    """Each payload with each pinning that this machine allows, and the target."""
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
            row = row_of(payload, cores, spin)
            yield where, target, measure(row, SECONDS, cores, lambda done: None)
        finally:
            pin(allowed)


def lines() -> list[Line]:
    """The ratios of medians and their targets."""
    return [
        Line(f"{result.title}, {where}", result.round_trip.p50, "raw echo", result.echo.p50, target)
        for where, target, result in results()
    ]


if __name__ == "__main__":
    print_head("A round trip of AgentProxy.update against a raw exchange of as many bytes.")
    print_lines(lines())
