"""Times an echo over WebSocket against a raw echo and other packages.

Client and server are two processes, pinned to one core and to two. Messages have 64 bytes or 113
KB, without compression. Each client has a server of its own, and all take turns within one run.
"""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from time import perf_counter_ns
from typing import Any

import picows
import uvloop
import websockets.asyncio.client
import websockets.asyncio.server
from pairs import TINY, print_head, print_table
from rounds import Echo, Exchange, InBlocks, awaiting, start, take_turns

from rlwire.bench.processes import allowed_cores, pin
from rlwire.sessions import websocket
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.server import ThreadServer
from rlwire.transports.server_asyncio import LoopServer

SIZES = [64] if TINY else [64, 84 * 84 * 4 * 4]
SECONDS = 0.2 if TINY else 12.0
BLOCK = 20 if TINY else 300
MOST = 2**20


# Servers print their port and run until they are killed.


def serve_raw(_: str) -> None:
    """Run the floor: a blocking echo of bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            peer, _ = listener.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                room = memoryview(bytearray(MOST))
                while count := peer.recv_into(room):
                    peer.sendall(room[:count])


class RawProtocol(asyncio.BufferedProtocol):
    """The floor of an event loop: an echo by a protocol."""

    def connection_made(self, transport: Any) -> None:
        self._room = memoryview(bytearray(MOST))
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(self._room[:nbytes].tobytes())


def serve_raw_loop(loop: str) -> None:

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(RawProtocol, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    run(main(), loop)


def make_session() -> websocket.WebSocketServerSession:
    """Return rlwire's session, with binary messages as the rivals send."""
    return websocket.WebSocketServerSession(kind="binary")


def serve_threads(_: str) -> None:
    """Run rlwire with a thread a connection."""
    server = ThreadServer("127.0.0.1:0", make_session, lambda peer: peer.serve(lambda event: event))
    with server.start():
        print(server.address.port, flush=True)
        server.wait()


def serve_loop(loop: str) -> None:
    """Run rlwire with all connections on one loop."""

    async def main() -> None:
        server = await LoopServer(
            "127.0.0.1:0", make_session, make_handler=lambda peer: Echo()
        ).start()
        print(server.address.port, flush=True)
        await asyncio.Event().wait()  # until it is killed

    run(main(), loop)


def serve_websockets(loop: str) -> None:
    """Run websockets on asyncio."""

    async def echo(peer: Any) -> None:
        async for message in peer:
            await peer.send(message)

    async def main() -> None:
        async with websockets.asyncio.server.serve(
            echo, "127.0.0.1", 0, compression=None, max_size=MOST
        ) as server:
            print(next(iter(server.sockets)).getsockname()[1], flush=True)
            await server.serve_forever()

    run(main(), loop)


class PicowsEcho(picows.WSListener):
    """The echo of picows."""

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if frame.msg_type == picows.WSMsgType.BINARY:
            transport.send(frame.msg_type, frame.get_payload_as_bytes())


