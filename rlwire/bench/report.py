"""Shows results: tables for people, and JSON for programs.

The JSON is described by `as_json`. The chart is in `rlwire.bench.plot`.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from rlwire.bench.processes import allowed_cores
from rlwire.bench.provider import LeftOut
from rlwire.bench.runner import TURN, Result
from rlwire.bench.stats import Spread
from rlwire.errors import optional

__all__ = ["SCHEMA", "Run", "as_json", "microseconds", "plain_table", "progress", "show"]

SCHEMA = 2
"""Version of the JSON; it changes when a field changes its meaning or goes away."""

WIDTH = 80
"""Columns that a report keeps to, unless numbers need more."""

Tick = Callable[[str, float], None]
"""Called with what is being measured and the share that is done of the whole run."""


@dataclass(frozen=True)
class Run:
    """A whole run of the bench."""

    versions: Mapping[str, str]
    machine: Mapping[str, str | int]
    pin: str
    seconds: float
    results: Sequence[Result]
    left_out: Sequence[LeftOut] = ()


_CODEC = ("protocol", "payload", "request B", "reply B", "encode us", "decode us")
_TRIP = ("protocol", "payload", "p50 us", "p99 us", "echo us", "overhead", "quartiles")
_RATE = ("protocol", "payload", "steps/s", "quartiles", "enc", "dec", "trip", "echo")
_STAGES = ("protocol", "payload", "end", "stage", "us", "quartiles", "share")


_STAGES_NOTE = (
    "Stages are measured one by one: the codec's in a loop, the socket's on the raw exchange, the "
    "sessions' while steps are made, less the codec's. In the client's wait are the server's calls "
    "of the socket and the change to its process and back; with both on one core the server has "
    "its turn while the client sends. The rest is what these leave of the round trip: what drives "
    "the sessions, and what caches cost that a loop keeps warm.",
)

_WITHOUT: tuple[tuple[Callable[[list[str]], object], str], ...] = (
    (lambda names: not names, "neither the codec nor a session can be timed by itself"),
    (
        lambda names: names and "session" not in names,
        "no session can be timed by itself; what is done beside the codec's work is in the rest",
    ),
    (
        lambda names: "encode" in names and "send" not in names,
        "what carries the bytes is in the rest, as the raw exchange goes over TCP",
    ),
    (
        lambda names: names and "encode" not in names,
        "the codec's work is in the sessions' part, and the socket's in the rest, as the raw "
        "exchange has other bytes",
    ),
)
"""Which stages a row lacks, and why."""


def _codec_cells(result: Result) -> tuple[str, ...]:
    return (
        result.protocol,
        result.payload,
        f"{result.request_bytes:,}",
        f"{result.reply_bytes:,}",
        *("-" if each is None else microseconds(each.p50) for each in _codec(result)),
    )


def _codec(result: Result) -> tuple[Spread | None, Spread | None]:
    return result.encode, result.decode


def _trip_cells(result: Result) -> tuple[str, ...]:
    return (
        result.protocol,
        result.payload,
        microseconds(result.round_trip.p50),
        microseconds(result.round_trip.p99),
        microseconds(result.echo.p50),
        f"{result.overhead.p50:.2f}x",
        f"{result.overhead.p25:.2f} - {result.overhead.p75:.2f}",
    )


def _rate_cells(result: Result) -> tuple[str, ...]:
    rate = result.rate
    times = (*_codec(result), result.round_trip, result.echo)
    return (
        result.protocol,
        result.payload,
        f"{rate.p50:,.0f}",
        f"{rate.p25:,.0f} - {rate.p75:,.0f}",
        *("-" if each is None else f"{(each.p75 - each.p25) / each.p50:.0%}" for each in times),
    )


def _stage_rows(result: Result) -> list[tuple[str, ...]]:
    return [
        (
            result.protocol,
            result.payload,
            stage.end,
            stage.name,
            microseconds(stage.p50),
            "" if stage.p25 is None or stage.p75 is None
            else f"{microseconds(stage.p25)} - {microseconds(stage.p75)}",
            f"{stage.p50 / result.round_trip.p50:.0%}",
        )
        for stage in result.stages
    ]  # fmt: skip


def _stages_notes(results: Sequence[Result]) -> Iterator[str]:
    yield from _STAGES_NOTE
    for lacks, reason in _WITHOUT:
        found = [each.protocol for each in results if lacks([stage.name for stage in each.stages])]
        if found:
            yield f"{', '.join(dict.fromkeys(found))}: {reason}."


def microseconds(value: float) -> str:
    """A time for people, to about four digits."""
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _environment(run: Run) -> list[str]:
    pinning = {
        "none": "processes not pinned",
        "one-core": "both processes on one core",
        "two-cores": "each process on its own core",
    }[run.pin]
    if run.pin == "none" and not allowed_cores():
        pinning += ", which this system does not offer"
    cores = run.machine["cores"]
    return [
        ", ".join(f"{name} {version}" for name, version in run.versions.items()),
        f"{run.machine['system']}, {run.machine['processor']}, "
        f"{cores} core{'' if cores == 1 else 's'}, {pinning}",
    ]


def _notes(run: Run) -> list[str]:
    checked = sum(result.checked for result in run.results)
    turns = [result.overhead.count for result in run.results]
    titles = {result.payload: result.title for result in run.results}
    return [
        *(text if text.startswith(name) else f"{name}: {text}" for name, text in titles.items()),
        f"{checked:,} round trips were read back from the server, each equal to what was sent.",
        "Bytes are those on the wire with framing; encode and decode are of the message with the "
        "observation; echo is the p50 of a raw socket exchange of as many bytes, pinned alike.",
        f"Overhead is round trip over echo. Both took turns, {_range(turns)} of {TURN} "
        "exchanges each, and each turn has a ratio, of its two medians: the overhead is the median "
        "of the turns, and a quarter of them lies below and above the quartiles.",
        "Steps a second are those of a turn, slow ones too. Of the times above there is the "
        "distance of their quartiles, in % of the median; --json has each.",
        *(_stages_notes(run.results) if any(result.stages for result in run.results) else ()),
        *(f"{each.protocol} cannot carry {each.payload.title}: {each.reason}"
          for each in run.left_out),
    ]  # fmt: skip


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts, default=0), max(counts, default=0)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Aligned text, the first `left` columns to the left and the others to the right."""
    widths = [
        max(len(columns[i]), *(len(row[i]) for row in rows)) if rows else len(columns[i])
        for i in range(len(columns))
    ]
    lines = []
    for cells in (columns, ["-" * width for width in widths], *rows):
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def show(run: Run, stream: TextIO) -> None:
    """Write two tables and notes, in 80 columns; the terminal's own width is not asked for.

    Numbers are never cut: where they need more, the lines are longer.
    """
    write = _styled(stream) if stream.isatty() else lambda text, style: stream.write(f"{text}\n")
    for line in _environment(run):
        write(_wrapped(line), "dim")
    for title, columns, cells in (
        ("Codec: one message", _CODEC, _codec_cells),
        ("Round trip: one step over a loopback connection", _TRIP, _trip_cells),
        ("Steps a second, and how far figures spread", _RATE, _rate_cells),
    ):
        write(f"\n{title}\n", "bold")
        write(plain_table(columns, [cells(result) for result in run.results], left=2), "")
    stages = [row for result in run.results for row in _stage_rows(result)]
    if stages:
        write("\nStages: where the time of a step goes\n", "bold")
        write(plain_table(_STAGES, stages, left=4), "")
    write("", "")
    for line in _notes(run):
        write(_wrapped(line), "dim")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _styled(stream: TextIO) -> Callable[[str, str], object]:
    console_module, text_module = _rich()
    console = console_module.Console(file=stream, highlight=False)
    return lambda text, style: console.print(text_module.Text(text, style), soft_wrap=True)


