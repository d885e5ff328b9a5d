"""How fast are RFB's rectangles painted, against libvncclient and asyncvnc?

Sessions of TigerVNC's Xvnc are recorded, once (under build/; `--record` makes them anew), and
decoded from memory: "race" repaints 480,000 of 1024x768 pixels in each update, "atari" is 160x210,
"mixed" has a photograph, text and a game. Times are CPU time of an update, of the whole process, in
the middle of rounds in which all take their turns. libvncclient plays the same bytes in a program
that is compiled here (rfb_viewer.c; gcc and libvncserver-dev); asyncvnc reads Raw only.

`python benchmarks/bench_rfb_decode.py` prints the table, with `--inflaters` the inflaters and what
is inflating alone, with `--jpeg` the readers of JPEG.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import lzma
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from struct import unpack_from
from time import process_time
from typing import Any
from unittest import mock

import numpy as np
from pairs import TINY, Line, print_head, print_lines, print_table

from rlwire.codecs.rfb import Encoding, Framebuffer, RectangleDecoder
from rlwire.codecs.rfb import jpeg as jpeg_files
from rlwire.codecs.rfb._zlib import INFLATERS, choose
from rlwire.codecs.rfb.messages import level_encoding

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tests.reference import xvnc  # noqa: E402

FOLDER = HERE.parent / "build" / "rfb"
ROUNDS = 1 if TINY else 9
UPDATES = 3 if TINY else 20
DESKTOPS = {"race": (128, 96) if TINY else (1024, 768), "atari": (160, 210), "mixed": (640, 480)}
RECORDINGS: dict[str, tuple[str, list[Encoding]]] = {
    "Raw race": ("race", [Encoding.RAW]),
    "Raw atari": ("atari", [Encoding.RAW]),
    "Hextile race": ("race", [Encoding.HEXTILE]),
    "ZRLE race": ("race", [Encoding.ZRLE]),
    "ZRLE atari": ("atari", [Encoding.ZRLE]),
    "Tight race": ("race", [Encoding.TIGHT]),
    "Tight atari": ("atari", [Encoding.TIGHT]),
    "JPEG mixed": ("mixed", [Encoding.TIGHT, level_encoding(Encoding.QUALITY_0, 6)]),
}
INSTALLED = [name for name, module in INFLATERS.items() if find_spec(module.partition(".")[0])]
TARGETS = {  # against libvncclient; with zlib, with what is faster
    "Raw race": (2.0, 2.0),
    "Raw atari": (2.0, 2.0),
    "Hextile race": (1.5, 1.5),
    "ZRLE race": (1.0, 1.6),
    "ZRLE atari": (1.0, 1.6),
    "Tight race": (1.2, 2.0),
    "Tight atari": (1.2, 2.0),
    "JPEG mixed": (1.0, 1.0),
}


# ---- recordings


@cache
def _atari() -> list[Any]:
    import ale_py
    import gymnasium

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5")
    env.action_space.seed(1)
    frames = [env.reset(seed=1)[0]]
    try:
        for _ in range(80 + UPDATES):
            frames.append(env.step(env.action_space.sample())[0])
    finally:
        env.close()
    return frames[80:]


def _show(desktop: xvnc.Desktop, kind: str, number: int) -> None:
    width, height = DESKTOPS[kind]
    if kind == "atari":
        desktop.show(_atari()[number])
    elif kind == "race":
        desktop.show(
            xvnc.game(width * 25 // 32, height * 25 // 32, number), width // 10, height // 10
        )
    else:
        desktop.show(xvnc.photo(width // 2, height // 2, number))
        desktop.show(xvnc.text(width // 3, height // 3, number // 8), width // 2, 10)
        desktop.show(xvnc.game(width // 3, height // 3, number), 20, height // 2 + 20)


def recording(name: str, *, anew: bool = False) -> bytes:
    path = FOLDER / f"{name.replace(' ', '-')}-{UPDATES}-{'x'.join(map(str, DESKTOPS['race']))}.xz"
    if anew or not path.exists():
        kind, encodings = RECORDINGS[name]
        with (
            xvnc.Desktop(*DESKTOPS[kind]) as desktop,
            xvnc.viewer(desktop, [*encodings, Encoding.COPY_RECT]) as viewer,
        ):
            for number in range(UPDATES + 1):
                _show(desktop, kind, number)
                viewer.update(incremental=number > 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(bytes(viewer.recorded), preset=0))
    return lzma.decompress(path.read_bytes())


# ---- who decodes


class Ours:
    """The recording in one buffer, decoded where it lies, as a connection's inbox has it."""

    def __init__(self, recorded: bytes, inflater: str | None = None) -> None:
        self.recording = xvnc.read(recorded)
        self.inflater = inflater
        self.updates = [(b"".join(update), len(update)) for update in self.recording.updates]
        self.framebuffer = Framebuffer(self.recording.width, self.recording.height)

    def play(self) -> float:
        """Microseconds of an update, in the middle of a few times if it is short."""
        first = self._play()
        again = 0 if TINY else int(2000 / first)
        return median([self._play() for _ in range(again)] or [first])

    def _play(self) -> float:
        self.framebuffer.pixels[:] = 0
        decoder = RectangleDecoder(self.framebuffer, inflater=self.inflater)
        began = process_time()
        for data, count in self.updates:
            at, end, left = 0, len(data), count
            while left:
                size = decoder.size(data, at, end, left)
                decoder.paint(data, at, decoder.counted)
                at += size
                left -= decoder.counted
        return 1e6 * (process_time() - began) / len(self.updates)

    def checksum(self) -> int:
        return zlib.crc32(self.framebuffer.pixels.tobytes())


