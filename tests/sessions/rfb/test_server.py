"""RFB's server, byte by byte: what it says to a viewer, and what it makes of what viewers say."""

import itertools
import struct
import tracemalloc

import numpy as np
import pytest

from rlwire.codecs.rfb.handshake import ServerInit, encode_server_init, respond
from rlwire.codecs.rfb.messages import RGB888, RGBX, Encoding, KeyEvent, PixelFormat, PointerEvent
from rlwire.errors import (
    ConnectionClosed,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.passwords import PasswordCheck, PasswordThrottle
from rlwire.sessions.rfb.client import RfbClientSession
from rlwire.sessions.rfb.handshake import check_passwords
from rlwire.sessions.rfb.server import FrameEncoder, NumberedFrame, RfbServerSession
from rlwire.streams import NOTHING
from tests.codecs.rfb.reference import show
from tests.ends import End
from tests.raising import raised, raised_with

WIDTH, HEIGHT = 48, 40
FORMAT = bytes.fromhex("20180001 00ff00ff00ff 100800 000000")
FULL = (0, 0, WIDTH, HEIGHT)


class Desk:
    def __init__(self, limits=DEFAULT):
        self.now = 100.0
        self.frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self.number = 0
        self.screen = FrameEncoder(
            lambda: NumberedFrame(self.number, self.frame), name="desk", limits=limits
        )

    def show(self, seed, size=(WIDTH, HEIGHT)):
        rng = np.random.default_rng(seed)
        self.frame = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        self.number += 1
        return self.frame

    def dot(self, x, y):
        self.frame = self.frame.copy()
        self.frame[y, x] ^= 255
        self.number += 1


class Peer(End):
    """A viewer by hand, which sends its bytes one at a time; a client's session paints for it."""

    def __init__(self, desk, **options):
        self.desk = desk
        self.painter = End(RfbClientSession())
        init = encode_server_init(ServerInit(WIDTH, HEIGHT, RGB888, "desk"))
        self.painter.feed(b"RFB 003.008\n\1\1\0\0\0\0" + init)
        self.kinds = []  # of rectangles
        super().__init__(RfbServerSession(desk.screen, **options), 1, server=True)

    def rejected(self, data, error, text):
        caught = raised_with(error, text, self.feed, data)
        self.flush()
        assert self.session.closed
        assert list(self.session.reject(caught)) == []
        return self.read()

    def tell(self):
        self.core.queue_output()
        self.flush()

    def open(self, version=b"RFB 003.008\n", password=None):
        assert self.read(12) == b"RFB 003.008\n"
        self.feed(version)
        if version < b"RFB 003.007":  # the server selects the type, in a word
            kind = self.read(4)[3:]
        else:
            kind = self.read(2)[1:]
            self.feed(kind)
        if kind == b"\2":
            assert password is not None
            self.feed(respond(self.read(16), password))
        if kind == b"\2" or version >= b"RFB 003.008":
            assert self.read(4) == bytes(4)
        self.feed(b"\0")  # it wants to be alone, and is not
        assert self.read(4) == struct.pack(">HH", WIDTH, HEIGHT)
        assert self.read(16) == FORMAT
        assert self.read(8) == b"\0\0\0\4desk"
        assert self.session.opened
        self.feed(bytes(4) + RGBX.pack())
        return self

    def encodings(self, *numbers):
        self.feed(struct.pack(f">BxH{len(numbers)}i", 2, len(numbers), *numbers))

    def request(self, incremental=1, area=FULL):
        self.feed(struct.pack(">BBHHHH", 3, incremental, *area))

    def messages(self):
        before = self.painter.session.updates
        self.painter.feed(self.read())
        self.kinds += [one.encoding for one in self.painter.session.pop_changes()]
        return self.painter.session.updates - before

    @property
    def framebuffer(self):
        return self.painter.session.framebuffer

    def follow(self, incremental=1, area=FULL):
        self.request(incremental, area)
        assert self.messages() == 1
        assert self.shows(self.desk.frame)

    def shows(self, frame):
        return np.array_equal(self.framebuffer.pixels, frame)


@pytest.fixture
def desk():
    return Desk()


_VERSIONS = [
    b"RFB %03d.%03d\n" % each for each in ((3, 3), (3, 5), (3, 7), (3, 8), (3, 889), (4, 0))
]


@pytest.mark.parametrize("version", _VERSIONS)
def test_viewers_of_each_version_connect(desk, version):
    peer = Peer(desk).open(version)
    peer.request(0)
    assert peer.messages() == 1
    peer = Peer(desk, password="secret", view_password="look").open(version, "look")
    assert peer.session.view_only


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        (b"RFB 003.003\n", b"\0\0\0\1"),
        (b"RFB 003.007\n\2", b"\0\0\0\1"),
        (b"RFB 003.008\n\2", b"\0\0\0\1\0\0\0\x15the password is wrong"),
    ],
)
def test_wrong_password_ends_the_connection(desk, written, reported):
    peer = Peer(desk, password="secret")
    peer.feed(written)
    peer.read()
    assert peer.rejected(bytes(16), RemoteProtocolError, "the password is wrong") == reported


