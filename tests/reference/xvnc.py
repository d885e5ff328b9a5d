"""TigerVNC's Xvnc with something moving on it, and what it says to a client of one encoding.

No window system's library is needed: pictures go to the root window in five of X11's requests
(X Window System Protocol, appendix B). The client asks for one update at a time. Of rlwire only the
rectangles' borders are used, since a recording has no others.
"""

import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlwire.codecs.rfb import Encoding, Framebuffer, RectangleDecoder
from rlwire.codecs.rfb.messages import RGBX
from tests.programs import running

INSTALLED = shutil.which("Xvnc") is not None
TIMEOUT = 60.0  # seconds


def receive(connection, size):
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the server has gone")
        data += piece
    return bytes(data)


@contextmanager
def x_server(*command):
    """Run an X server in the block; yield the number of its display, which the server chooses."""
    ready, tell = os.pipe()
    with ExitStack() as stack, open(ready, "rb") as display:
        try:
            command = (*command, "-displayfd", str(tell), "-noreset", "-nolisten", "tcp")
            quiet = {"stderr": subprocess.DEVNULL}
            server = stack.enter_context(running(command, pass_fds=[tell], **quiet))
        finally:
            os.close(tell)
        readable, _, _ = select.select([display], [], [], TIMEOUT)
        number = display.readline() if readable else b""
        if not number:
            raise ConnectionError(f"{command[0]} names no display; its status is {server.poll()}")
        try:
            yield int(number)
        finally:
            server.terminate()  # a killed one leaves its socket and its lock in /tmp
            with suppress(subprocess.TimeoutExpired):
                server.wait(TIMEOUT)


