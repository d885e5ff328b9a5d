"""What do gRPC's sessions over HTTP/2 add to a raw exchange, and how do they compare with grpcio?

A request of 64 bytes, a reply of 64 or of 112,900 (an Atari stack in float32), and the other way
round; the inner session does nothing. Rivals are a raw blocking socket, and raw bytes on grpcio's
public interface. All on one core, as `rlwire bench` has it.

`python benchmarks/bench_http2_round_trip.py` prints the ratios, and the bytes of an idle
connection.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from grpc_echo import Connected, OnLoop, ask_echo, serve_echo
from pairs import TINY, Line, print_head, print_lines
from rounds import Echo, Exchange, start, take_turns

from rlwire.bench.processes import allowed_cores, pin
from rlwire.bench.raw import Sizes, raw_exchange, raw_messages
from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.sessions.grpc import GrpcClientSession, GrpcRawMessages
from rlwire.sessions.grpc.server import GrpcServerSession
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.server import ServerSettings, ThreadServer
from rlwire.transports.server_asyncio import LoopServer

METHOD = "/rlwire.bench.Echo/Talk"
LARGE = 1_000 if TINY else 112_900
SIZES = [(64, 64), (64, LARGE), (LARGE, 64)]
SECONDS = 0.05 if TINY else 4.0
BLOCK = 10 if TINY else 200
IDLE = 10 if TINY else 100


# Servers, each in a process: they print their port and run until they are killed.


def answers(reply: bytes, connection: Any) -> GrpcHandler:
    return GrpcHandler(connection, lambda call: (GrpcRawMessages(), Echo(reply)))


def serve_ours(request: int, reply: bytes) -> None:
    server = ThreadServer(
        "127.0.0.1:0", GrpcServerSession, make_handler=functools.partial(answers, reply)
    ).start()
    print(server.address.port, flush=True)
    server.wait()


def serve_ours_asyncio(request: int, reply: bytes) -> None:
    async def main() -> None:
        server = await LoopServer(
            "127.0.0.1:0", GrpcServerSession, make_handler=functools.partial(answers, reply)
        ).start()
        print(server.address.port, flush=True)
        await server.wait()

    asyncio.run(main())


# Clients: each gives what makes one exchange.


def ask_ours(port: int, request: bytes, reply: int, stack: ExitStack) -> Exchange:
    connection = stack.enter_context(
        tcp.connect(
            ("127.0.0.1", port), GrpcClientSession(GrpcRawMessages(), METHOD, authority="localhost")
        )
    )
    return functools.partial(connection.exchange, request)


def ask_ours_asyncio(port: int, request: bytes, reply: int, stack: ExitStack) -> OnLoop:
    async def connect() -> Connected:
        connection = await tcp_asyncio.connect(
            ("127.0.0.1", port), GrpcClientSession(GrpcRawMessages(), METHOD)
        )

        async def exchange() -> Any:
            return await connection.exchange(request)

        async def close() -> None:
            connection.close()
            await connection.wait_closed()

        return exchange, close

    return OnLoop(stack, connect())


SERVE_GRPCIO = lambda request, reply: serve_echo(reply)  # noqa: E731
ASK_GRPCIO = lambda port, request, reply, stack: ask_echo(port, stack, METHOD, request)  # noqa: E731
RIVALS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "ours": (serve_ours, ask_ours),
    "ours, asyncio": (serve_ours_asyncio, ask_ours_asyncio),
    "our client": (SERVE_GRPCIO, ask_ours),
    "our server": (serve_ours, ASK_GRPCIO),
    "grpcio": (SERVE_GRPCIO, ASK_GRPCIO),
}


def ask(name: str, request: int, reply: int, stack: ExitStack) -> Any:
    """Start a rival's server in a process and return what makes one exchange."""
    port = start(stack, __file__, "serve", name, str(request), str(reply))
    return RIVALS[name][1](port, b"q" * request, reply, stack)


def resident() -> int:
    """Bytes of memory that this process has now; on Linux."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def idle_bytes() -> float:
    """Bytes of memory of this process for each connection with one stream, both ends together."""
    with (
        ExitStack() as stack,
        ThreadServer(
            "127.0.0.1:0",
            GrpcServerSession,
            make_handler=functools.partial(answers, b"r" * 64),
            settings=ServerSettings(max_connections_per_address=IDLE + 1),
        ) as server,
    ):
        before = 0
        for number in range(IDLE):
            if number == IDLE // 10:
                before = resident()
            ask_ours(server.address.port, b"q" * 64, 64, stack)()
        after = resident()
    return (after - before) / (IDLE - IDLE // 10)


def main() -> None:
    """Print the table."""
    print_head("An exchange over gRPC: median microseconds, on one core.", "grpcio")
    memory = idle_bytes()
    cores = allowed_cores()
    pin(cores[:1])
    lines = []
    for request, reply in SIZES:
        with ExitStack() as stack:
            asking = {name: ask(name, request, reply, stack) for name in RIVALS}
            sizes = Sizes(request, reply)
            asking["raw socket"] = stack.enter_context(raw_exchange(raw_messages(sizes), cores[:1]))
            times = take_turns(asking, SECONDS, BLOCK)
        what = f"{request:,} B for {reply:,} B"
        for name, rival, target in (
            ("ours", "raw socket", 1.6 if request == reply else 1.5),
            ("ours, asyncio", "raw socket", 2.2),
            ("our client", "grpcio", 0.75),
            ("our server", "grpcio", 0.75),
            ("grpcio", "ours", None),
        ):
            lines.append(Line(f"{what}: {name}", times[name], rival, times[rival], target))
    print_lines(lines)
    print(f"\nidle, one stream, both ends and a thread: {memory / 1024:.1f} KiB a connection")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        RIVALS[sys.argv[2]][0](int(sys.argv[3]), b"r" * int(sys.argv[4]))
    else:
        main()
