"""RFB's server, byte by byte: what it says to a viewer, and what it makes of what viewers say."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest

from rlwire.codecs.rfb.decoder import Framebuffer, RectangleDecoder
from rlwire.codecs.rfb.handshake import respond
from rlwire.codecs.rfb.messages import (
    RGB565,
    RGB888,
    Encoding,
    KeyEvent,
    PointerEvent,
    ScreenLayout,
    decode_screens,
)
from rlwire.errors import (
    ConnectionClosed,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.limits import Limits
from rlwire.sessions.guesses import Guess, Guesses
from rlwire.sessions.rfb.frames import FrameEncoder, NumberedFrame
from rlwire.sessions.rfb.handshake import check_passwords
from rlwire.sessions.rfb.server import QUEUED, RfbServerSession
from rlwire.streams import NOTHING, StreamCore

WIDTH, HEIGHT = 48, 40
FORMAT = bytes.fromhex("20180001 00ff00ff00ff 100800 000000")
FULL = (0, 0, WIDTH, HEIGHT)


class Desk:
    """A screen with frames of a test's own, and a clock."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.now = 100.0
        self.frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self.number = 0
        self.screen = FrameEncoder(
            lambda: NumberedFrame(self.number, self.frame), name="desk", limits=limits
        )

    def show(self, seed: int, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Any:
        rng = np.random.default_rng(seed)
        self.frame = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        self.number += 1
        return self.frame

    def dot(self, x: int, y: int) -> None:
        self.frame = self.frame.copy()
        self.frame[y, x] ^= 255
        self.number += 1


class Peer:
    """A viewer that is handed the server's bytes, and keeps those it has not read."""

    def __init__(self, desk: Desk, **options: Any) -> None:
        self.desk = desk
        self.session = RfbServerSession(desk.screen, lambda: desk.now, **options)
        self.core = StreamCore(self.session, "viewer", _Times(), True)
        self.inbox = b""
        self.events: list[Any] = []
        self.framebuffer = Framebuffer(WIDTH, HEIGHT)
        self.decoder = RectangleDecoder(self.framebuffer, RGB888)
        self.kinds: list[int] = []  # of rectangles
        self.cursor: tuple[int, int, bytes] | None = None
        self.layout: tuple[int, int] | None = None
        self.lossy = False
        self.fences: list[bytes] = []
        self.ends = 0  # of ContinuousUpdates
        self.core.begin(1.0)
        self.flush()

    def flush(self) -> None:
        while self.core.sending:
            parts = self.core.output()
            self.inbox += b"".join(parts)
            self.core.wrote(sum(map(len, parts)))

    def say(self, data: bytes) -> None:
        """Hand bytes over, one at a time, and take in what is said then."""
        for i in range(len(data)):
            self.core.room()[:1] = data[i : i + 1]
            event = self.core.take(1)
            while event:
                self.events.append(event)
                event = self.core.next()
            self.flush()

    def tell(self) -> None:
        """What a server does when something is shown."""
        self.core.speak()
        self.flush()

    def read(self, size: int) -> bytes:
        assert len(self.inbox) >= size, "the server says less"
        part, self.inbox = self.inbox[:size], self.inbox[size:]
        return part

    def open(self, version: bytes = b"RFB 003.008\n", password: str | None = None) -> Peer:
        assert self.read(12) == b"RFB 003.008\n"
        self.say(version)
        kind = self.read(2)[1:]
        self.say(kind)
        if kind == b"\2":
            assert password is not None
            self.say(respond(self.read(16), password))
        assert self.read(4) == bytes(4)
        self.say(b"\0")  # it wants to be alone, and is not
        assert self.read(4) == struct.pack(">HH", WIDTH, HEIGHT)
        assert self.read(16) == FORMAT
        assert self.read(8) == b"\0\0\0\4desk"
        assert self.session.opened
        return self

    def encodings(self, *numbers: int) -> None:
        self.say(struct.pack(f">BxH{len(numbers)}i", 2, len(numbers), *numbers))

    def request(self, incremental: int = 1, area: tuple[int, int, int, int] = FULL) -> None:
        self.say(struct.pack(">BBHHHH", 3, incremental, *area))

    def messages(self) -> int:
        """Read all that was said; return how many updates that were."""
        updates = 0
        while self.inbox:
            kind = self.read(1)[0]
            if kind == 0:
                (count,) = struct.unpack(">xH", self.read(3))
                assert count
                for _ in range(count):
                    self.rectangle()
                updates += 1
            elif kind == 248:
                flags, size = struct.unpack(">xxxIB", self.read(8))
                self.fences.append(struct.pack(">BxxxIB", 248, flags & 7, size) + self.read(size))
                assert flags >> 31
            else:
                assert kind == 150
                self.ends += 1
        return updates

    def rectangle(self) -> None:
        data = self.read(self.decoder.size(self.inbox, 0, len(self.inbox)))
        done = self.decoder.decode(data)
        size = done.width, done.height
        self.kinds.append(done.encoding)
        self.lossy = done.encoding == Encoding.TIGHT and data[12] >> 4 == 9
        if done.encoding == Encoding.DESKTOP_SIZE:
            self.framebuffer.resize(*size)
        elif done.encoding == Encoding.EXTENDED_DESKTOP_SIZE:
            self.layout = done.x, done.y
            assert decode_screens(done.payload or b"") == (ScreenLayout(1, 0, 0, *size),)
            if done.y == 0:
                self.framebuffer.resize(*size)
        elif done.encoding == Encoding.CURSOR:
            self.cursor = *size, done.payload or b""

    def follow(self, incremental: int = 1) -> None:
        """Ask for an update, and see that it shows the frame."""
        self.request(incremental)
        assert self.messages() == 1
        assert self.shows(self.desk.frame)

    @property
    def size(self) -> tuple[int, int]:
        return self.framebuffer.width, self.framebuffer.height

    def shows(self, frame: Any) -> bool:
        return np.array_equal(self.framebuffer.pixels, frame)


class _Times:
    read = write = idle = first_message = None


@pytest.fixture
def desk() -> Desk:
    return Desk()


# ---- the handshake -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [b"RFB 003.008\n", b"RFB 003.889\n", b"RFB 004.000\n"])
def test_viewers_of_3_8_and_beyond_are_let_in(desk: Desk, version: bytes) -> None:
    peer = Peer(desk).open(version)
    peer.request(0)
    assert peer.messages() == 1
    peer = Peer(desk, password="secret", view_password="look").open(version, "look")
    assert peer.session.view_only


def test_a_wrong_password_is_told(desk: Desk) -> None:
    peer = Peer(desk, password="secret")
    peer.say(b"RFB 003.008\n\2")
    with pytest.raises(RemoteProtocolError, match="the password is wrong"):
        peer.say(bytes(16))
    peer.flush()
    assert peer.inbox[12 + 2 + 16 :] == b"\0\0\0\1\0\0\0\x15the password is wrong"
    assert peer.session.closed
    assert peer.session.refuse(RemoteProtocolError("the password is wrong")) == []


def test_a_password_waits_for_its_turn(desk: Desk) -> None:
    guesses = Guesses(lambda: desk.now)
    peers = []
    for password in [*["guess"] * 20, "secret"]:
        peer = Peer(desk, password="secret", guess=Guess(guesses))
        peer.read(12)
        peer.say(b"RFB 003.008\n\2")
        assert peer.read(2) == b"\1\2"
        response = respond(peer.read(16), password)
        if len(peers) < 10:
            with pytest.raises(RemoteProtocolError, match="the password is wrong"):
                peer.say(response)
        else:
            peer.say(response + b"\1")  # and what comes after it waits as well
            assert not peer.inbox
            assert not peer.session.opened
        peers.append(peer)
    due = [peer.session.guess.due for peer in peers[10:]]
    assert due == sorted(due)
    assert peers[10].core.next() is NOTHING  # it is too early
    desk.now = due[0]
    with pytest.raises(RemoteProtocolError, match="the password is wrong"):
        peers[10].core.next()
    assert peers[11].core.next() is NOTHING
    desk.now = due[-1]
    assert peers[-1].core.next() is NOTHING
    peers[-1].flush()
    assert peers[-1].session.opened
    assert peers[-1].read(4) == bytes(4)


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (b"GET / HTTP/1", DecodeError, "no version of RFB"),
        (b"RFB 003.003\n", RemoteProtocolError, "older than 3.8"),
        (b"RFB 003.007\n", RemoteProtocolError, "older than 3.8"),
        (b"RFB 003.008\n\2", RemoteProtocolError, "security type 2 was not offered"),
        (b"RFB 003.008\n\0", RemoteProtocolError, "security type 0 was not offered"),
    ],
)
def test_a_wrong_beginning(desk: Desk, said: bytes, error: type[RlwireError], text: str) -> None:
    peer = Peer(desk)
    with pytest.raises(error, match=text):
        peer.say(said)
    assert peer.session.closed


