"""How many steps a second does one process make for 512 clients, each on a connection of its own?

The clients are raw sockets that write frames of HTTP/2 made once, so they cost little: all ask,
then all are answered, some 64 bytes each way. Ours is a server of dm_env_rpc, in its two kinds;
grpcio's answer raw bytes on its public interface and know nothing of dm_env_rpc. Servers and
clients share the machine's cores, not pinned.

`pytest benchmarks/bench_dm_env_rpc_crowd.py` times a step of all clients; `python
benchmarks/bench_dm_env_rpc_crowd.py` prints the table, rivals in turn, medians.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from hpack import Encoder
from pairs import TINY, print_head, print_table, run_benchmark

from rlwire.adapters.dm_env_rpc import DmEnvRpcServer
from rlwire.bench.processes import ServerProcess
from rlwire.codecs import dm_env_rpc as codec

CLIENTS = 3 if TINY else 512
SECONDS = 0.05 if TINY else 8.0
STEPS = 1 if TINY else 5  # of all clients, in a turn
METHOD = "/dm_env_rpc.v1.Environment/Process"
FLOATS = 10
TARGET = 5.0

# RFC 9113, section 6: types of frames, and the settings and sizes that clients begin with.
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
ACK, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE, WIDEST, FIRST = 4, 2**31 - 1, 65_535


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame."""
    return len(payload).to_bytes(3, "big") + struct.pack(">BBL", kind, flags, stream) + payload


def message(payload: bytes) -> bytes:
    """A message of gRPC on the first stream."""
    return frame(DATA, 0, 1, struct.pack(">BL", 0, len(payload)) + payload)


SPECS = codec.ActionObservationSpecs(
    {1: codec.make_spec("action", (FLOATS,), np.float32)},
    {1: codec.make_spec("observation", (FLOATS,), np.float32)},
)
VALUES = np.arange(FLOATS, dtype=np.float32)
JOIN = codec.encode_request(codec.JoinWorldRequest())
STEP = codec.encode_request(codec.StepRequest({1: VALUES}, (1,)))
REPLY = codec.encode_response(codec.StepResponse(codec.EnvironmentStateType.RUNNING, {1: VALUES}))


class World:
    """Shows the same all the time; it is each agent's environment too."""

    specs = SPECS
    parallel_agents = True

    def __init__(self, settings: Any = None) -> None:
        self._result = codec.StepResult(codec.EnvironmentStateType.RUNNING, {"observation": VALUES})

    def join(self, settings: Any) -> World:
        """An agent, which has no state of its own."""
        return self

    def reset(self, settings: Any) -> None:
        """Nothing to begin anew."""

    def begin(self) -> Any:
        """The first observation."""
        return self._result

    def step(self, actions: dict[str, Any]) -> Any:
        """The next one."""
        return self._result

    def close(self) -> None:
        """Nothing to free."""


def serve_ours(report: Callable[[Any], None], workers: Any) -> None:
    """Run in our server's process; that clients hang up at the end is no news."""
    logging.getLogger("rlwire").setLevel(logging.ERROR)
    most = 4 * CLIENTS
    server = DmEnvRpcServer(
        World,
        "127.0.0.1:0",
        workers=workers,
        max_connections=most,
        max_connections_per_address=most,
    )
    report(server.start().address.port)
    server.serve_forever()


