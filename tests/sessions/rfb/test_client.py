import contextlib
import lzma
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb import messages as m
from rlwire.codecs.rfb.handshake import ServerInit, respond
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.limits import Limits
from rlwire.sessions.rfb.client import RfbClientSession
from rlwire.streams import StreamPhase
from tests.ends import End
from tests.mutating import mutated
from tests.raising import raised, raised_with

WIDTH, HEIGHT = 8, 4
CHALLENGE = bytes(range(16))


class Viewer(End):
    def __init__(self, *, piece=1 << 20, **options):
        super().__init__(RfbClientSession(**options), piece)

    def end(self):
        self.core.feed(0)

    def requests(self):
        return list(whole(self.read()))


def whole(data):
    start = 0
    while start < len(data):
        size = m.client_message_size(data, start, len(data))
        assert size
        yield m.decode_client_message(data[start : start + size])
        start += size


def init(width=WIDTH, height=HEIGHT, name="desk"):
    return handshake.encode_server_init(ServerInit(width, height, m.RGB888, name))


def offer(kind, version):
    return (
        handshake.encode_version(version)
        + (bytes(3) if version < (3, 7) else b"\1")
        + bytes([kind])
    )


def greeting(version=(3, 8), size=(WIDTH, HEIGHT)):
    return offer(1, version) + (bytes(4) if version >= (3, 8) else b"") + init(*size)


def opened(size=(WIDTH, HEIGHT), **options):
    peer = Viewer(**options)
    peer.feed(greeting(size=size))
    peer.read()
    return peer


def rectangle(x=0, y=0, width=1, height=1, colour=(1, 2, 3)):
    return struct.pack(">HHHHi", x, y, width, height, 0) + bytes((*colour, 0)) * (width * height)


def sign(encoding, x, y, width, height, data=b""):
    return struct.pack(">HHHHi", x, y, width, height, encoding) + data


def update(*rectangles, count=None):
    head = m.FramebufferUpdate(len(rectangles) if count is None else count)
    return m.encode(head) + b"".join(rectangles)


LAST = sign(m.Encoding.LAST_RECT, 0, 0, 0, 0)
FULL = m.FramebufferUpdateRequest(False, 0, 0, WIDTH, HEIGHT)
NEXT = m.FramebufferUpdateRequest(True, 0, 0, WIDTH, HEIGHT)
GO_ON = m.EnableContinuousUpdates(True, 0, 0, WIDTH, HEIGHT)


@pytest.mark.each("piece", [1, 1 << 20])
@pytest.mark.each(
    ("theirs", "ours", "said"),
    [
        ((3, 3), (3, 3), b""), ((3, 5), (3, 3), b""), ((3, 7), (3, 7), b"\1"),
        ((3, 8), (3, 8), b"\1"), ((3, 889), (3, 8), b"\1"), ((4, 1), (3, 8), b"\1"),
    ],
)  # fmt: skip
def test_client_connects_to_each_version_without_a_password(theirs, ours, said, piece):
    peer = Viewer(piece=piece)
    assert peer.read() == b""
    assert not peer.core.opened
    data = handshake.encode_version(theirs) + greeting(ours)[handshake.VERSION_SIZE :]
    assert peer.feed(data) == []
    assert peer.session.version == ours
    start = handshake.encode_version(ours) + said + b"\1"
    heard = peer.read()
    assert heard.startswith(start)
    assert list(whole(heard[len(start) :]))[-1] == FULL
    assert peer.core.opened
    assert (peer.session.framebuffer.width, peer.session.name) == (WIDTH, "desk")


@pytest.mark.each("version", [(3, 3), (3, 7), (3, 8)])
def test_client_connects_to_each_version_with_a_password(version):
    pytest.importorskip("cryptography")
    peer = Viewer(password="secret", shared=False)
    peer.feed(offer(2, version))
    said = b"\2" if version >= (3, 7) else b""
    assert peer.read() == handshake.encode_version(version) + said
    peer.feed(CHALLENGE)
    assert peer.read() == respond(CHALLENGE, "secret")
    peer.feed(bytes(4))
    assert peer.read() == b"\0"
    assert peer.feed(init()) == []
    assert peer.core.opened