@pytest.mark.parametrize(
    ("password", "server", "client"),
    [
        (None, [b"RFB 003.008\n", b"\0\0\0\1"], [b"RFB 003.003\n", b"\1"]),
        ("openai", [b"RFB 003.008\n", b"\0\0\0\2", bytes(4)], [b"RFB 003.003\n", b"", b"\1"]),
    ],
)
def test_original_client_of_universe_connects(desk, password, server, client):
    """The bytes of openai/universe's vncdriver/vnc_client.py, which always speaks 3.3."""
    peer = Peer(desk, password=password)
    for number, (expected, written) in enumerate(zip(server, client, strict=True)):
        assert peer.read(len(expected)) == expected
        if password is not None and number == 1:
            written = respond(peer.read(16), password)
        assert not peer.sent
        peer.feed(written)
    assert peer.read(24) == struct.pack(">HH", WIDTH, HEIGHT) + FORMAT + b"\0\0\0\4"
    assert peer.read(4) == b"desk"
    # SetPixelFormat, SetEncodings of ZRLE, zlib and raw, FramebufferUpdateRequest
    peer.feed(bytes.fromhex("00000000 20180001 00ff00ff00ff 000810 000000"))
    peer.feed(bytes.fromhex("02000003 00000010 00000006 00000000"))
    peer.feed(bytes.fromhex("0301 0000 0000 0030 0028"))
    assert peer.read(16) == bytes.fromhex("00000001 00000000 00300028 00000000")
    assert peer.read(WIDTH * HEIGHT * 4) == bytes(WIDTH * HEIGHT * 4)
    assert not peer.sent


def test_password_check_waits_for_the_throttle(desk):
    throttle = PasswordThrottle(lambda: desk.now)
    peers = []
    for password in [*["guess"] * 20, "secret"]:
        peer = Peer(desk, password="secret", password_check=PasswordCheck(throttle))
        peer.read(12)
        peer.feed(b"RFB 003.008\n\2")
        assert peer.read(2) == b"\1\2"
        response = respond(peer.read(16), password)
        if len(peers) < 10:
            raised(RemoteProtocolError, peer.feed, response)
        else:
            peer.feed(response + b"\1")  # and what comes after it waits as well
            assert not peer.sent
            assert not peer.session.opened
        peers.append(peer)
    due = [peer.session.password_check.due for peer in peers[10:]]
    assert due == sorted(due)
    assert peers[10].core.next() is NOTHING  # it is too early
    desk.now = due[0]
    raised(RemoteProtocolError, peers[10].core.next)
    assert peers[11].core.next() is NOTHING
    desk.now = due[-1]
    assert peers[-1].core.next() is NOTHING
    peers[-1].flush()
    assert peers[-1].session.opened
    assert peers[-1].read(4) == bytes(4)


