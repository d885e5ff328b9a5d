"""Times `AgentProxy.update` against a raw blocking exchange of the same observations' bytes.

Client and server are two processes, pinned to one core and to two. Blocks of updates and of raw
exchanges take turns. A second table has `await exchange` on asyncio's own loop, at one end or both,
on one core. Its floor is a loop's callbacks that receive and send as many bytes, and beside it is a
task that awaits a new future for each reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np
from pairs import TINY, Line, print_head, print_lines
from rounds import Agent, Exchange, InBlocks, awaiting, serve_callbacks, take_turns

from rlwire.bench.processes import ServerProcess, allowed_cores, pin
from rlwire.bench.raw import Sizes, raw_exchange, raw_messages, serve_raw
from rlwire.codecs import rlx
from rlwire.rlx import AgentProxy, Server
from rlwire.sessions.rlx import RLXClientSession
from rlwire.transports import tcp_asyncio
from rlwire.transports.sockets import Timeouts

SIDE = 8 if TINY else 84
SECONDS = 0.05 if TINY else 6.0
BLOCK = 20 if TINY else 400
COUNT = 32  # different observations
# The server's core, Timeouts.spin of both ends in seconds, and the target.
SETTINGS: dict[str, tuple[int, float | None, float]] = {
    "two cores": (1, None, 1.10),
    "two cores, spin": (1, 100e-6, 1.0),
    "one core": (0, None, 1.25),
}


RANDOM = np.random.default_rng(7)
STATES: dict[str, list[Any]] = {
    "small update": [RANDOM.random(4).tolist() for _ in range(COUNT)],
    f"{SIDE}x{SIDE}x4 float32": [
        RANDOM.random((SIDE, SIDE, 4), dtype=np.float32) for _ in range(COUNT)
    ],
}


class CountingAgent(Agent):
    """An agent whose action is the number of the update."""

    count = 0

    def update(self, reward: Any, state: Any, terminal: bool) -> int:
        self.count += 1
        return self.count


def serve_rlx(report: Callable[[Any], None], workers: Any, spin: float | None = None) -> None:
    """Run the server."""
    server = Server(CountingAgent, "127.0.0.1:0", workers=workers, timeout=Timeouts(spin=spin))
    server.start()
    report(tuple(str(server.address).rsplit(":", 1)))
    server.serve_forever()


def update_of(state: Any) -> dict[str, Any]:
    """Return the message of an update."""
    return {"command": "update", "reward": 1.0, "state": state, "terminal": False}


def sizes_of(name: str) -> Sizes:
    """Return the bytes of an update and of its reply, with framing."""
    encode = rlx.RLXEncoder(framed=True).encode
    reply = {"response": "action", "data": 1}
    return Sizes(*(len(encode(each)) for each in (update_of(STATES[name][0]), reply)))


@contextlib.contextmanager
def updating(
    name: str, core: list[int] | None = None, spin: float | None = None
) -> Iterator[Exchange]:
    """Serve an agent, and yield a function that calls `AgentProxy.update`."""
    states = itertools.cycle(STATES[name])
    with ServerProcess("rlx", serve_rlx, "threads", spin, cores=core) as server:
        host, port = server.address
        timeout = Timeouts(read=10.0, idle=10.0, spin=spin)
        proxy = AgentProxy((host, int(port)), timeout=timeout)
        proxy.connect(retry=1)
        proxy.init()
        update = proxy.update
        count = 0

        def exchange() -> None:
            nonlocal count
            count += 1
            assert update(1.0, next(states), False) == count

        try:
            yield exchange
        finally:
            proxy.disconnect()


def lines() -> Iterator[Line]:
    """Return ratios and targets for each payload, on as many cores as there are."""
    allowed = allowed_cores()
    for name, (where, (core, spin, target)) in itertools.product(STATES, SETTINGS.items()):
        if core >= len(allowed):
            print(f"{where}: left out, this process may choose among {len(allowed)} cores")
            continue
        servers = [allowed[core]]
        pin(allowed[:1])
        states = map(np.asarray, STATES[name])
        try:
            with (
                updating(name, servers, spin) as update,
                raw_exchange(raw_messages(sizes_of(name), states), servers) as raw,
            ):
                times = take_turns({"ours": update, "raw": raw}, SECONDS, BLOCK)
        finally:
            pin(allowed)
        yield Line(f"{name}, {where}", times["ours"], "raw echo", times["raw"], target)


def plain_socket(stack: contextlib.ExitStack, address: Any) -> socket.socket:
    """A non-blocking socket for a loop's callbacks."""
    sock = stack.enter_context(socket.create_connection((address[0], int(address[1]))))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


