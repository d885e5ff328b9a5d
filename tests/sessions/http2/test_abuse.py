"""What a peer of bad will can do to a connection of gRPC's: memory (tracemalloc, what waits to be
sent) and work (frames until the peer is given up) are bounded, and the error is named."""

import pytest

from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.frames import Http2Error
from rlwire.codecs.http2.headers import Headers
from rlwire.errors import LimitExceeded
from rlwire.limits import Limits
from rlwire.sessions.grpc import OK, CallStatus, GrpcClientSession
from rlwire.sessions.grpc.server import BEGUN, ENDED, Last
from rlwire.sessions.http2.core import MAX_CONTROL_FRAMES
from rlwire.sessions.http2.session import RESETS_ALLOWED
from tests.memory import at_most
from tests.raising import raised, raised_with
from tests.sessions.http2.peers import (
    METHOD,
    Raw,
    RawMessages,
    begin,
    block,
    data,
    fields,
    message,
    raw_server,
)


def reported(raw):
    """The error that the last GOAWAY names."""
    kind, _, number, payload = raw.hear()[-1]
    assert (kind, number) == (frames.GOAWAY, 0)
    assert raw.session.closed
    return frames.code_name(int.from_bytes(payload[4:8], "big"))


def taken(raw, wire):
    """How often the same is taken before it is too much."""
    for count in range(2 * MAX_CONTROL_FRAMES):
        try:
            raw.say(wire)
        except (LimitExceeded, Http2Error):
            return count
    raise AssertionError("nobody minds")


@pytest.mark.parametrize("flags", [0, frames.END_STREAM])
def test_messages_of_one_frame_are_delivered_in_batches(flags):
    raw, count = raw_server(), 100_000
    ((call, _),) = raw.say(begin(1))
    frame = memoryview(frames.frame(frames.DATA, flags, 1, message(b"") * count))
    with at_most(100_000):
        found = raw.session.receive(frame)
        results = 0
        while raw.session.unread:
            assert len(found) < 100
            assert found.pop() is None, "the stream core is to look whether it is unread"
            results += len(found)
            found = raw.session.receive_rest()
    found = [event for event in found if event is not None]
    assert found[-1] == (call, ENDED if flags else b"")
    assert results + len(found) == count + bool(flags)


def test_reset_stream_delivers_no_further_messages():
    raw = raw_server()
    ((call, _),) = raw.say(begin(1))
    raw.session.receive(memoryview(frames.frame(frames.DATA, 0, 1, message(b"") * 100)))
    assert raw.session.unread
    raw.session.send((call, Last(CallStatus("INTERNAL"))))
    assert raw.session.receive_rest() == []
    assert not raw.session.unread


def test_frames_on_a_reset_stream_count_toward_the_flood_limit():
    for late in (begin(1), frames.frame(frames.DATA, 0, 1, b"x")):
        raw = raw_server()
        raw.say(begin(1), frames.frame(frames.DATA, 0, 1, message(b"", 1)))  # compressed
        assert taken(raw, late) == MAX_CONTROL_FRAMES - 1  # the settings were one
        assert reported(raw) == "ENHANCE_YOUR_CALM"


def heads(last, first=1, flags=frames.END_HEADERS):
    sender = Headers()
    for number in range(first, last, 2):
        yield number, frames.frame(frames.HEADERS, flags, number, sender.encode(fields()))


def flood(raw, make=lambda number: b"", flags=frames.END_HEADERS, first=1):
    """Begin streams, each with more frames, until that is refused; returns how many."""
    number = first

    def go_on():
        nonlocal number
        for number, head in heads(8 * RESETS_ALLOWED, first, flags):
            raw.say(head, make(number))
            if not raw.session.closed:
                raw.hear()

    assert "ENHANCE_YOUR_CALM" in str(raised(Http2Error, go_on))
    return (number - first) // 2


ENDED_AT_ONCE = {
    "rapid reset, CVE-2023-44487": (lambda n: frames.reset(n, frames.CANCEL), 4),
    "made you reset, CVE-2025-8671: a window of 0 more": (lambda n: frames.window_update(n, 0), 4),
    "a window of too much": (lambda n: frames.window_update(n, 2**31 - 1), 4),
    "DATA after the end": (lambda n: frames.frame(frames.DATA, 0, n, b"x"), 5),
    "HEADERS after the end": (lambda n: frames.frame(frames.HEADERS, 4, n, b"\x82"), 5),
    "a PRIORITY of 4 bytes": (lambda n: frames.frame(frames.PRIORITY, 0, n, bytes(4)), 4),
    "a malformed end": (lambda n: frames.frame(frames.HEADERS, 5, n, b"\x82"), 4),
}


