"""The cost of each codec's worst inputs, in instructions: it grows no faster than they do.

The inputs are in `growth/`. Counts are the same from run to run, whatever else the machine does;
times are not.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.programs import python, run

RUN = Path(__file__).parent / "growth" / "run.py"
PARTS = 2  # processes, since each takes a while to begin

# From 2n to 4n costs twice as much more as from n to 2n, and with n log n, n being 100, 2.3 times;
# with n squared, 4 times. Memory that a case finds at hand or not makes up to 2.6 of 2.
MOST = 3.0
# Memory grows in steps, which shows where a case costs next to nothing.
SLACK = 100_000

pytestmark = pytest.mark.growth


def names():
    return python(RUN, "--list", check=True).stdout.split()


def counted(chosen, folder):
    """Return the instructions of each case: of 4n for a start, then of n, 2n and 4n."""
    run(
        [
            "valgrind", "--tool=callgrind", "--callgrind-out-file=out", "--dump-before=getsid",
            sys.executable, RUN, "--count", *chosen,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=True,
        timeout=None,
    )  # fmt: skip
    totals = []
    for number in range(2, 4 * len(chosen) + 2):  # the first is of all before the first call
        found = re.search(r"^totals: (\d+)$", (folder / f"out.{number}").read_text(), re.MULTILINE)
        totals.append(int(found[1]))
    return totals


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_cost_of_each_case_grows_no_faster_than_its_input(part, tmp_path):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind counts the instructions, and is not installed")
    chosen = [*[name for name in names() if name != "control"][part::PARTS], "control"]
    totals = counted(chosen, tmp_path)
    grown = {}
    for at, name in enumerate(chosen):
        _, small, middle, large = totals[4 * at : 4 * at + 4]
        print(f"{name:40} {small:11} {middle:11} {large:11}")
        if large - middle > MOST * (middle - small) + SLACK:
            grown[name] = (small, middle, large)
    assert list(grown) == ["control"], grown