def bare_client(stack: contextlib.ExitStack, address: Any, sizes: Sizes, loop: Any) -> InBlocks:
    sock, request = plain_socket(stack, address), bytes(sizes.request)
    recv_into, send, inbox = sock.recv_into, sock.send, bytearray(sizes.reply)
    begin = 0
    taken: list[int] = []
    count = 0
    done: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        nonlocal begin
        recv_into(inbox)
        now = perf_counter_ns()
        taken.append(now - begin)
        if len(taken) == count:
            done.set_result(None)
            return
        begin = perf_counter_ns()
        send(request)

    async def block(number: int) -> list[int]:
        nonlocal begin, count, done
        taken.clear()
        count, done = number, loop.create_future()
        loop.add_reader(sock.fileno(), readable)
        begin = perf_counter_ns()
        send(request)
        await done
        loop.remove_reader(sock.fileno())
        return taken.copy()

    return InBlocks(lambda number: loop.run_until_complete(block(number)))


def task_client(stack: contextlib.ExitStack, address: Any, sizes: Sizes, loop: Any) -> InBlocks:
    """Exchange in a task that awaits a new future for each reply."""
    sock, request = plain_socket(stack, address), bytes(sizes.request)
    recv_into, send, inbox = sock.recv_into, sock.send, bytearray(sizes.reply)
    answered: asyncio.Future[int] = loop.create_future()

    async def exchange() -> int:
        nonlocal answered
        answered = loop.create_future()
        send(request)
        return await answered

    loop.add_reader(sock.fileno(), lambda: answered.set_result(recv_into(inbox)))
    stack.callback(loop.remove_reader, sock.fileno())
    return awaiting(loop, exchange)


def rlx_client(stack: contextlib.ExitStack, address: Any, update: Any, loop: Any) -> InBlocks:
    """Exchange by `await exchange`."""
    run = loop.run_until_complete
    connection = run(tcp_asyncio.connect((address[0], int(address[1])), RLXClientSession()))
    stack.callback(lambda: run(connection.wait_closed()))
    stack.callback(connection.close)
    exchange = connection.exchange
    run(exchange({"command": "init", "exploit": False}))
    return awaiting(loop, lambda: exchange(update))


def on_a_loop(addresses: dict[str, Any]) -> dict[str, float]:
    """Return the median microseconds of each client with its server, in turns."""
    sizes, update = sizes_of("small update"), update_of(STATES["small update"][0])
    loop = asyncio.new_event_loop()
    with contextlib.ExitStack() as stack:
        stack.callback(loop.close)
        asking = {
            "bare, one end": bare_client(stack, addresses["raw"], sizes, loop),
            "task, one end": task_client(stack, addresses["raw too"], sizes, loop),
            "rlwire, one end": rlx_client(stack, addresses["threads"], update, loop),
            "bare, both ends": bare_client(stack, addresses["bare"], sizes, loop),
            "task, both ends": task_client(stack, addresses["bare"], sizes, loop),
            "rlwire, both ends": rlx_client(stack, addresses["asyncio"], update, loop),
        }
        return take_turns(asking, 2 * SECONDS, BLOCK)


def loop_lines() -> Iterator[Line]:
    """Return the ratios of asyncio's own loop, for a small message."""
    allowed = allowed_cores()
    sizes = sizes_of("small update")
    reply = bytes(sizes.reply)
    servers = {
        "raw": ServerProcess("raw echo", serve_raw, raw_messages(sizes), cores=allowed[:1]),
        # The server has one client at a time.
        "raw too": ServerProcess("raw echo", serve_raw, raw_messages(sizes), cores=allowed[:1]),
        "bare": ServerProcess(
            "bare echo", serve_callbacks, reply, sizes.request, cores=allowed[:1]
        ),
        "threads": ServerProcess("rlx", serve_rlx, "threads", cores=allowed[:1]),
        "asyncio": ServerProcess("rlx", serve_rlx, "asyncio", cores=allowed[:1]),
    }
    pin(allowed[:1])
    try:
        with contextlib.ExitStack() as stack:
            addresses = {
                name: stack.enter_context(server).address for name, server in servers.items()
            }
            found = on_a_loop(addresses)
    finally:
        pin(allowed)
    for ends, target in (("one end", 1.15), ("both ends", 1.2)):
        yield Line(
            f"small update, await exchange, {ends}",
            found[f"rlwire, {ends}"], "bare add_reader", found[f"bare, {ends}"], target,
        )  # fmt: skip
    for ends in ("one end", "both ends"):
        yield Line(
            f"small update, await exchange, {ends}",
            found[f"rlwire, {ends}"], "a task and futures", found[f"task, {ends}"],
        )  # fmt: skip


if __name__ == "__main__":
    print_head("A round trip of AgentProxy.update against a raw exchange of as many bytes.")
    print_lines([*lines(), *loop_lines()])