@pytest.mark.parametrize("name", ENDED_AT_ONCE)
def test_flood_of_streams_ended_at_once_is_stopped(name):
    raw = raw_server()
    make, flags = ENDED_AT_ONCE[name]
    assert flood(raw, make, flags) == RESETS_ALLOWED
    assert reported(raw) == "ENHANCE_YOUR_CALM"
    assert len(raw.session.core.streams) <= 1


def test_streams_beyond_the_maximum_are_reset():
    """Section 5.1.2."""
    raw = raw_server(max_streams=2)
    assert len(raw.say(begin(1), begin(3), begin(5))) == 2
    assert [(kind, number) for kind, _, number, _ in raw.hear()] == [(frames.RST_STREAM, 5)]
    assert set(raw.session.core.streams) == {1, 3}
    assert flood(raw, first=7) == RESETS_ALLOWED - 1
    assert reported(raw) == "ENHANCE_YOUR_CALM"
    assert set(raw.session.core.streams) == {1, 3}


def test_closed_calls_reset_the_flood_budget():
    raw = raw_server()
    raw.session.tick(0.0)
    for number in range(1, 2 * RESETS_ALLOWED + 200, 2):
        ((call, _), _) = raw.say(begin(number, 5))
        raw.session.send((call, Last(OK)))
        raw.hear()
    assert not raw.session.closed
    for number in range(3 * RESETS_ALLOWED + 1, 5 * RESETS_ALLOWED + 200, 2):
        raw.say(begin(number), frames.reset(number, frames.CANCEL))
        raw.session.tick(float(number))  # a second or two each
        raw.hear()
    assert not raw.session.closed


def test_reply_ends_streams_that_the_client_leaves_half_open():
    """A client that never ends its side: the answer ends both (section 8.1)."""
    raw = raw_server(max_streams=5)
    with at_most(1_000_000):
        for number, head in heads(1000):
            ((call, sign),) = raw.say(head, frames.frame(frames.DATA, 0, number, b"\0\0"))
            assert sign is BEGUN
            raw.session.send((call, Last(OK, [b"answer"])))
            raw.hear()
    assert not raw.session.core.streams
    assert not raw.session.closed
    assert raw.session.core.assembling == 0
    assert len(raw.session._reset_by_us) <= 256