ASKED = b"RFB 003.008\n\1\2"  # for a password
ASKED_3 = b"RFB 003.003\n\0\0\0\2" + CHALLENGE
LET_IN = b"RFB 003.008\n\1\1\0\0\0\0"
NO_RFB = (DecodeError, "is the peer a VNC server")


@pytest.mark.each(
    ("data", "kind", "words"),
    [
        (b"RFB 003.008\n\0\0\0\0\7go away", PeerError, "^go away"),
        (b"RFB 003.003\n\0\0\0\0\0\0\0\7go away", PeerError, "^go away"),
        (b"RFB 003.008\n\1\1\0\0\0\1\0\0\0\7not you", PeerError, "^not you"),
        (ASKED + CHALLENGE + b"\0\0\0\1\0\0\0\5sorry", PeerError, "^sorry"),
        (ASKED_3 + b"\0\0\0\1", PeerError, "^wrong password"),
        (b"RFB 003.007\n\1\2" + CHALLENGE + b"\0\0\0\2", PeerError, "too many"),
        (ASKED_3 + b"\0\0\0\7", DecodeError, "unknown security result 7"),
        (b"RFB 003.008\n\2\x13\x4d", RemoteProtocolError, r"types VeNCrypt \(19\), 77"),
        (b"RFB 003.003\n\0\0\0\5", RemoteProtocolError, "types 5"),
        (b"RFB 002.000\n", RemoteProtocolError, r"got 2\.0"),
        (b"RFB 003.008\n\0\xff\xff\xff\xff", LimitExceeded, "header=8192"),
        (LET_IN + init(65535, 65535), LimitExceeded, "65535x65535"),
        (LET_IN + init(9, 9), LimitExceeded, "9x9"),
        *((data, *NO_RFB) for data in (b"SSH-2.0-OpenSSH", b"HTTP/1.1 400", b"R\n", b"\0")),
        (b"RFB 3.8\n.....", *NO_RFB),
    ],
)
def test_failed_handshake_closes_the_session(data, kind, words):
    pytest.importorskip("cryptography")
    peer = Viewer(password="secret", limits=Limits(pixels=80))
    raised_with(kind, words, peer.feed, data)
    assert peer.session.closed
    assert peer.core.phase >= StreamPhase.READ_CLOSED
    raised(RemoteProtocolError, Viewer().feed, ASKED)


PSEUDO = -223, -224, -312, -313


def test_stream_end_within_handshake_or_update_breaks_the_connection():
    start = greeting()
    data = start + update(rectangle(1, 1, 2, 2), rectangle())
    for have in range(len(data) + 1):
        peer = Viewer(piece=1)
        peer.feed(data[:have])
        raised(ConnectionClosed, peer.end)
        assert peer.core.broken == (have not in (len(start), len(data)))
        assert peer.session.updates == (have == len(data))
        assert peer.session.closed


@pytest.mark.each(
    ("options", "numbers"),
    [
        ({}, (7, 16, 5, 2, 1, 0, *PSEUDO)),
        ({"encodings": (16, 0), "quality": 6, "compression": 1}, (16, 0, -26, -255, *PSEUDO)),
        ({"encodings": (0, 0), "continuous": False}, (0, *PSEUDO[:-1])),
    ],
)
def test_client_first_sends_format_encodings_and_a_full_request(options, numbers):
    peer = Viewer(**options)
    peer.feed(greeting())
    expected = [m.SetPixelFormat(m.RGBX), m.SetEncodings(numbers), FULL]
    assert list(whole(peer.read()[14:])) == expected


@pytest.mark.each(
    "options", [{"encodings": ()}, {"encodings": (0, -239)}, {"quality": 10}, {"compression": -1}]
)
def test_invalid_client_options_are_rejected(options):
    raised_with(ValueError, r"encodings|must be 0 to 9", RfbClientSession, **options)


