"""The ``websockets`` package as a peer in a process of its own, for test_websocket.py.

python websocket_peers.py serve            an echo server; prints its port
python websocket_peers.py ask PORT [tls]   a client that checks an echo; prints what it saw
"""

import asyncio
import json
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

MESSAGES = ["text", "ünï 𝄞", b"", b"x" * 126, b"y" * 70_000, "z" * 300_000]


async def run_server():
    """Echo, fragments included, until killed."""

    async def echo(peer):
        async for message in peer:
            if message == "fragments":
                await peer.send(["in ", "", "three"])
            elif message == "close":
                await peer.close(4002, "as you wish")
            elif message == "ping":
                await (await peer.ping())
                await peer.send("ponged")
            else:
                await peer.send(message)

    # Its own compression stays on, as by default: it must be declined.
    async with serve(echo, "127.0.0.1", 0) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await server.serve_forever()


async def run_client(port):
    """Echo each message, in one frame and in fragments; ping; be closed."""
    seen = {}
    async with connect(f"ws://127.0.0.1:{port}/", proxy=None) as peer:
        seen["extensions"] = len(peer.protocol.extensions)
        for message in MESSAGES:
            await peer.send(message)
            assert await peer.recv() == message
        await peer.send(["in ", "", "three"])
        assert await peer.recv() == "in three"
        await asyncio.wait_for(await peer.ping(b"payload"), 10)
        await peer.send("close")
        try:
            await peer.recv()
        except ConnectionClosed as error:
            seen["closed"] = [getattr(error.rcvd, name) for name in ("code", "reason")]
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(run_server() if sys.argv[1] == "serve" else run_client(int(sys.argv[2])))
