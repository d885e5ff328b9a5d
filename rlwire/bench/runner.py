"""Measures rows: blocks of round trips and blocks of raw echo take turns, then medians.

Taking turns gives both the same clock speed, the same neighbours and the same heat, so that
their ratio means something on a machine that is not quiet. The round trips of a block follow one
another, as a training loop's do; what the last of them carried is read back and compared. While it
warms up, a row reads back every one.

Not here: what is sent, or how it is shown.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any, Protocol

from rlwire.bench.floor import Floor
from rlwire.bench.probe import Probe
from rlwire.bench.provider import Cores, Row
from rlwire.bench.stats import Ratio, Spread, rates, ratios, spread

__all__ = ["Result", "Stage", "measure"]

BLOCK = 32  # round trips between two turns, a few milliseconds
LEAD_IN = 2  # at the start of a block, untimed: the other server has just had the caches
TURN = BLOCK - LEAD_IN  # of them are timed
WARM_UP = 3  # blocks of each, thrown away
TURNS = 5  # of each at least, however short the time: their ratios have quartiles
CODEC_SHARE = 0.15  # of the time, for encode and as much for decode
BATCH_NS = 100_000  # codec calls are timed in batches of at least this long

Progress = Callable[[float], None]
"""Called now and then, never while something is timed, with the share that is done."""


class _Exchange(Protocol):
    def exchange(self, index: int) -> None: ...

    def check(self, index: int) -> None: ...


@dataclass(frozen=True)
class Stage:
    """A part of a step, in microseconds.

    Attributes:
        end: whose it is: ``"client"``, ``"server"``, or ``"both"``.
        name: what is done.
        p50: how long it takes; of ``"rest"``, what the others leave of the round trip.
        p25: the lower quartile; None of the rest.
        p75: the upper quartile; None of the rest.
    """

    end: str
    name: str
    p50: float
    p25: float | None = None
    p75: float | None = None


@dataclass(frozen=True)
class Result:
    """What was measured for one protocol and one payload; times in microseconds.

    Attributes:
        protocol: its name.
        payload: its name.
        title: the payload in words.
        request_bytes: on the wire, framing included.
        reply_bytes: the same for the reply.
        encode: one call; None of what has no codec to call by itself.
        decode: the same.
        round_trip: request out, reply in.
        echo: the same for a raw exchange of as many bytes.
        overhead: `round_trip` over `echo`, turn by turn.
        rate: steps in a second, turn by turn.
        checked: round trips, timed or not, whose content was read back and found equal.
        stages: where the time of a round trip goes, in their order, if that was asked for.
    """

    protocol: str
    payload: str
    title: str
    request_bytes: int
    reply_bytes: int
    encode: Spread | None
    decode: Spread | None
    round_trip: Spread
    echo: Spread
    overhead: Ratio
    rate: Ratio
    checked: int
    stages: Sequence[Stage] = ()


def measure(
    row: Row, seconds: float, cores: Cores, progress: Progress, *, stages: bool = False
) -> Result:
    """Start `row` and a raw echo of its byte counts, and measure both for `seconds`.

    With `stages` the stages take as long again.

    Raises:
        BenchError: a server died, or something came back changed.
    """
    floor = Floor(
        row.requests, row.reply_bytes, cores=cores.server, datagrams=row.datagrams, read_back=BLOCK
    )
    with row, floor:
        collecting = gc.isenabled()
        gc.disable()
        try:
            progress(0.0)
            encode = decode = None
            rest = 1.0
            if row.has_codec:
                share = seconds * CODEC_SHARE
                encode = spread(_time_calls(row.encode, row.messages, share))
                progress(CODEC_SHARE)
                decode = spread(_time_calls(row.decode, row.received, share))
                progress(2 * CODEC_SHARE)
                rest -= 2 * CODEC_SHARE
            round_trip, echo, checked = _take_turns(
                row, floor, seconds * rest, lambda done: progress(1.0 - rest + rest * done)
            )
            found: list[Stage] = []
            if stages:
                if encode is not None and decode is not None:
                    found = _stages(row, floor, seconds, encode, decode)
                found += _sessions(row, cores, seconds / 4, found)
        finally:
            if collecting:
                gc.enable()
    progress(1.0)
    if found:
        left = spread(round_trip).p50 - sum(stage.p50 for stage in found)
        found.append(Stage("both", "rest", left))
    return Result(
        protocol=row.protocol,
        payload=row.payload.name,
        title=row.payload.title,
        request_bytes=len(row.requests[0]),
        reply_bytes=row.reply_bytes,
        encode=encode,
        decode=decode,
        round_trip=spread(round_trip),
        echo=spread(echo),
        overhead=ratios(round_trip, echo, TURN),
        rate=rates(round_trip, TURN),
        checked=checked,
        stages=tuple(found),
    )


def _stages(row: Row, floor: Floor, seconds: float, encode: Spread, decode: Spread) -> list[Stage]:
    """The codec's and the socket's, measured by themselves, as for the tables and on the raw echo.

    The other end's calls of the socket, and the change to its process and back, are in the
    client's wait.
    """
    share = seconds / 4
    others = [
        spread(_time_calls(_without(call), [None], share))
        for call in (row.encode_other, row.decode_other)
    ]
    parts: list[tuple[int, int, int]] = []
    deadline = perf_counter() + share
    while row.raw and (not parts or perf_counter() < deadline):
        block = [floor.exchange_in_parts(index) for index in range(BLOCK)]
        floor.check(BLOCK - 1)
        parts += block[LEAD_IN:]
    send, wait, receive = (
        (spread(each) for each in zip(*parts, strict=True)) if parts else [None] * 3
    )
    ask, answer = ((encode, decode), others) if row.asks else (others, (encode, decode))
    return [
        Stage(end, name, each.p50, each.p25, each.p75)
        for end, name, each in (
            ("client", "encode", ask[0]),
            ("client", "send", send),
            ("client", "wait", wait),
            ("server", "decode", ask[1]),
            ("server", "encode", answer[0]),
            ("client", "receive", receive),
            ("client", "decode", answer[1]),
        )
        if each is not None
    ]


def _sessions(row: Row, cores: Cores, seconds: float, apart: Sequence[Stage]) -> list[Stage]:
    """What the calls of either session take of a step, less the codec's if that is `apart`."""
    if not row.sessions:
        return []
    probes = [Probe(kind) for kind in row.sessions]
    times: list[list[float]] = []
    with probes[0], row.probed(cores, probes[1]) as probed:
        deadline = perf_counter() + seconds
        while len(times) <= WARM_UP or perf_counter() < deadline:
            before = [probe.spent for probe in probes]
            for index in range(BLOCK):
                probed.exchange(index)
            # What the server does after its answer is counted with the next block.
            after = [probe.spent for probe in probes]
            times.append([(now - then) / BLOCK for now, then in zip(after, before, strict=True)])
    found = []
    for end, each in zip(("client", "server"), zip(*times[WARM_UP:], strict=True), strict=True):
        codec = sum(s.p50 for s in apart if s.end == end and s.name in ("encode", "decode"))
        whole = spread(each)
        left = (max(0.0, at - codec) for at in (whole.p50, whole.p25, whole.p75))
        found.append(Stage(end, "session", *left))
    return found