def test_who_is_refused_hears_why(desk: Desk) -> None:
    session = RfbServerSession(desk.screen, lambda: 0.0)
    words = b"".join(session.refuse(LimitExceeded("connections", 4, 5)))
    assert words.startswith(b"RFB 003.008\n\0")
    assert b"connections" in words
    assert session.closed


def test_passwords_that_cannot_be() -> None:
    check_passwords(None, None)
    check_passwords("one", "two")
    with pytest.raises(ValueError, match="view_auth needs auth"):
        check_passwords(None, "two")
    with pytest.raises(ValueError, match="the same"):
        check_passwords("12345678", "123456789")
    with pytest.raises(EncodeError, match="Latin-1"):
        check_passwords("пароль", None)


# ---- updates -------------------------------------------------------------------------------------


def test_what_changed_is_told_when_it_is_asked_for(desk: Desk) -> None:
    peer = Peer(desk).open()
    desk.show(1)
    peer.tell()
    assert not peer.inbox  # nobody asked
    peer.follow(0)
    peer.request()
    assert not peer.inbox  # nothing changed
    desk.dot(3, 5)
    peer.tell()
    assert len(peer.inbox) < WIDTH * HEIGHT * 4 / 2
    assert peer.messages() == 1
    desk.dot(47, 39)
    peer.tell()
    assert not peer.inbox  # one request, one update
    for seed in (2, 3, 4):
        desk.show(seed)
    peer.request()
    assert peer.messages() == 1  # the newest; those between are not sent
    assert peer.shows(desk.frame)