@pytest.mark.each("piece", [1, 13, 1 << 20])
def test_update_is_painted_once_it_is_complete(piece):
    peer = opened(piece=piece)
    pixels = peer.session.framebuffer.pixels
    first, second = rectangle(1, 1, 2, 2, (9, 8, 7)), rectangle(5, 0, 3, 4)
    data = update(first, second)
    assert peer.feed(data[:-1]) == []
    assert not pixels.any()
    assert peer.requests() == []
    assert peer.feed(data[-1:]) == []
    expected = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    expected[1:3, 1:3] = 9, 8, 7
    expected[0:4, 5:8] = 1, 2, 3
    np.testing.assert_array_equal(pixels, expected)
    assert peer.requests() == [NEXT]
    assert peer.session.updates == 1
    assert list(map(tuple, peer.session.pop_changes())) == [(1, 1, 2, 2, 0), (5, 0, 3, 4, 0)]
    assert peer.session.pop_changes() == []


def test_update_ends_at_its_last_rect_marker():
    peer = opened()
    assert peer.feed(update(rectangle(), rectangle(1), LAST, count=m.UNTIL_LAST)[:-12]) == []
    peer.feed(LAST)
    assert [tuple(one)[:2] for one in peer.session.pop_changes()] == [(0, 0), (1, 0)]
    peer.feed(update(rectangle(), LAST, count=5))  # before the count is reached
    assert peer.session.updates == 2
    cut_text, colours = b"\3\0\0\0\0\0\0\3a\nb", b"\1\0\0\0\0\1" + bytes(6)  # are read past
    assert peer.feed(cut_text + colours + m.encode(m.Bell()) + update()) == []
    assert peer.session.updates == 2


def test_many_changed_areas_are_joined():
    peer = opened()
    for _ in range(300):
        peer.feed(update(*[rectangle(x, 1, 1, 2) for x in (1, 2, 3, 6)]))
    (changed,) = [one for one in peer.session.pop_changes() if one.width > 1]
    assert tuple(changed)[:4] == (1, 1, 6, 2)


@pytest.mark.each(
    ("data", "kind", "words"),
    [
        (update(rectangle(8, 0)), DecodeError, "at byte"),
        (update(rectangle(0, 0, 1, 65535))[:20], DecodeError, "at byte"),
        (update(sign(99, 0, 0, 1, 1)), DecodeError, "encoding"),
        (update(sign(m.Encoding.CURSOR, 0, 0, 1, 1)), DecodeError, "encoding"),
        (b"\x63", DecodeError, "type 99"),
        (b"\3\0\0\0\x7f\xff\xff\xff", LimitExceeded, "string"),
        (update(sign(m.Encoding.DESKTOP_SIZE, 0, 0, 65535, 65535)), LimitExceeded, "65535x65535"),
        (b"\xf8\0\0\0\0\0\0\0\x41", DecodeError, "64 bytes"),
    ],
)
def test_invalid_message_closes_the_connection(data, kind, words):
    peer = opened()
    raised_with(kind, words, peer.feed, data)
    assert peer.session.closed
    assert peer.core.phase >= StreamPhase.LINGERING


def test_received_limit_bounds_each_update():
    peer = opened(limits=Limits(received=2000))
    for _ in range(20):
        peer.feed(update(rectangle()))
    assert peer.session.updates == 20
    assert raised(LimitExceeded, peer.feed, update(*[rectangle()] * 20)).limit == "received"


def test_painted_pixels_of_an_update_are_bounded():
    peer = opened((512, 512), piece=40)  # so that several calls paint it
    fill = sign(m.Encoding.TIGHT, 0, 0, 512, 512, b"\x80\1\2\3")
    for _ in range(3):
        peer.feed(update(*[fill] * 16))
    assert peer.session.updates == 3
    assert raised(LimitExceeded, peer.feed, update(*[fill] * 17)).limit == "painted"
    assert peer.session.closed


def test_resizes_count_toward_the_painted_limit():
    sizes = [sign(m.Encoding.DESKTOP_SIZE, 0, 0, *size) for size in ((512, 512), (8, 8))]
    peer = opened()
    peer.feed(update(*sizes * 8))  # each is a 16th of what may be painted, or less
    peer.feed(update(*sizes, *[rectangle(x % 8) for x in range(1000)]))
    assert peer.session.updates == 2
    assert raised(LimitExceeded, peer.feed, update(*sizes * 20)).limit == "painted"