@pytest.mark.parametrize(
    ("written", "error", "text", "head"),
    [
        (b"GET / HTTP/1", DecodeError, "expected an RFB version", b"\0"),
        (b"RFB 003.002\n", RemoteProtocolError, "expected RFB 3.3 or later, got 3.2", bytes(4)),
        (b"RFB 003.007\n\2", RemoteProtocolError, "security type 2 was not", b"\1\1\0\0\0\1"),
        (b"RFB 003.008\n\2", RemoteProtocolError, "security type 2 was not", b"\1\1\0\0\0\1"),
        (b"RFB 003.008\n\0", RemoteProtocolError, "security type 0 was not", b"\1\1\0\0\0\1"),
    ],
)
def test_invalid_handshake_is_rejected_with_a_reason(desk, written, error, text, head):
    reported = Peer(desk).rejected(written, error, text)
    assert reported[12:].startswith(head)
    reason = reported[12 + len(head) :]
    if b"003.007" not in written:
        assert len(reason) == 4 + int.from_bytes(reason[:4], "big")
        assert text.encode() in reason
    else:
        assert not reason


def test_rejected_client_gets_a_reason(desk):
    session = RfbServerSession(desk.screen)
    words = b"".join(session.reject(LimitExceeded("connections", 4, 5)))
    assert words.startswith(b"RFB 003.008\n\0")
    assert b"connections" in words
    assert session.closed


def test_invalid_password_pairs_are_rejected():
    check_passwords(None, None)
    check_passwords("one", "two")
    raised(ValueError, check_passwords, None, "two")
    raised(ValueError, check_passwords, "12345678", "123456789")
    assert "1" in str(raised(EncodeError, check_passwords, "пароль", None))


def test_server_sends_changes_on_request(desk):
    peer = Peer(desk).open()
    desk.show(1)
    peer.tell()
    assert not peer.sent  # nobody asked
    peer.follow(0)
    peer.request()
    assert not peer.sent  # nothing changed
    desk.dot(3, 5)
    peer.tell()
    assert len(peer.sent) < WIDTH * HEIGHT * 4 / 2
    assert peer.messages() == 1
    desk.dot(47, 39)
    peer.tell()
    assert not peer.sent  # one request, one update
    for seed in (2, 3, 4):
        desk.show(seed)
    peer.follow()  # the newest; those between are not sent
    for _ in range(1000):  # what is asked for while an update is under way is told with the next
        peer.session.receive(struct.pack(">BBHHHH", 3, 0, *FULL))
    peer.tell()
    assert peer.messages() == 1
    assert desk.screen.counts["updates"] == 4


@pytest.mark.parametrize("encoding", [Encoding.RAW, Encoding.TIGHT])
def test_first_supported_encoding_is_used(desk, encoding):
    peer = Peer(desk).open()
    peer.encodings(Encoding.COPY_RECT, 4711, Encoding.ZRLE, encoding, Encoding.RAW, Encoding.TIGHT)
    for seed in (1, 2):
        desk.show(seed)
        peer.follow(0)
        assert set(peer.kinds) == {encoding}
    desk.dot(7, 7)
    peer.follow()


def test_jpeg_is_sent_only_to_viewers_that_allow_it(desk):
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    for allowed in (False, True):
        peer = Peer(desk).open()
        desk.frame = np.stack([5 * x, 6 * y, 3 * (x + y)], axis=2).astype(np.uint8)
        desk.number += 1
        peer.encodings(Encoding.TIGHT, *([Encoding.QUALITY_0 + 8] if allowed else []))
        peer.request(0)
        assert (peer.sent[4 + 12] >> 4 == 9) is allowed
        assert peer.messages() == 1
        assert np.abs(peer.framebuffer.pixels.astype(int) - desk.frame).mean() < 6


def test_requested_pixel_format_is_used(desk):
    peer = Peer(desk).open()
    desk.show(1)
    form = PixelFormat(16, 16, False, 31, 63, 31, 11, 5, 0)
    peer.feed(bytes(4) + form.pack())
    peer.request(0)
    shown = np.zeros_like(desk.frame)
    show(form, peer.sent[4:], 1, shown)
    assert np.abs(shown.astype(int) - desk.frame).max() <= 4


