"""Times a loop over a socket with and without `rlwire.install("msgpack_numpy")`.

A server in a process replies to an action with an observation of 84x84x4 float32. Most of a step is
the socket's time: `pytest benchmarks/test_msgpack.py` times the codec alone.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgpack_numpy
import numpy as np
from pairs import TINY, Line, print_head, print_lines
from rounds import start, take_turns

from rlwire.msgpack_numpy import packb, unpackb

SECONDS = 0.05 if TINY else 8.0
CODECS = {"msgpack-numpy": (msgpack_numpy.packb, msgpack_numpy.unpackb), "rlwire": (packb, unpackb)}


def send(sock: socket.socket, data: bytes) -> None:
    sock.sendall(struct.pack("<I", len(data)) + data)


def receive(stream: Any) -> bytes:
    head = stream.read(4)
    return stream.read(struct.unpack("<I", head)[0]) if head else b""


def serve(pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any]) -> None:
    frame = np.random.default_rng(0).random((84, 84, 4), np.float32)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        sock, _ = listening.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with sock, sock.makefile("rb") as stream:
        while data := receive(stream):
            frame[0, 0, 0] = unpack(data)["action"]
            send(sock, pack({"obs": frame, "reward": 1.0, "done": False}))


def ask(name: str, stack: ExitStack) -> Callable[[], None]:
    pack, unpack = CODECS[name]
    port = start(stack, __file__, "serve", name)
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = stack.enter_context(sock.makefile("rb"))

    def step() -> None:
        send(sock, pack({"action": 1}))
        assert unpack(receive(stream))["obs"].shape == (84, 84, 4)

    return step


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(*CODECS[sys.argv[2]])
    else:
        print_head(__doc__.partition("\n")[0], "msgpack-numpy")
        with ExitStack() as everything:
            asking = {name: ask(name, everything) for name in CODECS}
            found = take_turns(asking, SECONDS, 100)
        theirs = found["msgpack-numpy"]
        print_lines([Line("84x84x4", found["rlwire"], "msgpack-numpy", theirs, faster=True)])
