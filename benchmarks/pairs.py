"""What the benchmark programs share: tables of ratios with targets, and their heads.

Not here: what is measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rlwire.bench.processes import machine, versions
from rlwire.bench.report import plain_table

TINY = os.environ.get("RLWIRE_BENCH_TINY", "") not in ("", "0")
"""Sizes and counts so small that the numbers mean nothing and only the code is tried."""


@dataclass(frozen=True)
class Line:
    """One comparison: `ours` against `theirs`, both in microseconds.

    `target` is a ratio: how many times faster we are at least if `faster`, or else how many times
    the rival's time, and `extra` on top, we take at most; None when it is for information.
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
