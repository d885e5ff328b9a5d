"""The table, JSON and chart of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from rlwire.bench.measuring import TURN, LeftOut, Result
from rlwire.errors import optional

SCHEMA = 3  # version of the JSON; changes when a field changes its meaning or is removed


@dataclass(frozen=True)
class Run:
    versions: dict[str, str]
    machine: dict[str, str | int]
    pin: str
    seconds: float
    results: list[Result]
    left_out: list[LeftOut]


_COLUMNS = ["protocol", "payload", "x raw", "quartiles", "us", "raw us", "steps/s"]
_COLUMNS += ["request B", "reply B"]
PINNING = {
    "none": "processes not pinned",
    "one-core": "both processes on one core",
    "two-cores": "each process on its own core",
}


def show(run: Run, stream: TextIO) -> None:
    system, processor, cores = (run.machine[name] for name in ("system", "processor", "cores"))
    machine_line = f"{system}, {processor}, cores: {cores}, {PINNING[run.pin]}"
    rows = [_cells(result) for result in run.results]
    dashes = ("-",) * (len(_COLUMNS) - 2)
    rows += [(each.protocol, each.payload, *dashes) for each in run.left_out]
    checked = sum(result.checked for result in run.results)
    payloads = {result.payload: f"{result.title}, {result.array}" for result in run.results}
    notes = [
        "x raw is the time of a step divided by that of a raw socket exchange of as many bytes. "
        f"Both ran in turns of {TURN}; the table has median and quartiles of the turns' ratios.",
        f"{checked:,} timed steps were compared with the recording, and each step twice before.",
        "; ".join(f"{name} is {what}" for name, what in payloads.items()),
        *map(str, run.left_out),
    ]
    head = [", ".join(f"{name} {version}" for name, version in run.versions.items()), machine_line]
    stream.write("".join(map(_wrapped, head)))
    stream.write(f"\n{plain_table(_COLUMNS, rows, left=2)}\n\n")
    stream.write("".join(map(_wrapped, notes)))
    if run.results:
        stream.write(f"\n{sentence(run.results[0])}\n")


def _cells(result: Result) -> tuple[str, ...]:
    overhead = result.overhead
    return (
        result.protocol,
        result.payload,
        f"{overhead.p50:.2f}x",
        f"{overhead.p25:.2f} - {overhead.p75:.2f}",
        microseconds(result.round_trip.p50),
        microseconds(result.echo.p50),
        f"{result.rate.p50:,.0f}",
        f"{result.request_bytes:,}",
        f"{result.reply_bytes:,}",
    )


def sentence(result: Result) -> str:
    return (
        f"{result.protocol}, {result.title}: {result.round_trip.p50:,.0f} us a step, "
        f"{result.overhead.p50:.1f} times a raw socket exchange"
    )


def microseconds(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Format a table; the first `left` columns are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = []
    for cells in (columns, ["-" * width for width in widths], *rows):
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 80, break_long_words=False, break_on_hyphens=False) + "\n"


def as_json(run: Run) -> dict[str, Any]:
    """Return the fields of `Run` and ``schema`` as JSON values; times in microseconds."""
    fields = asdict(run)
    return {"schema": SCHEMA, "rows": fields.pop("results"), **fields}


_ECHO, _TRIP = "#9aa5b1", "#1f6fb2"
_HEIGHT = 0.36


def save_plot(run: Run, path: Path) -> None:
    with optional("matplotlib", "plot"):
        # Without pyplot, which would choose a backend for the process.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    results = run.results
    at = np.arange(len(results))
    figure = Figure(figsize=(11, 1.8 + 0.5 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    times, overheads = figure.subplots(1, 2, sharey=True)
    for side, name, colour, values in (
        (-0.5, "raw socket exchange of as many bytes", _ECHO, [each.echo.p50 for each in results]),
        (0.5, "a step", _TRIP, [each.round_trip.p50 for each in results]),
    ):
        bars = times.barh(at + side * _HEIGHT, values, _HEIGHT, color=colour, label=name)
        times.bar_label(bars, [f" {microseconds(value)}" for value in values], fontsize=8)
    ratio = [each.overhead for each in results]
    middle = np.array([each.p50 for each in ratio])
    spans = [middle - [each.p25 for each in ratio], [each.p75 for each in ratio] - middle]
    overheads.errorbar(
        middle, at, xerr=spans, fmt="o", color=_TRIP, markersize=3, capsize=4,
        label="median and quartiles of the turns",
    )  # fmt: skip
    for y, each in enumerate(ratio):
        overheads.text(each.p75, y, f"   {each.p50:.2f}x", va="center", fontsize=8)
    times.set_yticks(at, [f"{each.protocol}, {each.payload}" for each in results])
    times.set_ylim(len(results) - 0.4, -0.6)
    for axes, unit in ((times, "microseconds"), (overheads, "times the raw exchange")):
        axes.set_xscale("log")
        axes.set_xlabel(f"{unit}, logarithmic")
        axes.margins(x=0.2)
        axes.xaxis.set_major_formatter("{x:,.10g}")
        axes.grid(axis="x", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=8, frameon=False)
    where = f"{run.machine['system']}, {run.machine['processor']}, {PINNING[run.pin]}"
    figure.supxlabel(where, fontsize=8, color="#555555")
    figure.savefig(path, dpi=130)
