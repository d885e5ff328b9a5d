"""How long does one client's stream of large observations keep another's small ones waiting?

Server, the client with large observations and the client with small ones are a process each. The
large ones are sent one after another: an array of 64 MiB, as many small values as a message may
have, and the same in small maps.

`python benchmarks/bench_openpi_crowd.py` prints the table: milliseconds of the small client's
exchanges without and beside each of them.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
from pairs import TINY, print_head, print_table

from rlwire.adapters.openpi import PolicyClient, PolicyServer
from rlwire.bench.processes import ServerProcess
from rlwire.errors import RlwireError

SECONDS = 0.2 if TINY else 8.0
SCALE = 1000 if TINY else 1
LARGE: dict[str, Callable[[], dict[str, Any]]] = {
    "64 MiB array": lambda: {"image": np.zeros((64 * 2**20 - 256) // SCALE, np.uint8)},
    "a million values": lambda: {"values": [0.5] * ((2**20 - 16) // SCALE)},
    "a third of a million maps": lambda: {"maps": [{"a": 1}] * ((2**20 - 16) // 3 // SCALE)},
}


def serve(report: Callable[[Any], None]) -> None:
    """Run in the server's process."""
    logging.disable()
    server = PolicyServer(lambda observation: {"actions": 1}, "127.0.0.1:0")
    server.start()
    report(str(server.address))
    server.serve_forever()


def stream(report: Callable[[Any], None], address: str, kind: str) -> None:
    """Run in the process of the client with large observations, until it is ended."""
    observation = LARGE[kind]()
    with PolicyClient(address) as policy:
        policy.infer(observation)
        report(None)
        try:
            while True:
                policy.infer(observation)
        except (RlwireError, OSError):
            return


def exchanges(address: str) -> list[float]:
    """Milliseconds of each of the small client's exchanges."""
    times = []
    with PolicyClient(address) as policy:
        until = time.perf_counter() + SECONDS
        gc.disable()
        while (now := time.perf_counter()) < until:
            policy.infer({"state": 1.0})
            times.append(1e3 * (time.perf_counter() - now))
            time.sleep(0.001)
        gc.enable()
    return times


def measure(kind: str | None) -> list[float]:
    """Milliseconds beside a stream of large observations, or none."""
    with ServerProcess("openpi", serve) as server:
        if kind is None:
            return exchanges(server.address)
        with ServerProcess("large", stream, server.address, kind):
            return exchanges(server.address)


@pytest.mark.parametrize("kind", LARGE)
def test_crowd(kind: str) -> None:
    """The small client is served meanwhile."""
    assert measure(kind)


def main() -> None:
    """Print the table."""
    print_head("An exchange of a small observation, in ms, beside another client's large ones")
    rows = []
    for kind in (None, *LARGE):
        times = sorted(measure(kind))
        rows.append(
            (
                kind or "nothing",
                f"{len(times):,}",
                f"{median(times):.2f}",
                f"{times[len(times) * 99 // 100]:.1f}",
                f"{times[-1]:.1f}",
            )
        )
    print_table(("beside", "exchanges", "median", "99 %", "worst"), rows)


if __name__ == "__main__":
    main()
