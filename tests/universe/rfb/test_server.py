"""A display and its server, over real sockets: many viewers, and those that behave badly."""

import asyncio
import contextlib
import logging
import select
import socket
import struct
import time

import numpy as np
import pytest

from rlwire.codecs.rfb.messages import RGB888, RGBX, Encoding, KeyEvent, PointerEvent
from rlwire.errors import PeerError
from rlwire.limits import Limits
from rlwire.transports.sockets import Timeouts
from rlwire.universe.rfb import Display, RfbClient, RfbServer
from tests.raising import raised
from tests.transports.drivers import meanwhile
from tests.waiting import eventually

WIDTH, HEIGHT = 64, 48
SOON = 30.0
FULL = struct.pack(">BBHHHH", 3, 0, 0, 0, WIDTH, HEIGHT)


def frame(seed, width=WIDTH, height=HEIGHT):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def watching(server, **options):
    return RfbClient(server.address, **{"encodings": (Encoding.RAW,), **options})


def see(client, expected):
    while not np.array_equal(client.snapshot(), expected):
        client.update(SOON)


def opened(server):
    sock = socket.create_connection((server.address.host, server.address.port))
    sock.settimeout(SOON)
    sock.sendall(b"RFB 003.008\n\1\1")
    size = 12 + 2 + 4 + 24 + len(server.display.name)
    while size:
        size -= len(sock.recv(size))
    return sock


def test_viewers_receive_the_frames_shown():
    display = Display(WIDTH, HEIGHT, name="Pong")
    assert (display.width, display.height, display.frames) == (WIDTH, HEIGHT, 0)
    with (
        RfbServer(display, "127.0.0.1:0") as server,
        watching(server) as one,
        watching(server, encodings=(Encoding.TIGHT,)) as two,
    ):
        assert (one.width, one.height, one.name) == (WIDTH, HEIGHT, "Pong")
        assert server.url == f"universe://127.0.0.1:{server.address.port}"
        for seed in range(3):
            mine = frame(seed)
            display.show(mine)
            expected = mine.copy()
            mine[:] = 0  # a copy was kept
            see(one, expected)
            see(two, expected)
        found = server.statistics()
        assert found["viewers"] == server.viewers == 2
        assert found["frames"] == display.frames == 3
        assert found["updates"] >= 6
    assert server.viewers == 0


def test_slow_viewer_gets_the_newest_frame_and_delays_no_other():
    display = Display(400, 300)
    with (
        RfbServer(display, "127.0.0.1:0") as server,
        watching(server, continuous=False) as slow,
        watching(server) as fast,
    ):
        for seed in range(30):
            shown = frame(seed, 400, 300)
            display.show(shown)
            see(fast, shown)  # and the other one does not read
        before = server.statistics()["updates"]
        see(slow, shown)
        assert server.statistics()["updates"] - before <= 6


def test_input_reaches_the_display():
    events = []

    def on_input(viewer, event):
        events.append((viewer.peer, event))
        if event == KeyEvent(13, True):
            raise KeyError("a handler that fails")
        if event == KeyEvent(14, True):
            raise SystemExit
        if event == KeyEvent(15, True):
            raise asyncio.CancelledError

    display = Display(WIDTH, HEIGHT, on_input=on_input)
    with RfbServer(display, "127.0.0.1:0") as server, watching(server) as client:
        client.send([KeyEvent(code, True) for code in (13, 14, 15)])
        client.key("left", True)
        client.key("é", False)
        client.pointer(3, 4, 1)
        eventually(lambda: len(events) == 6)
        keys = [
            KeyEvent(13, True),
            KeyEvent(14, True),
            KeyEvent(15, True),
            KeyEvent(0xFF51, True),
            KeyEvent(0xE9, False),
        ]
        assert [event for _, event in events] == [*keys, PointerEvent(3, 4, 1)]
        assert events[0][0].startswith("127.0.0.1:")
        assert server.statistics()["inputs"] == 6
        client.update(SOON)  # it goes on


