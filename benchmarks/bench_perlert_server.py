"""Measures how many PERLERT clients one process on one core serves, and the cost of a datagram.

The server has the last core: `perlert.Server`, and as a floor a loop over raw sockets that sends
and receives as many datagrams of the same size. All clients are in this process on the first core.
Each has a port, registers, gets ready, and replies to each frame with an action.

`python benchmarks/bench_perlert_server.py` has 1,000 clients at 30 steps a second in several
layouts. ``--limit`` adds clients until ticks are missed. Linux only (epoll).
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import multiprocessing
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, ClassVar

import numpy as np
import uvloop
from gymnasium import spaces
from pairs import TINY, print_head, print_table

from rlwire.bench.processes import ServerProcess, allowed_cores, pin
from rlwire.codecs import perlert
from rlwire.environments.pacing import Pacer
from rlwire.perlert import Server
from rlwire.sessions.perlert import lobby
from rlwire.sessions.perlert.client import EpisodeStarted, PerlertClientSession, SlotGranted
from rlwire.transports import udp
from rlwire.transports.address import parse
from rlwire.transports.udp import SERVER_BUFFER

NUMBERS = 18  # an agent's observation among three in mpe2's simple_spread
LAYOUTS = ((2, 2), (4, 1)) if TINY else ((50, 20), (250, 4), (1000, 1))  # instances, agents
MORE = ((2, 2),) if TINY else tuple((n, 20) for n in range(50, 301, 25))
RATE = 30.0
SETTLE = 0.1 if TINY else 2.0
SECONDS = 0.2 if TINY else 8.0
ROUNDS = 1 if TINY else 3
CORES = allowed_cores()  # before this process pins itself


# --- the servers, each in a process


class Field:
    """A parallel environment without end, whose agents observe new numbers in each step."""

    metadata: ClassVar = {"name": "field"}

    def __init__(self, count: int) -> None:
        self.possible_agents = self.agents = [f"agent_{number}" for number in range(count)]
        self._never = dict.fromkeys(self.agents, False)
        self._numbers = np.random.default_rng(7).normal(size=(64, NUMBERS)).astype(np.float32)
        self._step = 0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-np.inf, np.inf, (NUMBERS,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(1 << 30)

    def _seen(self) -> dict[str, Any]:
        step, numbers = self._step, self._numbers
        return {key: numbers[(step + place) % 64] for place, key in enumerate(self.agents)}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self._step = 0
        return self._seen(), {}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, ...]:
        self._step += 1
        return self._seen(), dict.fromkeys(self.agents, 0.5), self._never, self._never, {}

    def close(self) -> None:
        pass


Counts = dict[str, float]


def serve(
    report: Callable[[Any], None], control: Connection, layout: tuple[int, int], on_uvloop: bool
) -> None:
    """Run `perlert.Server`, and send the counts and the CPU time on request."""
    instances, agents = layout
    # All clients share a host and register within a few seconds, so no limits of strangers.
    lobby.STRANGER_RATE = 1e6  # type: ignore[misc]
    server = Server(
        partial(Field, agents),
        "127.0.0.1:0",
        instances=instances,
        rate=RATE,
        loop_factory=uvloop.new_event_loop if on_uvloop else None,
        frames=RATE,
    )

    def counts() -> Counts:
        found = server.statistics()
        session, lobby, rollout = (found[name] for name in ("session", "lobby", "rollout"))
        played = found["instances"].values()
        return {
            "ticks": sum(each["steps"] for each in played),
            "missed": sum(each["missed"] for each in played),
            "received": rollout["received"],
            "sent": rollout["sent"],
            "held": session["frames_dropped"],
            "lost": rollout["overflowed"] + rollout["unsent"] + lobby["overflowed"],
            "dropped": sum(session["dropped"].values()) + rollout["failures"],
        }

    with server:
        report(str(server.address))
        while True:
            control.recv()
            control.send(counts() | {"cpu": time.process_time()})


def serve_raw(
    report: Callable[[Any], None], control: Connection, layout: tuple[int, int], frame: bytes
) -> None:
    """Exchange as many datagrams by `recvfrom` and `sendto`, in one thread without a protocol."""
    instances, agents = layout
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        server.setsockopt(socket.SOL_SOCKET, option, SERVER_BUFFER)
    server.bind(("127.0.0.1", 0))
    report("{}:{}".format(*server.getsockname()))
    peers: list[Any] = []
    while len(peers) < instances * agents:  # the first datagram of each
        peers.append(server.recvfrom(2048)[1])
    server.setblocking(False)
    groups = [peers[start : start + agents] for start in range(0, len(peers), agents)]
    pacers = [Pacer(RATE) for _ in groups]
    start = time.monotonic() + 0.05
    due = []
    for place, pacer in enumerate(pacers):
        pacer.restart(at=start + place / len(pacers) / RATE)
        due.append((pacer.due(), place))
    ticks = received = sent = unsent = 0
    poll = select.epoll()
    poll.register(server, select.EPOLLIN)
    poll.register(control.fileno(), select.EPOLLIN)
    recvfrom, sendto, readable = server.recvfrom, server.sendto, server.fileno()
    head, _, tail = frame.partition(b":0;")
    while True:
        for number, _ in poll.poll(max(0.0, due[0][0] - time.monotonic())):
            if number != readable:
                control.recv()
                control.send({
                    "ticks": ticks, "missed": sum(pacer.missed for pacer in pacers),
                    "received": received, "sent": sent, "held": 0, "dropped": 0, "lost": unsent,
                    "cpu": time.process_time(),
                })  # fmt: skip
                continue
            with contextlib.suppress(BlockingIOError):
                for _ in range(64):
                    recvfrom(1201)
                    received += 1
        while due[0][0] <= time.monotonic():
            _, place = due[0]
            pacer = pacers[place]
            pacer.advance()
            heapq.heapreplace(due, (pacer.due(), place))
            datagram = b"%b:%d;%b" % (head, pacer.tick, tail)
            ticks += 1
            for peer in groups[place]:
                try:
                    sendto(datagram, peer)
                    sent += 1
                except BlockingIOError:
                    unsent += 1


# --- the clients


def join(address: str, layout: tuple[int, int]) -> tuple[list[udp.DatagramConnection], int]:
    """Register a ready client for each slot, and wait until all have started.

    Returns:
        The clients, and the rollout port.
    """
    connections = []
    for instance in range(layout[0]):
        for agent in range(layout[1]):
            connection = udp.connect(address, partial(PerlertClientSession, "field", instance))
            connections.append(connection)
            session: Any = connection.session
            session.register(f"agent_{agent}", f"client {len(connections)}", time.monotonic())
            expect(connection, SlotGranted)
            session.set_ready(True, time.monotonic())
            connection.flush()
    started = [expect(connection, EpisodeStarted) for connection in connections]
    return connections, started[0].port


def expect(connection: udp.DatagramConnection, kind: type) -> Any:
    """Return the next event of this type."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for event in connection.wait(1.0):
            if isinstance(event, kind):
                return event
    raise SystemExit(f"{kind.__name__} did not come")


