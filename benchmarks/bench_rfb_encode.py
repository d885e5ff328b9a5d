"""A game's frames as a VNC server writes them: ours against libvncserver's encoders.

Random play of Atari games is recorded, as it is and scaled to 1024x768, in squares and smoothly;
then each frame is written whole, and once more only where it differs from the one before, the same
areas for both. What counts is the CPU time of the thread that writes, which libvncserver's is told
by a small C program that is built here (libvncserver_encode.c). Both are asked for the least
compression; `level 6` beside it is libvncserver's own choice.

`python benchmarks/bench_rfb_encode.py` prints the table, `--deflate` what the packages that deflate
take for pieces of such frames, `--moves` what an update costs a server, the search for what changed
within, for viewers that can copy what has moved (CopyRect) and for those that cannot.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from statistics import median
from time import thread_time_ns
from typing import Any

import numpy as np
import pytest
from pairs import TINY, Line, print_head, print_lines, print_table
from PIL import Image

sys.path.append(str(Path(__file__).parents[1]))
from rlwire.codecs.rfb.encoder import RectangleEncoder, changed
from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.pixels import RGB888
from rlwire.sessions.rfb.screen import Screen, Settings, Shown
from tests.reference import xvnc

GAMES = ("Pong", "Seaquest", "SpaceInvaders")
FRAMES = 2 if TINY else 12
SKIP = 5 if TINY else 100  # frames before them
ROUNDS = 1 if TINY else 5
TARGET = 1.5
HERE = Path(__file__).resolve().parent

Areas = list[tuple[int, int, int, int]]


def play(game: str) -> list[Any]:
    """What random play of a game shows."""
    import ale_py
    import gymnasium

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(f"ALE/{game}-v5", frameskip=2, repeat_action_probability=0.0)
    env.action_space.seed(1)
    env.reset(seed=1)
    frames = []
    for i in range(SKIP + FRAMES):
        seen, _, ended, cut, _ = env.step(env.action_space.sample())
        if ended or cut:
            env.reset()
        if i >= SKIP:
            frames.append(np.ascontiguousarray(seen))
    env.close()
    return frames


def scaled(frames: list[Any], how: Image.Resampling) -> list[Any]:
    """The same on a screen of 1024x768."""
    return [np.asarray(Image.fromarray(one).resize((1024, 768), how)) for one in frames]


def works(frames: list[Any]) -> dict[str, list[tuple[Any, Areas]]]:
    """Frames with the areas to be written: all of each, and what changed."""
    height, width, _ = frames[0].shape
    pairs = itertools.pairwise(frames)
    return {
        "whole": [(frame, [(0, 0, width, height)]) for frame in frames[1:]],
        "changes": [(after, changed(before, after)) for before, after in pairs],
    }


class Rival:
    """libvncserver, in a process of its own."""

    def __init__(self, work: list[tuple[Any, Areas]], folder: Path) -> None:
        program = folder / "libvncserver_encode"
        if not program.exists():
            flags = subprocess.run(
                ["pkg-config", "--cflags", "--libs", "libvncserver"],
                check=True, capture_output=True, text=True,
            ).stdout.split()  # fmt: skip
            source = str(HERE / "libvncserver_encode.c")
            subprocess.run(["cc", "-O2", source, "-o", str(program), *flags], check=True)
        height, width, _ = work[0][0].shape
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(np.array([len(work), width, height], np.uint32).tobytes())
            for frame, areas in work:
                file.write(np.array([len(areas), *np.ravel(areas)], np.uint32).tobytes())
                file.write(frame.tobytes())
        self._process = subprocess.Popen(
            [str(program), file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._count = len(work)

    def run(self, encoding: int, level: int) -> tuple[float, float]:
        """Return microseconds and bytes of a frame."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{encoding} {level}\n")
        self._process.stdin.flush()
        took, size = map(int, self._process.stdout.readline().split())
        return took / 1e3 / self._count, size / self._count

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def ours(work: list[tuple[Any, Areas]], encoder: RectangleEncoder) -> tuple[float, float]:
    """Return microseconds and bytes of a frame."""
    took = size = 0
    shown = np.empty_like(work[0][0])
    for frame, areas in work:
        np.copyto(shown, frame)  # as a display copies what it shows; the rival's is copied as well
        since = thread_time_ns()
        size += len(encoder.encode(shown, areas)[1])
        took += thread_time_ns() - since
    return took / 1e3 / len(work), size / len(work)


def has_rival() -> bool:
    """Whether libvncserver's headers are there."""
    if shutil.which("pkg-config") is None or shutil.which("cc") is None:
        return False
    return subprocess.run(["pkg-config", "--exists", "libvncserver"], check=False).returncode == 0


