"""Thousands of messages of each protocol: memory, descriptors and threads stay as they are.

`RLWIRE_SOAK=10000000 pytest -rP tests/test_soak.py` sends ten million of each, and prints them.
"""

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rlwire
from rlwire.bench.payloads import BenchStep, Payload
from rlwire.bench.processes import Cores, ServerProcess
from rlwire.bench.rows import PROVIDERS, Exchange
from rlwire.universe.rfb import Display, RfbClient, RfbServer
from rlwire.urls import parse_url

pytest.importorskip("gymnasium")
pytest.importorskip("hpack")
pytest.importorskip("msgspec")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc"),
    pytest.mark.timeout(0 if "RLWIRE_SOAK" in os.environ else 120),
]

MESSAGES = int(os.environ.get("RLWIRE_SOAK", "4000"))
PARTS = 20
FLAT = 2048  # KiB that a process may grow by after a tenth of the messages
STEPS = [BenchStep(np.full(8, number, np.float32), float(number), False) for number in range(16)]


class Rfb:
    """A key press for each frame, in the form of a row of `rlwire bench`."""

    def __init__(self, name, *_):
        self.name = name

    def served(self, over):
        return ServerProcess(self.name, serve_frames)

    @contextlib.contextmanager
    def client(self, url):
        with RfbClient(url) as client:
            client.update(60.0)

            def ask(number):
                client.key(chr(ord("a") + number), True)
                client.update(60.0)
                return client

            yield Exchange(ask, lambda client: (client.snapshot()[0, :8, 0], 0.0))

    def check(self, number, seen):
        assert (seen[0] == number + 1).all()


KINDS = {**PROVIDERS, "rfb": Rfb}
del KINDS["rllink-100"]


def serve_frames(report):
    def show(viewer, key):
        display.show(np.full((24, 32, 3), key.keysym - ord("`"), np.uint8))

    display = Display(32, 24, on_input=show)
    with RfbServer(display, "127.0.0.1:0") as server:
        report(server.url)
        server.wait()


def kib(pid):
    """Return the resident memory."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


def counts(pid):
    """Return the numbers of descriptors and threads."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def visit(row, url):
    """Connect another client for a moment, then a peer whose bytes begin no protocol."""
    if row.name == "perlert":
        with rlwire.connect(url) as visitor:
            visitor.lobby(60.0)
    elif row.name == "rewarder":
        rlwire.connect(url, observer=True).close()
    else:
        with row.client(url) as visitor:
            if row.name != "rfb":  # where all clients share one screen
                visitor.ask(0)
    where = parse_url(url)
    address = where.unix or (where.host, where.port or where.pixels)
    family = socket.AF_UNIX if where.unix else socket.AF_INET
    kind = socket.SOCK_DGRAM if row.name == "perlert" else socket.SOCK_STREAM
    with socket.socket(family, kind) as stranger:
        stranger.connect(address)
        stranger.sendall(b"\xff" * 64)


def soak(name, over):
    """Print the KiB after each part, and the numbers that stay; fail if they do not."""
    row = KINDS[name](name, Payload("soak", "soak", STEPS), Cores(), over)
    with row.served(over) as server, row.client(server.address) as exchange:
        exchange.ask(1)
        pids = {"server": server.pid, "client": os.getpid()}
        before = {who: counts(pid) for who, pid in pids.items()}
        sizes = {who: [] for who in pids}
        for _ in range(PARTS):
            for _ in range(1 + MESSAGES // 400_000):
                visit(row, server.address)
            for step in range(MESSAGES // PARTS // 2):
                outcome = exchange.ask(step % len(STEPS))
            row.check(step % len(STEPS), exchange.seen(outcome))
            until = time.monotonic() + 60  # visitors' descriptors are closed in a moment
            while before != (now := {who: counts(pid) for who, pid in pids.items()}):
                assert time.monotonic() < until, f"descriptors, threads: {before}, then {now}"
                time.sleep(0.002)
            for who, pid in pids.items():
                sizes[who].append(kib(pid))
    for who, found in sizes.items():
        print(f"{name} over {over}, {who}: KiB {found}; descriptors, threads {before[who]}")
        assert max(found[PARTS // 10 :]) - found[PARTS // 10] <= FLAT


@pytest.mark.parametrize(
    ("name", "over"), [*((name, "tcp") for name in KINDS), ("rlx", "shm"), ("dm_env_rpc", "unix")]
)
def test_server_memory_does_not_grow(name, over):
    from tests.programs import run  # which this file as a program cannot

    # In a process that has nothing left over from other tests.
    command = [sys.executable, __file__, name, over]
    done = run(command, timeout=None)
    print(done.stdout)
    assert done.returncode == 0


if __name__ == "__main__":
    soak(*sys.argv[1:])
