"""The table and JSON of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rlwire.bench.measuring import LeftOut, Result
from rlwire.bench.rivals import RIVALS
from rlwire.bench.rows import BATCHES, TURN


@dataclass(frozen=True)
class Run:
    """What `--json` writes; times in microseconds."""

    versions: dict[str, str]
    machine: dict[str, str | int]
    pin: str
    seconds: float
    rows: list[Result]
    left_out: list[LeftOut]
    schema: int = 3  # changes when a field changes its meaning or is removed


PINNING = {
    "none": "processes not pinned",
    "one-core": "both processes on one core",
    "two-cores": "each process on its own core",
}


def show(run: Run, stream: TextIO, columns: str = "short") -> None:
    """Write the table with one of the `TABLES`, sorted by payload, then by time."""
    system, processor, cores = (run.machine[name] for name in ("system", "processor", "cores"))
    machine_line = f"{system}, {processor}, cores: {cores}, {PINNING[run.pin]}"
    payloads = {row.payload: f"{row.title}, {row.array}" for row in run.rows}
    order = list(payloads)
    results = sorted(run.rows, key=lambda row: (order.index(row.payload), row.round_trip.p50))
    pipes = {each.payload: each.round_trip.p50 for each in results if each.protocol == "pipe"}
    cells: dict[str, Callable[[Result], str]] = {
        **_CELLS,
        "vs pipe": lambda result: (
            f"{pipes[result.payload] / result.round_trip.p50:.2f}x" if result.batch == 1 else "-"
        ),
    }
    heads = [head for head in TABLES[columns] if pipes or head != "vs pipe"]
    rows = [[cells[head](result) for head in heads] for result in results]
    checked = sum(result.checked for result in results)
    notes = [
        "x raw is the time of a step divided by that of a raw socket exchange of as many bytes, "
        "which sends the same observations. "
        f"Both ran in turns of {TURN} ({BATCHES} batches); figures are medians of the turns.",
        *(
            ["vs pipe is how many times as fast as a pickled multiprocessing.Pipe; below 1: slower"]
            * bool(pipes)
        ),
        f"{checked:,} timed exchanges were compared with the recording, and each twice before.",
        "; ".join(f"{name} is {what}" for name, what in payloads.items()),
        *(f"{name}: {note}" for name, note in NOTES.items() if name in map(_base, results)),
        *map(str, run.left_out),
    ]
    head = [", ".join(f"{name} {version}" for name, version in run.versions.items()), machine_line]
    stream.write("".join(map(_wrapped, head)))
    stream.write(f"\n{plain_table(heads, rows, 2 + ('of' in heads))}\n\n")
    stream.write("".join(map(_wrapped, notes)))
    stream.write("\n" + "".join(map(_wrapped, conclusions(results))))


def _base(result: Result) -> str:
    return result.protocol.partition("+")[0]


PEERS = {
    "dm_env_rpc": "DeepMind's dm_env_rpc",
    "rlx": "RELAAX",
    "perlert": "Internet-Draft, UDP",
    "rewarder": "OpenAI Universe",
    "openpi": "openpi's servers",
    "rllink": "Ray RLlib",
    "rllink-100": "Ray RLlib",
    "pipe": "pickle in a Pipe",
    "AsyncVec": "AsyncVectorEnv",
    "SubprocVec": "SB3's SubprocVecEnv",
    "grpcio": "the original dm_env_rpc",
}
"""Whose protocol or program a row is, by its name."""

NOTES = {
    "rewarder": "in lock-step; the protocol's own mode is real time, where no step waits",
    "rllink": "a step an exchange, which carries the observation before the step too",
    "rllink-100": "100 steps an exchange, as simulators that choose their own actions send them",
    "AsyncVec": "a vector of one environment; it is made for many. KB without the observation, "
    "which is in shared memory",
    "SubprocVec": "a vector of one environment; it is made for many",
}
"""Notes on rows that do not compare as they stand."""

_CELLS: dict[str, Callable[[Result], str]] = {
    "payload": lambda result: result.payload,
    "protocol": lambda result: result.protocol,
    "of": lambda result: PEERS.get(_base(result), ""),
    "KB": lambda result: f"{(result.request_bytes + result.reply_bytes) / 1000:.1f}",
    "us": lambda result: microseconds(result.round_trip.p50),
    "x raw": lambda result: f"{result.overhead.p50:.2f}x",
    "client: user": lambda result: microseconds(result.client.user),
    "server: user": lambda result: microseconds(result.server.user) if result.server else "-",
    "system": lambda result: microseconds(result.client.system),
    "system ": lambda result: microseconds(result.server.system) if result.server else "-",
    "quartiles": lambda result: f"{result.overhead.p25:.2f} - {result.overhead.p75:.2f}",
    "raw us": lambda result: microseconds(result.echo.p50),
    "steps/s": lambda result: f"{result.rate.p50:,.0f}",
    "request B": lambda result: f"{result.request_bytes:,}",
    "reply B": lambda result: f"{result.reply_bytes:,}",
}

_COLUMNS = ("payload", "protocol", "us", "x raw")
TABLES = {
    "short": ("payload", "protocol", "of", "KB", "us", "x raw", "vs pipe"),
    "split": (*_COLUMNS, "client: user", "system", "server: user", "system "),
    "all": (*_COLUMNS, "quartiles", "raw us", "steps/s", "request B", "reply B"),
}
"""Columns of each table; CPU time is in microseconds a step."""


def conclusions(results: Sequence[Result]) -> Iterator[str]:
    """Yield how many times as fast each protocol is as what it replaces."""
    times = {(each.protocol, each.payload): each.round_trip.p50 for each in results}
    payloads = list(dict.fromkeys(each.payload for each in results))
    ours = [each.protocol for each in results if each.protocol not in RIVALS and each.batch == 1]
    for rival, what, replaced_by in (
        ("pipe", "pickle in a pipe", ""),
        ("grpcio", "the original", "dm_env_rpc"),
    ):
        names = [name for name in dict.fromkeys(ours) if name.startswith(replaced_by)]
        factors = [
            f"{name} {', '.join(_factor(times, rival, name, payload) for payload in payloads)}"
            for name in names
        ]
        if factors and any(each.protocol == rival for each in results):
            head = f"times as fast as {what}, with {', '.join(payloads)}"
            yield f"{head}: {'; '.join(factors)}"


def _factor(times: dict[tuple[str, str], float], rival: str, name: str, payload: str) -> str:
    if (rival, payload) not in times or (name, payload) not in times:
        return "-"
    return f"{times[rival, payload] / times[name, payload]:.2f}"


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