def _without(call: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda _value: call()


def _time_calls(call: Callable[[Any], Any], values: Sequence[Any], seconds: float) -> list[float]:
    """Nanoseconds of one call: the mean of each of many batches."""

    def batch() -> int:
        begin = perf_counter_ns()
        for value in batch_values:
            call(value)
        return perf_counter_ns() - begin

    batch_values = list(values)
    while (took := batch()) < BATCH_NS and len(batch_values) < 100_000:
        batch_values *= 2 if took * 2 > BATCH_NS else 4
    times: list[float] = []
    deadline = perf_counter() + seconds
    while not times or perf_counter() < deadline:
        times.append(batch() / len(batch_values))
    return times


def _take_turns(
    row: _Exchange, floor: _Exchange, seconds: float, progress: Progress
) -> tuple[list[int], list[int], int]:
    """Times of the row's exchanges and of the floor's, and how many of the row's were checked."""
    times: tuple[list[int], list[int]] = ([], [])
    begin = perf_counter()
    index = turn = checked = 0
    while True:
        kept = turn >= WARM_UP
        every = BLOCK if kept else 1
        # One order in one turn, the other in the next: going first is not always the same one's.
        for which in ((0, 1), (1, 0))[turn % 2]:
            block = _block(row, index, every) if which == 0 else _block(floor, index, BLOCK)
            if kept:
                times[which].extend(block)
        index += BLOCK
        checked += BLOCK // every
        turn += 1
        done = (perf_counter() - begin) / seconds
        if turn >= WARM_UP + TURNS and done >= 1.0:
            return times[0], times[1], checked
        progress(min(done, 1.0))


def _block(side: _Exchange, first: int, every: int) -> list[int]:
    """Times of a block's exchanges; after each `every` of them the last is checked."""
    times = []
    exchange = side.exchange
    for begin_index in range(first, first + BLOCK, every):
        for index in range(begin_index, begin_index + every):
            begin = perf_counter_ns()
            exchange(index)
            times.append(perf_counter_ns() - begin)
        side.check(begin_index + every - 1)
    return times[LEAD_IN:]
