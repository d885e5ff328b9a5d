"""A rival of the benchmarks: an echo of raw bytes on grpcio's public interface."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import grpc
from rounds import Exchange, InBlocks, awaited

OPTIONS = [("grpc.max_receive_message_length", 2**26), ("grpc.use_local_subchannel_pool", 1)]

Connected = tuple[Callable[[], Coroutine[Any, Any, Any]], Callable[[], Coroutine[Any, Any, Any]]]
"""Functions that make one exchange, and close the connection."""


class OnLoop(InBlocks):
    """Exchanges by coroutines on one loop for all, because grpcio allows no second loop."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, stack: ExitStack, connecting: Coroutine[Any, Any, Connected]) -> None:
        if OnLoop._loop is None:
            OnLoop._loop = asyncio.new_event_loop()
        run = OnLoop._loop.run_until_complete
        exchange, close = run(connecting)
        stack.callback(lambda: run(close()))
        super().__init__(lambda count: run(awaited(exchange, count)))


def serve_echo(reply: bytes) -> None:
    """Reply to each message with `reply`, and print the port."""

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
    channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS))
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    stack.callback(requests.put, None)
    call = channel.stream_stream(method)(iter(requests.get, None))

    def exchange() -> Any:
        requests.put(request)
        return next(call)

    return exchange


def ask_echo_asyncio(port: int, stack: ExitStack, method: str, request: bytes) -> OnLoop:
    """Return a client of `serve_echo_asyncio`."""

    async def connect() -> Connected:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", OPTIONS)
        call = channel.stream_stream(method)()

        async def exchange() -> Any:
            await call.write(request)
            return await call.read()

        return exchange, channel.close

    return OnLoop(stack, connect())