def test_continuation_flood_is_stopped():
    """CVE-2024-27316: a block without an end; its bytes are bounded, and so are empty frames."""
    for piece, frames_most in ((bytes(1000), 8192 // 1000), (b"", MAX_CONTROL_FRAMES)):
        raw = raw_server()
        raw.session.core.control_frames = 0
        raw.say(frames.frame(frames.HEADERS, 0, 1))
        with at_most(200_000):
            sent = taken(raw, frames.frame(frames.CONTINUATION, 0, 1, piece))
        assert frames_most - 3 <= sent <= frames_most
        assert reported(raw) == "ENHANCE_YOUR_CALM"


def test_expanding_header_block_is_rejected():
    size = 4000
    raw = raw_server()
    value = bytes([0x7F, (size - 127) & 127 | 128, (size - 127) >> 7]) + b"x" * size
    with at_most(400_000):
        raw.say(frames.frame(frames.HEADERS, 4, 1, block() + b"\x40\x01a" + value))
        with pytest.raises(LimitExceeded, match="header=8192"):
            raw.say(frames.frame(frames.HEADERS, 4, 3, b"\xbe" * 5000))
        assert reported(raw) == "ENHANCE_YOUR_CALM"


@pytest.mark.parametrize(
    ("update", "fault"),
    [
        ("3fe11f" * 2500, None),  # 4,096 bytes, again and again
        ("203fe11f" * 1500, None),  # and nothing
        ("3fe21f", "COMPRESSION_ERROR"),  # one more than we take
        ("3fffffffff0f", "COMPRESSION_ERROR"),
    ],
)
def test_header_table_size_updates_are_bounded(update, fault):
    """RFC 7541, section 6.3: updates stand before all fields, and not above what was agreed."""
    raw = raw_server()
    wire = frames.frame(frames.HEADERS, 4, 1, bytes.fromhex(update) + block())
    if fault is None:
        assert len(raw.say(wire)) == 1
        return
    raised_with(Http2Error, fault, raw.say, wire)
    assert reported(raw) == fault


def test_header_encoder_memory_is_bounded_whatever_the_peers_table():
    raw = raw_server()
    raw.say(frames.settings({frames.HEADER_TABLE_SIZE: 2**32 - 1}))
    with at_most(150_000):
        for number, head in heads(101, flags=frames.END_HEADERS | frames.END_STREAM):
            ((call, _), _) = raw.say(head)
            raw.session.send((call, Last(CallStatus("OK", "", ((f"name{number}", "x" * 500),)))))
            raw.hear()


# What is asked for and never read: answers to pings and settings, and messages.


FLOODS = {
    "ping": frames.ping(),
    "settings": frames.settings({}),
    "windows": frames.settings({frames.INITIAL_WINDOW_SIZE: 1}),
    "empty data": data(b""),
    "padding": data(b"\x02\0\0", frames.PADDED),
    "priority": frames.frame(frames.PRIORITY, 0, 1, bytes(5)),
    "unknown": frames.frame(99, 0, 0),
    "window update": frames.window_update(1, 1),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_of_frames_without_a_message_are_stopped(name):
    raw = raw_server()
    raw.say(begin(1))
    with at_most(3_000_000):
        for _ in range(MAX_CONTROL_FRAMES // 1000 + 1):
            for _ in range(1000 - 1):
                raw.say(FLOODS[name])
            raw.hear()
            raw.say(data(message(b"a message between")))
        assert taken(raw, FLOODS[name]) == MAX_CONTROL_FRAMES
    assert sum(map(len, raw.session.core.control_output)) < 20 * MAX_CONTROL_FRAMES
    assert reported(raw) == "ENHANCE_YOUR_CALM"


def test_replies_held_by_closed_windows_are_bounded():
    raw = raw_server(max_sent=100_000)
    raw.say(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
    (first, _), (second, _) = raw.say(begin(1), begin(3))
    answers = 0
    with at_most(1_000_000):
        while not first.gone:
            raw.say(frames.frame(frames.DATA, 0, 1, message(b"more")))
            raw.session.send((first, [bytes(10_000)]))
            raw.hear() if answers == 0 else None
            answers += 1
    assert answers == 20
    assert raw.session.core.unsent == 0
    assert first.why.code == "RESOURCE_EXHAUSTED"
    assert raw.hear()[-1] == (frames.RST_STREAM, 0, 1, b"\0\0\0\x0b")
    raw.session.send((second, [b"fine"]))
    raw.say(frames.window_update(3, 100))
    assert raw.hear()[-1][3] == message(b"fine")


def test_requests_held_by_closed_windows_are_bounded():
    session = GrpcClientSession(RawMessages(), METHOD, limits=Limits(unsent=50_000))
    raw = Raw(session)
    raw.say(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
    raw.hear()
    with at_most(1_000_000):
        while session.core.unsent <= 50_000:
            session.send(bytes(10_000))
    assert session.core.unsent == 50_025
    error = raised(LimitExceeded, session.send, b"one more")
    assert (error.limit, error.size) == ("unsent", 50_025)
    raw.say(frames.window_update(1, 100_000))
    assert sum(len(payload) for kind, _, _, payload in raw.hear() if kind == 0) == 50_025
    assert session.core.unsent == 0
    assert session.send(b"y") == [frames.frame(frames.DATA, 0, 1, message(b"y"))]


def test_call_with_a_one_byte_window_ends_once_the_window_opens():
    raw = raw_server()
    raw.say(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
    ((call, _),) = raw.say(begin(1))
    raw.session.send((call, Last(OK, [bytes(50)])))
    for second in range(0, 55 * 50, 50):
        raw.session.tick(float(second))
        raw.hear()
        assert not call.gone
        raw.say(frames.window_update(1, 1))
    assert raw.hear()[-2:][0][0] in (frames.HEADERS, frames.RST_STREAM)


def test_unfinished_messages_are_bounded_in_memory():
    raw = raw_server(limits=Limits(received=100_000), max_streams=200)
    with at_most(2_000_000):
        for number, head in heads(300):
            raw.say(head, frames.frame(frames.DATA, 0, number, b"\0\0\1\x86\xa0x"))
            raw.hear()
    assert raw.session.core.assembling == 200_000
    for call in list(raw.session.core.streams.values()):
        raw.session.core.drop(call)
    assert raw.session.core.assembling == 0
