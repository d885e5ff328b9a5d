"""Sixty frames a second to several VNC viewers, by a server that has one core.

A recorded game is shown at 60 frames a second by a process that is pinned to a core; on another one
four viewers take the updates in, which come without being asked for (ContinuousUpdates). A frame is
missed when no update of its own went to a viewer: what it had came with the next. The column of
encodings says how often what they were told was written: for all of them at once, where they are
told the same.

`python benchmarks/bench_rfb_viewers.py [viewers]` prints the table, for 4 viewers or as many; it
needs two cores. What a further viewer costs is in the column of the server's core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from bench_rfb_encode import play, scaled
from pairs import TINY, print_head, print_table
from PIL import Image

from rlwire.adapters.rfb import Display, RfbServer, Screens
from rlwire.codecs.rfb.encodings import Encoding

VIEWERS = 4
RATE = 60
SECONDS = 0.5 if TINY else 6.0
GAME = "Seaquest"
SIZES = {"210x160": None, "1024x768": Image.Resampling.NEAREST}
SIZES["1024x768 smooth"] = Image.Resampling.BILINEAR


def pin(core: int) -> None:
    """Stay on one core, where there is a choice."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})


def serve(size: str) -> None:
    """Show the game to whoever comes; what happened goes to stdout."""
    pin(0)
    frames = play(GAME)
    how = SIZES[size]
    frames = frames if how is None else scaled(frames, how)
    frames = [np.array(frame, order="C") for frame in frames]
    height, width, _ = frames[0].shape
    for number, frame in enumerate(frames):  # none like its neighbours, nor the last like the first
        frame[0, 0] = number + 1
    display = Display(width, height)
    with RfbServer(display, "127.0.0.1:0") as server:
        print(server.address.port, flush=True)
        sys.stdin.readline()
        begun, spent = time.monotonic(), time.process_time()
        before = server.statistics()
        shown = late = 0
        while (now := time.monotonic()) - begun < SECONDS:
            display.show(frames[shown % len(frames)])
            shown += 1
            late += now - begun > shown / RATE
            time.sleep(max(0.0, begun + shown / RATE - time.monotonic()))
        spent = (time.process_time() - spent) / (time.monotonic() - begun)
        time.sleep(0.2)
        after = server.statistics()
        found = {name: count - before.get(name, 0) for name, count in after.items()}
        print(json.dumps({**found, "shown": shown, "late": late, "cpu": spent}), flush=True)
        sys.stdin.readline()


def measure(size: str, encoding: Encoding, viewers: int = VIEWERS) -> tuple[str, ...]:
    """Return a row: what was shown, seen and missed."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", size],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pin(1)
    address = f"127.0.0.1:{int(process.stdout.readline())}"
    with Screens(encodings=[encoding]) as screens:
        all_of_them = [screens.add(address) for _ in range(viewers)]
        for screen in all_of_them:
            assert screen.wait(30.0)
        before = [screen.updates for screen in all_of_them]
        process.stdin.write("go\n")
        process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
        seen = [screen.updates - was for screen, was in zip(all_of_them, before, strict=True)]
        process.communicate("\n")
    shown = found["shown"]
    return (
        f"{encoding.name} {size}",
        f"{shown / SECONDS:.1f}",
        ", ".join(f"{max(0, shown - one)}" for one in seen),
        f"{shown}",
        f"{100 * found['cpu']:.0f} %",
        f"{found.get('encoded', 0)}",
        f"{found['bytes'] / max(1, found['updates']):,.0f}",
    )


@pytest.mark.parametrize("encoding", ["TIGHT", "ZRLE"])
def test_viewers(benchmark: Any, encoding: str) -> None:
    """All of it, once."""
    assert benchmark.pedantic(measure, args=("210x160", Encoding[encoding]), rounds=1)


def main() -> None:
    """Print the table."""
    if "--serve" in sys.argv:
        serve(sys.argv[-1])
        return
    viewers = int(sys.argv[1]) if sys.argv[1:] else VIEWERS
    print_head(f"Do {viewers} viewers get {RATE} frames a second from a server with one core?")
    rows = [
        measure(size, encoding, viewers)
        for size in SIZES
        for encoding in (Encoding.TIGHT, Encoding.ZRLE, Encoding.HEXTILE, Encoding.RAW)
    ]
    columns = ("frames", "a second", "missed by each", "of", "server's core", "encodings", "bytes")
    print_table(columns, rows)


if __name__ == "__main__":
    main()
