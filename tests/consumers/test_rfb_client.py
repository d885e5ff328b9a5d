"""RFB's client against TigerVNC's Xvnc as it is installed."""

import contextlib
import itertools
import queue
import shutil
import subprocess
import threading
import time

import pytest

from rlwire.codecs.rfb import Encoding
from rlwire.errors import PeerError, RemoteProtocolError
from rlwire.universe.rfb import RfbClient
from tests.programs import end, run, start
from tests.raising import raised
from tests.reference import xvnc

pytestmark = [
    pytest.mark.consumers,
    pytest.mark.skipif(not xvnc.INSTALLED, reason="Xvnc (tigervnc-standalone-server) is missing"),
]

SIZE = 320, 200
SOON = 30.0  # seconds, for what comes at once unless the machine is busy


def await_pixels(client, picture):
    height, width = picture.shape[:2]
    while not (client.framebuffer.pixels[:height, :width] == picture).all():
        client.update(SOON)


@pytest.mark.parametrize(("options", "version"), [((), (3, 8)), (("-Protocol3.3",), (3, 3))])
def test_rfb_client_authenticates_with_a_password(options, version, tmp_path):
    hidden = run(["vncpasswd", "-f"], input=b"secret\n", text=False, check=True)
    (tmp_path / "password").write_bytes(hidden.stdout)
    security = ("-SecurityTypes", "VncAuth", "-PasswordFile", str(tmp_path / "password"))
    with xvnc.Desktop(*SIZE, (*security, *options)) as desktop:
        address = f"unix:{desktop.path}"
        with RfbClient(address, auth="secret") as client:
            assert client.session.version == version
            desktop.show(xvnc.text(*SIZE, 2))
            await_pixels(client, xvnc.text(*SIZE, 2))
        raised(PeerError, RfbClient(address, auth="wrong").connect)
        assert "password" in str(raised(RemoteProtocolError, RfbClient(address).connect))


def test_rfb_client_names_an_unsupported_security_type(tmp_path):
    with (
        xvnc.Desktop(*SIZE, ("-SecurityTypes", "TLSNone")) as desktop,
        pytest.raises(RemoteProtocolError, match=r"VeNCrypt \(19\)"),
    ):
        RfbClient(f"unix:{desktop.path}").connect()


@pytest.mark.parametrize("encoding", ["RAW", "RRE", "HEXTILE", "ZRLE", "TIGHT"])
@pytest.mark.parametrize("continuous", [True, False])
def test_rfb_client_decodes_each_encoding_of_xvnc(encoding, continuous):
    encodings = [Encoding[encoding], Encoding.COPY_RECT]
    with (
        xvnc.Desktop(*SIZE) as desktop,
        RfbClient(f"unix:{desktop.path}", encodings=encodings, continuous=continuous) as client,
    ):
        for number in range(6):
            picture = xvnc.game(200, 150, number)
            desktop.show(picture)
            await_pixels(client, picture)
        assert client.session.continuous == continuous


class Xev:
    """X11's own event viewer, of the root window."""

    def __init__(self, desktop):
        command = ["stdbuf", "-oL", "xev", "-root", "-display", f":{desktop.display}"]
        self._process = start(command, stdout=subprocess.PIPE, text=True)
        self._lines = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def await_line(self, *words, timeout=SOON):
        """Wait until one has these words; return whether it came."""
        until = time.monotonic() + timeout
        with contextlib.suppress(queue.Empty):
            while True:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
                if all(word in line for word in words):
                    return True
        return False

    def close(self):
        self._process.kill()
        self._reader.join()
        end(self._process)


@pytest.mark.skipif(shutil.which("xev") is None, reason="xev (x11-utils) is missing")
def test_xvnc_receives_keys_and_pointer_events():
    with (
        xvnc.Desktop(*SIZE) as desktop,
        contextlib.closing(Xev(desktop)) as xev,
        RfbClient(f"unix:{desktop.path}") as client,
    ):
        # It does not say when it begins to look.
        places = itertools.cycle(range(50))
        client.pointer(next(places), 7)
        while not xev.await_line("root:(", timeout=0.1):
            client.pointer(next(places), 7)
        client.key("Left", True)
        assert xev.await_line("keysym 0xff51, Left")
        client.key("Left", False)
        assert xev.await_line("keysym 0xff51, Left")
        client.pointer(100, 50, 4)
        assert xev.await_line("button 3")
        client.pointer(120, 60, 0)
        assert xev.await_line("button 3")
        # Xvnc adds a key for this one. Xlib asks to hear of new keys at the first key that xev
        # sees, and Xvnc has read that when it has answered two more events.
        client.key("é", True)
        assert xev.await_line("eacute")


def test_rfb_client_follows_a_resized_desktop():
    with (
        xvnc.Desktop(*SIZE) as desktop,
        RfbClient(f"unix:{desktop.path}") as client,
        RfbClient(f"unix:{desktop.path}") as beside,
    ):
        client.update(SOON)
        run(["xrandr", "-display", f":{desktop.display}", "-s", "640x480"], check=True)
        for each in (client, beside):
            while (each.width, each.height) != (640, 480):
                each.update(SOON)
        picture = xvnc.game(640, 480, 3)
        desktop.show(picture)
        await_pixels(client, picture)
        await_pixels(beside, picture)