class Clients:
    """Sockets that reply to each frame with an action, one of two texts in turn."""

    def __init__(self, sockets: list[socket.socket], rollout: Any, layout: tuple[int, int]) -> None:
        self.frames = self.gaps = 0
        self._poll = select.epoll()
        self._all: dict[int, tuple[Any, Any, tuple[bytes, bytes]]] = {}
        self._steps: dict[int, int] = {}
        for place, sock in enumerate(sockets):
            sock.connect(rollout)
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:  # of a run that began earlier
                    sock.recv(2048)
            instance = place // layout[1]
            actions = (b"field:%d;action=1" % instance, b"field:%d;action=2" % instance)
            sock.send(actions[0])
            self._all[sock.fileno()] = sock.recv, sock.send, actions
            self._poll.register(sock, select.EPOLLIN)

    def play(self, seconds: float) -> None:
        """Reply to frames for so many seconds."""
        known, steps, poll = self._all, self._steps, self._poll.poll
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for number, _ in poll(left):
                receive, send, actions = known[number]
                header = receive(2048).partition(b";")[0]
                step = int(header.rpartition(b":")[2])
                self.gaps += step - steps.get(number, step - 1) - 1
                steps[number] = step
                send(actions[step & 1])
                self.frames += 1


# --- a measurement


Load = dict[str, float]
"""A second of a server: counts, frames that clients missed, shares of both cores, and the server's
CPU microseconds for each datagram in or out ("packet")."""


