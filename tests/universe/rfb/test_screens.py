"""`RemoteScreen`: a remote's pixels, painted in one thread and read in another."""

import struct
import threading
import zlib

import numpy as np
import pytest

from rlwire.codecs.rfb.messages import Encoding, KeyEvent, PointerEvent, SetEncodings
from rlwire.errors import (
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
)
from rlwire.transports.sockets import Timeouts
from rlwire.universe._links import RemoteScreen
from rlwire.universe._loop import Arrivals, ClientLoop
from rlwire.universe.rfb import Display, RfbServer
from tests.raising import raised
from tests.waiting import eventually

SOON = 20.0  # seconds, for what comes at once unless the machine is busy


@pytest.fixture
def add():
    loop, screens = ClientLoop(), []

    def add(address, **options):
        screens.append(RemoteScreen(loop, Arrivals(), address, **options))
        loop.submit(screens[-1].open).result()
        return screens[-1]

    yield add
    for screen in screens:
        loop.submit(screen.shut).result()
    loop.close()
    assert all(isinstance(screen.client.error, Exception) for screen in screens)


def shows(screen, grey):
    eventually(lambda: bool((screen.read()[0] == grey).all()))


def update(encoding, data=b"", x=0):
    return struct.pack(">BxHHHHHi", 0, 1, x, 0, 8, 4, encoding) + data


def zrle(tiles):
    data = zlib.compress(tiles)
    return update(Encoding.ZRLE, struct.pack(">I", len(data)) + data)


REFUSAL = b"\0\0\0\0\4busy"
HOSTILE = {
    "garbage": (b"\xff", DecodeError, "255"),
    "a rectangle outside": (update(Encoding.RAW, bytes(128), x=1), DecodeError, "end at 9"),
    "a zlib bomb": (zrle(b"\1abc" + bytes(10_000_000)), DecodeError, "after the end"),
    "an endless cut text": (b"\3\0\0\0\x80\0\0\0" + bytes(1000), LimitExceeded, "string"),
    "a stop in a rectangle": (update(Encoding.RAW, bytes(100)), DeadlineExceeded, "an update"),
    "a refusal": (REFUSAL, PeerError, "busy"),
}


def test_a_server_that_misbehaves_ends_its_own_screen_only(scripted, add):
    def sending(data):
        def script(peer):
            if data is REFUSAL:
                peer.say(b"RFB 003.008\n")
                peer.take(12)
            else:
                peer.greet()
            peer.say(data)

        return script

    display = Display(64, 48)
    with RfbServer(display, "127.0.0.1:0") as server:
        good = add(str(server.address))
        with pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
            add("127.0.0.1:1")
        for data, kind, words in HOSTILE.values():
            with pytest.raises(kind, match=words):
                add(scripted(sending(data)), timeout=Timeouts(read=0.2, idle=None))
        display.show(np.full((48, 64, 3), 3, np.uint8))
        shows(good, 3)
        assert "quality" in str(raised(ValueError, add, str(server.address), quality=10))


def test_input_arrives_in_order(add):
    received = []
    display = Display(64, 48, on_input=lambda viewer, message: received.append(message))
    output = [PointerEvent(number, 1) for number in range(50)]
    with RfbServer(display, "127.0.0.1:0") as server:
        screen = add(str(server.address))
        for message in output[:25]:
            screen.post([message])
        screen.post(output[25:])
        raised(EncodeError, screen.post, [KeyEvent(97, True), KeyEvent(-1, True)])
        raised(LocalProtocolError, screen.post, [SetEncodings((0,))])
        eventually(lambda: len(received) == 50)
    assert received == output


def test_only_changed_pixels_are_copied(scripted, add):
    steps = [threading.Event() for _ in range(2)]

    def script(peer):
        peer.greet()
        peer.update(peer.rectangle(0, 0, 8, 4, 1))
        steps[0].wait(SOON)
        peer.update(peer.rectangle(1, 1, 2, 2, 9))
        steps[1].wait(SOON)
        peer.update(b"\0\0\0\0\0\x02\0\x02\xff\xff\xff\x21", peer.rectangle(0, 0, 2, 2, 4))

    mine = np.zeros((2, 4, 8, 3), np.uint8)[1]
    screen = add(scripted(script))
    screen.read(mine)[1]
    assert (mine == 1).all()
    mine[0, 0] = 77  # is not written again: it does not change there
    steps[0].set()
    eventually(lambda: screen.updates == 2)
    (changed,) = screen.read(mine)[1]
    assert tuple(changed)[:4] == (1, 1, 2, 2)
    assert (mine[1:3, 1:3] == 9).all()
    assert (mine[0, 0] == 77).all()
    assert screen.read(mine)[1] == []
    steps[1].set()
    eventually(lambda: screen.updates == 3)
    with pytest.raises(ValueError, match=r"."):
        screen.read(mine)[1]
    small = np.zeros((2, 2, 3), np.uint8)
    changes = screen.read(small)[1]
    assert (small == 4).all()
    assert tuple(changes[0])[:4] == (0, 0, 2, 2)


def test_a_server_that_never_reads_is_given_up(scripted, add):
    stop = threading.Event()

    def script(peer):
        peer.greet()
        peer.update(peer.rectangle(0, 0, 1, 1, 1))
        stop.wait(SOON)

    screen = add(scripted(script))
    moves = [PointerEvent(1, 2)] * 100_000
    while screen.client.error is None:
        screen.post(moves)
    assert isinstance(screen.client.error, LimitExceeded)
    stop.set()
