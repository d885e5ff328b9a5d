"""RFB: updates of TigerVNC's Xvnc, painted from memory; against libvncclient and asyncvnc.

Sessions are recorded once, under build/rfb (delete it to record anew): "race" repaints 480,000 of
1024x768 pixels in each update, "atari" is 160x210, "mixed" has a photograph, text and a game. Times
are CPU time of the process. libvncclient is built here (rfb_player.c; gcc and libvncserver-dev).
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import lzma
import subprocess
import tempfile
import zlib
from pathlib import Path
from struct import unpack_from
from time import process_time
from typing import Any
from unittest import mock

import numpy as np
import pytest
from harness import Calls, group, pong, reference
from pairs import TINY

from rlwire.codecs.rfb import Encoding, Framebuffer, RectangleDecoder
from rlwire.codecs.rfb import jpeg as jpeg_files
from rlwire.codecs.rfb._zlib import INFLATERS
from rlwire.codecs.rfb.messages import level_encoding

xvnc = reference("xvnc")
pytestmark = pytest.mark.skipif(
    not xvnc.INSTALLED, reason="Xvnc is missing: apt-get install tigervnc-standalone-server"
)
HERE = Path(__file__).resolve().parent
UPDATES = 3 if TINY else 20
DESKTOPS = {"race": (128, 96) if TINY else (1024, 768), "atari": (160, 210), "mixed": (640, 480)}
RAW = {"Raw race": Encoding.RAW, "Raw atari": Encoding.RAW}
PACKED = {
    "Hextile race": Encoding.HEXTILE,
    "ZRLE race": Encoding.ZRLE,
    "ZRLE atari": Encoding.ZRLE,
    "Tight race": Encoding.TIGHT,
    "Tight atari": Encoding.TIGHT,
    "JPEG mixed": Encoding.TIGHT,
}


def show(desktop: Any, kind: str, number: int) -> None:
    width, height = DESKTOPS[kind]
    if kind == "atari":
        frame = pong()
        frame[40 + 3 * number :][:16, 20:24] = frame[60:64, 30 + 2 * number :][:, :2] = 200
        desktop.show(frame)
    elif kind == "race":
        race = xvnc.game(width * 25 // 32, height * 25 // 32, number)
        desktop.show(race, width // 10, height // 10)
    else:
        desktop.show(xvnc.photo(width // 2, height // 2, number))
        desktop.show(xvnc.text(width // 3, height // 3, number // 8), width // 2, 10)
        desktop.show(xvnc.game(width // 3, height // 3, number), 20, height // 2 + 20)


@functools.cache
def recording(name: str) -> Any:
    size = "x".join(map(str, DESKTOPS["race"]))
    path = HERE.parent / "build" / "rfb" / f"{name.replace(' ', '-')}-{UPDATES}-{size}.xz"
    if not path.exists():
        kind = name.split()[1]
        encodings = [{**RAW, **PACKED}[name], Encoding.COPY_RECT]
        if name.startswith("JPEG"):
            encodings.append(level_encoding(Encoding.QUALITY_0, 6))
        with xvnc.Desktop(*DESKTOPS[kind]) as desktop, xvnc.viewer(desktop, encodings) as viewer:
            for number in range(UPDATES + 1):
                show(desktop, kind, number)
                viewer.update(incremental=number > 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(bytes(viewer.recorded), preset=0))
    return xvnc.read(lzma.decompress(path.read_bytes()))


def paint(
    framebuffer: Framebuffer, updates: list[tuple[bytes, int]], inflater: str | None = None
) -> Any:
    """Decode the recording in place in one buffer, like a connection's inbox."""
    decoder = RectangleDecoder(framebuffer, inflater=inflater)
    for data, count in updates:
        at, end, left = 0, len(data), count
        while left:
            size = decoder.size(data, at, end, left)
            decoder.paint(data, at, decoder.counted)
            at += size
            left -= decoder.counted
    return framebuffer.pixels


@functools.cache
def library() -> Any:
    """Build rfb_player.c with libvncclient; return None if that fails."""
    path = Path(tempfile.mkdtemp(prefix="rfb")) / "player.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", str(HERE / "rfb_player.c"), "-lvncclient"]
    try:
        subprocess.run([*command, "-o", str(path)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return ctypes.CDLL(str(path))


def libvncclient(read: Any) -> tuple[Any, ...]:
    parts = []
    for update in read.updates:
        parts += [bytes(16), b"\0\0" + len(update).to_bytes(2, "big"), *update]
    data = ctypes.create_string_buffer(b"".join(parts))
    size = ctypes.c_size_t(len(data) - 1)
    return library().play, data, size, read.width, read.height, len(read.updates)


def painted(read: Any) -> Any:
    """Return the pixels that libvncclient paints."""
    call, *arguments = libvncclient(read)
    pixels = np.zeros((read.height, read.width, 4), np.uint8)
    assert call(*arguments, pixels.ctypes.data_as(ctypes.c_void_p)) == 0
    return pixels[..., :3]


def asyncvnc(read: Any, updates: list[list[bytes]]) -> None:
    """Paint with asyncvnc, which reads Raw only; the time includes filling its reader."""
    import asyncvnc

    async def play() -> None:
        reader = asyncio.StreamReader(2**26)
        writer: Any = None
        size = read.width, read.height
        video = asyncvnc.Video(reader, writer, zlib.decompress, "", *size, "rgba")
        video.data = np.zeros((size[1], size[0], 4), "B")
        for update in updates:
            reader.feed_data(b"".join(update))
            for _ in update:
                await video.read()

    asyncio.run(play())


def calls(name: str) -> tuple[int, Calls]:
    read = recording(name)
    updates = [(b"".join(update), len(update)) for update in read.updates]
    screen = Framebuffer(read.width, read.height)
    found: Calls = {"rlwire": (paint, screen, updates)}
    for inflater in INFLATERS:
        found[f"rlwire, {inflater}"] = (paint, screen, updates, inflater)
    if library() is not None:
        found["libvncclient"] = (*libvncclient(read), None)
        same = np.array_equal(painted(read), paint(screen, updates)[..., :3])
        assert same or name.startswith("JPEG"), f"{name}: other pixels"
    raw = [[one for one in update if unpack_from(">i", one, 8)[0] == 0] for update in read.updates]
    found["asyncvnc"] = (asyncvnc, read, raw)
    return sum(len(data) for data, _ in updates), found


test_raw = group("libvncclient", "asyncvnc", "rlwire", payloads=tuple(RAW), timer=process_time)(
    calls
)
OURS = [f"rlwire, {inflater}" for inflater in INFLATERS]
test_packed = group("libvncclient", *OURS, payloads=tuple(PACKED), timer=process_time)(calls)


@group("pillow", "rlwire, simplejpeg", timer=process_time)
def test_jpeg_files() -> tuple[int, Calls]:
    """Return the JPEG readers that rlwire may use."""
    files = [
        (one[one.index(b"\xff\xd8", 12) :], *unpack_from(">HH", one, 4))
        for update in recording("JPEG mixed").updates
        for one in update
        if one[8:12] == b"\0\0\0\7" and one[12] >> 4 == 9
    ]

    def read(reader: Any) -> None:
        with mock.patch.object(jpeg_files, "simplejpeg", reader):
            for data, width, height in files:
                jpeg_files.decode_jpeg(data, width, height, 0)

    found: Calls = {"pillow": (read, None)}
    if jpeg_files.simplejpeg is not None:
        found["rlwire, simplejpeg"] = (read, jpeg_files.simplejpeg)
    return sum(len(data) for data, *_ in files), found