class Libvncclient:
    def __init__(self, program: Path, recorded: bytes, folder: Path) -> None:
        self.read = xvnc.read(recorded)
        self.stream = folder / f"{zlib.crc32(recorded)}.vnc"
        parts = []
        for update in self.read.updates:
            parts += [bytes(16), b"\0\0" + len(update).to_bytes(2, "big"), *update]
        self.stream.write_bytes(b"".join(parts))
        size = [str(self.read.width), str(self.read.height)]
        self.command = [str(program), str(self.stream), *size, str(len(self.read.updates))]
        self.command.append("2" if TINY or self.read.width > 200 else "100")

    def play(self) -> float:
        """Microseconds of an update, once the memory has been touched."""
        said = subprocess.run(self.command, capture_output=True, text=True, check=True).stdout
        self.crc = said.split()[1]
        return median([float(micros) for micros in said.split()[2::2]])

    def checksum(self) -> int:
        return int(self.crc)


class Asyncvnc:
    def __init__(self, recorded: bytes) -> None:
        self.read = xvnc.read(recorded)
        self.updates = [
            [one for one in update if unpack_from(">i", one, 8)[0] == 0]
            for update in self.read.updates
        ]

    def play(self) -> float:
        return asyncio.run(self._play())

    async def _play(self) -> float:
        import asyncvnc

        reader = asyncio.StreamReader(2**26)
        writer: Any = None
        size = self.read.width, self.read.height
        video = asyncvnc.Video(reader, writer, zlib.decompress, "", *size, "rgba")
        video.data = np.zeros((size[1], size[0], 4), "B")
        taken = 0.0
        for update in self.updates:
            reader.feed_data(b"".join(update))
            began = process_time()
            for _ in update:
                await video.read()
            taken += process_time() - began
        return 1e6 * taken / len(self.updates)