def serve_picows(loop: str) -> None:
    """Run picows."""

    async def main() -> None:
        server = await picows.ws_create_server(
            lambda request: PicowsEcho(), "127.0.0.1", 0, max_frame_size=MOST
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    run(main(), loop)


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def run(main: Coroutine[Any, Any, None], loop: str) -> None:
    """Run a server on a loop of this kind, until it is killed."""
    LOOPS[loop]().run_until_complete(main)


# Clients, connected.


def ask_raw(port: int, message: bytes, stack: ExitStack, _: str) -> Exchange:
    """Return the client of the floor."""
    peer = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    room, size = memoryview(bytearray(len(message))), len(message)

    def exchange() -> None:
        peer.sendall(message)
        if (count := peer.recv_into(room)) != size:
            peer.recv_into(room[count:], size - count, socket.MSG_WAITALL)

    return exchange


class RawClient(RawProtocol):
    """A protocol that resolves a new future for each reply."""

    waiter: asyncio.Future[int]

    def buffer_updated(self, nbytes: int) -> None:
        self.waiter.set_result(nbytes)


def ask_raw_coroutine(port: int, message: bytes, stack: ExitStack, loop: str) -> InBlocks:
    """Return the client of the floor on an event loop."""
    runner = new_loop(loop, stack)
    transport, protocol = runner.run_until_complete(
        runner.create_connection(RawClient, "127.0.0.1", port)
    )
    stack.callback(transport.close)
    size = len(message)

    async def exchange() -> None:
        transport.write(message)
        have = 0
        while have < size:
            protocol.waiter = runner.create_future()
            have += await protocol.waiter

    return awaiting(runner, exchange)


def new_session(port: int) -> websocket.WebSocketClientSession:
    """Return rlwire's session."""
    return websocket.WebSocketClientSession(f"ws://127.0.0.1:{port}/", kind="binary")


def ask_blocking(port: int, message: bytes, stack: ExitStack, _: str) -> Exchange:
    """Return rlwire's blocking client."""
    peer = stack.enter_context(tcp.connect(("127.0.0.1", port), new_session(port)))
    assert peer.exchange(message) == message
    return functools.partial(peer.exchange, message)


def ours_on_a_loop(port: int, stack: ExitStack, loop: str) -> tuple[Any, Any]:
    """Return a loop of this kind, and rlwire's asyncio connection on it."""
    runner = new_loop(loop, stack)
    peer = runner.run_until_complete(tcp_asyncio.connect(("127.0.0.1", port), new_session(port)))
    stack.callback(peer.close)
    return runner, peer


def ask_coroutine(port: int, message: bytes, stack: ExitStack, loop: str) -> InBlocks:
    """Return rlwire's asyncio client, `await peer.exchange(message)`."""
    runner, peer = ours_on_a_loop(port, stack, loop)
    return awaiting(runner, lambda: peer.exchange(message))


class InTurn:
    """Times replies to a callback that sends the next message."""

    left = begun = 0
    taken: list[int] = []  # noqa: RUF012 (until the first block)

    def block(
        self, loop: asyncio.AbstractEventLoop, count: int, begin: Callable[[], Any] = bool
    ) -> list[int]:
        self.taken = []
        self.left, self.done, self.begun = count, loop.create_future(), perf_counter_ns()
        begin()
        loop.run_until_complete(self.done)
        return self.taken

    def answered(self) -> bool:
        """Return whether more replies are expected."""
        now = perf_counter_ns()
        self.taken.append(now - self.begun)
        self.begun = now
        self.left -= 1
        if self.left == 0:
            self.done.set_result(None)
        return self.left > 0


def ask_responder(port: int, message: bytes, stack: ExitStack, loop: str) -> InBlocks:
    """Return rlwire's asyncio client with a handler that replies with the next message."""
    runner, peer = ours_on_a_loop(port, stack, loop)

    class Again(InTurn, Echo):
        def answer(self, event: Any) -> Any:
            self.answered()
            return message

    again = Again()

    async def begin() -> None:
        await peer.send(message)  # one message is always in transit
        peer.serve(again)

    runner.run_until_complete(begin())

    return InBlocks(lambda count: again.block(runner, count))


def ask_websockets(port: int, message: bytes, stack: ExitStack, loop: str) -> InBlocks:
    """websockets, asyncio."""
    runner = new_loop(loop, stack)

    async def connect() -> Any:
        return await websockets.asyncio.client.connect(
            f"ws://127.0.0.1:{port}/", compression=None, max_size=MOST, proxy=None
        )

    peer = runner.run_until_complete(connect())
    stack.callback(lambda: runner.run_until_complete(peer.close()))

    async def exchange() -> Any:
        await peer.send(message)
        return await peer.recv()

    return awaiting(runner, exchange)


def ask_picows(port: int, message: bytes, stack: ExitStack, loop: str) -> InBlocks:
    """Return picows's client, which sends the next message from its callback."""
    runner = new_loop(loop, stack)

    class Again(InTurn, picows.WSListener):  # type: ignore[misc]
        def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
            frame.get_payload_as_bytes()
            if self.answered():
                transport.send(picows.WSMsgType.BINARY, message)

    async def connect() -> Any:
        return await picows.ws_connect(Again, f"ws://127.0.0.1:{port}/", max_frame_size=MOST)

    transport, again = runner.run_until_complete(connect())

    def close() -> None:
        transport.disconnect()
        runner.run_until_complete(transport.wait_disconnected())

    stack.callback(close)

    def block(count: int) -> list[int]:
        return again.block(runner, count, lambda: transport.send(picows.WSMsgType.BINARY, message))

    return InBlocks(block)


def new_loop(kind: str, stack: ExitStack) -> asyncio.AbstractEventLoop:
    """Give each client a loop."""
    loop = LOOPS[kind]()
    stack.callback(loop.close)
    # Closing needs a round of the loop.
    stack.callback(lambda: loop.run_until_complete(asyncio.sleep(0.01)))
    return loop


Ask = Callable[[int, bytes, ExitStack, str], Exchange | InBlocks]
# Server, its loop, client, its loop, and the target if there is one.
PAIRS: dict[str, tuple[Callable[[str], None], str, Ask, str, float | None]] = {
    "raw echo, blocking": (serve_raw, "", ask_raw, "", None),
    "raw echo, asyncio server": (serve_raw_loop, "asyncio", ask_raw, "", None),
    "raw echo, uvloop server": (serve_raw_loop, "uvloop", ask_raw, "", None),
    "raw echo, asyncio client": (serve_raw, "", ask_raw_coroutine, "asyncio", None),
    "raw echo, uvloop client": (serve_raw, "", ask_raw_coroutine, "uvloop", None),
    "raw echo, asyncio both": (serve_raw_loop, "asyncio", ask_raw_coroutine, "asyncio", None),
    "raw echo, uvloop both": (serve_raw_loop, "uvloop", ask_raw_coroutine, "uvloop", None),
    "rlwire blocking, threads": (serve_threads, "", ask_blocking, "", 1.4),
    "rlwire blocking, asyncio server": (serve_loop, "asyncio", ask_blocking, "", 1.4),
    "rlwire blocking, uvloop server": (serve_loop, "uvloop", ask_blocking, "", 1.4),
    "rlwire asyncio client, threads": (serve_threads, "", ask_coroutine, "asyncio", 1.4),
    "rlwire uvloop client, threads": (serve_threads, "", ask_coroutine, "uvloop", 1.4),
    "rlwire asyncio client, threads, callbacks": (serve_threads, "", ask_responder, "asyncio", 1.4),
    "rlwire asyncio both": (serve_loop, "asyncio", ask_coroutine, "asyncio", 1.4),
    "rlwire uvloop both": (serve_loop, "uvloop", ask_coroutine, "uvloop", 1.4),
    "rlwire asyncio both, callbacks": (serve_loop, "asyncio", ask_responder, "asyncio", 1.4),
    "rlwire uvloop both, callbacks": (serve_loop, "uvloop", ask_responder, "uvloop", 1.4),
    "picows asyncio both, callbacks": (serve_picows, "asyncio", ask_picows, "asyncio", None),
    "picows uvloop both, callbacks": (serve_picows, "uvloop", ask_picows, "uvloop", None),
    "websockets asyncio": (serve_websockets, "asyncio", ask_websockets, "asyncio", None),
    "websockets uvloop": (serve_websockets, "uvloop", ask_websockets, "uvloop", None),
}


def measure(size: int, cores: list[int] | None) -> dict[str, float]:
    """Return the median microseconds of an exchange of each pair, in turns."""
    with ExitStack() as stack:
        asking: dict[str, Exchange | InBlocks] = {}
        for name, (_, _, client, loop, _) in PAIRS.items():
            port = start(stack, __file__, "serve", name, json.dumps(cores))
            asking[name] = client(port, bytes(size), stack, loop)
        return take_turns(asking, SECONDS, BLOCK)


def settings() -> Iterator[tuple[str, list[int], list[int]]]:
    """Return names with the cores of client and server."""
    allowed = allowed_cores()
    yield "one core", allowed[:1], allowed[:1]
    if len(allowed) > 1:
        yield "two cores", allowed[:1], allowed[1:2]


def main() -> None:
    """Print the tables."""
    print_head("A WebSocket echo: median microseconds.", "picows", "uvloop", "websockets")
    rows = []
    for where, client, server in settings():
        for size in SIZES:
            done = subprocess.run(
                [sys.executable, __file__, "measure", str(size), json.dumps([client, server])],
                stdout=subprocess.PIPE,
                check=True,
            )
            times = json.loads(done.stdout)
            floor = times["raw echo, blocking"]
            for name, micros in times.items():
                target = PAIRS[name][4]
                aimed = f"{target:g}x" if target and size == 64 and where == "one core" else ""
                met = "" if not aimed else "yes" if micros <= (target or 0) * floor else "no"
                ratio = f"{micros / floor:.2f}x"
                rows.append((f"{size:,} B, {where}", name, f"{micros:.1f}", ratio, aimed, met))
    print_table(("setting", "who", "us", "of the raw echo", "target", "met"), rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _, _, who, where_to = sys.argv
        if (own := json.loads(where_to)) is not None:
            pin(own)
        make_server, kind, _, _, _ = PAIRS[who]
        make_server(kind)
    elif sys.argv[1:2] == ["measure"]:
        client_cores, server_cores = json.loads(sys.argv[3])
        pin(client_cores)
        print(json.dumps(measure(int(sys.argv[2]), server_cores)))
    else:
        main()