@pytest.mark.parametrize("encoding", [Encoding.RAW, Encoding.TIGHT])
def test_the_first_encoding_that_is_known_is_used(desk: Desk, encoding: Encoding) -> None:
    peer = Peer(desk).open()
    peer.encodings(Encoding.COPY_RECT, 4711, Encoding.ZRLE, encoding, Encoding.RAW, Encoding.TIGHT)
    for seed in (1, 2):
        desk.show(seed)
        peer.request(0)
        assert peer.messages() == 1
        assert set(peer.kinds) == {encoding}
        assert peer.shows(desk.frame)
    desk.dot(7, 7)
    peer.follow()


def test_jpeg_is_used_by_who_allows_it(desk: Desk) -> None:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    for allowed in (False, True):
        peer = Peer(desk).open()
        desk.frame = np.stack([5 * x, 6 * y, 3 * (x + y)], axis=2).astype(np.uint8)
        desk.number += 1
        peer.encodings(Encoding.TIGHT, *([Encoding.QUALITY_0 + 8] if allowed else []))
        peer.request(0)
        assert peer.messages() == 1
        assert peer.lossy is allowed
        assert np.abs(peer.framebuffer.pixels.astype(int) - desk.frame).mean() < 6


def test_another_pixel_format(desk: Desk) -> None:
    peer = Peer(desk).open()
    desk.show(1)
    peer.request(0)
    peer.messages()
    peer.say(bytes(4) + RGB565.pack())
    peer.decoder.pixel_format = RGB565
    desk.show(2)
    peer.request()
    peer.messages()
    assert np.abs(peer.framebuffer.pixels.astype(int) - desk.frame).max() <= 4
    with pytest.raises(DecodeError, match="true colour"):
        peer.say(bytes(4) + struct.pack(">4B3H3Bxxx", 8, 8, 0, 0, 7, 7, 3, 0, 3, 6))
    assert peer.session.closed