def serve_threads(report: Callable[[Any], None]) -> None:
    """Run in grpcio's; a stream that is open keeps a thread."""

    def talk(requests: Any, context: Any) -> Iterator[bytes]:
        for _ in requests:
            yield REPLY

    handler = grpc.stream_stream_rpc_method_handler(talk)
    server = grpc.server(
        ThreadPoolExecutor(CLIENTS), handlers=(SimpleNamespace(service=lambda _: handler),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    report(port)
    server.wait_for_termination()


def serve_aio(report: Callable[[Any], None]) -> None:
    """The same with grpc.aio."""

    async def talk(requests: Any, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(REPLY)

    async def main() -> None:
        handler = grpc.stream_stream_rpc_method_handler(talk)
        server = grpc.aio.server(handlers=(SimpleNamespace(service=lambda _: handler),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        report(port)
        await server.wait_for_termination()

    asyncio.run(main())


RIVALS: dict[str, tuple[Any, ...]] = {
    "rlwire, asyncio": (serve_ours, "asyncio"),
    "rlwire, threads": (serve_ours, "threads"),
    "grpcio, threads": (serve_threads,),
    "grpcio, asyncio": (serve_aio,),
}


class Peer:
    """One connection with one stream."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._have = b""
        fields = Encoder().encode(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", METHOD),
                (":authority", "localhost"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
            ]
        )
        self._sock.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(SETTINGS, 0, 0, struct.pack(">HL", INITIAL_WINDOW_SIZE, WIDEST))
            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">L", WIDEST - FIRST))
            + frame(HEADERS, END_HEADERS, 1, fields)
        )
        self.send = self._sock.sendall
        self.close = self._sock.close

    def receive(self) -> int:
        """Take one answer; return its frame's size. Questions of the transport are answered."""
        while True:
            have = self._have
            if len(have) >= 9:
                size = int.from_bytes(have[:3], "big")
                if len(have) >= 9 + size:
                    kind, flags = have[3], have[4]
                    payload, self._have = have[9 : 9 + size], have[9 + size :]
                    if kind == DATA:
                        return size
                    if kind == SETTINGS and not flags & ACK:
                        self.send(frame(SETTINGS, ACK, 0, b""))
                    elif kind == PING and not flags & ACK:
                        self.send(frame(PING, ACK, 0, payload))
                    elif kind not in (SETTINGS, PING, HEADERS, WINDOW_UPDATE):
                        raise SystemExit(f"the server sent a frame of type {kind}: {payload!r}")
                    continue
            more = self._sock.recv(65_536)
            if not more:
                raise SystemExit("the server has hung up")
            self._have = have + more


class Crowd:
    """All clients of one server, which have joined and made the first step."""

    def __init__(self, port: int) -> None:
        self._peers = [Peer(port) for _ in range(CLIENTS)]
        for each in (JOIN, STEP):
            self._exchange(message(each))
        self._step = message(STEP)

    def step(self) -> None:
        """One step of every client: all are sent, then all are answered."""
        self._exchange(self._step)

    def _exchange(self, data: bytes) -> None:
        for peer in self._peers:
            peer.send(data)
        for peer in self._peers:
            peer.receive()

    def close(self) -> None:
        """Close all."""
        for peer in self._peers:
            peer.close()


@contextlib.contextmanager
def crowd(name: str) -> Iterator[Crowd]:
    """A server in a process of its own and its clients."""
    serve, *arguments = RIVALS[name]
    with ServerProcess(name, serve, *arguments) as server:
        clients = Crowd(server.address)
        try:
            yield clients
        finally:
            clients.close()


@pytest.mark.benchmark(group="a step of every client of dm_env_rpc")
@pytest.mark.parametrize("name", RIVALS)
def test_step(benchmark: Any, name: str) -> None:
    """One step of each of many clients."""
    with crowd(name) as clients:
        run_benchmark(benchmark, clients.step)


def measure() -> dict[str, float]:
    """Steps a second of each server."""
    rates: dict[str, list[float]] = {name: [] for name in RIVALS}
    with contextlib.ExitStack() as stack:
        many = {name: stack.enter_context(crowd(name)) for name in RIVALS}
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            for name, clients in many.items():
                clients.step()
                begin = time.perf_counter()
                for _ in range(STEPS):
                    clients.step()
                rates[name].append(STEPS * CLIENTS / (time.perf_counter() - begin))
    return {name: median(found) for name, found in rates.items()}


if __name__ == "__main__":
    print_head(
        f"Steps a second of one server with {CLIENTS} clients; a request has {len(STEP)} bytes, "
        f"an answer {len(REPLY)}.",
        "grpcio",
    )
    found = measure()
    ours = found["rlwire, asyncio"]
    print_table(
        ("server", "steps/s", "rlwire's, asyncio", "target", "met"),
        [
            (
                name,
                f"{rate:,.0f}",
                f"{ours / rate:.2f}x",
                f"at least {TARGET:g}x" if name.startswith("grpcio") else "",
                ("yes" if ours >= TARGET * rate else "no") if name.startswith("grpcio") else "",
            )
            for name, rate in found.items()
        ],
    )
