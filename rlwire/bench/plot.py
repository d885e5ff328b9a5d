"""The chart of a run, with matplotlib (extra ``bench``), drawn without a display.

Not here: numbers that the table does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlwire.bench.report import Run
from rlwire.bench.runner import Result
from rlwire.errors import MissingExtra

__all__ = ["require", "save"]

_HEIGHT = 0.36
_ECHO, _TRIP, _ENCODE, _DECODE = "#9aa5b1", "#1f6fb2", "#2a9d6f", "#d98b2b"


def require() -> None:
    """Raise `MissingExtra` when matplotlib is not there; better before a run than after."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise MissingExtra("matplotlib", "bench") from None


def save(run: Run, path: Path) -> None:
    """Draw round trips against the raw echo, and codec times, into a file such as ``x.png``."""
    require()
    # The object-oriented interface with its own canvas: no backend of the whole process is set.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = list(run.results)
    figure = Figure(figsize=(13, 2.6 + 1.0 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    trips, codecs = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    _draw_trips(trips, results)
    _draw_codecs(codecs, results)
    trips.set_yticks(range(len(results)), [_label(result) for result in results])
    trips.invert_yaxis()
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    where = f"{run.machine['system']}, {run.machine['processor']}, {run.machine['cores']} cores"
    figure.suptitle("rlwire bench: one step over a loopback connection", fontsize=13)
    figure.supxlabel(f"{versions}\n{where}, pinning: {run.pin}", fontsize=8, color="#555555")
    figure.savefig(path, dpi=130)


def _label(result: Result) -> str:
    words = result.title.split(" ")
    title = " ".join(words[:-2]) + "\n" + " ".join(words[-2:])
    size = max(result.request_bytes, result.reply_bytes)
    return f"{result.protocol}: {title}\n{size:,} B"


def _draw_trips(axes: Any, results: Sequence[Result]) -> None:
    at = range(len(results))
    echo = [result.echo.p50 for result in results]
    trip = [result.round_trip.p50 for result in results]
    for shift, values, colour, name in (
        (-_HEIGHT / 2, echo, _ECHO, "raw socket exchange of as many bytes, p50"),
        (_HEIGHT / 2, trip, _TRIP, "round trip, p50"),
    ):
        axes.barh([y + shift for y in at], values, _HEIGHT, color=colour, label=name)
    # The p99 is in words: on a busy machine a whisker as long as that leaves no room for the bars.
    longest = max(trip + echo)
    for y, result in zip(at, results, strict=True):
        for shift, value, text in (
            (-_HEIGHT / 2, result.echo.p50, f"{result.echo.p50:,.1f} us"),
            (
                _HEIGHT / 2,
                result.round_trip.p50,
                f"{result.round_trip.p50:,.1f} us, {result.overhead:.2f}x "
                f"(p99 {result.round_trip.p99:,.0f} us)",
            ),
        ):
            axes.text(value + longest * 0.012, y + shift, text, va="center", fontsize=9)
    axes.set_xlim(0, longest * 1.45)
    axes.set_xlabel("microseconds")
    axes.set_title("round trip", loc="left", fontsize=10)
    _finish(axes)


def _draw_codecs(axes: Any, results: Sequence[Result]) -> None:
    at = range(len(results))
    encode = [result.encode.p50 for result in results]
    decode = [result.decode.p50 for result in results]
    for shift, values, colour, name in (
        (-_HEIGHT / 2, encode, _ENCODE, "encode"),
        (_HEIGHT / 2, decode, _DECODE, "decode"),
    ):
        axes.barh([y + shift for y in at], values, _HEIGHT, color=colour, label=name)
        for y, value in zip(at, values, strict=True):
            axes.text(value * 1.08, y + shift, f"{value:,.2f} us", va="center", fontsize=9)
    values = encode + decode
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlim(min(values) / 3, max(values) * 6)
    axes.set_xlabel("microseconds, logarithmic")
    axes.set_title("codec, observation of one step", loc="left", fontsize=10)
    _finish(axes)


def _finish(axes: Any) -> None:
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    # Above the axes, to the right of the title: below, it would meet the axis label of a low chart.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=8, frameon=False)
