"""What does `RLXProxy` make of a step: JSON over WebSocket against RLX itself, and a raw exchange?

Three processes: a client, whose bytes are made once, so that it costs little; `RLXProxy`; an RLX
server whose agent answers every update with 1. Straight over RLX each environment has a connection
of its own, through the proxy all share one WebSocket. A step of many environments is sent for all
of them, one `send` each, before an answer is read. The raw exchange is of as many bytes as the
proxy's, on one blocking socket.

`pytest benchmarks/bench_rlx_proxy.py` times each, not pinned; `python
benchmarks/bench_rlx_proxy.py` prints the ratios.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pytest
from pairs import TINY, call_times, print_head, print_table, run_benchmark

from rlwire.adapters.relaax import RLXProxy, RLXServer
from rlwire.bench import floor
from rlwire.bench.processes import ServerProcess, allowed_cores, pin
from rlwire.codecs import _json, rlx
from rlwire.codecs import websocket as frames
from rlwire.codecs.websocket.handshake import new_key, parse_url, write_request
from rlwire.limits import DEFAULT

QUESTION = "A step through RLXProxy, straight over RLX, and a raw exchange of the proxy's bytes."
SECONDS = 0.02 if TINY else 6.0
COUNTS = (1, 2) if TINY else (1, 10, 200)
SIDE = 4 if TINY else 84
PIXELS = np.random.default_rng(7).integers(0, 256, (SIDE, SIDE, 4))


SID = 100  # and up, so that all have as many bytes


class Work(NamedTuple):
    """A step.

    Attributes:
        said: the state as a page says it.
        arrays: the proxy's option.
        sent: the state as the RLX server gets it.
        counts: of environments.
    """

    said: Any
    arrays: str
    sent: Any
    counts: Sequence[int]


FLOATS = [0.1, 0.2, 0.3, 0.4]
WORK = {
    "4 floats": Work(FLOATS, "lists", FLOATS, COUNTS),
    f"{SIDE}x{SIDE}x4": Work(PIXELS, "float32", PIXELS.astype(np.float32), COUNTS[:1]),
}
PLACES = {"one core": 0, "two cores": 1}
"""The core of whatever the client speaks to; all else shares the first one with the client."""

Step = Callable[[object], None]


class Agent:
    """Answers every update with 1."""

    def __init__(self, parameter_server: Any) -> None:
        pass

    def init(self, exploit: bool = False) -> bool:
        """Nothing to get ready."""
        return True

    def update(self, reward: Any, state: Any, terminal: bool) -> int:
        """The action."""
        return 1

    def reset(self) -> bool:
        """Nothing to forget."""
        return True


def serve_rlx(report: Callable[[Any], None]) -> None:
    """Run in the RLX server's process."""
    with RLXServer(Agent, "127.0.0.1:0", workers="asyncio") as server:
        report(server.address)
        server.wait()


def serve_proxy(report: Callable[[Any], None], rlx_address: Any, arrays: Any, uvloop: bool) -> None:
    """Run in the proxy's process."""
    logging.disable(logging.WARNING)  # clients just go when they have measured
    loop_factory = None
    if uvloop:
        import uvloop as package

        loop_factory = package.new_event_loop
    with RLXProxy(
        rlx_address,
        "127.0.0.1:0",
        arrays=arrays,
        ping_interval=None,
        loop_factory=loop_factory,
    ) as proxy:
        report(proxy.address)
        proxy.wait()