def test_update_contains_only_the_requested_area(desk):
    peer = Peer(desk).open()
    desk.show(1)
    peer.follow(0)
    expected = peer.framebuffer.pixels.copy()
    expected[:16, :16] = desk.show(2)[:16, :16]
    peer.request(1, (0, 0, 16, 16))
    assert peer.messages() == 1
    assert peer.shows(expected)
    peer.request(1, (0, 0, 16, 16))
    assert not peer.sent
    peer.follow()  # and later the rest
    for area in ((0, 0, 5, 5), (40, 30, 8, 10)):  # of two requests, all around both
        peer.request(1, area)
    desk.show(3)
    peer.tell()
    assert peer.messages() == 1
    assert peer.shows(desk.frame)
    # Beyond the edge, or nowhere at all.
    peer.request(0, (40, 30, 1000, 1000))
    assert peer.messages() == 1
    peer.request(0, (WIDTH, 0, 5, 5))
    peer.request(0, (0, 0, 0, 0))
    assert not peer.sent


def test_viewers_of_the_same_encoding_share_encoded_frames(desk):
    peers = [Peer(desk).open() for _ in range(4)]
    for peer in peers:
        peer.encodings(Encoding.TIGHT)
        peer.follow(0)
    peers[3].encodings(Encoding.RAW)
    before = desk.screen.counts["encoded"]
    for seed in range(5):
        desk.show(seed)
        for peer in peers:
            peer.follow()
    assert desk.screen.counts["encoded"] - before == 2 * 5


def test_encoders_are_bounded_when_a_viewer_changes_its_options(desk):
    peer = Peer(desk).open()
    for i in range(60):
        desk.show(i)
        peer.encodings(Encoding.TIGHT, Encoding.COMPRESS_0 + i % 10, Encoding.QUALITY_0 + i % 7)
        peer.request()
        peer.messages()
    assert desk.screen.encoder.cache_info().currsize <= 16


@pytest.mark.parametrize("kind", [Encoding.DESKTOP_SIZE, Encoding.EXTENDED_DESKTOP_SIZE])
def test_new_framebuffer_size_is_sent(desk, kind):
    peer = Peer(desk).open()
    peer.encodings(Encoding.TIGHT, kind)
    desk.show(1)
    peer.follow(0)
    for size in ((64, 20), (30, 80)):
        desk.show(2, size)
        peer.request()
        resized = struct.pack(">HHHHi", 0, 0, *size, kind)
        if kind == Encoding.EXTENDED_DESKTOP_SIZE:
            resized += struct.pack(">BxxxIHHHHI", 1, 1, 0, 0, *size, 0)
        assert peer.read() == b"\0\0\0\1" + resized
        resized = struct.pack(">HHHHi", 0, 0, *size, Encoding.DESKTOP_SIZE)
        peer.painter.feed(b"\0\0\0\1" + resized)
        peer.follow(1, (0, 0, *size))


def test_viewer_without_resizing_receives_the_overlapping_pixels(desk):
    peer = Peer(desk).open()
    desk.show(1, (60, 20))
    peer.request(0)
    peer.messages()
    assert (peer.framebuffer.pixels[:20] == desk.frame[:, :WIDTH]).all()
    assert not peer.framebuffer.pixels[20:].any()
    desk.show(2)
    peer.follow()
    assert peer.framebuffer.width == WIDTH


def test_cursor_is_sent_once_to_viewers_that_draw_it(desk):
    peer = Peer(desk).open()
    peer.encodings(Encoding.TIGHT, Encoding.CURSOR)
    updates = []
    for _ in range(2):
        desk.show(1)
        peer.request(0)
        updates.append(peer.read())
    width, height, encoding = struct.unpack_from(">HHi", updates[0], 4 + 4)
    assert encoding == Encoding.CURSOR
    pixels = 4 * width * height
    assert updates[0][4 + 12 + pixels] == 0b10000000  # one of its first row is seen
    assert updates[1] == b"\0\0\0\1" + updates[0][4 + 12 + pixels + 2 * height :]


