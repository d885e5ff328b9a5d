"""How many frames of a game come from a VNC server that is 100 ms away, there and back?

TigerVNC's Xvnc with a screen of 1024x768, on which a game draws 60 frames a second; between it and
the client a proxy that passes everything on 50 ms late each way. The client has Fence and
ContinuousUpdates; beside it one that asks for each update, as RFC 6143 has it. Each is watched
after a moment in which the server learns how much it may send. Game, proxy and client are a process
each.

`python benchmarks/bench_rfb_distance.py` prints frames a second, by the number that the game paints
into each. Needs Xvnc (tigervnc-standalone-server). On a machine that is not quiet run it as
`chrt -r 5 python ...` (root).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pairs import TINY, print_head

sys.path.append(str(Path(__file__).parents[1]))
from rlwire.adapters.rfb import RfbClient
from tests.reference import xvnc

WIDTH, HEIGHT = 1024, 768
SQUARE = 16  # pixels, left and above, whose colour is the frame's number
FRAMES = 60  # a second
SECONDS = 0.5 if TINY else 8.0
WARM = 0.2 if TINY else 4.0
AWAY = (0.0, 0.1)  # seconds, there and back


def play() -> None:
    """Draw, for ever: sprites before a road, and the frame's number."""
    noise = random.Random(1)
    sprites = [
        (noise.randrange(WIDTH), noise.randrange(HEIGHT), noise.randrange(1 << 24))
        for _ in range(24)
    ]
    with xvnc.Desktop(WIDTH, HEIGHT) as desktop:
        print(desktop.path, flush=True)
        desktop.fill([(0, 0, WIDTH, HEIGHT, 0x205020)])
        due, number = time.monotonic(), 0
        while True:
            areas = []
            for left, top, colour in sprites:
                for step in (number, number + 1):
                    x, y = (left + 5 * step) % WIDTH, (top + 3 * step) % HEIGHT
                    areas.append((x, y, 40, 40, 0x205020 if step == number else colour))
                areas.append((x + 10, y + 10, 20, 20, 0xFFFFFF))
            number += 1
            for line in range(8):
                shade = (line + number // 6) % 2
                areas.append((312, 96 * line, 400, 96, (0x404040, 0x505050)[shade]))
            areas.append((0, 0, SQUARE, SQUARE, number))
            desktop.fill(areas)
            due += 1 / FRAMES
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
        await asyncio.gather(one_way(reader, back), one_way(there, writer))

    server = await asyncio.start_unix_server(connected, path)
    print("ready", flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def program(*words: str) -> Iterator[str]:
    """Run this file as another program, and yield the line that it prints."""
    command = [sys.executable, __file__, *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.communicate()  # it sees its standard input end


def until_told() -> None:
    """Raise a KeyboardInterrupt in the main thread when the standard input ends."""
    main = threading.main_thread().ident
    assert main is not None
    # Whom a shell began in the background ignores it, until told otherwise.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait() -> None:
        sys.stdin.read()
        signal.pthread_kill(main, signal.SIGINT)  # a signal wakes a loop that waits for its sockets

    threading.Thread(target=wait, daemon=True).start()


def frames_a_second(address: str, continuous: bool) -> tuple[float, float]:
    """Return different frames a second, and the seconds of a round trip by Fence."""
    with RfbClient(address, continuous=continuous) as client:
        seen: set[int] = set()
        begun = time.monotonic()
        while time.monotonic() < begun + WARM:
            client.update(10.0)
        begun = time.monotonic()
        while (now := time.monotonic()) < begun + SECONDS:
            client.update(10.0)
            red, green, blue = client.framebuffer.pixels[SQUARE // 2, SQUARE // 2].tolist()
            seen.add(red << 16 | green << 8 | blue)
        return len(seen) / (now - begun), client.round_trip()


def measure() -> dict[tuple[float, bool], tuple[float, float]]:
    """Return, for each distance, and with and without ContinuousUpdates, frames and round trip."""
    found = {}
    with program("play") as path, tempfile.TemporaryDirectory() as folder:
        for number, away in enumerate(AWAY):
            far = f"{folder}/{number}"
            with program("delay", far, path, str(away / 2)):
                for continuous in (True, False):
                    found[away, continuous] = frames_a_second(f"unix:{far}", continuous)
    return found


@pytest.mark.skipif(not xvnc.INSTALLED, reason="Xvnc is not installed")
def test_frames_from_afar() -> None:
    """Frames come, from far away too."""
    assert all(rate > 0 for rate, _ in measure().values())


def main() -> None:
    """Print the table."""
    print_head(f"A game's frames a second from Xvnc, {WIDTH}x{HEIGHT}; it draws {FRAMES}")
    print(f"{'way':>8} {'round trip':>12} {'ContinuousUpdates':>18} {'requests':>10}")
    found = measure()
    for away in AWAY:
        (rate, trip), (asked, _) = found[away, True], found[away, False]
        print(f"{1000 * away:5.0f} ms {1000 * trip:9.0f} ms {rate:18.1f} {asked:10.1f}")
    print("target at 100 ms: 58 with ContinuousUpdates")


if __name__ == "__main__":
    if sys.argv[1:]:
        until_told()
        with contextlib.suppress(KeyboardInterrupt):
            if sys.argv[1] == "play":
                play()
            else:
                asyncio.run(delay(sys.argv[2], sys.argv[3], float(sys.argv[4])))
    else:
        main()
