"""Times a rewarder's step on one core, against a raw exchange of as many bytes.

A client, blocking or asyncio, sends an action, and a `RewarderServer` in another process pushes an
observation of 4 float32. Blocks of steps take turns with blocks of raw exchanges. The floor by hand
has rlwire's frames and msgspec on a blocking socket and an asyncio protocol, without limits, ids,
episodes or threads. Linux only.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import msgspec
import numpy as np
from pairs import TINY, print_head, print_table
from rounds import Exchange, InBlocks, awaiting, block_of, take_turns

from rlwire.bench.processes import ServerProcess, allowed_cores, pin
from rlwire.bench.raw import Relay, Sizes, raw_exchange, raw_messages
from rlwire.codecs.websocket.frames import FrameDecoder, FrameEncoder
from rlwire.universe.rewarder import AsyncRewarderClient, RewarderClient, RewarderServer

SECONDS = 0.2 if TINY else 6.0
BLOCK = 32
CORES = allowed_cores()[-1:]
QUIET = {"attach": True}
ACTIONS = [[("Show", f"{number:06}")] for number in range(BLOCK)]


def serve(report: Callable[[str], None]) -> None:
    """Push the recorded observation whose number the action is."""
    states = np.random.default_rng(1).normal(size=(BLOCK, 4)).astype(np.float32)

    def act(message: Any) -> None:
        ((_, number),) = message.action
        server.observation(states[int(number)])

    server = RewarderServer(
        "bench", "127.0.0.1:0", auth="openai", on_action=act, ping_interval=None, backlog=1 << 26
    )
    server.start()
    report(server.url)
    threading.Event().wait()


def served(stack: ExitStack) -> str:
    """Start a server, and return its URL."""
    url: str = stack.enter_context(ServerProcess("rewarder", serve, cores=CORES)).address
    return url


def serve_by_hand(report: Callable[[str], None]) -> None:
    """Push as `serve`, from an asyncio protocol."""
    states = np.random.default_rng(1).normal(size=(BLOCK, 4)).astype(np.float32).tolist()
    texts, numbers = Texts(client=False), itertools.count()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.write = transport.write

        def data_received(self, data: bytes) -> None:
            ((_, number),) = texts.decode(data)["body"]["action"]
            headers = {"sent_at": time.time(), "message_id": next(numbers), "episode_id": "1"}
            body = {"observation": states[int(number)]}
            self.write(texts.encode("v0.env.observation", headers, body))

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0)
        report("{}:{}".format(*server.sockets[0].getsockname()))
        await server.serve_forever()

    asyncio.run(main())


class Texts:
    """A message in a WebSocket's frame, and back, by msgspec."""

    def __init__(self, *, client: bool) -> None:
        self._frame = FrameEncoder(client, "text").message
        self._unframe = FrameDecoder(not client, "text").message
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode

    def encode(self, method: str, headers: dict[str, Any], body: dict[str, Any]) -> bytes:
        text = self._encode({"method": method, "headers": headers, "body": body})
        return b"".join(self._frame(text))

    def decode(self, data: bytes) -> Any:
        return self._decode(self._unframe(data, len(data)))


def by_hand(stack: ExitStack) -> Exchange:
    """Return a rival: the floor by hand."""
    server = stack.enter_context(ServerProcess("by hand", serve_by_hand, cores=CORES))
    host, port = server.address.split(":")
    peer = stack.enter_context(socket.create_connection((host, int(port))))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    texts, actions, numbers = Texts(client=True), itertools.cycle(ACTIONS), itertools.count()

    def exchange() -> None:
        headers = {"sent_at": time.time(), "message_id": next(numbers)}
        peer.sendall(texts.encode("v0.agent.action", headers, {"action": next(actions)}))
        assert np.array(texts.decode(peer.recv(4096))["body"]["observation"]).size

    return exchange


def blocking(stack: ExitStack, url: str | None = None) -> Exchange:
    """Return a rival: steps of `RewarderClient`."""
    client = stack.enter_context(RewarderClient(url or served(stack), **QUIET))
    actions = itertools.cycle(ACTIONS)

    def exchange() -> None:
        client.act(next(actions))
        assert client.step(10.0).observation is not None

    return exchange


def on_a_loop(stack: ExitStack) -> InBlocks:
    """Return a rival: steps of `AsyncRewarderClient`, a block in one run of the loop."""
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    client = AsyncRewarderClient(served(stack), **QUIET)
    loop.run_until_complete(client.connect())
    stack.callback(lambda: loop.run_until_complete(client.close()))
    actions = itertools.cycle(ACTIONS)

    async def exchange() -> None:
        client.act(next(actions))
        assert (await client.step(10.0)).observation is not None

    return awaiting(loop, exchange)


def counted() -> Sizes:
    """Return the bytes of an action and of an observation, which a relay counts."""
    with ExitStack() as stack:
        relay = stack.enter_context(closing(Relay()))
        exchange = blocking(stack, relay.to(served(stack)))
        block_of(exchange, BLOCK)
        relay.counted()
        block_of(exchange, BLOCK)
        return Sizes(*(round(size / BLOCK) for size in relay.counted()))


def raw(stack: ExitStack) -> Exchange:
    """Return a rival: raw exchanges of as many bytes."""
    exchange: Exchange = stack.enter_context(raw_exchange(raw_messages(counted()), CORES))
    return exchange


RIVALS: dict[str, Any] = {
    "raw": raw,
    "by hand": by_hand,
    "RewarderClient": blocking,
    "AsyncRewarderClient": on_a_loop,
}


def measure() -> dict[str, float]:
    """Return the median microseconds of a step of each rival."""
    pin(CORES)
    with ExitStack() as stack:
        return take_turns({name: make(stack) for name, make in RIVALS.items()}, SECONDS, BLOCK)


if __name__ == "__main__":
    print_head("A rewarder's step on one core, and a raw exchange of as many bytes.")
    found = measure()
    print_table(
        ("client", "us a step", "of the raw exchange"),
        [(name, f"{us:.1f}", f"{us / found['raw']:.1f}x") for name, us in found.items()],
    )