def test_view_password_allows_viewing_only():
    events = []
    display = Display(WIDTH, HEIGHT, on_input=lambda viewer, event: events.append(event))
    with RfbServer(display, "127.0.0.1:0", auth="secret", view_auth="look") as server:
        with watching(server, auth="secret") as client:
            client.key(" ", True)
            eventually(lambda: events)
        with watching(server, auth="look") as client:
            client.key("!", True)
            client.update(SOON)
            assert events == [KeyEvent(32, True)]
        raised(PeerError, watching(server, auth="guess").connect)


def test_client_that_never_reads_is_closed(caplog):
    display = Display(1000, 800)
    caplog.set_level(logging.WARNING)
    times = Timeouts(idle=None, write=0.5)
    request = struct.pack(">BBHHHH", 3, 0, 0, 0, 1000, 800)
    with (
        RfbServer(display, "127.0.0.1:0", timeout=times) as server,
        watching(server) as other,
        opened(server) as sock,
    ):
        eventually(lambda: server.viewers == 2)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def ask():  # more than the system keeps for it
            with contextlib.suppress(OSError):
                while server.viewers == 2:
                    sock.sendall(request)
                    time.sleep(0.01)

        with meanwhile(ask):
            eventually(lambda: server.viewers == 1)
            display.show(frame(3, 1000, 800))
            see(other, frame(3, 1000, 800))
    assert "write=0.5 s" in caplog.text


def test_viewer_that_closes_during_an_update_is_no_error(caplog):
    caplog.set_level(logging.WARNING)
    with RfbServer(Display(WIDTH, HEIGHT), "127.0.0.1:0") as server:
        with opened(server) as sock:
            eventually(lambda: server.viewers == 1)
            sock.sendall(FULL)
            assert select.select([sock], [], [], SOON)[0]
        # The socket was closed with bytes unread: a reset, not an end.
        eventually(lambda: server.viewers == 0)
    assert caplog.text == ""


FLOODS = {
    "requests": FULL,
    "keys": struct.pack(">BBxxI", 4, 1, 97),
    "pointer": struct.pack(">BBHH", 5, 1, 3, 4),
    "encodings": struct.pack(">BxH2i", 2, 2, 0, 1)
    + struct.pack(">BxH1000i", 2, 1000, *range(1000)),
    "pixel formats": bytes(4) + RGBX.pack() + bytes(4) + RGB888.pack(),
    "cut texts": struct.pack(">BxxxI", 6, 1000) + bytes(1000),
}


@pytest.mark.parametrize("what", FLOODS)
def test_flooding_client_delays_no_other_viewer(what):
    display = Display(WIDTH, HEIGHT)
    with (
        RfbServer(display, "127.0.0.1:0") as server,
        opened(server) as bad,
        watching(server) as good,
    ):
        data = FLOODS[what] * (200_000 // len(FLOODS[what]))

        def flood():
            with contextlib.suppress(OSError):
                while True:
                    bad.send(data)

        def swallow():
            with contextlib.suppress(OSError):
                while bad.recv(1 << 20):
                    pass

        with meanwhile(flood), meanwhile(swallow), contextlib.ExitStack() as stack:
            stack.callback(bad.shutdown, socket.SHUT_RDWR)
            for seed in range(5):
                display.show(frame(seed))
                see(good, frame(seed))


def test_invalid_message_closes_only_its_connection(caplog):
    display = Display(WIDTH, HEIGHT)
    with (
        RfbServer(display, "127.0.0.1:0", limits=Limits(string=1000)) as server,
        opened(server) as bad,
        watching(server) as good,
    ):
        bad.sendall(b"\6\0\0\0\0\0\x13\x88")
        assert bad.recv(1) == b""
        display.show(frame(1))
        see(good, frame(1))
    assert "string" in caplog.text


def test_invalid_sizes_and_frames_are_rejected():
    for size in ((0, 5), (5, 0), (65536, 1)):
        assert "1 to 65535" in str(raised(ValueError, Display, *size))
    display = Display(5, 5)
    for bad in (np.zeros((5, 5), np.uint8), np.zeros((5, 5, 4), np.uint8), np.zeros((5, 5, 3))):
        raised(ValueError, display.show, bad)
    raised(ValueError, RfbServer, display, view_auth="x")
