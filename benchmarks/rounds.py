"""Round trips between processes: rivals take turns in blocks.

Each rival has a server in a process. Blocks of exchanges rotate, so that a change of the machine's
speed affects all rivals.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from time import perf_counter_ns
from typing import Any

from rlwire.codecs.dm_env_rpc import ActionObservationSpecs, EnvironmentStateType, StepResult

Exchange = Callable[[], Any]
Block = Callable[[int], list[int]]
"""A function that makes some exchanges, and returns the nanoseconds of each."""


class InBlocks:
    """A rival that times its own exchanges."""

    def __init__(self, block: Block) -> None:
        self.block = block


def start(stack: ExitStack, script: str, *words: str) -> int:
    """Start a server, ``python script words``, and return the port that it prints."""
    process = subprocess.Popen([sys.executable, script, *words], stdout=subprocess.PIPE)

    def end() -> None:
        process.kill()
        process.communicate()

    stack.callback(end)
    assert process.stdout is not None
    return int(process.stdout.readline())


def serve_callbacks(
    report: Callable[[Any], None],
    reply: bytes,
    room: int,
    greeting: tuple[bytes, bytes] = (b"", b""),
) -> None:
    """Serve a rival: callbacks of asyncio's loop alone, for messages that fit a socket's buffer.

    A message is at most `room` bytes, and one as long as the greeting's first gets its second.
    """
    first, ready = len(greeting[0]), greeting[1]

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def answerer(peer: socket.socket) -> Callable[[], None]:
            recv_into, send, inbox = peer.recv_into, peer.send, bytearray(room)

            def readable() -> None:
                have = recv_into(inbox)
                if have:
                    send(ready if have == first else reply)
                else:
                    loop.remove_reader(peer.fileno())
                    peer.close()

            return readable

        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
            listener.setblocking(False)
            report(listener.getsockname())
            while True:
                peer, _ = await loop.sock_accept(listener)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                loop.add_reader(peer.fileno(), answerer(peer))

    asyncio.run(main())


def block_of(exchange: Exchange | InBlocks, count: int) -> list[int]:
    """Return the nanoseconds of each exchange of a block."""
    if isinstance(exchange, InBlocks):
        return exchange.block(count)
    taken = []
    for _ in range(count):
        begin = perf_counter_ns()
        exchange()
        taken.append(perf_counter_ns() - begin)
    return taken


async def awaited(exchange: Callable[[], Awaitable[Any]], count: int) -> list[int]:
    """The same for coroutines."""
    taken = []
    for _ in range(count):
        begin = perf_counter_ns()
        await exchange()
        taken.append(perf_counter_ns() - begin)
    return taken


def awaiting(loop: asyncio.AbstractEventLoop, exchange: Callable[[], Awaitable[Any]]) -> InBlocks:
    """A rival with coroutines, which runs a block in one run of the loop."""
    return InBlocks(lambda count: loop.run_until_complete(awaited(exchange, count)))


def take_turns(
    asking: Mapping[str, Exchange | InBlocks], seconds: float, block: int
) -> dict[str, float]:
    """Return the median microseconds of an exchange of each rival, in turns."""
    taken: dict[str, list[int]] = {name: [] for name in asking}
    order = list(asking)
    deadline = perf_counter_ns() + seconds * 1e9
    while perf_counter_ns() < deadline or not taken[order[-1]]:
        for name in order:
            # The first exchanges warm up the caches.
            taken[name].extend(block_of(asking[name], block)[block // 10 :])
        order.append(order.pop(0))
    return {name: median(times) / 1e3 for name, times in taken.items()}


class Echo:
    """A connection's handler that echoes each event, or sends the same reply."""

    def __init__(self, reply: Any = None) -> None:
        self.reply = reply

    def answer(self, event: Any) -> Any:
        return event if self.reply is None else self.reply

    def failure(self, event: Any, error: Exception) -> Any:
        raise error

    def close(self) -> None:
        pass


class Agent:
    """An RLX agent whose action is always 1."""

    def __init__(self, parameter_server: Any) -> None:
        pass

    def init(self, exploit: bool = False) -> bool:
        return True

    def reset(self) -> bool:
        return True

    def update(self, reward: Any, state: Any, terminal: bool) -> int:
        return 1


class World:
    """A world of dm_env_rpc with one agent, which sends some observations in turn."""

    def __init__(self, specs: ActionObservationSpecs, shown: Sequence[dict[str, Any]]) -> None:
        self.specs = specs
        self._shown = itertools.cycle(shown)

    def join(self, settings: Any) -> World:
        return self

    def reset(self, settings: Any) -> None:
        pass

    def begin(self) -> StepResult:
        return self.step({})

    def step(self, actions: dict[str, Any]) -> StepResult:
        return StepResult(EnvironmentStateType.RUNNING, next(self._shown))

    def close(self) -> None:
        pass
