"""What the benchmark files share: rivals timed in turn, and tables of ratios with targets.

Not here: what is measured.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from timeit import Timer
from types import ModuleType
from typing import Any

from rlwire.bench.processes import machine, versions
from rlwire.bench.report import plain_table

TINY = os.environ.get("RLWIRE_BENCH_TINY", "") not in ("", "0")
"""Sizes and counts so small that the numbers mean nothing and only the code is tried."""

SECONDS = 0.02 if TINY else 1.5
BATCH = 0.000_05 if TINY else 0.001  # seconds that one timed batch of calls lasts, at least


@dataclass(frozen=True)
class Line:
    """One comparison: `ours` against `theirs`, both in microseconds.

    Attributes:
        what: the work.
        ours: our time.
        rival: who is compared with.
        theirs: the rival's time.
        target: the ratio aimed at, or None when the comparison is for information.
        faster: whether the ratio says how many times faster we are (at least `target`), or how
            many times the rival's time we take (at most `target`).
        extra: microseconds that the target allows on top of `target` times the rival's.
    """

    what: str
    ours: float
    rival: str
    theirs: float
    target: float | None = None
    faster: bool = False
    extra: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """The line for the table."""
        ratio = self.theirs / self.ours if self.faster else self.ours / self.theirs
        if self.target is None:
            target = met = ""
        elif self.faster:
            target, met = f"at least {self.target:g}x", _yes(ratio >= self.target)
        else:
            allowed = self.target * self.theirs + self.extra
            more = f" + {self.extra:g} us" if self.extra else ""
            target, met = f"at most {self.target:.3g}x{more}", _yes(self.ours <= allowed)
        kind = "times faster" if self.faster else "times its time"
        return (
            self.what,
            f"{self.ours:,.3f}",
            self.rival,
            f"{self.theirs:,.3f}",
            f"{ratio:.2f}",
            kind,
            target,
            met,
        )


def _yes(met: bool) -> str:
    return "yes" if met else "no"


def print_lines(lines: Sequence[Line]) -> None:
    """Print the table of ratios."""
    columns = ("work", "rlwire us", "against", "its us", "ratio", "", "target", "met")
    print_table(columns, [line.cells() for line in lines])


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print any table."""
    print(plain_table(columns, rows))


def print_head(question: str, *packages: str) -> None:
    """Print what is asked, the versions that answer it, and the machine."""
    found = versions("rlwire", "numpy", *packages)
    print(question)
    print(", ".join(f"{name} {version}" for name, version in found.items()))
    here = machine()
    print(f"{here['system']}, {here['processor']}, {here['cores']} cores, TCP with {here['tcp']}")
    if TINY:
        print("RLWIRE_BENCH_TINY is set: the numbers below mean nothing.")
    print(flush=True)


def call_times(
    calls: Mapping[str, tuple[Callable[..., Any], Any]], seconds: float = SECONDS
) -> dict[str, float]:
    """Median microseconds of ``function(argument)`` for each entry, all timed in turn.

    Each round times one batch of every entry, in an order that rotates, so that a change of the
    machine's speed meets all of them.
    """
    timers = {
        name: Timer("call(value)", globals={"call": call, "value": value})
        for name, (call, value) in calls.items()
    }
    numbers = {name: _number(timer) for name, timer in timers.items()}
    batch = sum(timer.timeit(numbers[name]) for name, timer in timers.items())
    rounds = max(3, int(seconds / batch))
    times: dict[str, list[float]] = {name: [] for name in timers}
    order = list(timers)
    for _ in range(rounds):
        for name in order:
            times[name].append(timers[name].timeit(numbers[name]) / numbers[name])
        order.append(order.pop(0))
    return {name: median(values) * 1e6 for name, values in times.items()}


def _number(timer: Timer) -> int:
    number = 1
    while timer.timeit(number) < BATCH and number < 1_000_000:
        number *= 2
    return number


@functools.cache
def oracle() -> ModuleType:
    """The slow oracle of the tests: RELAAX's algorithm, restated."""
    name = "rlwire_reference_rlx"
    path = Path(__file__).resolve().parent.parent / "tests" / "reference" / "rlx.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
