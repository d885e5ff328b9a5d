"""How do our gRPC client and server compare with an echo written on grpcio by hand?

A request of 64 bytes, a reply of 64 or of 112,900 (an Atari stack in float32); the session does
nothing. Rivals are raw bytes on grpcio's public interface, blocking and asyncio, and a raw blocking
socket. The bare loop does what our direct kind does (grpcio's core, by what is private to grpcio)
in as few lines as possible: its time is the share of the exchange that is grpcio's own.

`pytest benchmarks/bench_grpc_echo.py` times each, not pinned. `python
benchmarks/bench_grpc_echo.py` prints the ratios: not pinned, on one core, with a core each.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from grpc._cython import cygrpc
from pairs import TINY, Line, print_head, print_lines, print_table, run_benchmark
from rounds import (
    OPTIONS,
    Connected,
    Exchange,
    OnLoop,
    ask_echo,
    ask_echo_asyncio,
    serve_echo,
    serve_echo_asyncio,
    start,
    take_turns,
)

from rlwire.bench.processes import allowed_cores, pin
from rlwire.transports import grpc_asyncio, grpc_client
from rlwire.transports.grpc_asyncio_server import AsyncGrpcServer
from rlwire.transports.grpc_server import GrpcServer

METHOD = "/rlwire.bench.Echo/Talk"
REQUEST = b"q" * 64
SIZES = (64, 1_000) if TINY else (64, 112_900)
SECONDS = 0.05 if TINY else 12.0
BLOCK = 10 if TINY else 200


class Session:
    """Messages are the events."""

    closed = False

    def receive(self, message: Any) -> list[Any]:
        return [message]

    def send(self, event: Any) -> list[Any]:
        return [event]

    def refuse(self, error: Any) -> list[Any]:
        return []

    def next_deadline(self) -> None:
        return None


class Responder:
    """Always says the same."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply

    def answer(self, event: Any) -> bytes:
        return self.reply

    def failure(self, event: Any, error: Exception) -> bytes:
        return b""

    def close(self) -> None:
        pass


# Servers, each in a process: they print their port and run until they are killed.


def serve_ours(reply: bytes, engine: Any) -> None:
    server = GrpcServer(
        "127.0.0.1:0", METHOD, Session, lambda caller: Responder(reply), engine=engine
    )
    print(server.start().address.port, flush=True)
    server.wait()


def serve_ours_asyncio(reply: bytes) -> None:
    async def main() -> None:
        server = AsyncGrpcServer("127.0.0.1:0", METHOD, Session, lambda caller: Responder(reply))
        print((await server.start()).address.port, flush=True)
        await server.wait()

    asyncio.run(main())


def serve_bare(reply: bytes) -> None:
    accepting = cygrpc.CompletionQueue()
    server = cygrpc.Server((), False)
    server.register_completion_queue(accepting)
    print(server.add_http2_port(b"127.0.0.1:0"), flush=True)
    server.start()

    def talk(call: Any, events: Any) -> None:
        receive = cygrpc.ReceiveMessageOperation
        call.start_server_batch((cygrpc.SendInitialMetadataOperation(None, 0), receive(0)), "")
        while events.poll().batch_operations[1].message() is not None:
            call.start_server_batch((cygrpc.SendMessageOperation(reply, 0), receive(0)), "")

    while True:
        events = cygrpc.CompletionQueue()
        server.request_call(events, accepting, "")
        arrived = accepting.poll()
        threading.Thread(target=talk, args=(arrived.call, events), daemon=True).start()


def serve_socket(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(len(REQUEST))
        while sock.recv_into(buffer, 0, socket.MSG_WAITALL):
            sock.sendall(reply)


# Clients: each gives a function that makes one exchange.


def ask_ours(port: int, size: int, stack: ExitStack, engine: Any) -> Exchange:
    connection = stack.enter_context(
        grpc_client.connect(("127.0.0.1", port), METHOD, Session(), engine=engine)
    )
    exchange = connection.exchange
    return lambda: exchange(REQUEST)


def ask_bare(port: int, size: int, stack: ExitStack) -> Exchange:
    channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS))
    call = channel._channel.segregated_call(
        cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
        METHOD.encode(), None, None, None, None,
        (
            ((cygrpc.SendInitialMetadataOperation(None, 0),), "begin"),
            ((cygrpc.ReceiveInitialMetadataOperation(0),), "begin"),
            ((cygrpc.ReceiveStatusOnClientOperation(0),), "end"),
        ),
    )  # fmt: skip
    send, receive = cygrpc.SendMessageOperation, cygrpc.ReceiveMessageOperation
    operate, next_event = call.operate, call.next_event

    def finish() -> None:
        call.cancel(cygrpc.StatusCode.cancelled, "")
        while next_event().tag != "end":
            pass

    stack.callback(finish)
    assert next_event().tag == "begin"

    def exchange() -> bytes:
        operate((send(REQUEST, 0), receive(0)), "step")
        while (event := next_event()).tag != "step":
            pass
        reply: bytes = event.batch_operations[1].message()
        return reply

    return exchange


