"""A display and its server, over real sockets: many viewers, and those that behave badly."""

from __future__ import annotations

import logging
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlwire.adapters.rfb.server import Display, RfbServer, Viewer
from rlwire.codecs.rfb.auth import respond
from rlwire.codecs.rfb.messages import KeyEvent
from rlwire.codecs.rfb.pixels import RGB888, RGBX
from rlwire.limits import Limits
from rlwire.transports.sockets import Timeouts
from tests.reference import rfb as reference
from tests.waiting import eventually

WIDTH, HEIGHT = 64, 48
FULL = (0, 0, WIDTH, HEIGHT)


def frame(seed: int, width: int = WIDTH, height: int = HEIGHT) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


class Client:
    """A viewer on a blocking socket."""

    def __init__(self, server: RfbServer, password: str | None = None) -> None:
        where = server.address
        if where.path:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(where.path)
        else:
            self.sock = socket.create_connection((where.host, where.port))
        self.sock.settimeout(30.0)
        try:
            self._enter(password)
        except BaseException:
            self.sock.close()
            raise

    def _enter(self, password: str | None) -> None:
        assert self.read(12) == b"RFB 003.008\n"
        self.say(b"RFB 003.008\n")
        count = self.read(1)[0]
        if not count:
            raise PermissionError(self.reason())
        kind = self.read(count)
        self.say(kind)
        if kind == b"\2":
            assert password is not None
            self.say(respond(self.read(16), password))
        if self.read(4) != bytes(4):
            raise PermissionError(self.reason())
        self.say(b"\1")
        width, height = struct.unpack(">HH", self.read(4))
        self.read(16)
        (size,) = struct.unpack(">I", self.read(4))
        self.name = self.read(size).decode()
        self.viewer = reference.Viewer(width, height)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.sock.close()

    def reason(self) -> str:
        (size,) = struct.unpack(">I", self.read(4))
        return self.read(size).decode()

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def encodings(self, *numbers: int) -> None:
        self.say(struct.pack(f">BxH{len(numbers)}i", 2, len(numbers), *numbers))

    def request(self, incremental: int = 1) -> None:
        self.say(
            struct.pack(">BBHHHH", 3, incremental, 0, 0, self.viewer.width, self.viewer.height)
        )

    def message(self) -> None:
        kind, count = struct.unpack(">BxH", self.read(4))
        assert kind == 0
        for _ in range(count):
            self.viewer.rectangle(self.read)

    def update(self, incremental: int = 1) -> Any:
        self.request(incremental)
        self.message()
        return self.viewer.frame

    def see(self, expected: Any) -> None:
        """Take in updates until the screen is this frame."""
        shown = self.viewer.frame
        while shown.shape != expected.shape or (shown != expected).any():
            shown = self.update()

    def hear_end(self) -> None:
        def drain() -> None:
            while True:
                self.read(1)

        with pytest.raises((EOFError, ConnectionError)):
            drain()


@contextmanager
def serving(display: Display, **options: Any) -> Iterator[RfbServer]:
    with RfbServer(display, options.pop("address", "127.0.0.1:0"), **options) as server:
        yield server
        assert server.statistics() is not None


def test_viewers_see_what_is_shown() -> None:
    display = Display(WIDTH, HEIGHT, name="Pong")
    assert (display.width, display.height, display.frames) == (WIDTH, HEIGHT, 0)
    with serving(display) as server, Client(server) as one, Client(server) as two:
        assert one.name == "Pong"
        two.encodings(reference.TIGHT)
        for seed in range(3):
            mine = frame(seed)
            display.show(mine)
            expected = mine.copy()
            mine[:] = 0  # a copy was kept
            for client in (one, two):
                client.see(expected)
        assert display.frames == 3
        found = server.statistics()
        assert found["viewers"] == server.viewers == 2
        assert found["frames"] == 3
        assert found["updates"] >= 6
        one.request()  # who has asked is told when something changes
        display.show(frame(7))
        one.message()
        assert (one.viewer.frame == frame(7)).all()
    assert server.viewers == 0