@contextmanager
def viewer_program() -> Iterator[tuple[Path, Path] | None]:
    """The C program, compiled, and a folder for its streams; None where that is not possible."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "viewer"
        command = [
            "gcc",
            "-O2",
            str(HERE / "rfb_viewer.c"),
            "-lvncclient",
            "-lz",
            "-o",
            str(program),
        ]
        built = shutil.which("gcc") and subprocess.run(command, capture_output=True).returncode == 0
        yield (program, folder) if built else None


def in_turn(players: dict[str, Callable[[], float]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in players}
    for play in players.values():
        play()
    for _ in range(ROUNDS):
        for name, play in players.items():
            times[name].append(play())
    return {name: median(values) for name, values in times.items()}


# ---- tables


def compare(anew: bool) -> None:
    print_head("RFB: CPU time of an update", "zlib-ng", "isal", "asyncvnc")
    lines = []
    fastest = INSTALLED[0]
    with viewer_program() as program:
        if program is None:
            print("libvncclient is left out: gcc or libvncserver-dev is missing")
        for name in RECORDINGS:
            recorded = recording(name, anew=anew)
            packed = name.split()[0] in ("ZRLE", "Tight")
            ours = {one: Ours(recorded, one) for one in (INSTALLED if packed else [fastest])}
            players: dict[str, Callable[[], float]] = {k: one.play for k, one in ours.items()}
            theirs = Libvncclient(program[0], recorded, program[1]) if program else None
            if theirs:
                players["libvncclient"] = theirs.play
            if name.startswith("Raw"):
                players["asyncvnc"] = Asyncvnc(recorded).play
            times = in_turn(players)
            for rival in ("libvncclient", "asyncvnc"):
                for one, player in sorted(ours.items(), reverse=True):
                    if rival in times:
                        aim = TARGETS[name][one != "zlib"] if rival == "libvncclient" else None
                        what = f"{name}, {one}" if packed else name
                        lines.append(Line(what, times[one], rival, times[rival], aim, faster=True))
                        same = theirs is None or player.checksum() == theirs.checksum()
                        assert same or name.startswith("JPEG"), f"{name}: other pixels"
    print_lines(lines)


def streams(recorded: bytes) -> list[tuple[int, bytes, int]]:
    """Of the compressed rectangles: the stream, the bytes, and what they inflate to."""
    found = []
    plain = {i: zlib.decompressobj() for i in range(5)}
    for update in xvnc.read(recorded).updates:
        for one in update:
            width, height, encoding = unpack_from(">HHi", one, 4)
            if encoding == Encoding.ZRLE:
                stream, data = 4, one[16:]
            elif encoding == Encoding.TIGHT and one[12] < 0x80:
                stream, at, need = one[12] >> 4 & 3, 13, width * height * 3
                if one[12] & 0x40:
                    at += 1
                    if one[13] == 1:
                        colours = one[14] + 1
                        at += 1 + 3 * colours
                        need = (width + 7) // 8 * height if colours == 2 else width * height
                if need < 12:
                    continue
                at += 1 + (one[at] > 127) + (one[at] > 127 and one[at + 1] > 127)
                data = one[at:]
            else:
                continue
            found.append((stream, data, len(plain[stream].decompress(data))))
    return found


def inflaters(anew: bool) -> None:
    print_head("RFB: CPU time of an update, inflating alone and all of it", "zlib-ng", "isal")
    rows = []
    for name in RECORDINGS:
        if name.split()[0] not in ("ZRLE", "Tight"):
            continue
        recorded = recording(name, anew=anew)
        data = streams(recorded)
        updates = len(xvnc.read(recorded).updates)

        def inflate(one: str, data: Any = data, updates: int = updates) -> float:
            fresh = choose(one)[0]
            made = {i: fresh().decompress for i in range(5)}
            began = process_time()
            for stream, packed, size in data:
                made[stream](packed, size + 1)
            return 1e6 * (process_time() - began) / updates

        players: dict[str, Callable[[], float]] = {}
        for one in INSTALLED:
            players[one] = lambda one=one: inflate(one)  # type: ignore[misc]
            players[f"all, {one}"] = Ours(recorded, one).play
        times = in_turn(players)
        for one in INSTALLED:
            ratio = times["zlib"] / times[one]
            rows.append(
                (name, one, f"{times[one]:,.1f}", f"{times[f'all, {one}']:,.1f}", f"{ratio:.2f}")
            )
    print_table(("recording", "inflater", "inflating us", "all us", "times zlib's speed"), rows)


def jpeg(anew: bool) -> None:
    print_head("RFB: CPU time of reading the JPEG files of an update", "pillow", "simplejpeg")
    read = xvnc.read(recording("JPEG mixed", anew=anew))
    files = [
        (one[one.index(b"\xff\xd8", 12) :], *unpack_from(">HH", one, 4))
        for update in read.updates
        for one in update
        if one[8:12] == b"\0\0\0\7" and one[12] >> 4 == 9
    ]

    def by(reader: Any) -> float:
        with mock.patch.object(jpeg_files, "simplejpeg", reader):
            began = process_time()
            for data, width, height in files:
                jpeg_files.decode_jpeg(data, width, height, 0)
            return 1e6 * (process_time() - began) / len(read.updates)

    readers = {"pillow": None, "simplejpeg": jpeg_files.simplejpeg}
    players: dict[str, Callable[[], float]] = {
        name: functools.partial(by, reader)
        for name, reader in readers.items()
        if reader or name == "pillow"
    }
    rows = [(name, f"{time:,.1f}") for name, time in in_turn(players).items()]
    print_table(("reader", "us"), rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inflaters", action="store_true")
    options.add_argument("--jpeg", action="store_true")
    options.add_argument("--record", action="store_true", help="make the recordings anew")
    given = options.parse_args()
    if not xvnc.INSTALLED:
        raise SystemExit("Xvnc is missing: apt-get install tigervnc-standalone-server")
    (inflaters if given.inflaters else jpeg if given.jpeg else compare)(given.record)


if __name__ == "__main__":
    main()
