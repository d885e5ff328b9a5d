"""Shows results: a table for people, in colour on a terminal, and JSON for programs.

The JSON is described by `as_json`. The chart is in `rlwire.bench.plot`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rlwire.bench.provider import LeftOut
from rlwire.bench.runner import Result
from rlwire.errors import MissingExtra

__all__ = ["SCHEMA", "Run", "as_json", "plain_table", "progress", "show"]

SCHEMA = 1
"""Version of the JSON; it changes when a field changes its meaning or goes away."""

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


_COLUMNS = (
    "protocol",
    "payload",
    "request B",
    "reply B",
    "encode us",
    "decode us",
    "round trip p50 us",
    "p99 us",
    "raw echo p50 us",
    "overhead",
)


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result.protocol,
        result.title,
        f"{result.request_bytes:,}",
        f"{result.reply_bytes:,}",
        _microseconds(result.encode.p50),
        _microseconds(result.decode.p50),
        _microseconds(result.round_trip.p50),
        _microseconds(result.round_trip.p99),
        _microseconds(result.echo.p50),
        f"{result.overhead:.2f}x",
    )


def _microseconds(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}"


def _environment(run: Run) -> list[str]:
    pinning = {
        "none": "processes not pinned",
        "one-core": "both processes on one core",
        "two-cores": "each process on its own core",
    }[run.pin]
    cores = run.machine["cores"]
    return [
        ", ".join(f"{name} {version}" for name, version in run.versions.items()),
        f"{run.machine['system']}, {run.machine['processor']}, "
        f"{cores} core{'' if cores == 1 else 's'}, {pinning}",
    ]


def _notes(run: Run) -> list[str]:
    checked = sum(result.checked for result in run.results)
    return [
        f"{checked:,} round trips, each read back from the server and equal to what was sent.",
        "Bytes are those on the wire with framing; encode and decode are of the message with the "
        "observation; overhead is p50 over the p50 of a raw socket exchange of as many bytes, "
        "measured in turn.",
        *(f"{each.protocol} cannot carry {each.payload.title}: {each.reason}"
          for each in run.left_out),
    ]  # fmt: skip


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
    """Write the table: with rich on a terminal, as plain aligned text elsewhere."""
    if stream.isatty():
        _show_rich(run, stream)
        return
    out = io.StringIO()
    for line in _environment(run):
        out.write(f"{line}\n")
    out.write("\n")
    out.write(plain_table(_COLUMNS, [_cells(result) for result in run.results], left=2))
    out.write("\n\n")
    for line in _notes(run):
        out.write(f"{line}\n")
    stream.write(out.getvalue())


def _show_rich(run: Run, stream: TextIO) -> None:
    console_module, table_module = _rich()
    console = console_module.Console(file=stream, highlight=False)
    table = table_module.Table(caption_justify="left", header_style="bold")
    for i, column in enumerate(_COLUMNS):
        style = "bold" if column == "overhead" else None
        table.add_column(column, justify="left" if i < 2 else "right", style=style)
    for result in run.results:
        table.add_row(*_cells(result))
    for line in _environment(run):
        console.print(line, style="dim", markup=False)
    console.print(table)
    for line in _notes(run):
        console.print(line, style="dim", markup=False)


def _rich() -> tuple[Any, Any]:
    try:
        import rich.console
        import rich.table
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "rich":
            raise
        raise MissingExtra("rich", "bench") from None
    return rich.console, rich.table


@contextlib.contextmanager
def progress(stream: TextIO) -> Iterator[Tick]:
    """A progress bar while `stream` is a terminal; silence otherwise."""
    if not stream.isatty():
        yield lambda what, done: None
        return
    console_module, _tables = _rich()
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
    ``payload``, ``title``, ``request_bytes``, ``reply_bytes``, ``checked``, ``overhead``, and
    ``encode``, ``decode``, ``round_trip``, ``echo``, each ``{"p50", "p99", "count"}`` in
    microseconds. ``left_out``: a list of objects with ``protocol``, ``payload``, ``reason``.
    """
    return {
        "schema": SCHEMA,
        "versions": dict(run.versions),
        "machine": dict(run.machine),
        "pin": run.pin,
        "seconds": run.seconds,
        "rows": [
            {
                "protocol": result.protocol,
                "payload": result.payload,
                "title": result.title,
                "request_bytes": result.request_bytes,
                "reply_bytes": result.reply_bytes,
                "encode": result.encode.as_dict(),
                "decode": result.decode.as_dict(),
                "round_trip": result.round_trip.as_dict(),
                "echo": result.echo.as_dict(),
                "overhead": result.overhead,
                "checked": result.checked,
            }
            for result in run.results
        ],
        "left_out": [
            {"protocol": each.protocol, "payload": each.payload.name, "reason": each.reason}
            for each in run.left_out
        ],
    }