def test_a_display_has_another_size() -> None:
    display = Display(WIDTH, HEIGHT)
    with serving(display) as server, Client(server) as client:
        client.encodings(reference.TIGHT, reference.DESKTOP_SIZE)
        client.update(0)
        display.show(frame(1, 100, 30))
        client.see(frame(1, 100, 30))
        assert display.width == 100


def test_a_slow_viewer_sees_the_newest_and_holds_up_nobody() -> None:
    display = Display(400, 300)
    with serving(display) as server, Client(server) as slow, Client(server) as fast:
        slow.encodings(reference.RAW)
        slow.request(0)
        for seed in range(30):
            shown = frame(seed, 400, 300)
            display.show(shown)
            slow.request()  # and it does not read
            fast.see(shown)
        before = server.statistics()["updates"]
        slow.message()  # the one that was on its way
        slow.message()
        if (slow.viewer.frame != shown).any():
            slow.see(shown)
        assert server.statistics()["updates"] - before <= 6


def test_input_comes_to_the_display() -> None:
    events: list[tuple[str, Any]] = []

    def on_input(viewer: Viewer, event: Any) -> None:
        events.append((viewer.peer, event))
        if event == KeyEvent(13, True):
            raise KeyError("a handler that fails")

    display = Display(WIDTH, HEIGHT, on_input=on_input)
    with serving(display) as server, Client(server) as client:
        client.say(b"".join(struct.pack(">BBxxI", 4, 1, key) for key in (13, 14)))
        eventually(lambda: len(events) == 2)
        assert [event for _, event in events] == [KeyEvent(13, True), KeyEvent(14, True)]
        assert events[0][0].startswith("127.0.0.1:")
        assert server.statistics()["inputs"] == 2
        client.see(np.zeros((HEIGHT, WIDTH, 3), np.uint8))  # it goes on


def test_passwords() -> None:
    events: list[Any] = []
    display = Display(WIDTH, HEIGHT, on_input=lambda viewer, event: events.append(event))
    with serving(display, auth="secret", view_auth="look") as server:
        with Client(server, "secret") as client:
            client.say(struct.pack(">BBxxI", 4, 1, 32))
            eventually(lambda: events)
        with Client(server, "look") as client:
            client.say(struct.pack(">BBxxI", 4, 1, 33))
            client.update(0)
            assert events == [KeyEvent(32, True)]
        with pytest.raises(PermissionError, match="the password is wrong"):
            Client(server, "guess")


def test_a_client_that_never_reads_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    display = Display(1000, 800)
    caplog.set_level(logging.WARNING)
    times = Timeouts(idle=None, write=0.5)
    with (
        serving(display, timeouts=times) as server,
        Client(server) as other,
        Client(server) as client,
    ):
        eventually(lambda: server.viewers == 2)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # More than the system keeps for it.
        client.say(12 * struct.pack(">BBHHHH", 3, 0, 0, 0, 1000, 800))
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                try:
                    client.request(0)
                except OSError:
                    return
                stop.wait(0.01)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            eventually(lambda: server.viewers == 1)
            display.show(frame(3, 1000, 800))
            other.see(frame(3, 1000, 800))
        finally:
            stop.set()
            asking.join()
    assert "did not take a message within write=0.5 s" in caplog.text


def test_who_leaves_in_the_middle_of_an_update_just_left(caplog: pytest.LogCaptureFixture) -> None:
    display = Display(WIDTH, HEIGHT)
    caplog.set_level(logging.WARNING)
    with serving(display) as server:
        with Client(server) as client:
            eventually(lambda: server.viewers == 1)
            client.request(0)
            assert select.select([client.sock], [], [], 30)[0]
        # The socket was closed with bytes unread: a reset, not an end.
        eventually(lambda: server.viewers == 0)
    assert caplog.text == ""


FLOODS = {
    "requests": struct.pack(">BBHHHH", 3, 0, *FULL),
    "keys": struct.pack(">BBxxI", 4, 1, 97),
    "pointer": struct.pack(">BBHH", 5, 1, 3, 4),
    "encodings": struct.pack(">BxH2i", 2, 2, 0, 1)
    + struct.pack(">BxH1000i", 2, 1000, *range(1000)),
    "pixel formats": bytes(4) + RGBX.pack() + bytes(4) + RGB888.pack(),
    "cut texts": struct.pack(">BxxxI", 6, 1000) + bytes(1000),
}