def conversation(state: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What begins it, and what is timed: a command and its answer each."""
    yield {"command": "init", "exploit": False}, {"response": "ready"}
    update = {"command": "update", "reward": 1.0, "state": state, "terminal": False}
    yield update, {"response": "action", "data": 1}


def dial(stack: ExitStack, address: tuple[str, int]) -> socket.socket:
    """A blocking socket."""
    sock = stack.enter_context(socket.create_connection(address))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def stepping(sends: Sequence[tuple[socket.socket, bytes]], size: int, expected: bytes) -> Step:
    """What sends all, then reads `size` bytes from each socket; it has done so once.

    Raises:
        SystemExit: other bytes than `expected` came, whatever their order.
    """
    sockets = list(dict.fromkeys(sock for sock, _ in sends))
    inbox = bytearray(size)

    def step(_: object) -> None:
        for sock, data in sends:
            sock.sendall(data)
        for sock in sockets:
            if sock.recv_into(inbox, size, socket.MSG_WAITALL) != size:
                raise SystemExit("the server has hung up")

    step(None)
    if sorted(inbox) != sorted(expected):
        raise SystemExit(f"the server answered {bytes(inbox)!r}, not {expected!r}")
    return step


def straight(stack: ExitStack, address: Any, count: int, work: Work) -> Step:
    """RLX, a connection for each environment."""
    sockets = [dial(stack, (address.host, address.port)) for _ in range(count)]
    for command, reply in conversation(work.sent):
        request, expected = (rlx.encode(message, framed=True) for message in (command, reply))
        step = stepping([(sock, request) for sock in sockets], len(expected), expected)
    return step


def frames_of(client: bool, count: int, message: dict[str, Any]) -> list[bytes]:
    """The frames of a message of each environment."""
    framer = frames.Framer(client, "text")
    texts = (_json.encode({"sid": SID + number, **message}, DEFAULT) for number in range(count))
    return [b"".join(framer.message(text)) for text in texts]


def through(stack: ExitStack, address: Any, count: int, work: Work) -> Step:
    """The proxy, one WebSocket for all environments."""
    sock = dial(stack, (address.host, address.port))
    sock.sendall(write_request(parse_url(f"ws://{address}/"), new_key()))
    if not sock.recv(65536).startswith(b"HTTP/1.1 101 "):
        raise SystemExit("the proxy refused the WebSocket")
    for command, reply in conversation(work.said):
        expected = b"".join(frames_of(False, count, reply))
        sends = [(sock, frame) for frame in frames_of(True, count, command)]
        step = stepping(sends, len(expected), expected)
    return step


def raw(stack: ExitStack, address: Any, count: int, work: Work) -> Step:
    """The floor."""
    sock = dial(stack, address)
    request, reply = sizes(work)
    return stepping([(sock, bytes(request))] * count, reply * count, bytes(reply * count))


def sizes(work: Work) -> tuple[int, int]:
    """Bytes of an update and of its answer, between a page and the proxy."""
    _, (command, reply) = conversation(work.said)
    return len(frames_of(True, 1, command)[0]), len(frames_of(False, 1, reply)[0])


RIVALS = {"RLXProxy": through, "with uvloop": through, "RLX": straight, "raw echo": raw}


class Servers:
    """The processes of all rivals, where they are to run; a context manager."""

    def __init__(self, work: Work, behind: list[int] | None, spoken_to: list[int] | None) -> None:
        self._work = work
        self._stack = ExitStack()
        self._behind = behind
        self._spoken_to = spoken_to
        self._addresses: dict[str, Any] = {}

    def __enter__(self) -> Servers:
        start, work = self._start, self._work
        agents = start("agents", serve_rlx, cores=self._behind)
        self._addresses = {
            "RLXProxy": start("proxy", serve_proxy, agents, work.arrays, False),
            "with uvloop": start("proxy", serve_proxy, agents, work.arrays, True),
            "RLX": start("rlx", serve_rlx),
            "raw echo": start("raw echo", floor.serve, *sizes(work), False),
        }
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start(self, name: str, serve: Callable[..., None], *given: Any, **options: Any) -> Any:
        options.setdefault("cores", self._spoken_to)
        return self._stack.enter_context(ServerProcess(name, serve, *given, **options)).address

    def step(self, stack: ExitStack, rival: str, count: int) -> Step:
        """A connected client's step; `stack` closes its sockets."""
        return RIVALS[rival](stack, self._addresses[rival], count, self._work)


@pytest.mark.benchmark(group="a step of each environment")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("rival", RIVALS)
def test_step(benchmark: Any, rival: str, count: int) -> None:
    """One update of each of some environments."""
    with Servers(WORK["4 floats"], None, None) as servers, ExitStack() as stack:
        run_benchmark(benchmark, servers.step(stack, rival, count), None)


def rows(seconds: float) -> Iterator[tuple[str, ...]]:
    """One for each work, number of environments, place and rival."""
    allowed = allowed_cores()
    for (title, work), (place, core) in itertools.product(WORK.items(), PLACES.items()):
        if core >= len(allowed):
            print(f"{place}: left out, this process may choose among {len(allowed)} cores")
            continue
        pin(allowed[:1])
        try:
            with Servers(work, allowed[:1], [allowed[core]]) as servers:
                for count in work.counts:
                    with ExitStack() as stack:
                        steps = {name: servers.step(stack, name, count) for name in RIVALS}
                        times = call_times(
                            {name: (step, None) for name, step in steps.items()}, seconds
                        )
                    for name, time in times.items():
                        yield (
                            f"{title}, {place}",
                            f"{count}",
                            name,
                            f"{time / count:,.1f}",
                            f"{1e6 * count / time:,.0f}",
                            f"{time / times['RLX']:.2f}",
                            f"{time / times['raw echo']:.2f}",
                        )
        finally:
            pin(allowed)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each comparison")
    given = parser.parse_args()
    print_head(QUESTION, "uvloop")
    columns = ("state", "environments", "", "us a step", "steps/s", "times RLX", "times raw")
    print_table(columns, list(rows(given.seconds)))


if __name__ == "__main__":
    main()