def compare(folder: Path) -> tuple[list[Line], list[tuple[str, ...]]]:
    """Time both in turn; return the ratios, and how many bytes each wrote."""
    lines, sizes = [], []
    kinds = {"210x160": lambda frames: frames}
    kinds["1024x768"] = lambda frames: scaled(frames, Image.Resampling.NEAREST)
    kinds["1024x768 smooth"] = lambda frames: scaled(frames, Image.Resampling.BILINEAR)
    for game in GAMES:
        played = play(game)
        for kind, make in kinds.items():
            for what, work in works(make(played)).items():
                rival = Rival(work, folder)
                for encoding in (Encoding.TIGHT, Encoding.ZRLE, Encoding.HEXTILE):
                    encoder = RectangleEncoder(RGB888, encoding=encoding)
                    found: list[tuple[float, ...]] = []
                    for _ in range(ROUNDS + 1):
                        first = rival.run(encoding, 1)
                        found.append((*ours(work, encoder), *first, *rival.run(encoding, 6)))
                    mine, size, its, its_size, slow, slow_size = map(
                        median, zip(*found[1:], strict=True)
                    )
                    name = f"{encoding.name} {game} {kind} {what}"
                    target = None if encoding is Encoding.HEXTILE else TARGET
                    lines.append(Line(name, mine, "libvncserver", its, target, faster=True))
                    sizes.append((name, *(f"{x:,.0f}" for x in (size, its_size, slow_size, slow))))
                rival.close()
    return lines, sizes


def deflaters() -> list[tuple[str, ...]]:
    """Time what deflates, on a frame's palette indices and on rows of pixels."""
    from isal import isal_zlib
    from zlib_ng import zlib_ng

    frame = play("Seaquest")[-1]
    indices = np.unique(frame.reshape(-1, 3), axis=0, return_inverse=True)[1]
    smooth = scaled([frame], Image.Resampling.BILINEAR)[0][300:364]
    rows = []
    for what, data in (
        ("33,600 indices", indices.astype(np.uint8).tobytes()),
        ("512 indices", indices.astype(np.uint8)[16_000:16_512].tobytes()),
        ("196,608 bytes of smooth pixels", smooth.tobytes()),
    ):
        for name, module, level in (
            ("zlib", zlib, 1), ("zlib", zlib, 6), ("zlib-ng", zlib_ng, 1),
            ("zlib-ng", zlib_ng, 2), ("ISA-L", isal_zlib, 0), ("ISA-L", isal_zlib, 1),
        ):  # fmt: skip
            stream: Any = module.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
            times = []
            for _ in range(3 if TINY else 200):
                since = thread_time_ns()
                size = len(stream.compress(data) + stream.flush(zlib.Z_FULL_FLUSH))
                times.append((thread_time_ns() - since) / 1e3)
            rows.append((what, f"{name} {level}", f"{median(times):,.1f}", f"{size:,}"))
    return rows


def moves() -> list[Line]:
    """Time updates in Tight with and without CopyRect."""
    river, sea = play("Riverraid"), play("Seaquest")
    wall = xvnc.game(2048, 768, 1)
    panned = [np.ascontiguousarray(wall[:, 4 * i : 4 * i + 1024]) for i in range(FRAMES)]
    kinds = {
        "Riverraid 160x210, scrolls": river,
        "Riverraid 1024x768, scrolls": scaled(river, Image.Resampling.NEAREST),
        "a textured world, panned at 1024x768": panned,
        "Seaquest 160x210, does not": sea,
        "Seaquest 1024x768, does not": scaled(sea, Image.Resampling.NEAREST),
    }
    settings = Settings(RGB888, Encoding.TIGHT, None, 1)
    lines = []
    for name, frames in kinds.items():
        times: dict[bool, list[float]] = {True: [], False: []}
        sizes: dict[bool, int] = {}
        for _ in range(ROUNDS + 1):
            for copies, taken in times.items():
                shown = Shown(0, frames[0])
                screen = Screen(lambda: shown)  # noqa: B023 - it is not asked
                since, sizes[copies] = thread_time_ns(), 0
                for number, frame in enumerate(frames[1:], 1):
                    now = Shown(number, frame)
                    sizes[copies] += len(screen.update(shown, now, settings, False, copies)[1])
                    shown = now
                taken.append((thread_time_ns() - since) / 1e3 / (len(frames) - 1))
        label = f"{name}: {sizes[True]:,} bytes and {sizes[False]:,}"
        mine, plain = (median(times[copies][1:]) for copies in (True, False))
        lines.append(Line(label, mine, "without copies", plain, None, faster=True))
    return lines


@pytest.mark.parametrize("encoding", ["TIGHT", "ZRLE", "HEXTILE"])
def test_encode(benchmark: Any, encoding: str) -> None:
    """One whole frame as a server writes it."""
    frame = play("Seaquest")[-1]
    encoder = RectangleEncoder(RGB888, encoding=Encoding[encoding])
    benchmark(encoder.encode, frame, [(0, 0, 160, 210)])


def test_deflaters(benchmark: Any) -> None:
    """What the packages take."""
    assert benchmark.pedantic(deflaters, rounds=1)


def test_moves() -> None:
    """Updates in which something has moved are smaller where it may be copied."""
    assert len(moves()) == 5


def main() -> None:
    """Print the tables."""
    print_head("How fast is a game's frame written for a VNC viewer?", "isal", "zlib-ng")
    if "--deflate" in sys.argv:
        print_table(("of", "by", "us", "bytes"), deflaters())
        return
    if "--moves" in sys.argv:
        print_lines(moves())
        return
    if not has_rival():
        print("libvncserver is not here: apt-get install libvncserver-dev pkg-config")
        return
    with tempfile.TemporaryDirectory() as folder:
        lines, sizes = compare(Path(folder))
    print_lines(lines)
    print()
    print_table(("bytes of", "rlwire", "libvncserver", "its level 6", "and its us"), sizes)


if __name__ == "__main__":
    main()
