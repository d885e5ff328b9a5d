"""How many screens with a game on them does one process hold on one core, at 60 updates a second?

A server in a process of its own, on another core, replays what Xvnc said in Tight to each of 1 to
32 viewers, 60 updates a second each: "race" repaints 480,000 of 1024x768 pixels each time, "atari"
is 160x210. An update that is due while the one before has not gone is missed. All viewers are one
`Screens`, whose process is held to one core; then one `rlwire.make_vec`, which steps 60 times a
second and has the pixels of all of them in one array.

`python benchmarks/bench_rfb_sessions.py [most]` prints, for numbers of viewers, the updates that
are missed, how much of the core was used, and how much of that decoding alone takes; of the batch
also its steps a second. Needs Xvnc
(tigervnc-standalone-server) and two cores. On a machine that is not quiet run it as
`chrt -r 5 python ...` (root).
"""

from __future__ import annotations

import os
import pickle
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from pairs import TINY, print_head

sys.path.append(str(Path(__file__).parents[1]))
import rlwire
from rlwire.adapters.rfb import Screens
from rlwire.codecs.rfb import Encoding, Framebuffer, RectangleDecoder, handshake
from rlwire.codecs.rfb.handshake import ServerInit
from rlwire.codecs.rfb.messages import EndOfContinuousUpdates, FramebufferUpdate, encode
from rlwire.codecs.rfb.pixels import RGBX
from tests.reference import xvnc

RATE = 60  # updates a second
LATE = 0.25  # seconds by which the server itself may be late, and makes up for it
KEPT = 4 if TINY else 30  # updates, again and again
SECONDS = 0.2 if TINY else 4.0
WARM = 0.1 if TINY else 1.0
COUNTS = (1, 2) if TINY else (1, 4, 8, 12, 16, 20, 24, 28, 32)
# The screen, and what is repainted of it.
CONTENTS = {"atari": ((160, 210), (160, 210)), "race": ((1024, 768), (800, 600))}

# A rectangle of one pixel that has the streams of zlib begin again (control byte 0x8F).
_AGAIN = struct.pack(">HHHHiB3x", 0, 0, 1, 1, Encoding.TIGHT, 0x8F)


def record(content: str) -> list[bytes]:
    """Return updates that can be sent again and again."""
    screen, repainted = CONTENTS[content]
    with (
        xvnc.Desktop(*screen) as desktop,
        xvnc.viewer(desktop, [Encoding.TIGHT], RGBX) as viewer,
    ):
        viewer.update(incremental=False)
        for number in range(KEPT):
            desktop.show(xvnc.game(*repainted, number))
            viewer.update(incremental=True)
        recording = xvnc.read(bytes(viewer.recorded))
    updates = []
    for number, rectangles in enumerate(recording.updates):
        kept = [one for one in rectangles if one[8:12] != struct.pack(">i", Encoding.LAST_RECT)]
        kept = kept if number else [_AGAIN, *kept]
        updates.append(encode(FramebufferUpdate(len(kept))) + b"".join(kept))
    return updates


# The server.


class Viewed:
    """One viewer's connection."""

    def __init__(self, sock: socket.socket, greeting: bytes, updates: list[bytes]) -> None:
        self.sock = sock
        self.updates = updates
        self.number = 0
        self.rest = memoryview(greeting)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0

    def go_on(self) -> bool:
        """Send; return whether nothing is left."""
        try:
            while self.rest:
                self.rest = self.rest[self.sock.send(self.rest) :]
        except BlockingIOError:
            return False
        return True

    def tell(self) -> None:
        """Send the next update, if the one before has gone; what is said is not listened to."""
        if self.rest and not self.go_on():
            return
        self.rest = memoryview(self.updates[self.number % len(self.updates)])
        self.number += 1
        self.go_on()


def serve(path: str) -> None:
    """Serve a recording, until the standard input ends."""
    (width, height), updates = pickle.loads(Path(path).read_bytes())
    greeting = handshake.encode_version((3, 8)) + handshake.encode_security([1], (3, 8))
    greeting += handshake.encode_result((3, 8))
    greeting += handshake.encode_server_init(ServerInit(width, height, RGBX, "replayed"))
    greeting += encode(EndOfContinuousUpdates())
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    viewers: list[Viewed] = []

    def leave(viewer: Viewed) -> None:
        viewers.remove(viewer)
        selector.unregister(viewer.sock)
        viewer.sock.close()

    while True:
        now = time.monotonic()
        due = min((viewer.due for viewer in viewers), default=now + 1)
        for key, _ in selector.select(max(0.0, due - now)):
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                viewer = Viewed(listener.accept()[0], greeting, updates)
                viewer.due = time.monotonic() + 0.1
                viewers.append(viewer)
                selector.register(viewer.sock, selectors.EVENT_READ, viewer)
                viewer.go_on()
                continue
            try:
                if not key.data.sock.recv(65536):
                    leave(key.data)
            except OSError:
                leave(key.data)
        now = time.monotonic()
        for viewer in list(viewers):
            if viewer.due <= now:
                try:
                    viewer.tell()
                except OSError:
                    leave(viewer)
                viewer.due += 1 / RATE
                if viewer.due < now - LATE:
                    viewer.due = now + 1 / RATE