def test_fences_are_announced_and_echoed(desk):
    peer = Peer(desk).open()
    peer.encodings(Encoding.FENCE, Encoding.CONTINUOUS_UPDATES)
    kind, flags, size = struct.unpack(">BxxxIB", peer.read())
    assert (kind, flags >> 31, size) == (248, 1, 0)  # announces them
    peer.feed(struct.pack(">BxxxIB", 248, flags & 7, 0))
    assert not peer.sent
    peer.feed(struct.pack(">BxxxIB3s", 248, 0xFFFFFFFF, 3, b"abc"))
    assert peer.sent == struct.pack(">BxxxIB3s", 248, 7, 3, b"abc")


def test_encoding_list_over_1024_entries_is_rejected(desk):
    peer = Peer(desk).open()
    peer.encodings(*range(100, 1123), Encoding.TIGHT)  # all of 1,024 count
    peer.request(0)
    peer.messages()
    assert peer.kinds == [Encoding.TIGHT]
    caught = raised(LimitExceeded, peer.feed, struct.pack(">BxH", 2, 1025))
    assert (caught.limit, caught.size) == ("encodings", 1025)


def test_cache_of_an_unchanged_frame_is_bounded(desk):
    peer = Peer(desk).open()
    desk.show(1)
    own = desk.frame.nbytes
    tracemalloc.start()
    try:
        for shift in range(100):  # each in pixels of its own
            reds = struct.pack(">BBBBHHHBBBxxx", 32, 24, 0, 1, 1, 1, 1, *(_bits(shift)))
            peer.feed(b"\0\0\0\0" + reds)
            peer.request(0)
            assert peer.sent
            peer.sent = b""
            if shift == 20:
                before, _ = tracemalloc.get_traced_memory()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 16 * own
    for number in range(3000):  # and each time after another part of it
        peer.request(0, (number % WIDTH, 0, 1, 1))
        peer.sent = b""
        peer.request()
        peer.sent = b""
    assert len(desk.screen._encoded) <= 1025


def _bits(number):
    return list(itertools.permutations(range(10), 3))[number]


def test_key_and_pointer_events_are_delivered_and_cut_texts_ignored(desk):
    written = struct.pack(">BBxxI", 4, 1, 0xFF52) + struct.pack(">BxxxI5s", 6, 5, b"caf\xe9\n")
    written += struct.pack(">BBHH", 5, 5, 65535, 7)
    peer = Peer(desk).open()
    peer.feed(written)
    assert peer.events == [KeyEvent(0xFF52, True), PointerEvent(65535, 7, 5)]
    looks = Peer(desk, password="secret", view_password="look").open(password="look")
    looks.feed(written)
    assert looks.events == []
    assert desk.screen.counts["ignored"] == 2
    raised(LocalProtocolError, peer.session.send, KeyEvent(1, True))


@pytest.mark.parametrize(
    ("written", "error", "text"),
    [
        (b"\1", DecodeError, "client message type 1"),
        (struct.pack(">BxxxI", 6, 2000), LimitExceeded, "string"),
        (struct.pack(">BxxxiI", 6, -4, 1), LimitExceeded, "string"),
        (bytes(4) + struct.pack(">4B3H3Bxxx", 7, 7, 0, 1, 1, 1, 1, 0, 1, 2), DecodeError, "8, 16"),
        (bytes(4) + struct.pack(">4B3H3Bxxx", 8, 8, 0, 0, 7, 7, 3, 0, 3, 6), DecodeError, "true"),
    ],
)
def test_invalid_message_ends_only_its_viewer(written, error, text):
    desk = Desk(Limits(string=1000))
    peer = Peer(desk).open()
    with pytest.raises(error, match=text) as caught:
        peer.feed(written)
    assert b"".join(peer.session.reject(caught.value)) == b""  # RFB has no words for it
    assert peer.session.closed
    Peer(desk).open().follow(0)


def test_stream_end_after_the_handshake_is_no_error(desk):
    peer = Peer(desk).open()
    raised(ConnectionClosed, peer.core.feed, 0)
    assert not peer.core.broken
    early = Peer(desk)
    raised(ConnectionClosed, early.core.feed, 0)
    assert early.core.broken
