"""Measures an RLX server with many connections: memory of idle ones, steps a second of busy ones.

The first table has each kind of `workers`. Memory is the proportional set size (Linux) of the
server and its workers, which counts shared pages once. The second table compares an asyncio server
with a bare loop around epoll in Python that decodes nothing, and with bare callbacks of asyncio's
loop.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from pairs import TINY, print_head, print_table
from rounds import Agent, serve_callbacks, take_turns

from rlwire.bench.processes import ServerProcess
from rlwire.codecs import rlx
from rlwire.rlx import Server

Workers = Literal["threads", "asyncio"] | int
WORKERS: dict[str, Workers] = {"threads": "threads", "asyncio": "asyncio", "2 processes": 2}
IDLE = 5 if TINY else 500
BUSY = (2,) if TINY else (1, 64, 500)
SECONDS = 0.02 if TINY else 2.0
SETTLE = 0.0 if TINY else 1.0  # seconds until the last connections are accepted

INIT = rlx.encode({"command": "init", "exploit": False}, framed=True)
READY = rlx.encode({"response": "ready"}, framed=True)
UPDATE = rlx.encode(
    {"command": "update", "reward": 1.0, "state": [0.1, 0.2, 0.3, 0.4], "terminal": False},
    framed=True,
)
ACTION = rlx.encode({"response": "action", "data": 1}, framed=True)


def serve(report: Callable[[Any], None], workers: Workers) -> None:
    """Run the server."""
    most = 4 * max(IDLE, *BUSY)
    server = Server(
        Agent,
        "127.0.0.1:0",
        workers=workers,
        max_connections=most,
        max_connections_per_address=most,
    )
    server.start()
    report(str(server.address))
    server.serve_forever()


def server_process(workers: Workers) -> ServerProcess:
    """Return a server with these workers, not yet started."""
    return ServerProcess("rlx", serve, workers, has_children=isinstance(workers, int))


class Clients:
    """Raw sockets that send prepared messages of RLX, so that clients cost little."""

    def __init__(self, address: str, count: int) -> None:
        host, _, port = address.rpartition(":")
        self._inbox = bytearray(max(len(READY), len(ACTION)))
        self._sockets: list[socket.socket] = []
        for _ in range(count):
            peer = socket.create_connection((host, int(port)), timeout=10)
            peer.settimeout(None)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(peer)
            self._exchange([peer], INIT, READY)

    def step(self) -> None:
        """Make one update of each client: send all, then receive all replies."""
        self._exchange(self._sockets, UPDATE, ACTION)

    def _exchange(self, peers: list[socket.socket], request: bytes, reply: bytes) -> None:
        for peer in peers:
            peer.sendall(request)
        size, inbox = len(reply), self._inbox
        for peer in peers:
            got = peer.recv_into(inbox, size, socket.MSG_WAITALL)
            if inbox[:got] != reply:
                raise SystemExit(f"the server answered {bytes(inbox[:got])!r}, not {reply!r}")

    def close(self) -> None:
        for peer in self._sockets:
            peer.close()


def connected(address: str, count: int) -> contextlib.closing[Clients]:
    """Connect `count` clients, and send `init` on each."""
    return contextlib.closing(Clients(address, count))


def family(pid: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


def memory(pid: int) -> float:
    """Return KiB of a process and its descendants, with shared pages counted once."""
    total = 0.0
    for each in family(pid):
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += float(line.split()[1])
    return total


def steps_per_second(address: str, count: int) -> float:
    """Return how many updates of `count` clients are answered in a second."""
    with connected(address, count) as clients:
        clients.step()
        steps, begin = 0, time.perf_counter()
        while (took := time.perf_counter() - begin) < SECONDS:
            clients.step()
            steps += count
        return steps / took


def rows() -> Iterator[tuple[str, ...]]:
    """Return a row for each kind of workers."""
    for name, workers in WORKERS.items():
        with server_process(workers) as server:
            with connected(server.address, 1) as clients:
                clients.step()
            before = memory(server.pid)
            with connected(server.address, IDLE) as clients:
                clients.step()
                time.sleep(SETTLE)
                held = memory(server.pid) - before
            busy = [f"{steps_per_second(server.address, count):,.0f}" for count in BUSY]
        yield (name, f"{before / 1024:.1f}", f"{held / 1024:.1f}", f"{held / IDLE:.1f}", *busy)


def serve_epoll(report: Callable[[Any], None], act: Callable[[int], object] | None = None) -> None:
    """Run the rival: a bare epoll loop.

    With `act` replies are sent when no more requests wait, and it is called with their number.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener, select.epoll() as poll:
        report("{}:{}".format(*listener.getsockname()))
        poll.register(listener.fileno(), select.EPOLLIN)
        calls: dict[int, Any] = {}
        inbox, first = bytearray(4096), len(INIT)
        waiting: list[Callable[[bytes], int]] = []
        while True:
            ready = poll.poll(0 if waiting else None)
            if act is not None and waiting and not ready:
                act(len(waiting))
                for send in waiting:
                    send(ACTION)
                waiting.clear()
            for file, _ in ready:
                if file == listener.fileno():
                    peer, _address = listener.accept()
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    peer.setblocking(False)
                    poll.register(peer.fileno(), select.EPOLLIN)
                    calls[peer.fileno()] = peer, peer.recv_into, peer.send
                    continue
                peer, recv_into, send = calls[file]
                have = recv_into(inbox)
                if have and act is not None and have != first:
                    waiting.append(send)
                elif have:
                    send(READY if have == first else ACTION)
                else:
                    del calls[file]
                    peer.close()


def serve_readers(report: Callable[[Any], None]) -> None:
    """Run the other rival: callbacks of asyncio's loop."""
    serve_callbacks(
        lambda address: report("{}:{}".format(*address)), ACTION, 4096, greeting=(INIT, READY)
    )


def against_epoll() -> Iterator[tuple[str, ...]]:
    """Return the medians of all three for each number of busy clients."""
    servers = {
        "rlwire": server_process("asyncio"),
        "add_reader": ServerProcess("add_reader", serve_readers),
        "epoll": ServerProcess("epoll", serve_epoll),
    }
    with contextlib.ExitStack() as started:
        for server in servers.values():
            started.enter_context(server)
        for count in BUSY:
            with contextlib.ExitStack() as stack:
                steps = {
                    name: stack.enter_context(connected(server.address, count)).step
                    for name, server in servers.items()
                }
                times = take_turns(steps, 3 * SECONDS, 10)
            rates = {name: 1e6 * count / us for name, us in times.items()}
            yield (
                str(count),
                *(f"{rate:,.0f}" for rate in rates.values()),
                *(
                    f"{100 * rates[name] / rates['epoll']:.0f} %"
                    for name in rates
                    if name != "epoll"
                ),
                "at least 80 %" if count == BUSY[-1] else "",
            )


if __name__ == "__main__":
    print_head(
        f"An RLX server with {IDLE} idle connections, each past init and one small update, and "
        "with busy ones.\nClients and server share the machine's cores, not pinned."
    )
    columns = (
        "workers",
        "server MiB",
        f"+ {IDLE} idle MiB",
        "KiB each",
        *(f"steps/s, {count} busy" for count in BUSY),
    )
    print_table(columns, list(rows()))
    if sys.platform == "linux":
        print("\nSteps a second of an asyncio server, and answers of a bare loop around epoll")
        columns = ("busy", "asyncio", "bare add_reader", "bare epoll", "asyncio/epoll")
        print_table((*columns, "add_reader/epoll", "target"), list(against_epoll()))
