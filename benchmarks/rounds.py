"""What the benchmarks over gRPC share: rival servers in processes, clients that take turns.

And the rival of all of them: an echo of raw bytes on grpcio's public interface, blocking and
asyncio. Not here: what is measured, and tables of ratios (`pairs`).
"""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import grpc

OPTIONS = [("grpc.max_receive_message_length", 2**26), ("grpc.use_local_subchannel_pool", 1)]

Exchange = Callable[[], Any]
Connected = tuple[Callable[[], Coroutine[Any, Any, Any]], Callable[[], Coroutine[Any, Any, Any]]]
"""What makes one exchange, and what closes the connection."""


def start(stack: ExitStack, script: str, *words: str) -> int:
    """Start a server, ``python script words``, and return the port that it prints."""
    process = subprocess.Popen([sys.executable, script, *words], stdout=subprocess.PIPE)

    def end() -> None:
        process.kill()
        process.communicate()

    stack.callback(end)
    assert process.stdout is not None
    return int(process.stdout.readline())


class OnLoop:
    """Exchanges that are coroutines, all on one loop: grpcio stumbles over a second."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, stack: ExitStack, connecting: Coroutine[Any, Any, Connected]) -> None:
        if OnLoop._loop is None:
            OnLoop._loop = asyncio.new_event_loop()
        self._exchange, close = self._run(connecting)
        stack.callback(lambda: self._run(close()))

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        assert OnLoop._loop is not None
        return OnLoop._loop.run_until_complete(coroutine)

    def __call__(self) -> Any:
        """One exchange."""
        return self._run(self._exchange())

    def block(self, count: int) -> list[int]:
        """The nanoseconds of each of some exchanges."""

        async def work() -> list[int]:
            taken = []
            for _ in range(count):
                begin = perf_counter_ns()
                await self._exchange()
                taken.append(perf_counter_ns() - begin)
            return taken

        times: list[int] = self._run(work())
        return times


def block_of(exchange: Exchange | OnLoop, count: int) -> list[int]:
    """The nanoseconds that each exchange of a block takes."""
    if isinstance(exchange, OnLoop):
        return exchange.block(count)
    taken = []
    for _ in range(count):
        begin = perf_counter_ns()
        exchange()
        taken.append(perf_counter_ns() - begin)
    return taken


def take_turns(
    asking: Mapping[str, Exchange | OnLoop], seconds: float, block: int
) -> dict[str, float]:
    """Median microseconds of an exchange of every rival, in blocks that take turns."""
    taken: dict[str, list[int]] = {name: [] for name in asking}
    order = list(asking)
    deadline = perf_counter_ns() + seconds * 1e9
    while perf_counter_ns() < deadline:
        for name in order:
            # The first ones warm the caches up.
            taken[name].extend(block_of(asking[name], block)[block // 10 :])
        order.append(order.pop(0))
    return {name: median(times) / 1e3 for name, times in taken.items()}


def serve_echo(reply: bytes) -> None:
    """Answer every message with `reply`, on grpcio's public interface; prints the port."""

    def talk(requests: Any, context: Any) -> Iterator[bytes]:
        for _ in requests:
            yield reply

    handler = grpc.stream_stream_rpc_method_handler(talk)
    server = grpc.server(
        ThreadPoolExecutor(4), handlers=(SimpleNamespace(service=lambda _: handler),)
    )
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


def serve_echo_asyncio(reply: bytes) -> None:
    """The same on grpc.aio."""

    async def talk(requests: Any, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(reply)

    async def main() -> None:
        handler = grpc.stream_stream_rpc_method_handler(talk)
        server = grpc.aio.server(handlers=(SimpleNamespace(service=lambda _: handler),))
        print(server.add_insecure_port("127.0.0.1:0"), flush=True)
        await server.start()
        await server.wait_for_termination()

    asyncio.run(main())


def ask_echo(port: int, stack: ExitStack, method: str, request: bytes) -> Exchange:
    """A client of `serve_echo`."""
    channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS))
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    stack.callback(requests.put, None)
    call = channel.stream_stream(method)(iter(requests.get, None))

    def exchange() -> Any:
        requests.put(request)
        return next(call)

    return exchange


def ask_echo_asyncio(port: int, stack: ExitStack, method: str, request: bytes) -> OnLoop:
    """A client of `serve_echo_asyncio`."""

    async def connect() -> Connected:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", OPTIONS)
        call = channel.stream_stream(method)()

        async def exchange() -> Any:
            await call.write(request)
            return await call.read()

        return exchange, channel.close

    return OnLoop(stack, connect())
