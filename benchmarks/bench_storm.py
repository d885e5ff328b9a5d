"""Times a good client's exchanges while a server receives garbage connections or floods.

Server, storm and client are a process each. The storm comes from another address of loopback: 5,800
connections in 4 s, in bursts of 145, each of which sends garbage and closes when 64 others have
come. dm_env_rpc's get 100 calls that are reset at once. The client exchanges a small message each
millisecond, with the default limits of connections and without. A second table has the memory of a
server with incomplete TLS handshakes (Linux). On a busy machine use `chrt -r 5 python ...` (root).

With the argument `floods` one other connection sends messages, or frames without messages, as fast
as the server reads them.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import socket
import ssl
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

import trustme
from bench_rlx_server import memory
from pairs import TINY, print_head, print_table
from rounds import Agent

from rlwire.bench.processes import ServerProcess
from rlwire.codecs import msgpack
from rlwire.codecs.dm_env_rpc import AnyMessage
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2.headers import Headers
from rlwire.dm_env_rpc import Client, EnvironmentWorlds, Server
from rlwire.openpi import Client as PolicyClient
from rlwire.openpi import Server as PolicyServer
from rlwire.rlx import AgentProxy
from rlwire.rlx import Server as RLXServer
from rlwire.sessions import rlx
from rlwire.transports.tls import ServerTLS

STORM = 60 if TINY else 5800  # connections
SECONDS = 0.1 if TINY else 4.0
PAUSE = 0.001  # seconds between two exchanges
BURST = 145
OPEN = 64  # connections of the storm that are open at once
GARBAGE = b"\xff\x00garbage\r\n\r\n" * 4
FREE = {"max_connections": 100_000, "max_connections_per_address": 100_000}
SERVERS = ("rlx asyncio", "rlx threads", "openpi", "dm_env_rpc")
HALVES = 10 if TINY else 400  # handshakes that do not end


def infer(observation: dict[str, Any]) -> dict[str, Any]:
    """An agent that replies at once."""
    return {"actions": 1}


def resets() -> bytes:
    """Return calls of gRPC that are reset at once, as in CVE-2023-44487."""
    encoder, said = Headers(), [http2.PREFACE, http2.settings({})]
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", "/a/b"), (":authority", "a"),
        ("te", "trailers"), ("content-type", "application/grpc"),
    ]  # fmt: skip
    for number in range(1, 201, 2):
        said.append(http2.frame(http2.HEADERS, 4, number, encoder.encode(fields)))
        said.append(http2.reset(number, http2.CANCEL))
    return b"".join(said)


def websocket(first: int, body: bytes = b"") -> bytes:
    """Return a client's frame of WebSocket."""
    return bytes([first, 0x80 | len(body)]) + bytes(4) + body


def call(message: bytes, count: int, more: bytes = b"") -> bytes:
    """Return a call of gRPC with many messages in one frame, and windows for all replies."""
    fields = [
        (":method", "POST"), (":scheme", "http"), (":authority", "a"),
        (":path", "/dm_env_rpc.v1.Environment/Process"),
        ("te", "trailers"), ("content-type", "application/grpc"),
    ]  # fmt: skip
    said = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 2**31 - 1})
    said += http2.window_update(0, 2**31 - 65_536)
    said += http2.frame(http2.HEADERS, 4, 1, Headers().encode(fields))
    return said + http2.frame(http2.DATA, 0, 1, message * count) + more


def rlx_words() -> tuple[bytes, bytes]:
    """Return the first message of an RLX client, and an update to repeat."""
    client = rlx.RLXClientSession()
    first = b"".join(client.send({"command": "init", "exploit": False}))
    server = rlx.RLXServerSession()
    server.receive(first)
    client.receive(b"".join(server.send({"response": "ready"})))
    update = client.send({"command": "update", "reward": 1.0, "state": [1.0], "terminal": False})
    return first, b"".join(update)