class Desktop:
    """An Xvnc without a network, and an X11 client that paints on its root window.

    Args:
        width, height: of its screen.
        security: Xvnc's options for who may connect.

    Attributes:
        path: of its unix socket.
        display: X11's number of it.
    """

    def __init__(self, width, height, security=("-SecurityTypes", "None")):
        with ExitStack() as starting:
            folder = starting.enter_context(tempfile.TemporaryDirectory(prefix="xvnc"))
            self.path = str(Path(folder) / "rfb")
            command = ["Xvnc", "-geometry", f"{width}x{height}", "-depth", "24"]
            command += ["-rfbunixpath", self.path, "-rfbport", "-1", "-AlwaysShared", *security]
            self.display = starting.enter_context(x_server(*command))
            self._x = starting.enter_context(closing(socket.socket(socket.AF_UNIX)))
            self._x.settimeout(TIMEOUT)
            self._x.connect(f"/tmp/.X11-unix/X{self.display}")
            self._open()
            self._closing = starting.pop_all()

    def _open(self):
        self._x.sendall(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))
        status, length = struct.unpack("<BxxxxxH", receive(self._x, 8))
        setup = receive(self._x, 4 * length)
        if status != 1:
            raise ConnectionError(f"X11 refuses: {setup!r}")
        self._gc, vendor, formats = struct.unpack_from("<4xI8xH3xB", setup)
        screen = 32 + (vendor + 3) // 4 * 4 + 8 * formats
        (self._root,) = struct.unpack_from("<I", setup, screen)
        self._depth = setup[screen + 38]
        self._request(55, 0, struct.pack("<III", self._gc, self._root, 0))

    def _request(self, opcode, detail, body):
        self._x.sendall(struct.pack("<BBH", opcode, detail, 1 + len(body) // 4) + body)

    def show(self, picture, x=0, y=0):
        """Paint rows of R, G, B at a place."""
        height, width = picture.shape[:2]
        pixels = np.zeros((height, width, 4), np.uint8)
        pixels[..., :3] = picture[..., ::-1]
        rows = 200_000 // (4 * width)
        for top in range(0, height, rows):
            part = pixels[top : top + rows]
            head = struct.pack(
                "<IIHHhhBBxx", self._root, self._gc, width, len(part), x, y + top, 0, self._depth
            )
            self._request(72, 2, head + part.tobytes())
        self._wait()

    def scroll(self, x, y, to_x, to_y, width, height):
        """Copy a part of the screen."""
        places = struct.pack("<hhhhHH", x, y, to_x, to_y, width, height)
        self._request(62, 0, struct.pack("<III", self._root, self._root, self._gc) + places)
        self._wait()

    def _wait(self):
        """Return when all before this has been done: an answer comes after it."""
        self._request(43, 0, b"")
        while True:
            answer = receive(self._x, 32)
            if answer[0] == 0:
                raise RuntimeError(f"X11 error {answer[1]} of request {answer[10]}")
            if answer[0] == 1:
                return

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._closing.close()


class Viewer:
    """A connection that asks for updates, decodes them, and keeps every byte.

    Attributes:
        recorded: ServerInit, with the pixel format that was asked for, and all messages since.
    """

    def __init__(self, path, encodings):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT)
        self._socket.connect(path)
        say = self._socket.sendall
        receive(self._socket, 12)
        say(b"RFB 003.008\n")
        receive(self._socket, receive(self._socket, 1)[0])
        say(b"\1")  # no password
        if receive(self._socket, 4) != bytes(4):
            raise ConnectionError("the server refuses")
        say(b"\1")  # shared
        opening = receive(self._socket, 24)
        width, height = struct.unpack(">HH", opening[:4])
        name = receive(self._socket, struct.unpack(">I", opening[20:])[0])
        self.recorded = bytearray(opening[:4] + RGBX.pack() + opening[20:] + name)
        say(b"\0\0\0\0" + RGBX.pack())
        numbers = [*encodings, Encoding.LAST_RECT]
        say(struct.pack(f">BxH{len(numbers)}i", 2, len(numbers), *numbers))
        self.framebuffer = Framebuffer(width, height)
        self.decoder = RectangleDecoder(self.framebuffer)

    def update(self, *, incremental):
        """Ask for one update, take it in, and return the pixels: a view."""
        size = self.framebuffer.width, self.framebuffer.height
        self._socket.sendall(struct.pack(">BBHHHH", 3, incremental, 0, 0, *size))
        while True:
            kind = self._take(1)[0]
            if kind == 0:
                break
            if kind == 3:  # cut text
                self._take(struct.unpack(">3xI", self._take(7))[0])
            elif kind != 2:  # a bell
                raise ConnectionError(f"message {kind}")
        _, count = struct.unpack(">BH", self._take(3))
        while count:
            rectangle = bytearray(self._take(12))
            while not (size_now := self.decoder.size(rectangle, 0, len(rectangle))):
                rectangle += self._take(1)
            rectangle += self._take(size_now - len(rectangle))
            done = self.decoder.paint(rectangle, 0, 1)
            if not done:  # a LastRect
                break
            count -= 1
        return self.framebuffer.pixels

    def _take(self, size):
        data = receive(self._socket, size) if size else b""
        self.recorded += data
        return data

    def close(self):
        self._socket.close()


@contextmanager
def viewer(desktop, encodings):
    with closing(Viewer(desktop.path, encodings)) as one:
        yield one


class Recording(NamedTuple):
    """What a viewer recorded, taken apart: of each update its rectangles."""

    width: int
    height: int
    updates: list[list[bytes]]


def read(recorded):
    width, height = struct.unpack_from(">HH", recorded)
    at = 24 + struct.unpack_from(">I", recorded, 20)[0]
    borders = RectangleDecoder(Framebuffer(width, height))
    found = Recording(width, height, [])
    while at < len(recorded):
        kind, count = struct.unpack_from(">BxH", recorded, at)
        if kind == 2:
            at += 1
            continue
        if kind == 3:
            at += 8 + struct.unpack_from(">I", recorded, at + 4)[0]
            continue
        at += 4
        rectangles = []
        while len(rectangles) < count:
            size = borders.size(recorded, at, len(recorded))
            rectangles.append(recorded[at : at + size])
            at += size
            if struct.unpack_from(">i", rectangles[-1], 8)[0] == Encoding.LAST_RECT:
                break
        found.updates.append(rectangles)
    return found


def game(width, height, number):
    """A road that comes closer: few colours, edges everywhere, some texture."""
    rows, columns = np.mgrid[0:height, 0:width]
    horizon = height // 3
    depth = np.maximum(rows - horizon, 1)
    stripe = (2000 * height // (8 * depth) + 9 * number) // 60 % 2
    centre = width / 2 + (width / 8) * np.sin(number / 9) * (1 - depth / height)
    aside = np.abs(columns - centre) / (0.15 * width + 0.6 * depth)
    picture = np.empty((height, width, 3), np.uint8)
    picture[...] = np.where(stripe[..., None] > 0, [16, 150, 16], [0, 120, 8])
    picture[aside < 1.1] = [230, 230, 230]
    picture[aside < 1.0] = [96, 96, 100]
    texture = np.random.default_rng(5).integers(0, 24, (height, width), dtype=np.uint8)
    texture = np.roll(texture, 7 * number, axis=0) // 8 * 8
    picture += (texture * (rows > horizon))[..., None]
    sky = rows <= horizon
    picture[sky] = np.stack([60 + rows // 8, 120 + rows // 8, 200 + rows * 0], -1)[sky]
    for i in range(6):  # cars
        left = (97 * i + 13 * number) % max(width - 40, 1)
        top = horizon + (61 * i + 5 * number) % max(height - horizon - 20, 1)
        picture[top : top + 18, left : left + 36] = [40 * i, 255 - 30 * i, 90]
        picture[top + 4 : top + 9, left + 6 : left + 30] = [20, 20, 40]
    return picture


def photo(width, height, number):
    """Smooth colours with noise, as a camera has them."""
    rows, columns = np.mgrid[0:height, 0:width] / 40.0
    waves = [np.sin(rows + i + number / 7) + np.cos(columns * (i + 1) / 2) for i in range(3)]
    noise = np.random.default_rng(number).normal(0, 3, (height, width, 3))
    return np.clip(128 + 50 * np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


def text(width, height, number):
    """Dark marks on paper, as a page of text has them."""
    marks = np.random.default_rng(number).random((height // 2 + 1, width // 2 + 1)) < 0.3
    marks = marks.repeat(2, 0).repeat(2, 1)[:height, :width]
    marks &= (np.arange(height) % 14 < 10)[:, None]
    return np.where(marks[..., None], [20, 20, 60], [250, 250, 240]).astype(np.uint8)
