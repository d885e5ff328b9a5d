"""What does a storm of garbage connections do to a good client of an asyncio server?

Server, storm and client are a process each. The storm comes from another of loopback's addresses:
5,800 connections in 4 s, each sends a little garbage and is gone when 64 others have come. The
client exchanges a small message each millisecond, before the storm and in it.

`python benchmarks/bench_storm.py` prints the table: milliseconds of an exchange, with the caps on
connections as they are by default, where most of the storm is turned away at once, and without.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from pairs import TINY, print_head, print_table

from rlwire.adapters.openpi import PolicyClient, PolicyServer
from rlwire.adapters.relaax import AgentProxy, RLXServer
from rlwire.bench.processes import ServerProcess

STORM = 60 if TINY else 5800  # connections
SECONDS = 0.1 if TINY else 4.0
PAUSE = 0.001  # seconds between two exchanges
OPEN = 64  # connections of the storm that are open at once
GARBAGE = b"\xff\x00garbage\r\n\r\n" * 4
FREE = {"max_connections": 100_000, "max_connections_per_address": 100_000}
SERVERS = ("rlx", "openpi")


class Agent:
    """Answers at once."""

    def __init__(self, parameter_server: Any) -> None:
        pass

    def init(self, exploit: bool = False) -> bool:
        """Nothing to prepare."""
        return True

    def update(self, reward: Any, state: Any, terminal: bool) -> int:
        """An action."""
        return 1

    def reset(self) -> bool:
        """Nothing to forget."""
        return True


def infer(observation: dict[str, Any]) -> dict[str, Any]:
    """Answer at once."""
    return {"actions": 1}


def serve(report: Callable[[Any], None], kind: str, options: dict[str, Any]) -> None:
    """Run in the server's process; the log goes where nobody reads it, but is written."""
    logging.basicConfig(stream=open(os.devnull, "w"), level=logging.INFO)  # noqa: SIM115
    server: Any
    if kind == "rlx":
        server = RLXServer(Agent, "127.0.0.1:0", workers="asyncio", **options)
    else:
        server = PolicyServer(infer, "127.0.0.1:0", workers=0, **options)
    server.start()
    report(str(server.address))
    server.serve_forever()


def storm(report: Callable[[Any], None], address: str) -> None:
    """Run in the storm's process: wait a moment, then connect again and again, in even steps."""
    host, _, port = address.rpartition(":")
    source = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
    report(None)
    time.sleep(SECONDS / 4)
    begun = time.monotonic()
    sockets: deque[socket.socket] = deque()
    for number in range(STORM):
        time.sleep(max(0.0, begun + number * SECONDS / STORM - time.monotonic()))
        sock = socket.create_connection((host, int(port)), 20, source_address=(source, 0))
        try:
            sock.sendall(GARBAGE)
        except OSError:
            sock.close()  # it was turned away already
        sockets.append(sock)
        if len(sockets) > OPEN:
            sockets.popleft().close()


def client(kind: str, address: str) -> tuple[Any, Callable[[], Any]]:
    """A good client, and its exchange."""
    if kind == "rlx":
        agent = AgentProxy(address)
        agent.connect()
        agent.init()
        return agent, lambda: agent.update(1.0, [1.0])
    policy = PolicyClient(address)
    return policy, lambda: policy.infer({"state": 1.0})


def exchanges(exchange: Callable[[], Any], seconds: float) -> list[float]:
    """Milliseconds of each exchange."""
    times = []
    until = time.perf_counter() + seconds
    gc.disable()
    while (now := time.perf_counter()) < until:
        exchange()
        times.append(1e3 * (time.perf_counter() - now))
        time.sleep(PAUSE)
    gc.enable()
    return times


def measure(kind: str, options: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Milliseconds without and with a storm."""
    with ServerProcess(kind, serve, kind, options) as server:
        good, exchange = client(kind, server.address)
        with good:
            quiet = exchanges(exchange, SECONDS / 2)
            with ServerProcess("storm", storm, server.address):
                exchanges(exchange, SECONDS / 4)
                return quiet, exchanges(exchange, SECONDS)


@pytest.mark.parametrize("kind", SERVERS)
def test_storm(kind: str) -> None:
    """The client is served meanwhile."""
    quiet, stormy = measure(kind, FREE)
    assert quiet
    assert stormy


def main() -> None:
    """Print the table."""
    print_head(
        f"An exchange of a good client, in ms, while {STORM:,} garbage connections come in "
        f"{SECONDS:g} s"
    )
    rows = []
    for kind in SERVERS:
        for caps, options in (("default", {}), ("none", FREE)):
            quiet, stormy = measure(kind, options)
            rows.append(
                (
                    kind,
                    caps,
                    f"{median(quiet):.2f}",
                    f"{median(stormy):.2f}",
                    f"{median(stormy) / median(quiet):.1f}",
                    f"{sorted(stormy)[len(stormy) * 99 // 100]:.1f}",
                    f"{max(stormy):.1f}",
                )
            )
    print_table(
        ("server", "caps", "quiet", "storm", "times", "99 %", "worst"),
        rows,
    )


if __name__ == "__main__":
    main()