FILL = sign(m.Encoding.TIGHT, 0, 0, 256, 256, b"\x80\1\2\3")
STORMS = {
    "fills": (lambda _: update(*[FILL] * 16), 2),
    "sizes": (lambda number: update(sign(m.Encoding.DESKTOP_SIZE, 0, 0, 256, 255 + number % 2)), 4),
    "an empty update between sizes": (
        lambda number: (
            update(sign(m.Encoding.DESKTOP_SIZE, 0, 0, 256, 255 + number % 2)) + update()
        ),
        4,
    ),
}


@pytest.mark.parametrize("continuous", [True, False])
@pytest.mark.parametrize("kind", STORMS)
def test_painted_pixels_and_resizes_are_rate_limited(kind, continuous):
    storm, most = STORMS[kind]
    peer = opened((256, 256), limits=Limits(pixels=2**16), continuous=continuous)
    if continuous:
        peer.feed(m.encode(m.EndOfContinuousUpdates()))
    peer.core.check(100.0)
    for number in range(20):
        peer.feed(storm(number))
        peer.core.check(101.0 + number)  # each costs half of a second's, or all
    before = peer.session.updates
    assert raised(LimitExceeded, peer.feed, b"".join(map(storm, range(20, 40)))).limit == "painted"
    assert peer.session.updates - before <= most
    assert peer.session.closed


def test_size_over_the_rate_limit_is_not_allocated():
    peer = opened((256, 256), limits=Limits(pixels=2**16))
    storm, most = STORMS["sizes"]
    for number in range(most):
        peer.feed(storm(number))
    assert raised(LimitExceeded, peer.feed, storm(most)).limit == "painted"
    assert peer.session.framebuffer.height == 256


def test_session_sets_a_deadline_before_its_pixel_budget_is_spent():
    peer = opened((256, 256), limits=Limits(pixels=2**16))
    peer.core.check(100.0)
    assert peer.session.next_deadline() is None
    peer.feed(update(*[FILL] * 16) + update(FILL))
    due = peer.session.next_deadline()
    assert due is not None
    assert 100.0 < due < 101.0


def test_incomplete_update_times_out():
    peer = opened(update_timeout=5.0)
    session = peer.session
    data = update(rectangle(), rectangle())
    peer.feed(data[:-1])
    assert session.next_deadline() is None
    peer.core.check(100.0)
    assert session.next_deadline() == 105.0
    peer.feed(data[-1:] + data[:-1])  # each update has its own time
    peer.core.check(104.0)
    assert session.next_deadline() == 109.0
    peer.feed(data[-1:])  # one that ends is not late
    peer.core.check(200.0)
    peer.feed(data[:-1])
    peer.core.check(300.0)
    assert session.next_deadline() == 305.0
    peer.core.check(304.9)
    assert "5" in str(raised(DeadlineExceeded, peer.core.check, 305.0))
    assert session.closed


def test_desktop_size_rectangle_resizes_the_framebuffer():
    peer = opened()
    peer.feed(update(rectangle(colour=(9, 9, 9))))
    peer.read()
    peer.feed(update(sign(m.Encoding.DESKTOP_SIZE, 0, 0, 3, 5)))
    assert peer.session.updates == 2
    framebuffer = peer.session.framebuffer
    assert framebuffer.pixels.shape == (5, 3, 3)
    assert framebuffer.pixels[0, 0].tolist() == [9, 9, 9]
    assert m.FramebufferUpdateRequest(False, 0, 0, 3, 5) in peer.requests()
    assert [tuple(one)[:4] for one in peer.session.pop_changes()] == [(0, 0, 3, 5)]
    wider = sign(m.Encoding.DESKTOP_SIZE, 0, 0, 20, 20)  # in the middle of an update
    peer.feed(update(rectangle(2, 3), wider, rectangle(19, 19), LAST, count=m.UNTIL_LAST))
    for y, x in ((3, 2), (19, 19)):
        assert framebuffer.pixels[y, x].tolist() == [1, 2, 3]