@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_leaves_the_others_alone(what: str) -> None:
    display = Display(WIDTH, HEIGHT)
    with serving(display) as server, Client(server) as bad, Client(server) as good:
        data = FLOODS[what] * (200_000 // len(FLOODS[what]))
        over = threading.Event()

        def flood() -> None:
            try:
                while not over.is_set():
                    bad.sock.send(data)
            except OSError:
                pass

        def swallow() -> None:
            try:
                while bad.sock.recv(1 << 20):
                    pass
            except OSError:
                pass

        threads = [threading.Thread(target=flood), threading.Thread(target=swallow)]
        for thread in threads:
            thread.start()
        try:
            for seed in range(5):
                display.show(frame(seed))
                good.see(frame(seed))
        finally:
            over.set()
            bad.sock.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


@pytest.mark.parametrize(
    ("said", "log"),
    [
        (b"\x63", "99 is no type of a client's message"),
        (struct.pack(">BxxxI", 6, 5000), "string"),
        (struct.pack(">BxxxIB", 248, 0, 200), "64 bytes at most"),
        (struct.pack(">BBHHHH", 150, 1, *FULL), "not agreed on"),
        (b"\0" * 20, "colours of a map"),
    ],
)
def test_bad_messages_end_that_connection_only(
    said: bytes, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    display = Display(WIDTH, HEIGHT)
    with (
        serving(display, limits=Limits(string=1000)) as server,
        Client(server) as bad,
        Client(server) as good,
    ):
        bad.say(said)
        bad.hear_end()
        display.show(frame(1))
        good.see(frame(1))
    assert log in caplog.text


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"RFB 001.000\n", b"\0" * 12])
def test_who_speaks_something_else_is_told_to_go(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        serving(Display(WIDTH, HEIGHT)) as server,
        socket.create_connection((server.address.host, server.address.port)) as sock,
    ):
        sock.settimeout(30.0)
        sock.sendall(said)
        data = b""
        try:
            while part := sock.recv(4096):
                data += part
        except ConnectionError:
            pass
        assert data.startswith(b"RFB 003.008\n")
    assert "closed, it sent what is not allowed" in caplog.text


def test_too_many_viewers_hear_why() -> None:
    with (
        serving(Display(WIDTH, HEIGHT), max_connections=1) as server,
        Client(server),
        pytest.raises(PermissionError, match="connections"),
    ):
        Client(server)


def test_over_a_unix_socket(tmp_path: Path) -> None:
    display = Display(WIDTH, HEIGHT)
    with serving(display, address=f"unix:{tmp_path}/vnc") as server, Client(server) as client:
        display.show(frame(1))
        client.see(frame(1))
        assert server.url == f"unix:{tmp_path}/vnc"


def test_the_url_has_pixels_only() -> None:
    with serving(Display(WIDTH, HEIGHT)) as server:
        assert server.url == f"universe://127.0.0.1:{server.address.port}"


def test_one_display_is_served_twice_and_again() -> None:
    display = Display(WIDTH, HEIGHT)
    with (
        serving(display) as one,
        serving(display) as two,
        Client(one) as first,
        Client(two) as second,
    ):
        display.show(frame(1))
        first.see(frame(1))
        second.see(frame(1))
    one.start()
    try:
        with Client(one) as first:
            display.show(frame(2))
            first.see(frame(2))
    finally:
        one.stop()
    display.show(frame(3))  # nobody looks


def test_what_makes_no_sense() -> None:
    for size in ((0, 5), (5, 0), (65536, 1)):
        with pytest.raises(ValueError, match="1 to 65535"):
            Display(*size)
    display = Display(5, 5)
    for bad in (np.zeros((5, 5), np.uint8), np.zeros((5, 5, 4), np.uint8), np.zeros((5, 5, 3))):
        with pytest.raises(ValueError, match="a frame is"):
            display.show(bad)
    with pytest.raises(ValueError, match="of no use"):
        RfbServer(display, view_auth="x")
