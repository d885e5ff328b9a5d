from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.messages import (
    Fence,
    KeyEvent,
    PointerEvent,
    SetEncodings,
    decode_client_message,
    encode,
)
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
)
from rlwire.transports.sockets import Timeouts
from rlwire.universe.rfb import Display, RfbServer, Screen, Screens
from tests.waiting import eventually

SOON = 20.0  # seconds, for what comes at once unless the machine is busy

Start = Callable[[Callable[[Any], object]], str]


def frame(grey: int, height: int = 48, width: int = 64) -> np.ndarray:
    return np.full((height, width, 3), grey, np.uint8)


def await_grey(screen: Screen, grey: int) -> None:
    seen = 0
    while not (screen.read() == grey).all():
        assert screen.wait(SOON, seen + 1)
        seen = screen.updates


def test_many_screens_at_once() -> None:
    displays = [Display(64, 48, name=f"game {number}") for number in range(8)]
    servers = [RfbServer(display, "127.0.0.1:0") for display in displays]
    for server in servers:
        server.start()
    try:
        with Screens() as screens:
            held = [screens.add(str(server.address)) for server in servers]
            for number, (display, screen) in enumerate(zip(displays, held, strict=True)):
                display.show(frame(number + 1))
                assert screen.wait(SOON)
                await_grey(screen, number + 1)
                assert screen.ready
                assert screen.error is None
                assert (screen.width, screen.height) == (64, 48)
                assert screen.name == f"game {number}"
                assert screen.painted_at is not None
                assert screen.statistics()["updates"] >= 1
            assert len(screens) == 8
            held[0].close()
            with pytest.raises(ConnectionClosed):
                held[0].wait(SOON, 1 << 40)
            assert not held[0].ready
            displays[1].show(frame(200))
            await_grey(held[1], 200)
        assert all(isinstance(screen.error, ConnectionClosed) for screen in held)
        with pytest.raises(ConnectionClosed, match="are closed"):
            screens.add("127.0.0.1:1")
        screens.close()
    finally:
        for server in servers:
            server.stop()


def test_one_that_fails_touches_no_other(scripted: Start) -> None:
    def garbage(peer: Any) -> None:
        peer.greet()
        peer.say(b"\xff")

    def refuses(peer: Any) -> None:
        peer.say(b"RFB 003.008\n")
        peer.take(12)
        peer.say(b"\0\0\0\0\4busy")

    display = Display(64, 48)
    with RfbServer(display, "127.0.0.1:0") as server, Screens() as screens:
        good = screens.add(str(server.address))
        bad = [screens.add(address) for address in (scripted(garbage), scripted(refuses))]
        nowhere = screens.add("127.0.0.1:1")
        for screen, kind in ((bad[0], DecodeError), (bad[1], PeerError), (nowhere, OSError)):
            with pytest.raises(kind):
                screen.wait(SOON)
            assert isinstance(screen.error, kind)
            with pytest.raises(kind):
                screen.send(KeyEvent(97, True))
            assert screen.round_trip() is None
            assert str(screen.error) in repr(screen)
        display.show(frame(3))
        assert good.wait(SOON)
        await_grey(good, 3)


def said(encoding: int, data: bytes = b"", width: int = 8, height: int = 4, x: int = 0) -> bytes:
    """An update of one rectangle of a screen of 8x4."""
    return struct.pack(">BxHHHHHi", 0, 1, x, 0, width, height, encoding) + data


def zrle(tiles: bytes) -> bytes:
    data = zlib.compress(tiles)
    return said(Encoding.ZRLE, struct.pack(">I", len(data)) + data)


HOSTILE: dict[str, tuple[bytes, type[Exception], str]] = {
    "a rectangle outside": (said(Encoding.RAW, bytes(128), x=1), DecodeError, "end at 9"),
    "a zlib bomb": (zrle(b"\1abc" + bytes(10_000_000)), DecodeError, "after the end"),
    "an endless cut text": (b"\3\0\0\0\x80\0\0\0" + bytes(1000), LimitExceeded, "string"),
    "a stop in a rectangle": (said(Encoding.RAW, bytes(100)), DeadlineExceeded, "not whole"),
}


def test_what_a_server_should_not_say_ends_that_screen_only(scripted: Start) -> None:
    def saying(data: bytes) -> Callable[[Any], object]:
        def script(peer: Any) -> None:
            peer.greet()
            peer.say(data)

        return script

    display = Display(64, 48)
    with RfbServer(display, "127.0.0.1:0") as server, Screens() as screens:
        good = screens.add(str(server.address))
        times = Timeouts(read=0.5, idle=None)
        bad = {
            name: screens.add(scripted(saying(data)), timeouts=times)
            for name, (data, _, _) in HOSTILE.items()
        }
        for name, screen in bad.items():
            _, kind, words = HOSTILE[name]
            with pytest.raises(kind, match=words):
                screen.wait(SOON)
            assert screen.updates == 0, name
        display.show(frame(3))
        assert good.wait(SOON)
        await_grey(good, 3)