def test_an_area_is_told_alone(desk: Desk) -> None:
    peer = Peer(desk).open()
    desk.show(1)
    peer.request(0)
    peer.messages()
    before = peer.framebuffer.pixels.copy()
    desk.show(2)
    peer.request(1, (0, 0, 16, 16))
    assert peer.messages() == 1
    expected = before.copy()
    expected[:16, :16] = desk.frame[:16, :16]
    assert (peer.framebuffer.pixels == expected).all()
    peer.request(1, (0, 0, 16, 16))
    assert not peer.inbox
    peer.request()  # and later the rest
    assert peer.messages() == 1
    assert peer.shows(desk.frame)
    # Beyond the edge, or nowhere at all.
    peer.request(0, (40, 30, 1000, 1000))
    assert peer.messages() == 1
    peer.request(0, (WIDTH, 0, 5, 5))
    peer.request(0, (0, 0, 0, 0))
    assert not peer.inbox


def test_viewers_who_want_the_same_share_it(desk: Desk) -> None:
    peers = [Peer(desk).open() for _ in range(4)]
    for peer in peers:
        peer.encodings(Encoding.TIGHT)
        peer.request(0)
    peers[3].encodings(Encoding.RAW)
    before = desk.screen.counts["encoded"]
    for seed in range(5):
        desk.show(seed)
        for peer in peers:
            peer.request()
            peer.messages()
            assert peer.shows(desk.frame)
    assert desk.screen.counts["encoded"] - before == 2 * 5


def test_viewers_change_their_minds_as_often_as_they_like(desk: Desk) -> None:
    peer = Peer(desk).open()
    for i in range(60):
        desk.show(i)
        peer.encodings(Encoding.TIGHT, Encoding.COMPRESS_0 + i % 10, Encoding.QUALITY_0 + i % 7)
        peer.request()
        peer.messages()
    assert len(desk.screen._encoders) <= 16


# ---- sizes, cursors ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Encoding.DESKTOP_SIZE, Encoding.EXTENDED_DESKTOP_SIZE])
def test_a_new_size_is_told(desk: Desk, kind: int) -> None:
    peer = Peer(desk).open()
    peer.encodings(Encoding.TIGHT, kind)
    desk.show(1)
    peer.request(0)
    peer.messages()
    for size in ((64, 20), (30, 80)):
        desk.show(2, size)
        peer.request()
        assert peer.messages() == 1
        assert peer.size == size
        assert peer.kinds[-1] == kind
        peer.request(1, (0, 0, *size))
        assert peer.messages() == 1
        assert peer.shows(desk.frame)


def test_who_knows_no_sizes_sees_what_fits(desk: Desk) -> None:
    peer = Peer(desk).open()
    desk.show(1, (60, 20))
    peer.request(0)
    peer.messages()
    assert (peer.framebuffer.pixels[:20] == desk.frame[:, :WIDTH]).all()
    assert not peer.framebuffer.pixels[20:].any()
    desk.show(2)
    peer.request()
    peer.messages()
    assert peer.shows(desk.frame)
    assert peer.size[0] == WIDTH


def test_a_layout_comes_with_what_is_asked_for_whole(desk: Desk) -> None:
    peer = Peer(desk).open()
    peer.encodings(Encoding.RAW, Encoding.EXTENDED_DESKTOP_SIZE)
    peer.request(0)
    peer.messages()
    assert peer.layout == (0, 0)
    peer.layout = None
    desk.show(1)
    peer.request()
    peer.messages()
    assert peer.layout is None  # not again: who answers it with a request would never end
    peer.say(struct.pack(">BxHHBxIHHHHI", 251, 10, 10, 1, 0, 0, 0, 10, 10, 0))
    peer.messages()
    assert peer.layout == (1, 1)  # its wish, and not allowed
    assert peer.size[0] == WIDTH


def test_a_pointer_for_who_draws_it(desk: Desk) -> None:
    peer = Peer(desk).open()
    peer.encodings(Encoding.TIGHT, Encoding.CURSOR)
    for _ in range(2):
        desk.show(1)
        peer.request(0)
        peer.messages()
    assert peer.kinds.count(Encoding.CURSOR) == 1
    assert peer.cursor is not None
    width, height, data = peer.cursor
    assert data[4 * width * height] == 0b10000000  # one of its first row is seen


# ---- fences and updates that come by themselves --------------------------------------------------


def continuous(desk: Desk) -> Peer:
    peer = Peer(desk).open()
    peer.encodings(Encoding.TIGHT, Encoding.FENCE, Encoding.CONTINUOUS_UPDATES)
    assert peer.messages() == 0
    assert peer.ends == 1  # so it is known
    assert len(peer.fences) == 1
    desk.now += 0.1  # that is how long the way is
    peer.say(peer.fences.pop())
    peer.say(struct.pack(">BBHHHH", 150, 1, *FULL))
    return peer