def ask_socket(port: int, size: int, stack: ExitStack) -> Exchange:
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(size)

    def exchange() -> bytearray:
        sock.sendall(REQUEST)
        sock.recv_into(buffer, 0, socket.MSG_WAITALL)
        return buffer

    return exchange


def ask_ours_asyncio(port: int, size: int, stack: ExitStack) -> OnLoop:
    async def connect() -> Connected:
        connection = await grpc_asyncio.connect(("127.0.0.1", port), METHOD, Session())

        async def exchange() -> Any:
            return await connection.exchange(REQUEST)

        return exchange, connection.close

    return OnLoop(stack, connect())


RIVALS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "ours": (
        lambda reply: serve_ours(reply, "direct"),
        lambda *where: ask_ours(*where, "direct"),
    ),
    "ours, public engine": (
        lambda reply: serve_ours(reply, "public"),
        lambda *where: ask_ours(*where, "public"),
    ),
    "ours, asyncio": (serve_ours_asyncio, ask_ours_asyncio),
    "grpcio": (
        serve_echo,
        lambda port, size, stack: ask_echo(port, stack, METHOD, REQUEST),
    ),
    "grpcio asyncio": (
        serve_echo_asyncio,
        lambda port, size, stack: ask_echo_asyncio(port, stack, METHOD, REQUEST),
    ),
    "bare core": (serve_bare, ask_bare),
    "raw socket": (serve_socket, ask_socket),
}
# Whom each is compared with, and the target of a ratio of times.
PAIRS: list[tuple[str, str, float | None]] = [
    ("ours", "grpcio", 1.1),
    ("ours", "grpcio asyncio", 1.1),
    ("ours, public engine", "grpcio", 1.1),
    ("ours, asyncio", "grpcio asyncio", 1.1),
    ("ours", "bare core", None),
    ("ours", "raw socket", None),
]


def ask(name: str, size: int, cores: list[int] | None, stack: ExitStack) -> Any:
    """Start a rival's server in a process and return what makes one exchange."""
    port = start(stack, __file__, "serve", name, str(size), json.dumps(cores))
    return RIVALS[name][1](port, size, stack)


def measure(size: int, server: list[int] | None) -> dict[str, float]:
    """Median microseconds of an exchange of every rival, all taken in turn."""
    with ExitStack() as stack:
        asking = {name: ask(name, size, server, stack) for name in RIVALS}
        return take_turns(asking, SECONDS, BLOCK)


@pytest.mark.benchmark(group="gRPC echo")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RIVALS)
def test_exchange(benchmark: Any, name: str, size: int) -> None:
    """One exchange."""
    with ExitStack() as stack:
        exchange = ask(name, size, None, stack)
        assert len(exchange()) == size
        run_benchmark(benchmark, exchange)


def settings() -> Iterator[tuple[str, list[int] | None, list[int] | None]]:
    """A name, the client's cores, the server's."""
    allowed = allowed_cores()
    yield "not pinned", None, None
    yield "one core", allowed[:1], allowed[:1]
    if len(allowed) > 1:
        yield "two cores", allowed[:1], allowed[1:2]


def main() -> None:
    """Print the tables."""
    print_head("An exchange over gRPC, ours and by hand: median microseconds.", "grpcio")
    lines, shares = [], []
    for where, client, server in settings():
        for size in SIZES:
            # In a process of its own: grpcio's threads keep the cores that they began with.
            done = subprocess.run(
                [sys.executable, __file__, "measure", str(size), json.dumps([client, server])],
                stdout=subprocess.PIPE,
                check=True,
            )
            times = json.loads(done.stdout)
            what = f"64 B for {size:,} B, {where}"
            for ours, rival, target in PAIRS:
                lines.append(Line(f"{what}: {ours}", times[ours], rival, times[rival], target))
            own = times["bare core"] / times["ours"]
            shares.append((what, f"{times['ours']:.1f}", f"{own:.0%}"))
    print_lines(lines)
    print()
    print_table(("exchange", "rlwire us", "grpcio's own share"), shares)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _, _, who, length, where_to = sys.argv
        if (own_cores := json.loads(where_to)) is not None:
            pin(own_cores)
        RIVALS[who][0](b"r" * int(length))
    elif sys.argv[1:2] == ["measure"]:
        client_cores, server_cores = json.loads(sys.argv[3])
        if client_cores is not None:
            pin(client_cores)
        print(json.dumps(measure(int(sys.argv[2]), server_cores)))
    else:
        main()