# The viewers.


class Held(NamedTuple):
    """How many viewers were held, and how well.

    Attributes:
        count: how many there were.
        missed: the share of updates that were missed.
        worst: the worst viewer's.
        core: the share of a core's time.
        steps: of a batch, a second.
    """

    count: int
    missed: float
    worst: float
    core: float
    steps: float = 0.0

    @classmethod
    def of(cls, seen: list[int], took: float, used: float, steps: int = 0) -> Held:
        """Return what these updates of each, in so many seconds, are."""
        missed = [max(0.0, 1 - have / (RATE * took)) for have in seen]
        return cls(len(seen), sum(missed) / len(seen), max(missed), used / took, steps / took)


def hold(port: int, count: int) -> Held:
    """Hold some in one `Screens`."""
    with Screens() as screens:
        held = [screens.add(f"127.0.0.1:{port}") for _ in range(count)]
        for screen in held:
            assert screen.wait(60.0)
        time.sleep(WARM)
        begun, used = time.monotonic(), time.process_time()
        before = [screen.updates for screen in held]
        time.sleep(SECONDS)
        seen = [screen.updates - at for screen, at in zip(held, before, strict=True)]
        return Held.of(seen, time.monotonic() - begun, time.process_time() - used)


def hold_batch(port: int, count: int) -> Held:
    """Hold some in one `make_vec`."""
    nothing = np.zeros(count, np.int64)
    with rlwire.make_vec(
        [f"universe://127.0.0.1:{port}"] * count,
        copy=False,
        settings={"actions": [[]], "rate": RATE, "start_timeout": 60.0},
    ) as envs:
        envs.reset()
        until = time.monotonic() + WARM
        while time.monotonic() < until:
            envs.step(nothing)
        begun, used, steps, seen = time.monotonic(), time.process_time(), 0, np.zeros(count, int)
        while time.monotonic() < begun + SECONDS:
            infos = envs.step(nothing)[4]
            seen += infos["stats.vnc.updates.n"]
            steps += 1
        return Held.of(
            seen.tolist(), time.monotonic() - begun, time.process_time() - used, steps
        )  # fmt: skip


def decode_alone(screen: tuple[int, int], updates: list[bytes]) -> float:
    """Return the seconds of decoding an update and nothing else."""
    decoder = RectangleDecoder(Framebuffer(*screen), RGBX)
    rounds, best = (1 if TINY else 3), 1e9
    for _ in range(rounds):
        begun = time.perf_counter()
        for update in updates:
            at = 4
            while at < len(update):
                size = decoder.size(update, at, len(update))
                decoder.decode(update[at : at + size])
                at += size
        best = min(best, (time.perf_counter() - begun) / len(updates))
    return best


def measure(content: str, counts: tuple[int, ...]) -> tuple[float, float, list[Held], list[Held]]:
    """Return bytes of an update, seconds of decoding it, and how screens and batches are held."""
    screen, _ = CONTENTS[content]
    updates = record(content)
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(pickle.dumps((screen, updates)))
        with subprocess.Popen(
            [sys.executable, __file__, "--serve", str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as server:  # fmt: skip
            assert server.stdin is not None
            assert server.stdout is not None
            port = int(server.stdout.readline())
            os.sched_setaffinity(server.pid, cores[1:] or cores)
            os.sched_setaffinity(0, cores[:1])
            try:
                alone = decode_alone(screen, updates)
                screens = [hold(port, count) for count in counts]
                batches = [hold_batch(port, count) for count in counts]
            finally:
                os.sched_setaffinity(0, cores)
                server.stdin.close()
    return sum(map(len, updates)) / len(updates), alone, screens, batches


@pytest.mark.skipif(not xvnc.INSTALLED, reason="Xvnc is not installed")
@pytest.mark.parametrize("content", CONTENTS)
def test_sessions(content: str) -> None:
    """Updates come to all of them."""
    _, _, screens, batches = measure(content, (1, 2))
    assert all(held.worst < 1 for held in screens + batches)
    assert all(held.steps > 0 for held in batches)


def main() -> None:
    """Print the tables."""
    print_head(f"Screens held by one process on one core, {RATE} updates a second each")
    most = int(sys.argv[1]) if sys.argv[1:] else max(COUNTS)
    counts = tuple(count for count in COUNTS if count <= most)
    for content in CONTENTS:
        size, alone, screens, batches = measure(content, counts)
        print(f"\n{content}: Tight, {size / 1000:.1f} KB and {1e6 * alone:.0f} us of decoding each")
        for what, found in (("Screens", screens), ("make_vec", batches)):
            print(
                f"{what:>8} {'missed':>8} {'the worst':>10} {'core':>6} {'of it decoding':>15}"
                f" {'steps/s':>8}"
            )
            for held in found:
                share = held.count * RATE * (1 - held.missed) * alone / held.core
                print(
                    f"{held.count:8} {held.missed:8.1%} {held.worst:10.1%} {held.core:6.0%}"
                    f" {share:15.0%} {held.steps:8.1f}"
                )
    print("\ntarget: 24 without missing any")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main()