def _rich() -> tuple[Any, Any]:
    with optional("rich", "bench"):
        import rich.console
        import rich.text
    return rich.console, rich.text


@contextlib.contextmanager
def progress(stream: TextIO) -> Iterator[Tick]:
    """A progress bar while `stream` is a terminal; silence otherwise."""
    if not stream.isatty():
        yield lambda what, done: None
        return
    console_module, _text = _rich()
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # No refreshing thread: it would run inside the measured round trips.
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=console_module.Console(file=stream),
        auto_refresh=False,
        transient=True,
    )
    with bars:
        task = bars.add_task("", total=1.0)
        shown = [("", -1.0)]

        def tick(what: str, done: float) -> None:
            if what != shown[0][0] or done - shown[0][1] >= 0.01:
                shown[0] = (what, done)
                bars.update(task, description=what, completed=done)
                bars.refresh()

        yield tick


def as_json(run: Run) -> dict[str, Any]:
    """The run as plain values.

    ``schema`` (int), ``versions`` (name to version), ``machine`` (system, processor, cores),
    ``pin``, ``seconds`` (for each row), and ``rows``: a list of objects with ``protocol``,
    ``payload``, ``title``, ``request_bytes``, ``reply_bytes``, ``checked``; ``encode``, ``decode``,
    ``round_trip``, ``echo``, each ``{"p50", "p99", "count", "p25", "p75"}`` in microseconds, the
    first two null for what has no codec to call by itself;
    ``overhead``, ``{"p50", "p25", "p75", "count"}`` of the ratios of round trip to echo, turn by
    turn; ``rate``, the same of steps in a second; and ``stages``, a list of ``{"end", "name",
    "p50", "p25", "p75"}`` in microseconds, empty unless they were asked for.
    ``left_out``: a list of objects with ``protocol``, ``payload``, ``reason``.
    """
    return {
        "schema": SCHEMA,
        "versions": dict(run.versions),
        "machine": dict(run.machine),
        "pin": run.pin,
        "seconds": run.seconds,
        "rows": [asdict(result) for result in run.results],
        "left_out": [
            {"protocol": each.protocol, "payload": each.payload.name, "reason": each.reason}
            for each in run.left_out
        ],
    }