def test_fences_are_answered(desk: Desk) -> None:
    peer = Peer(desk).open()
    with pytest.raises(RemoteProtocolError, match="fences were not agreed on"):
        peer.say(struct.pack(">BxxxIB3s", 248, 1 << 31 | 1, 3, b"abc"))
    peer = Peer(desk).open()
    peer.encodings(Encoding.FENCE)
    peer.messages()
    peer.say(struct.pack(">BxxxIB3s", 248, 0xFFFFFFFF, 3, b"abc"))
    assert peer.inbox == struct.pack(">BxxxIB3s", 248, 7, 3, b"abc")
    peer.inbox = b""
    peer.say(struct.pack(">BxxxIB3s", 248, 1, 3, b"abc"))  # an answer to nothing
    assert not peer.inbox


def test_updates_that_come_unasked_have_to_be_agreed_on(desk: Desk) -> None:
    for known in ((), (Encoding.FENCE,), (Encoding.CONTINUOUS_UPDATES,)):
        peer = Peer(desk).open()
        peer.encodings(*known)
        with pytest.raises(RemoteProtocolError, match="not agreed on"):
            peer.say(struct.pack(">BBHHHH", 150, 1, *FULL))


def test_updates_come_unasked_as_long_as_the_way_is_free(desk: Desk) -> None:
    peer = continuous(desk)
    desk.now += 0.1
    assert peer.messages() == 1  # the first at once
    assert peer.shows(desk.frame)
    desk.now += 0.1
    peer.say(peer.fences.pop())  # 0.1 s there and back
    sent = 0
    for _ in range(50):
        desk.now += 0.01
        desk.show(desk.number)
        peer.tell()
        sent += peer.messages()
    # The first is on its way for longer than the way and what may wait.
    assert sent == pytest.approx((0.1 + QUEUED) / 0.01, abs=2)
    assert not peer.shows(desk.frame)
    peer.say(b"".join(peer.fences))
    assert peer.messages() == 1  # and then the newest
    assert peer.shows(desk.frame)
    peer.say(struct.pack(">BBHHHH", 150, 0, *FULL))
    peer.messages()
    assert peer.ends == 2
    desk.show(77)
    peer.tell()
    assert not peer.inbox
    peer.follow()


def test_who_answers_no_fence_gets_a_few_updates_at_most(desk: Desk) -> None:
    peer = continuous(desk)
    sent = peer.messages()
    for _ in range(500):
        desk.show(desk.number)
        peer.tell()
        sent += peer.messages()
    assert 1 <= sent <= 64


def test_fences_without_answers_are_bounded(desk: Desk) -> None:
    peer = Peer(desk).open()
    for _ in range(64):
        peer.encodings(Encoding.FENCE)
        peer.encodings()
    with pytest.raises(RemoteProtocolError, match="64"):
        peer.encodings(Encoding.FENCE)
    assert peer.session.closed
    peer.messages()
    assert len(peer.fences) == 64
    # The same, where each answer to a request has a fence behind it.
    peer = Peer(desk).open()
    peer.encodings(Encoding.RAW, Encoding.FENCE, Encoding.CONTINUOUS_UPDATES)
    peer.say(struct.pack(">BBHHHH", 150, 1, *FULL))
    for _ in range(100):
        peer.request(0)
        assert peer.messages()
    assert len(peer.fences) == 64
    peer.say(peer.fences[-1])  # which answers all that came before
    peer.request(0)
    peer.messages()
    assert len(peer.fences) == 65


def test_updates_come_unasked_after_a_new_size(desk: Desk) -> None:
    peer = Peer(desk).open()
    peer.encodings(Encoding.RAW, Encoding.FENCE, Encoding.CONTINUOUS_UPDATES, Encoding.DESKTOP_SIZE)
    peer.messages()
    peer.say(struct.pack(">BBHHHH", 150, 1, *FULL))
    desk.show(1, (70, 50))
    for _ in range(4):
        peer.say(b"".join(peer.fences))
        peer.fences.clear()
        peer.tell()
        peer.messages()
    assert peer.size == (70, 50)
    assert peer.shows(desk.frame)


