"""Our RFB server seen by real viewers: TigerVNC's, with screenshots, and one of libvncclient."""

import functools
import io
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.universe.rfb.server import Display, RfbServer
from tests.programs import run, running
from tests.reference.xvnc import x_server
from tests.waiting import eventually

NEEDED = ("Xvfb", "xtigervncviewer", "xdotool", "import", "vncpasswd")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
WIDTH, HEIGHT = 320, 210
wait_for = functools.partial(eventually, seconds=90.0)
HERE = Path(__file__).resolve().parent

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(300)]
needs_viewer = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} missing")


def game(seed, width=WIDTH, height=HEIGHT):
    """A frame as games have them: large squares of few colours, and something smooth."""
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 256, (12, 3), dtype=np.uint8)
    squares = palette[rng.integers(0, 12, (height // 10, width // 10))]
    frame = squares.repeat(10, axis=0).repeat(10, axis=1)
    y, x = np.mgrid[:60, :100]
    frame[50:110, 80:180] = np.stack([2 * x + seed, 4 * y, x + y], axis=2)
    return np.ascontiguousarray(frame)


class Desktop:
    """An X server without a screen, for viewers to show themselves on."""

    def __init__(self, number):
        self.environ = {**os.environ, "DISPLAY": f":{number}"}

    @contextmanager
    def viewer(self, server, *options):
        where = f"127.0.0.1::{server.address.port}"
        command = ["xtigervncviewer", where, "-AutoSelect=0", "-RemoteResize=0", *options]
        # It is killed, because at SIGTERM it may hang: TigerVNC 1.12's handler calls exit().
        with running(command, env=self.environ, stderr=subprocess.DEVNULL):
            wait_for(lambda: server.viewers)
            yield
        wait_for(lambda: not server.viewers)

    def do(self, *command):
        return run(command, env=self.environ, text=False, check=True).stdout

    def screenshot(self):
        picture = Image.open(io.BytesIO(self.do("import", "-window", "root", "png:-")))
        return np.asarray(picture.convert("RGB"))

    def find(self, frame, near=0.0):
        """Return what tells whether a frame is seen, each pixel so far off at most on average."""
        height, width, _ = frame.shape

        def seen():
            shot = self.screenshot().astype(int)
            for y in range(40):  # where a window without a frame is put
                for x in range(10):
                    part = shot[y : y + height, x : x + width]
                    if np.abs(part[::31, ::17] - frame[::31, ::17]).mean() > near:
                        continue
                    if np.abs(part - frame).mean() <= near:
                        return True
            return False

        return seen


@pytest.fixture
def desktop():
    with x_server("Xvfb", "-screen", "0", "800x600x24") as number:
        yield Desktop(number)


@needs_viewer
@pytest.mark.parametrize(
    ("options", "near"),
    [
        (["-PreferredEncoding=Raw", "-NoJPEG=1"], 0.0),
        (["-PreferredEncoding=ZRLE", "-NoJPEG=1"], 0.0),
        (["-PreferredEncoding=Tight", "-NoJPEG=1"], 0.0),
        (["-PreferredEncoding=Tight", "-QualityLevel=8", "-NoJPEG=0"], 20.0),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_tigervnc_shows_each_frame(desktop, options, near):
    display = Display(WIDTH, HEIGHT, name="shown")
    display.show(game(0))
    with RfbServer(display, "127.0.0.1:0") as server, desktop.viewer(server, *options):
        # It covers a part with a hint for some seconds.
        wait_for(desktop.find(game(0), near))
        for seed in range(1, 4):
            display.show(game(seed))
            wait_for(desktop.find(game(seed), near))
        display.show(game(9, 250, 180))
        wait_for(desktop.find(game(9, 250, 180), near))


@needs_viewer
@pytest.mark.parametrize("password", ["play", "watch"])
def test_tigervnc_sends_input_unless_view_only(desktop, password, tmp_path):
    events = []
    display = Display(WIDTH, HEIGHT, on_input=lambda viewer, event: events.append(event))
    display.show(game(0))
    with RfbServer(display, "127.0.0.1:0", auth="play", view_auth="watch") as server:
        file = tmp_path / password
        given = {"input": password.encode(), "text": False}
        file.write_bytes(run(["vncpasswd", "-f"], check=True, **given).stdout)
        with desktop.viewer(server, f"-PasswordFile={file}", "-NoJPEG=1"):
            wait_for(desktop.find(game(0)))
            before = server.statistics().get("ignored", 0)
            windows = desktop.do("xdotool", "search", "--onlyvisible", "--name", "TigerVNC")
            window = windows.split()[0]
            # No window manager gives it the focus.
            focus = ["mousemove", "100", "100", "windowfocus", "--sync", window]
            desktop.do("xdotool", *focus, "key", "Left", "click", "1")
            if password == "play":
                wait_for(lambda: KeyEvent(0xFF51, False) in events)
                assert KeyEvent(0xFF51, True) in events
                wait_for(
                    lambda: any(isinstance(e, PointerEvent) and e.buttons == 1 for e in events)
                )
            else:
                wait_for(lambda: server.statistics().get("ignored", 0) >= before + 4)
                display.show(game(5))
                wait_for(desktop.find(game(5)))
                assert events == []


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    """A small viewer over libvncclient, built from the C beside this file."""
    if shutil.which("cc") is None or shutil.which("pkg-config") is None:
        pytest.skip("no C compiler or pkg-config")
    found = run(["pkg-config", "--cflags", "--libs", "libvncclient"])
    if found.returncode:
        pytest.skip("libvncclient's headers (libvncserver-dev) are missing")
    program = tmp_path_factory.mktemp("libvncclient") / "snapshot"
    source = str(HERE / "rfb_snapshot.c")
    run(["cc", source, "-o", str(program), *found.stdout.split()], check=True)
    return program


@pytest.mark.parametrize("encoding", ["raw", "zrle", "tight"])
@pytest.mark.parametrize("password", [None, "secret"])
def test_libvncclient_shows_each_frame(snapshot, encoding, password):
    events = []
    display = Display(WIDTH, HEIGHT, on_input=lambda viewer, event: events.append(event))
    with RfbServer(display, "127.0.0.1:0", auth=password) as server:
        display.show(game(0))
        with looking(snapshot, server, encoding, password) as screen:
            for seed in range(1, 5):
                frame = game(seed)
                display.show(frame)
                wait_for(lambda frame=frame: np.array_equal(screen(), frame))
            wait_for(lambda: KeyEvent(0x61, False) in events)


def test_libvncclient_follows_a_new_size(snapshot):
    display = Display(WIDTH, HEIGHT)
    with RfbServer(display, "127.0.0.1:0") as server, looking(snapshot, server, "tight") as screen:
        for width, height in ((WIDTH, HEIGHT), (250, 180), (400, 300)):
            frame = game(1, width, height)
            display.show(frame)
            wait_for(lambda frame=frame: np.array_equal(screen(), frame))


@contextmanager
def looking(snapshot, server, encoding, password=None):
    """Run the viewer; what it yields takes in what comes for a moment and returns the screen."""
    command = [str(snapshot), str(server.address.port), encoding, password or ""]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        written, read = process.stdin, process.stdout
        assert written is not None
        assert read is not None

        def screen():
            written.write(b"x")
            written.flush()
            width, height = np.frombuffer(read.read(8), np.int32)
            return np.frombuffer(read.read(3 * width * height), np.uint8).reshape(height, width, 3)

        yield screen
        process.communicate(timeout=30)
        assert process.returncode == 0