def floods() -> dict[str, tuple[str, bytes, bytes]]:
    """Return for each flood the server, the first bytes, and the bytes to repeat."""
    shake = (
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    # A step with one float32 that broadcasts to 2**25, before a world is joined.
    bomb = bytes.fromhex("1a140a12080112 0e0a060a04000000007a0480808010".replace(" ", ""))
    empty, bombs = b"\0\0\0\0\2\x1a\0", bytes([0, 0, 0, 0, len(bomb)]) + bomb
    compressed = b"\1\0\0\0\0"  # the server resets its stream
    late = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/a/b")]
    chaff = {
        "HEADERS": http2.frame(http2.HEADERS, 4, 1, Headers().encode(late)),
        "DATA": http2.frame(http2.DATA, 0, 1, b"x"),
    }
    begun, update = rlx_words()
    infer = websocket(0x82, msgpack.encode({"state": 1.0}))
    return {
        "rlx updates": ("rlx", begun, update * 1000),
        "steps in a frame of 4 MB": ("dm_env_rpc", call(empty, 585_142), b""),
        "steps of 128 MiB": ("dm_env_rpc", call(bombs, 100_000), b""),
        **{
            f"{name} on a reset stream": ("dm_env_rpc", call(compressed, 1), frame * 1000)
            for name, frame in chaff.items()
        },
        "pings of HTTP/2": ("dm_env_rpc", call(b"", 0), http2.ping() * 1000),
        "openpi requests": ("openpi", shake, infer * 1000),
        "pings of WebSocket": ("openpi", shake, websocket(0x89) * 1000),
        "empty fragments": ("openpi", shake + websocket(0x02), websocket(0x00) * 1000),
    }


def flood(report: Callable[[Any], None], address: str, first: bytes, again: bytes) -> None:
    """Run a flood: send, drop the replies, and reconnect after a close."""
    host, _, port = address.rpartition(":")
    report(None)
    time.sleep(SECONDS / 4)
    while True:
        with socket.create_connection((host, int(port)), 20) as sock:
            sock.setblocking(False)
            rest = memoryview(first)
            with contextlib.suppress(ConnectionError):
                while True:
                    reading, writing, _ = select.select([sock], [sock] if rest else [], [])
                    if reading and not sock.recv(1 << 20):
                        break
                    if writing:
                        rest = rest[sock.send(rest) :] or memoryview(again)


def serve(report: Callable[[Any], None], kind: str, options: dict[str, Any]) -> None:
    """Run the server, with a log that is formatted and dropped."""
    logging.basicConfig(stream=open(os.devnull, "w"), level=logging.INFO)  # noqa: SIM115
    server: Any
    kind, _, workers = kind.partition(" ")
    if workers:
        options = {"workers": workers, **options}
    if kind == "rlx":
        server = RLXServer(Agent, "127.0.0.1:0", **options)
    elif kind == "dm_env_rpc":
        server = Server(
            EnvironmentWorlds(lambda: None), "127.0.0.1:0",
            extensions={"a/b": lambda message, world: message}, **options,
        )  # fmt: skip
    else:
        server = PolicyServer(infer, "127.0.0.1:0", threads=0, **options)
    server.start()
    report(str(server.address))
    server.serve_forever()


def storm(report: Callable[[Any], None], address: str, words: bytes) -> None:
    """Run the storm: wait a moment, then connect repeatedly."""
    host, _, port = address.rpartition(":")
    source = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
    report(None)
    time.sleep(SECONDS / 4)
    begun = time.monotonic()
    sockets: deque[socket.socket] = deque()
    for number in range(STORM):
        due = begun + number // BURST * BURST * SECONDS / STORM
        time.sleep(max(0.0, due - time.monotonic()))
        sock = socket.create_connection((host, int(port)), 20, source_address=(source, 0))
        try:
            sock.sendall(words)
        except OSError:
            sock.close()  # the server closed it already
        sockets.append(sock)
        if len(sockets) > OPEN:
            sockets.popleft().close()


def client(kind: str, address: str) -> tuple[Any, Callable[[], Any]]:
    """Connect a good client, and return its exchange."""
    if kind.startswith("rlx"):
        agent = AgentProxy(address)
        agent.connect()
        agent.init()
        return agent, lambda: agent.update(1.0, [1.0])
    if kind.startswith("dm_env_rpc"):
        world, message = Client(address), AnyMessage("a/b", b"x")
        return world, lambda: world.extension(message)
    policy = PolicyClient(address)
    return policy, lambda: policy.infer({"state": 1.0})


def exchanges(exchange: Callable[[], Any], seconds: float) -> list[float]:
    """Return the milliseconds of each exchange."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    gc.disable()
    while (now := time.perf_counter()) < until or not times:
        exchange()
        times.append(1e3 * (time.perf_counter() - now))
        time.sleep(PAUSE)
    gc.enable()
    return times


def measure(
    kind: str, options: dict[str, Any], attack: Callable[..., None], *words: bytes
) -> tuple[list[float], list[float]]:
    """Return milliseconds without and with a storm or flood."""
    with ServerProcess(kind, serve, kind, options) as server:
        good, exchange = client(kind, server.address)
        with good:
            quiet = exchanges(exchange, SECONDS / 2)
            with ServerProcess("storm", attack, server.address, *words):
                exchanges(exchange, SECONDS / 4)
                return quiet, exchanges(exchange, SECONDS)


def client_hello() -> bytes:
    """Return the first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def half_handshakes(rounds: int) -> list[float]:
    """Return KiB of a server's process at first, and in each round with and without clients."""
    hello = client_hello()
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(file.name)
        options = {**FREE, "tls": ServerTLS(file.name)}
        with ServerProcess("rlx", serve, "rlx", options) as server:
            host, _, port = server.address.rpartition(":")
            found = [memory(server.pid)]
            for _ in range(rounds):
                with contextlib.ExitStack() as stack:
                    for _ in range(HALVES):
                        sock = stack.enter_context(socket.create_connection((host, int(port)), 20))
                        sock.sendall(hello)
                        sock.recv(1)  # half of it is sent
                    found.append(memory(server.pid))
                time.sleep(SECONDS / 4)
                found.append(memory(server.pid))
    return found


def cells(quiet: list[float], stormy: list[float]) -> tuple[str, ...]:
    """Return the cells of a row."""
    return (
        f"{median(quiet):.2f}",
        f"{median(stormy):.2f}",
        f"{median(stormy) / median(quiet):.1f}",
        f"{sorted(stormy)[len(stormy) * 99 // 100]:.1f}",
        f"{max(stormy):.1f}",
    )


def print_floods() -> None:
    """Print the table of floods."""
    print_head(
        f"An exchange of a good client, in ms, beside a flood of one other, for {SECONDS:g} s"
    )
    rows = []
    for name, (kind, *words) in floods().items():
        for workers in ("asyncio", "threads"):
            measured = measure(f"{kind} {workers}", {}, flood, *words)
            rows.append((name, kind, workers, *cells(*measured)))
    print_table(("flood", "server", "", "quiet", "flood", "times", "99 %", "worst"), rows)


def main() -> None:
    """Print the table."""
    if sys.argv[1:] == ["floods"]:
        print_floods()
        return
    print_head(
        f"An exchange of a good client, in ms, while {STORM:,} garbage connections come in "
        f"{SECONDS:g} s"
    )
    rows = []
    for kind in SERVERS:
        words = resets() if kind == "dm_env_rpc" else GARBAGE
        for caps, options in (("default", {}), ("none", FREE)):
            rows.append((kind, caps, *cells(*measure(kind, options, storm, words))))
    print_table(("server", "caps", "quiet", "storm", "times", "99 %", "worst"), rows)

    if sys.platform == "linux":
        print(f"\nMiB of an RLX server's process, with {HALVES} half TLS handshakes and without")
        row = [f"{kib / 1024:.0f}" for kib in half_handshakes(3)]
        print_table(("at first", *("with", "without") * 3), [row])


if __name__ == "__main__":
    main()