def test_each_new_size_is_requested_once():
    peer = opened()
    sizes = [sign(m.Encoding.DESKTOP_SIZE, 0, 0, 4 + number, 4) for number in range(200)]
    peer.feed(update(*sizes))
    asked = peer.requests()
    assert asked[-1] == m.FramebufferUpdateRequest(True, 0, 0, 203, 4)
    assert len(asked) <= len(sizes) + 1
    assert peer.session.framebuffer.width == 203


def test_fence_is_echoed_in_order():
    peer = opened()
    ask = m.Fence(m.FENCE_REQUEST | (1 << 20) | m.FENCE_BLOCK_BEFORE, b"abc")
    assert peer.feed(m.encode(ask)) == []
    assert peer.requests() == [m.Fence(m.FENCE_BLOCK_BEFORE, b"abc")]
    assert peer.feed(m.encode(m.Fence(0, b"abc"))) == []
    assert peer.requests() == []


def test_client_enables_continuous_updates_when_offered():
    peer = opened()
    assert peer.feed(m.encode(m.EndOfContinuousUpdates())) == []
    assert peer.requests() == [GO_ON]
    assert peer.session.continuous
    peer.feed(update(rectangle()) * 3)
    assert peer.requests() == []
    peer.feed(update(sign(m.Encoding.DESKTOP_SIZE, 0, 0, 3, 5)))
    assert peer.requests() == [
        m.EnableContinuousUpdates(True, 0, 0, 3, 5),
        m.FramebufferUpdateRequest(False, 0, 0, 3, 5),
    ]
    peer.feed(m.encode(m.EndOfContinuousUpdates()))
    assert not peer.session.continuous
    assert peer.requests() == [m.FramebufferUpdateRequest(True, 0, 0, 3, 5)]
    peer = opened(continuous=False)  # only if they are wanted
    assert peer.feed(m.encode(m.EndOfContinuousUpdates())) == []
    peer.feed(update(rectangle()))
    assert peer.requests() == [NEXT]


@pytest.mark.each("message", [m.SetPixelFormat(m.RGB888), m.SetEncodings((0,)), GO_ON, m.Fence(0)])
def test_user_cannot_send_messages_of_the_session(message):
    raised(LocalProtocolError, opened().send, message)
    caught = raised(LocalProtocolError, RfbClientSession().send, m.KeyEvent(97, True))
    assert "handshake" in str(caught)


# Real servers: what Xvnc sent, recorded by `tests/codecs/rfb/record.py`.

RECORDINGS = Path(__file__).parents[2] / "codecs" / "rfb" / "recordings"
RECORDED = sorted(path.name.removesuffix(".rfb.xz") for path in RECORDINGS.glob("*.rfb.xz"))


def replay(name, piece):
    recorded = lzma.decompress((RECORDINGS / f"{name}.rfb.xz").read_bytes())
    size = handshake.server_init_size(recorded, 0, len(recorded))
    peer = Viewer(piece=piece)
    peer.feed(offer(1, (3, 8)) + bytes(4) + recorded[:size])
    return peer, recorded[size:]


def test_recording_is_decoded_bytewise_and_when_cut_near_each_update():
    name = "rgbx-zrle"
    peer, recorded = replay(name, 1)
    before = []  # bytes, updates
    for have in range(len(recorded)):
        peer.feed(recorded[have : have + 1])
        if not before or peer.session.updates != before[-1][1]:
            before.append((have, peer.session.updates))
    assert peer.session.updates == 5
    for have, updates in before:
        for cut in (have - 1, have, have + 1, have + 2):
            peer, recorded = replay(name, 1 << 20)
            peer.feed(recorded[: max(0, cut)])
            assert abs(peer.session.updates - updates) <= 1
            raised(ConnectionClosed, peer.end)


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_accepted_or_raise_an_rlwire_error(data, new):
    peer = Viewer() if new else opened()
    with contextlib.suppress(RlwireError):
        peer.feed(data)
        peer.end()


@pytest.mark.each("name", RECORDED)
def test_mutated_recording_is_accepted_or_raises_an_rlwire_error(name):
    noise = random.Random(name)
    ended = 0
    for _ in range(12):
        peer, recorded = replay(name, 1 << 20)
        try:
            peer.feed(mutated(noise, recorded))
        except RlwireError:
            ended += 1
            assert peer.session.closed
    if "raw" not in name:
        assert ended