# ---- floods --------------------------------------------------------------------------------------


def test_a_list_of_encodings_is_bounded(desk: Desk) -> None:
    peer = Peer(desk).open()
    peer.encodings(*range(100, 1123), Encoding.TIGHT)  # all of 1,024 count
    peer.request(0)
    peer.messages()
    assert peer.kinds == [Encoding.TIGHT]
    with pytest.raises(LimitExceeded) as caught:
        peer.say(struct.pack(">BxH", 2, 1025))
    assert (caught.value.limit, caught.value.size) == ("encodings", 1025)


def test_what_is_kept_of_a_frame_that_stays_is_bounded(desk: Desk) -> None:
    peer = Peer(desk).open()
    desk.show(1)
    own = desk.frame.nbytes
    tracemalloc.start()
    try:
        for shift in range(100):  # each in pixels of its own
            reds = struct.pack(">BBBBHHHBBBxxx", 32, 24, 0, 1, 1, 1, 1, *(_bits(shift)))
            peer.say(b"\0\0\0\0" + reds)
            peer.request(0)
            assert peer.inbox
            peer.inbox = b""
            if shift == 20:
                before, _ = tracemalloc.get_traced_memory()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 16 * own
    for number in range(3000):  # and each time after another part of it
        peer.request(0, (number % WIDTH, 0, 1, 1))
        peer.inbox = b""
        peer.request()
        peer.inbox = b""
    assert len(desk.screen._areas) <= 1025


def _bits(number: int) -> tuple[int, int, int]:
    """Return one of 720 ways to have three colours of a bit each in ten."""
    return list(itertools.permutations(range(10), 3))[number]  # type: ignore[return-value]


# ---- what viewers do -----------------------------------------------------------------------------


def test_keys_and_the_pointer_count_and_cut_texts_are_read_past(desk: Desk) -> None:
    said = struct.pack(">BBxxI", 4, 1, 0xFF52) + struct.pack(">BxxxI5s", 6, 5, b"caf\xe9\n")
    said += struct.pack(">BBHH", 5, 5, 65535, 7)
    peer = Peer(desk).open()
    peer.say(said)
    assert peer.events == [KeyEvent(0xFF52, True), PointerEvent(65535, 7, 5)]
    looks = Peer(desk, password="secret", view_password="look").open(password="look")
    looks.say(said)
    assert looks.events == []
    assert desk.screen.counts["ignored"] == 2
    with pytest.raises(LocalProtocolError):
        peer.session.send(KeyEvent(1, True))


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (b"\1", DecodeError, "no type of a client's message"),
        (struct.pack(">BxxxI", 6, 2000), LimitExceeded, "string"),
        (struct.pack(">BxxxiI", 6, -4, 1), LimitExceeded, "string"),
        (bytes(4) + struct.pack(">4B3H3Bxxx", 7, 7, 0, 1, 1, 1, 1, 0, 1, 2), DecodeError, "8, 16"),
    ],
)
def test_bad_messages(said: bytes, error: type[RlwireError], text: str) -> None:
    desk = Desk(Limits(string=1000))
    peer = Peer(desk).open()
    with pytest.raises(error, match=text) as caught:
        peer.say(said)
    assert b"".join(peer.session.refuse(caught.value)) == b""  # RFB has no words for it
    other = Peer(desk).open()
    other.request(0)
    assert other.messages() == 1


def test_a_flood_of_requests_is_one(desk: Desk) -> None:
    """What is asked for while an update is under way is told with the next."""
    peer = Peer(desk).open()
    peer.session.receive(struct.pack(">BBHHHH", 3, 0, *FULL))
    for _ in range(1000):
        peer.session.receive(struct.pack(">BBHHHH", 3, 0, *FULL))
    peer.tell()
    assert peer.messages() == 1
    assert peer.session.updates == 1


def test_a_viewer_that_leaves(desk: Desk) -> None:
    peer = Peer(desk).open()
    with pytest.raises(ConnectionClosed, match="closed by the peer"):
        peer.core.take(0)
    assert not peer.core.broken
    early = Peer(desk)
    with pytest.raises(ConnectionClosed, match="in the handshake"):
        early.core.take(0)
    assert early.core.broken
