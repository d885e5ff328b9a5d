"""Tables of ratios with targets, which the benchmark programs share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rlwire.bench.processes import machine, versions
from rlwire.bench.report import plain_table

TINY = os.environ.get("RLWIRE_BENCH_TINY", "") not in ("", "0")
"""Whether sizes and counts are tiny: then a run only tries the code."""


@dataclass(frozen=True)
class Line:
    """One comparison of `ours` with `theirs`, both in microseconds.

    With `faster`, `target` is how many times faster rlwire must be. Otherwise it is how many times
    the rival's time, and `extra` on top, rlwire may take. None means for information only.
    """

    what: str
    ours: float
    rival: str
    theirs: float
    target: float | None = None
    faster: bool = False
    extra: float = 0.0

    def cells(self) -> tuple[str, ...]:
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
    """Print a table."""
    print(plain_table(columns, rows))


def print_head(question: str, *packages: str) -> None:
    """Print the question, the versions of the packages, and the machine."""
    found = versions("rlwire", "numpy", *packages)
    print(question)
    print(", ".join(f"{name} {version}" for name, version in found.items()))
    here = machine()
    print(f"{here['system']}, {here['processor']}, {here['cores']} cores, TCP with {here['tcp']}")
    if TINY:
        print("RLWIRE_BENCH_TINY is set: the numbers below mean nothing.")
    print(flush=True)