@contextlib.contextmanager
def playing(
    layout: tuple[int, int], raw: bytes | None, on_uvloop: bool
) -> Iterator[tuple[Callable[[], Counts], Clients]]:
    """A server with clients in a run."""
    ours, theirs = multiprocessing.Pipe()
    if raw is None:
        process = ServerProcess("PERLERT", serve, theirs, layout, on_uvloop, cores=CORES[-1:])
    else:
        process = ServerProcess("raw", serve_raw, theirs, layout, raw, cores=CORES[-1:])

    def ask() -> Counts:
        ours.send(None)
        found: Counts = ours.recv()
        return found

    with contextlib.ExitStack() as stack:
        stack.callback(ours.close)
        stack.callback(theirs.close)
        address = stack.enter_context(process).address
        if raw is None:
            connections, port = join(address, layout)
            for connection in connections:
                stack.callback(connection.close)
            rollout = (parse(address).host, port)
            sockets = [connection.sock.raw for connection in connections]
        else:
            where = parse(address)
            rollout = (where.host, where.port)
            sockets = [
                stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                for _ in range(layout[0] * layout[1])
            ]
        yield ask, Clients(sockets, rollout, layout)


def measure(layout: tuple[int, int], raw: bytes | None = None, on_uvloop: bool = False) -> Load:
    """Start a server and clients, and count what they do in a while."""
    with playing(layout, raw, on_uvloop) as (ask, clients):
        clients.play(SETTLE)
        gaps = clients.gaps
        before, own, begin = ask(), time.process_time(), time.monotonic()
        clients.play(SECONDS)
        after, own, took = ask(), time.process_time() - own, time.monotonic() - begin
    change = {name: (after[name] - before[name]) / took for name in after}
    cpu = change.pop("cpu")
    packet = 1e6 * cpu / max(1.0, change["received"] + change["sent"])
    gaps = (clients.gaps - gaps) / took
    return {**change, "gaps": gaps, "core": cpu, "clients": own / took, "packet": packet}


def frame() -> bytes:
    """Return a frame as long as those of `Field`."""
    write = perlert.StepWriter("field", 10).write
    numbers = np.random.default_rng(7).normal(size=NUMBERS).astype(np.float32)
    return write(1590853116323, 0, numbers, 0.5, False, {"total": 100.5})


def middle(loads: list[Load]) -> Load:
    """Return the median of each field."""
    return {name: median(each[name] for each in loads) for name in loads[0]}


COLUMNS = (
    "server", "instances x agents", "ticks/s", "missed/s", "in/s", "out/s", "held back/s",
    "lost/s", "gaps/s", "core", "clients' core", "us a packet", "to raw",
)  # fmt: skip


def cells(name: str, layout: tuple[int, int], load: Load, floor: Load | None) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        name,
        f"{layout[0]} x {layout[1]}",
        f"{load['ticks']:,.0f}",
        f"{load['missed']:,.2f}",
        f"{load['received']:,.0f}",
        f"{load['sent']:,.0f}",
        *(f"{each:,.2f}" for each in (load["held"], load["lost"] + load["dropped"], load["gaps"])),
        f"{load['core']:.0%}",
        f"{load['clients']:.0%}",
        f"{load['packet']:.2f}",
        "" if floor is None else f"{load['packet'] / floor['packet']:.2f}x",
    )


def rows(rounds: int) -> Iterator[tuple[str, ...]]:
    """Measure each layout with the server, with uvloop, and with raw sockets, in turn."""
    raw = frame()
    for layout in LAYOUTS:
        taken: dict[str, list[Load]] = {"rlwire": [], "rlwire, uvloop": [], "raw sockets": []}
        for _ in range(rounds):
            taken["rlwire"].append(measure(layout))
            taken["rlwire, uvloop"].append(measure(layout, on_uvloop=True))
            taken["raw sockets"].append(measure(layout, raw))
        floor = middle(taken["raw sockets"])
        for name, loads in taken.items():
            yield cells(name, layout, middle(loads), floor)


def limit(rounds: int) -> Iterator[tuple[str, ...]]:
    """Add clients until most rounds miss ticks."""
    for layout in MORE:
        load = middle([measure(layout) for _ in range(rounds)])
        yield cells("rlwire", layout, load, None)
        if load["missed"] > 0 and not TINY:
            return


def open_files() -> None:
    """Raise the limit of open files to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="of which medians are printed (%(default)s)"
    )
    parser.add_argument("--limit", action="store_true", help="add clients until ticks are missed")
    args = parser.parse_args()
    open_files()
    print_head(
        f"Clients at {RATE:g} steps a second; frames of {len(frame())} bytes, an action for each.\n"
        "The server has one core to itself, all clients together another.",
        "uvloop",
    )
    pin(CORES[:1])
    try:
        print_table(COLUMNS, list(rows(args.rounds)))
        if args.limit or TINY:
            print()
            print_table(COLUMNS[:-1], [line[:-1] for line in limit(args.rounds)])
    finally:
        pin(CORES)


if __name__ == "__main__":
    main()