def test_what_is_not_connected_yet_has_nothing(scripted: Start) -> None:
    with Screens() as screens:
        screen = screens.add(scripted(lambda peer: None))
        assert not screen.ready
        assert not screen.wait(0.01)
        for ask in (screen.read, lambda: screen.width, lambda: screen.send(KeyEvent(97, True))):
            with pytest.raises(ConnectionClosed, match="no pixels yet"):
                ask()
        assert screen.take() == []
        assert "not ready" in repr(screen)


def test_options_of_all_and_of_one() -> None:
    with RfbServer(Display(64, 48), "127.0.0.1:0") as server, Screens(channels=4) as screens:
        one, two = screens.add(str(server.address)), screens.add(str(server.address), channels=3)
        for screen, channels in ((one, 4), (two, 3)):
            assert screen.wait(SOON)
            assert screen.read().shape == (48, 64, channels)
        with pytest.raises(ValueError, match="quality"):
            screens.add(str(server.address), quality=10)
        assert len(screens) == 2


def test_input_arrives_in_order() -> None:
    heard: list[Any] = []
    display = Display(64, 48, on_input=lambda viewer, message: heard.append(message))
    said = [PointerEvent(number, 1) for number in range(50)]
    with RfbServer(display, "127.0.0.1:0") as server, Screens() as all_:
        screen = all_.add(str(server.address))
        assert screen.wait(SOON)
        for message in said[:25]:
            screen.send(message)
        screen.send(said[25:])
        with pytest.raises(EncodeError):
            screen.send([KeyEvent(97, True), KeyEvent(-1, True)])
        with pytest.raises(LocalProtocolError):
            screen.send(SetEncodings((0,)))
        eventually(lambda: len(heard) == 50)
    assert heard == said


def test_only_what_has_changed_is_copied(scripted: Start) -> None:
    steps = [threading.Event() for _ in range(2)]

    def script(peer: Any) -> None:
        peer.greet()
        peer.update(peer.rectangle(0, 0, 8, 4, 1))
        steps[0].wait(SOON)
        peer.update(peer.rectangle(1, 1, 2, 2, 9))
        steps[1].wait(SOON)
        peer.update(b"\0\0\0\0\0\x02\0\x02\xff\xff\xff\x21", peer.rectangle(0, 0, 2, 2, 4))

    batch = np.zeros((2, 4, 8, 3), np.uint8)
    mine = batch[1]
    with Screens() as screens:
        screen = screens.add(scripted(script))
        assert screen.wait(SOON)
        screen.read_changes(mine)
        assert (mine == 1).all()
        mine[0, 0] = 77  # is not touched again: it did not change there
        steps[0].set()
        assert screen.wait(SOON, 2)
        (changed,) = screen.read_changes(mine)
        assert tuple(changed)[:4] == (1, 1, 2, 2)
        assert (mine[1:3, 1:3] == 9).all()
        assert (mine[0, 0] == 77).all()
        assert screen.read_changes(mine) == []
        steps[1].set()
        assert screen.wait(SOON, 3)
        with pytest.raises(ValueError, match=r"."):
            screen.read_changes(mine)
        small = np.zeros((2, 2, 3), np.uint8)
        changes = screen.read_changes(small)
        assert (small == 4).all()
        assert tuple(changes[0])[:4] == (0, 0, 2, 2)
        assert screen.take() == []


def test_a_round_trip_is_measured(scripted: Start) -> None:
    def script(peer: Any) -> None:
        peer.greet()
        peer.say(encode(Fence(1 << 31, b"")))
        peer.update(peer.rectangle(0, 0, 1, 1, 1))
        while True:
            message = decode_client_message(peer.take_until(248))
            if message.flags:
                peer.say(encode(Fence(1, message.payload)))
                peer.update(peer.rectangle(1, 1, 1, 1, 1))

    with Screens() as screens:
        screen = screens.add(scripted(script))
        assert screen.wait(SOON)
        assert screen.round_trip() is None
        assert screen.wait(SOON, 2)
        seconds = screen.round_trip()
        assert seconds is not None
        assert seconds >= 0


def test_a_server_that_never_reads_is_given_up(scripted: Start) -> None:
    stop = threading.Event()

    def script(peer: Any) -> None:
        peer.greet()
        peer.update(peer.rectangle(0, 0, 1, 1, 1))
        stop.wait(SOON)

    with Screens() as screens:
        screen = screens.add(scripted(script))
        assert screen.wait(SOON)
        moves = [PointerEvent(1, 2)] * 100_000
        while screen.error is None:
            screen.send(moves)
        assert isinstance(screen.error, LimitExceeded)
        stop.set()
