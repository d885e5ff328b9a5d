"""Times of a row and of raw exchanges, in turn."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.bench.processes import cpu_time
from rlwire.bench.raw import raw_exchange, raw_messages
from rlwire.bench.rows import Exchange, Row

LEAD_IN = 2  # untimed ones at its start: the other server has just used the caches
WARM_UP = 3  # turns that are discarded
TURNS = 5  # fewest turns, for the quartiles of their ratios

_Times = Sequence[float] | NDArray[Any]


@dataclass(frozen=True)
class Spread:
    """Median, quartiles, 99th percentile and count of measurements."""

    p50: float
    p25: float
    p75: float
    p99: float
    count: int


def spread(figures: _Times) -> Spread:
    p25, p50, p75, p99 = map(float, np.percentile(figures, (25.0, 50.0, 75.0, 99.0)))
    return Spread(p50, p25, p75, p99, len(figures))


def ratios(values: _Times, references: _Times, size: int) -> Spread:
    """Return the ratios of values to references: per turn of `size`, the ratio of medians."""
    medians = (np.median(np.reshape(each, (-1, size)), axis=1) for each in (values, references))
    return spread(np.divide(*medians))


def rates(times: _Times, size: int) -> Spread:
    """Return calls per second, per turn of `size`; times in microseconds."""
    return spread(1e6 / np.mean(np.reshape(times, (-1, size)), axis=1))


@dataclass(frozen=True)
class CpuTime:
    """CPU time of one end in a step, in microseconds: in user code and in system calls."""

    user: float
    system: float


@dataclass(frozen=True)
class Result:
    """The measurements of one protocol with one payload; microseconds and bytes of a step."""

    protocol: str
    payload: str
    title: str
    array: str
    batch: int  # steps of an exchange
    request_bytes: int
    reply_bytes: int
    round_trip: Spread
    echo: Spread
    overhead: Spread
    rate: Spread
    checked: int
    client: CpuTime
    server: CpuTime | None


@dataclass(frozen=True)
class LeftOut:
    protocol: str
    payload: str
    reason: str

    def __str__(self) -> str:
        return f"{self.protocol} cannot carry {self.payload}: {self.reason}"


def measure(row: Row, seconds: float) -> Result:
    """Count a row's bytes, then time it and raw exchanges of as many bytes for `seconds`."""
    sizes = row.sizes()
    messages = raw_messages(sizes, (step.state for step in row.exchanged))
    raw = raw_exchange(messages, row.cores.server, datagrams=row.datagrams)
    with row.opened() as exchange, raw as floor:
        gc.disable()
        try:
            times, used, checked = _alternate(row, exchange, floor, seconds)
        finally:
            gc.enable()
    steps = (row.turn + LEAD_IN) * (len(times[0]) // row.turn) * row.batch
    client, server = (CpuTime(*(each / steps).tolist()) for each in used)
    round_trip, echo = np.divide(times, row.batch)
    return Result(
        protocol=row.name + ("" if row.over == "tcp" else f"+{row.over}"),
        payload=row.payload.name,
        title=row.payload.title,
        array=row.payload.array,
        batch=row.batch,
        request_bytes=round(sizes.request / row.batch),
        reply_bytes=round(sizes.reply / row.batch),
        round_trip=spread(round_trip),
        echo=spread(echo),
        overhead=ratios(round_trip, echo, row.turn),
        rate=rates(round_trip, row.turn),
        checked=checked,
        client=client,
        server=server if exchange.server_cpu_time else None,
    )


def _alternate(
    row: Row, exchange: Exchange, floor: Callable[[int], None], seconds: float
) -> tuple[tuple[list[float], list[float]], tuple[Any, Any], int]:
    """Time both exchanges in turn.

    Returns:
        Microseconds of each exchange of both, the CPU time of both ends in all exchanges of the
        row, and how many of these were checked.
    """
    server_cpu_time = exchange.server_cpu_time or (lambda: (0.0, 0.0))
    block_size = row.turn + LEAD_IN
    deadline = perf_counter() + seconds
    turn = 0
    while turn < WARM_UP + TURNS or perf_counter() < deadline:
        if turn <= WARM_UP:  # what was measured until here is discarded
            times: tuple[list[float], list[float]] = ([], [])
            client, server_before = np.zeros(2), server_cpu_time()
        begin = turn * block_size
        numbers = [each % len(row.exchanged) for each in range(begin, begin + block_size)]
        # Alternate which goes first.
        for which in ((0, 1), (1, 0))[turn % 2]:
            before = cpu_time()
            block, outcome = _block(exchange.ask if which == 0 else floor, numbers)
            times[which].extend(block[LEAD_IN:])
            if which == 0:
                client += np.subtract(cpu_time(), before)
                row.check(numbers[-1], exchange.seen(outcome))
        turn += 1
    return times, (client, np.subtract(server_cpu_time(), server_before)), turn


def _block(ask: Callable[[int], Any], numbers: list[int]) -> tuple[list[float], Any]:
    """Return the times of a block's exchanges in microseconds, and the last one's result."""
    times: list[float] = []
    outcome = None
    for number in numbers:
        begin = perf_counter_ns()
        outcome = ask(number)
        times.append((perf_counter_ns() - begin) / 1000)
    return times, outcome
