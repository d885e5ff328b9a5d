"""Runs the cases of this folder: does their cost grow faster than the input?

    python tests/codecs/growth/run.py              CPU milliseconds of each at n, 2n and 4n
    python tests/codecs/growth/run.py --scale 8    the same with n eight times as large
    python tests/codecs/growth/run.py --count ...  for a tool that counts instructions

`tests/codecs/test_growth.py` has callgrind count. With `--count` each case is run in each size
after a call of `os.getsid`, a system call that nothing else makes here: there callgrind notes what
it has counted. All that is measured is made before that, and run once more in its smallest size:
the first time costs more, also for what others have left behind.
"""

import argparse
import gc
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))

import messages  # noqa: F401
import pixels  # noqa: F401
import streams  # noqa: F401
import values  # noqa: F401
from cases import CASES

SIZES = (1, 2, 4)


def quadratic(n):
    """To see that it would be seen: an index that is looked for from the beginning."""
    found = list(range(n))
    return lambda: [found.index(i) for i in range(n)]


CONTROL = {"control": (quadratic, 100)}


def count(chosen):
    """Run each in its sizes, a call of `os.getsid` before each and after the last."""
    works = []
    for name in chosen:
        make, n = (CASES | CONTROL)[name]
        make(n)()
        # The largest goes first once, so that the memory that it takes is at hand for all.
        works += [make(n * size) for size in (SIZES[-1], *SIZES)]
    gc.collect()
    gc.disable()
    for work in works:
        os.getsid(0)
        work()
    os.getsid(0)


def show(chosen, scale):
    """Print the best of three times; what lies between 4n and 2n, over 2n and n, is last."""
    for name in chosen:
        make, n = (CASES | CONTROL)[name]
        took_ms = []
        for size in SIZES:
            best = float("inf")
            for _ in range(3):
                work = make(n * size * scale)
                gc.collect()
                gc.disable()
                began = time.process_time()
                work()
                best = min(best, time.process_time() - began)
                gc.enable()
            took_ms.append(best * 1e3)
        growth = (took_ms[2] - took_ms[1]) / max(took_ms[1] - took_ms[0], 1e-6)
        print(f"{name:40} {took_ms[0]:10.3f} {took_ms[1]:10.3f} {took_ms[2]:10.3f} {growth:8.1f}")


def main():
    parser = argparse.ArgumentParser(description="Does the cost grow faster than the input?")
    parser.add_argument("names", nargs="*", help="which cases; by default all")
    parser.add_argument("--count", action="store_true", help="for callgrind")
    parser.add_argument("--list", action="store_true", help="the names")
    parser.add_argument("--scale", type=int, default=1, help="what n is multiplied by")
    given = parser.parse_args()
    chosen = given.names or [*CASES, *CONTROL]
    if given.list:
        print(*chosen, sep="\n")
    elif given.count:
        count(chosen)
    else:
        show(chosen, given.scale)


if __name__ == "__main__":
    main()
