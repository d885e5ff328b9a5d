"""How many clients does one rewarder hold on one core, at 60 rewards a second each?

One process is the server: `RewarderServer` on the last core, which pushes a reward 60 times a
second to all its clients. This process is all the clients, on the first core: plain sockets that
only read and count, so that they are never what is slow. The floor is a server that sends as many
bytes by `socket.send` in a loop and does nothing else.

`python benchmarks/bench_rewarder_server.py` prints the curve: clients, what share of the core they
take, and how many rewards of those due were sent: fewer than all means that the core is full.
`pytest benchmarks/bench_rewarder_server.py` notes the share of the core. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import pytest
from pairs import TINY, print_head, print_table

from rlwire.adapters.rewarder import RewarderServer
from rlwire.bench.processes import ServerProcess, allowed_cores, pin
from rlwire.sessions.rewarder.client import handshake_headers
from rlwire.transports.address import parse
from rlwire.transports.pacing import Pacer

QUESTION = "How many clients does one rewarder hold on one core, at 60 rewards a second each?"
RATE = 60.0
CLIENTS = (2, 4) if TINY else (100, 250, 500, 750, 1000, 1500)
SETTLE = 0.1 if TINY else 1.0
SECONDS = 0.3 if TINY else 4.0
ROUNDS = 1 if TINY else 3
CORES = allowed_cores()

Counts = dict[str, float]


def paced(control: Connection, push: Callable[[], object], messages: Callable[[], int]) -> None:
    """Push at the rate, in this thread, until the end; say the counts when asked."""
    pacer = Pacer(RATE)

    def tell() -> None:
        while True:
            control.recv()
            control.send({"messages": messages(), "cpu": time.process_time()})

    threading.Thread(target=tell, daemon=True).start()
    while True:
        pacer.wait()
        push()


def serve(report: Callable[[Any], None], control: Connection, uvloop: bool) -> None:
    """`RewarderServer`, and an environment's thread."""
    logging.disable(logging.WARNING)  # clients just go when they have measured
    more_files()
    loop_factory = None
    if uvloop:
        import uvloop as package

        loop_factory = package.new_event_loop
    with RewarderServer(
        "bench.Rewards-v0",
        "127.0.0.1:0",
        ping_interval=None,
        max_connections=2 * max(CLIENTS),
        max_connections_per_address=2 * max(CLIENTS),
        loop_factory=loop_factory,
    ) as server:
        report(str(server.address))

        paced(
            control,
            lambda: server.reward(1.25, False, {}),
            lambda: server.statistics().get("messages", 0),
        )


def serve_raw(report: Callable[[Any], None], control: Connection, uvloop: bool) -> None:
    """As many bytes, by `send` alone."""
    more_files()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    report("{}:{}".format(*listener.getsockname()))
    sockets: list[socket.socket] = []

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.recv(65536)
            sock.sendall(b"HTTP/1.1 101 x\r\n\r\n")
            sockets.append(sock)

    threading.Thread(target=accept, daemon=True).start()
    data = bytes(SIZE)

    sent = 0

    def push() -> None:
        nonlocal sent
        for sock in list(sockets):
            sock.send(data)
            sent += 1

    paced(control, push, lambda: sent)


SIZE = 151
"""Bytes of a reward with its frame's header: what `RewarderServer` sends here."""

SERVERS: dict[str, tuple[Callable[..., None], bool]] = {
    "RewarderServer": (serve, False),
    "with uvloop": (serve, True),
    "raw send": (serve_raw, False),
}


def more_files() -> None:
    """Allow a descriptor for each client."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def clients(address: Any, count: int) -> Iterator[Callable[[float], int]]:
    """Connect observers; gives a function that reads for so long and returns the bytes."""
    where = parse(address)
    lines = "".join(f"{name}: {value}\r\n" for name, value in handshake_headers("openai", True))
    request = (
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        + lines.encode()
        + b"\r\n"
    )
    sockets = {}
    poll = select.epoll()
    try:
        for _ in range(count):
            sock = socket.create_connection((where.host, where.port), timeout=10)
            sock.sendall(request)
            assert sock.recv(64).startswith(b"HTTP/1.1 101")
            sock.setblocking(False)
            sockets[sock.fileno()] = sock
            poll.register(sock, select.EPOLLIN)

        buffer = bytearray(65536)

        def read(seconds: float) -> int:
            got = 0
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                for number, _ in poll.poll(left):
                    with contextlib.suppress(BlockingIOError):
                        size = sockets[number].recv_into(buffer)
                        assert size, "the server closed a connection"
                        got += size
            return got

        yield read
    finally:
        poll.close()
        for sock in sockets.values():
            sock.close()


def measure(name: str, count: int) -> Counts:
    """One run."""
    function, uvloop = SERVERS[name]
    ours, theirs = multiprocessing.Pipe()
    with (
        ServerProcess(name, function, theirs, uvloop, cores=CORES[-1:]) as server,
        clients(server.address, count) as read,
    ):
        read(SETTLE)
        ours.send(None)
        before = ours.recv()
        begun = time.monotonic()
        got = read(SECONDS)
        ours.send(None)
        after = ours.recv()
        seconds = time.monotonic() - begun
        messages = after["messages"] - before["messages"]
        return {
            "share": (after["cpu"] - before["cpu"]) / seconds,
            "sent": messages / (seconds * RATE * count),
            "each": (after["cpu"] - before["cpu"]) / max(messages, 1),
            "bytes": got / max(messages, 1),
        }


def runs(name: str, count: int, rounds: int = ROUNDS) -> Counts:
    """The median of each figure."""
    found = [measure(name, count) for _ in range(rounds)]
    return {key: median(each[key] for each in found) for key in found[0]}


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--clients", type=int, nargs="*", default=CLIENTS)
    parser.add_argument("--servers", nargs="*", default=list(SERVERS), choices=list(SERVERS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    more_files()
    pin(CORES[:1])
    print_head(QUESTION, "uvloop")
    rows = []
    for count in given.clients:
        for name in given.servers:
            found = runs(name, count, given.rounds)
            rows.append(
                (
                    f"{count:,}",
                    name,
                    f"{100 * found['share']:.0f} %",
                    f"{100 * found['sent']:.0f} %",
                    f"{1e6 * found['each']:.1f}",
                    f"{found['bytes']:.0f}",
                )
            )
    head = ("clients", "server", "of a core", "sent of due", "us a message", "bytes")
    print_table(head, rows)


@pytest.mark.parametrize("name", list(SERVERS))
def test_share(benchmark: Any, name: str) -> None:
    """What share of a core 500 clients take."""
    more_files()
    found = benchmark.pedantic(measure, args=(name, CLIENTS[-1] if TINY else 500), rounds=1)
    benchmark.extra_info.update(found)


if __name__ == "__main__":
    main()
