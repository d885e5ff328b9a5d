"""A policy server as openpi has it, on ``websockets`` and openpi_client's codec, for tests.

Prints its port. The policy says what it saw.
"""

import asyncio
import time
import traceback

from openpi_client import msgpack_numpy
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


def infer(observation):
    """Return what was seen."""
    if observation.get("prompt") == "raise":
        raise ValueError("no such prompt")
    return {"seen": observation}


async def talk(peer):
    packer = msgpack_numpy.Packer()
    await peer.send(packer.pack({"server": "websockets"}))
    while True:
        try:
            observation = msgpack_numpy.unpackb(await peer.recv())
            begun = time.monotonic()
            action = infer(observation)
            action["server_timing"] = {"infer_ms": (time.monotonic() - begun) * 1000}
            await peer.send(packer.pack(action))
        except ConnectionClosed:
            return
        except Exception:
            await peer.send(traceback.format_exc())
            await peer.close(1011, "Internal server error.")
            return


async def main():
    async with serve(talk, "127.0.0.1", 0, compression=None, max_size=None) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
