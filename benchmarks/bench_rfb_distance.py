"""How many frames of a game come from a VNC server that is 100 ms away, there and back?

TigerVNC's Xvnc with a screen of 1024x768, on which a game draws 60 frames a second; between it and
the client a proxy that passes everything on 50 ms late each way. The client has Fence and
ContinuousUpdates; beside it one that asks for each update, as RFC 6143 has it. Each is watched
after a moment in which the server learns how much it may send.

`python benchmarks/bench_rfb_distance.py` prints frames a second, by the number that the game paints
into each. Needs Xvnc.
"""

from __future__ import annotations

import tempfile
import time

import pytest
from pairs import TINY, print_head
from xvnc import COUNTER, XVNC, helper, xvnc

from rlwire.adapters.rfb import RfbClient

SECONDS = 0.5 if TINY else 8.0
WARM = 0.2 if TINY else 4.0
AWAY = (0.0, 0.1)  # seconds, there and back


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
            red, green, blue = client.framebuffer.pixels[COUNTER // 2, COUNTER // 2].tolist()
            seen.add(red << 16 | green << 8 | blue)
        return len(seen) / (now - begun), client.round_trip()


def measure() -> list[tuple[float, bool, float, float]]:
    """Return for each distance and way: seconds, whether without requests, frames, round trip."""
    found = []
    with xvnc() as (address, display), helper("play", str(display)):
        for away in AWAY:
            with tempfile.TemporaryDirectory() as folder:
                words = ("delay", f"{folder}/far", address.removeprefix("unix:"), str(away / 2))
                with helper(*words, ready=True):
                    for continuous in (True, False):
                        rate, trip = frames_a_second(f"unix:{folder}/far", continuous)
                        found.append((away, continuous, rate, trip))
    return found


@pytest.mark.skipif(XVNC is None, reason="Xvnc is not installed")
def test_frames_from_afar(benchmark: object) -> None:
    """Frames come, far away too."""
    assert all(rate > 0 for _, _, rate, _ in measure())


def main() -> None:
    """Print the table."""
    print_head("A game's frames a second from Xvnc, 1024x768; it draws 60")
    print(f"{'way':>8} {'round trip':>12} {'ContinuousUpdates':>18} {'requests':>10}")
    found = measure()
    for away in AWAY:
        row = {continuous: (rate, trip) for at, continuous, rate, trip in found if at == away}
        print(
            f"{1000 * away:5.0f} ms {1000 * row[True][1]:9.0f} ms "
            f"{row[True][0]:18.1f} {row[False][0]:10.1f}"
        )
    print("target at 100 ms: 58 with ContinuousUpdates")


if __name__ == "__main__":
    main()
