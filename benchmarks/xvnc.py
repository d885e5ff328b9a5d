"""What benchmarks of RFB share: TigerVNC's Xvnc, a game on it, and a longer way to it.

The game speaks X11's core protocol by itself, so that it needs no library. Not here: what is
measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

XVNC = shutil.which("Xvnc")
WIDTH, HEIGHT = 1024, 768
COUNTER = 16  # pixels of the square, left and above, whose colour is the frame's number


@contextlib.contextmanager
def xvnc(*options: str, width: int = WIDTH, height: int = HEIGHT) -> Iterator[tuple[str, int]]:
    """Run an Xvnc; yields its address, a unix socket's, and its display's number."""
    assert XVNC is not None, "Xvnc is not installed: apt-get install tigervnc-standalone-server"
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/vnc"
        process = subprocess.Popen(
            [
                XVNC, "-displayfd", str(writing), "-rfbunixpath", path, "-rfbport", "-1",
                "-geometry", f"{width}x{height}", "-depth", "24", "-SecurityTypes", "None",
                "-nolisten", "tcp", "-ac", *options,
            ],
            pass_fds=(writing,), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            os.close(writing)
            yield f"unix:{path}", int(os.read(reading, 16))
        finally:
            os.close(reading)
            process.terminate()
            process.wait()


class X:
    """As much of an X11 client as a game needs.

    Source: X Window System Protocol, version 11.
    """

    def __init__(self, display: int) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.connect(f"/tmp/.X11-unix/X{display}")
        self._sock.sendall(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))
        status, length = struct.unpack("<BxxxxxH", self._take(8))
        answer = self._take(4 * length)
        if status != 1:
            raise OSError(f"X refuses us: {answer!r}")
        base, vendor, formats = (
            struct.unpack_from("<I", answer, 4)[0],
            struct.unpack_from("<H", answer, 16)[0],
            answer[21],
        )
        root = struct.unpack_from("<I", answer, 32 + (vendor + 3) // 4 * 4 + 8 * formats)[0]
        self._window, self._context = base, base + 1
        # CreateWindow without decoration, of the root's depth and visual; CreateGC; MapWindow.
        self._sock.sendall(
            struct.pack(
                "<BBHIIhhHHHHIII",
                1, 0, 9, self._window, root, 0, 0, WIDTH, HEIGHT, 0, 1, 0, 1 << 9, 1,
            )
            + struct.pack("<BxHIIII", 55, 5, self._context, self._window, 1 << 2, 0)
            + struct.pack("<BxHI", 8, 2, self._window)
        )  # fmt: skip

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._sock.recv(size - len(data))
        return data

    def draw(self, areas: list[tuple[int, int, int, int, int]]) -> None:
        """Fill rectangles: left, top, width, height, colour."""
        said = b""
        for x, y, width, height, colour in areas:
            # ChangeGC's foreground, PolyFillRectangle.
            said += struct.pack("<BxHIII", 56, 4, self._context, 1 << 2, colour)
            said += struct.pack(
                "<BxHIIhhHH", 70, 5, self._window, self._context, x, y, width, height
            )
        self._sock.sendall(said)


def play(display: int, frames: float = 60.0) -> None:
    """Draw so many frames a second, for ever: sprites before a road, and the frame's number."""
    screen, number, noise = X(display), 0, random.Random(1)
    sprites = [[noise.randrange(WIDTH), noise.randrange(HEIGHT), noise.randrange(1 << 24)] for _ in
               range(24)]  # fmt: skip
    due = time.monotonic()
    screen.draw([(0, 0, WIDTH, HEIGHT, 0x205020)])
    while True:
        number += 1
        areas = []
        for sprite in sprites:
            areas.append((sprite[0], sprite[1], 40, 40, 0x205020))
            sprite[0], sprite[1] = (sprite[0] + 5) % WIDTH, (sprite[1] + 3) % HEIGHT
            areas.append((sprite[0], sprite[1], 40, 40, sprite[2]))
            areas.append((sprite[0] + 10, sprite[1] + 10, 20, 20, 0xFFFFFF))
        for line in range(8):
            areas.append(
                (312, 96 * line, 400, 96, 0x404040 if (line + number // 6) % 2 else 0x505050)
            )
        areas.append((0, 0, COUNTER, COUNTER, number))
        screen.draw(areas)
        due += 1 / frames
        time.sleep(max(0.0, due - time.monotonic()))


async def delay(path: str, to: str, seconds: float) -> None:
    """Pass bytes on, each way so many seconds late, in order and at any rate; for ever."""

    async def one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()

        def write(data: bytes) -> None:
            if not writer.is_closing():
                writer.write(data)

        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                loop.call_later(seconds, write, data)
        loop.call_later(seconds, writer.close)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(to)
        await asyncio.gather(one_way(reader, back), one_way(there, writer), return_exceptions=True)

    server = await asyncio.start_unix_server(connected, path)
    print("ready", flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def helper(*words: str, ready: bool = False) -> Iterator[None]:
    """Run this file as a program: ``play DISPLAY`` or ``delay PATH TO SECONDS``."""
    process = subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE)
    try:
        if ready:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    if sys.argv[1] == "play":
        play(int(sys.argv[2]))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(delay(sys.argv[2], sys.argv[3], float(sys.argv[4])))
