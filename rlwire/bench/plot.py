"""The chart of a run, with matplotlib (extra ``bench``), drawn without a display.

Not here: numbers that the table does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlwire.bench.report import Run, microseconds
from rlwire.bench.runner import Result
from rlwire.errors import optional

__all__ = ["require", "save"]

_HEIGHT = 0.36
_ECHO, _TRIP, _ENCODE, _DECODE = "#9aa5b1", "#1f6fb2", "#2a9d6f", "#d98b2b"
_TEXT = 9  # points, of what stands beside a bar


def require() -> None:
    """Raise `MissingExtra` when matplotlib is not there; better before a run than after."""
    with optional("matplotlib", "bench"):
        import matplotlib  # noqa: F401


def save(run: Run, path: Path) -> None:
    """Draw round trips against the raw echo, their ratio with its quartiles, and codec times.

    Args:
        run: with a result at least.
        path: of a file such as ``x.png``, whose name says the format.
    """
    require()
    # The object-oriented interface with its own canvas: no backend of the whole process is set.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = list(run.results)
    figure = Figure(figsize=(15, 2.6 + 0.9 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    trips, overheads, codecs = figure.subplots(1, 3, sharey=True, width_ratios=(5, 4, 4))
    _draw_pairs(
        trips,
        "round trip",
        [(result.echo.p50, result.round_trip.p50) for result in results],
        [("", f" (p99 {microseconds(result.round_trip.p99)})") for result in results],
        {"raw socket exchange of as many bytes, p50": _ECHO, "round trip, p50": _TRIP},
    )
    _draw_overheads(overheads, results)
    _draw_pairs(
        codecs,
        "codec, observation of one step",
        [_codec(result) for result in results],
        [("", "")] * len(results),
        {"encode": _ENCODE, "decode": _DECODE},
    )
    trips.set_yticks(range(len(results)), [_label(result) for result in results])
    trips.set_ylim(len(results) - 0.4, -0.6)
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    where = f"{run.machine['system']}, {run.machine['processor']}, {run.machine['cores']} cores"
    figure.suptitle("rlwire bench: one step over a loopback connection", fontsize=13)
    figure.supxlabel(f"{versions}\n{where}, pinning: {run.pin}", fontsize=8, color="#555555")
    figure.savefig(path, dpi=130)


def _codec(result: Result) -> tuple[float | None, float | None]:
    """The medians of encode and decode; None of what has no codec to call by itself."""
    encode, decode = result.encode, result.decode
    return None if encode is None else encode.p50, None if decode is None else decode.p50


def _label(result: Result) -> str:
    words = result.title.split(" ")
    title = " ".join(words[:-2]) + "\n" + " ".join(words[-2:])
    size = max(result.request_bytes, result.reply_bytes)
    return f"{result.protocol}: {title}\n{size:,} B"


def _draw_pairs(
    axes: Any,
    title: str,
    times: Sequence[tuple[float | None, float | None]],
    suffixes: Sequence[tuple[str, str]],
    colours: dict[str, str],
) -> None:
    """Two bars a result, in microseconds, and what they are in words."""
    for which, (name, colour) in enumerate(colours.items()):
        at = [y + (which - 0.5) * _HEIGHT for y in range(len(times))]
        values = [pair[which] or 0.0 for pair in times]
        axes.barh(at, values, _HEIGHT, color=colour, label=name)
        for y, value, suffix in zip(at, values, suffixes, strict=True):
            if value:
                text = f" {microseconds(value)} us{suffix[which]}"
                axes.text(value, y, text, va="center", fontsize=_TEXT)
    every = [value for pair in times for value in pair if value is not None]
    _finish(axes, title, every or [1.0], "microseconds, logarithmic")


def _draw_overheads(axes: Any, results: Sequence[Result]) -> None:
    found = [result.overhead for result in results]
    at = range(len(found))
    axes.errorbar(
        [each.p50 for each in found],
        at,
        xerr=[[each.p50 - each.p25 for each in found], [each.p75 - each.p50 for each in found]],
        fmt="o",
        color=_TRIP,
        markersize=3,
        capsize=5,
        label="median and quartiles over the turns",
    )
    for y, each in zip(at, found, strict=True):
        text = f"   {each.p50:.2f}x ({each.p25:.2f} - {each.p75:.2f})"
        axes.text(each.p75, y, text, va="center", fontsize=_TEXT)
    every = [value for each in found for value in (each.p25, each.p75)]
    _finish(axes, "round trip / raw exchange", every, "times as long, logarithmic")


def _finish(axes: Any, title: str, values: Sequence[float], unit: str) -> None:
    least, most = min(values) / 2, max(values)
    axes.set_xscale("log")
    # The longest bar ends in the middle: the words beside it need as much room, which has no ticks.
    axes.set_xlim(least, most * (most / least))
    axes.xaxis.set_major_formatter(lambda x, _place: f"{x:,.10g}" if x < 3 * most else "")
    # Within a power of ten there may be no major tick at all.
    axes.xaxis.set_minor_formatter("{x:,.10g}" if most < 4 * least else "")
    axes.set_xlabel(unit)
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    # Both above the axes, the title over the legend.
    axes.set_title(title, loc="left", fontsize=10, pad=24)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=8, frameon=False)
