"""Frames, windows and messages of HTTP/2. Each test of a MUST names its section of RFC 9113."""

import re

import numpy as np
import pytest

from rlwire.buffers import Arena
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2.frames import Compressed, Http2Error
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, LocalProtocolError
from rlwire.limits import Limits
from rlwire.sessions.http2.core import STREAM_WINDOW, Http2Core, Stream
from rlwire.sessions.http2.events import StreamFailed
from rlwire.sessions.layer import Layer
from rlwire.streams import INBOX, FrameReader
from tests.ends import frames_in
from tests.raising import raised
from tests.sessions.http2.peers import data, frames_of, message

MOST = 2**31 - 1


class Peer(Http2Core):
    """A core that notes its events by name, with the streams that fail dropped."""

    def __init__(self, client, limits=None, window=None, connection_window=None):
        super().__init__(client, limits, window or STREAM_WINDOW, connection_window)
        self.told = []

    def receive_whole(self, buffer, size):
        found = super().receive_whole(buffer, size)
        return None if found is None else self._messages(found)

    def receive(self, frame):
        return self._messages(super().receive(frame))

    def _messages(self, found):
        event, self.frame_event = self.frame_event, None
        if event is not None:
            self.told.append((type(event).__name__, *event))
        if isinstance(event, StreamFailed) and event.number in self.streams:
            self.drop(self.streams[event.number])
        return [each[1] if isinstance(each, tuple) else each for each in found]


def feed(peer, data):
    events, at = [], 0
    while at < len(data):
        size = peer.frame_size(data, at, len(data))
        assert 0 < size <= len(data) - at
        events += [e for e in peer.receive(data[at : at + size]) if e is not None]
        at += size
    return events


joined = b"".join


def opened(client, number=1, **options):
    peer = Peer(client, options.get("limits"), options.get("window"), options.get("all"))
    feed(peer, Peer(not client).preface(options.get("settings")))
    peer.told.clear()
    stream = Stream(number)
    peer.add(stream)
    return peer, stream


def refused(peer, wire):
    caught = raised(Http2Error, feed, peer, wire)
    assert caught.stream == 0
    return caught


def test_small_message_is_sent_as_one_buffer():
    (client, ours), (server, theirs) = opened(True), opened(False)
    buffers = client.message(ours, [b"hel", bytearray(b"lo")])
    assert buffers == [b"\0\0\x0a\0\0\0\0\0\x01" + message(b"hello")]
    assert server.receive_whole(buffers[0], len(buffers[0])) == [b"hello"]
    assert server.received_any
    assert feed(server, buffers[0]) == [b"hello"]
    assert server.window - theirs.receive_window == 2 * 10
    assert ours.send_window == client.peer_window - 10


def test_large_message_is_sent_without_copying():
    (client, ours), (server, _) = opened(True), opened(False)
    array = np.arange(30_000, dtype=np.float64)
    head, body = client.message(ours, [b"", array.data.cast("B")])[0::2]
    assert np.shares_memory(np.frombuffer(body, np.uint8), array.view(np.uint8))
    assert len(head) == 14
    [whole] = feed(server, joined([head, body]))
    assert bytes(whole) == array.tobytes()


def test_array_in_one_frame_is_an_aligned_view_of_the_frame():
    peer, _ = opened(False)
    wire = data(message(bytes(50_000)))
    [frame] = frames_in(FrameReader(peer), wire)
    [event] = peer.receive(frame)
    array = np.frombuffer(event, np.uint8)
    assert np.shares_memory(array, np.frombuffer(frame, np.uint8))
    assert (array.__array_interface__["data"][0]) % 64 == 0


def test_receive_whole_accepts_only_complete_messages():
    server, stream = opened(False)
    good = data(message(b"hello"))
    hello = message(b"hello")
    for wire in (
        *(good[:-1], good + b"\0", data(hello + b"\0"), data(hello[:-1]), http2.ping()),
        *(data(hello, http2.END_STREAM), data(b"\0" + hello, http2.PADDED)),
        *(data(hello, number=3), data(message(b"hello", 1))),
    ):
        assert server.receive_whole(wire, len(wire)) is None
    assert server.window == stream.receive_window
    assert server.receive_whole(good, len(good)) == [b"hello"]


def test_receive_whole_keeps_a_block_that_it_is_given():
    server, stream = opened(False)
    good = data(message(b"hello" * 2000))
    arena = Arena()
    block = arena.take(len(good))
    memoryview(block)[:] = good
    assert server.receive_whole(block, len(good) - 1) is None
    [event] = server.receive_whole(block, len(good))
    assert event == b"hello" * 2000
    assert event.obj is block
    assert server.window - stream.receive_window == 10_005
    assert arena.take(10) is not block, "the event refers to it"
    del event, block
    assert len(memoryview(arena.take(10))) == 10


STREAM_FAILURES = {
    "compressed": (data(message(b"x", 1)), "compressed", 9),
    "an unknown flag": (data(message(b"x", 255)), "compressed", 9),
    "compressed, its prefix in two frames": (data(b"\1\0") + data(b"\0\0\1a"), "compressed", 9),
    "over the limit, at its prefix": (
        data(b"\0" + (100_001).to_bytes(4, "big")),
        "received=100000",
        9,
    ),
    "over the limit, its prefix in two frames": (
        data(b"\0\xff\xff\xff") + data(b"\xff"),
        "received=100000",
        9,
    ),
    "ends inside a message": (data(message(b"x")[:-1], http2.END_STREAM), "inside", 14),
}


@pytest.mark.parametrize(
    ("wire", "words", "offset"), STREAM_FAILURES.values(), ids=list(STREAM_FAILURES)
)
def test_invalid_message_fails_its_stream_only(wire, words, offset):
    server, _ = opened(False, limits=Limits(received=100_000))
    assert feed(server, wire) == []
    [(kind, number, error)] = server.told
    assert (kind, number) == ("StreamFailed", 1)
    assert re.search(words, str(error))
    assert error.offset == offset  # in the last frame
    assert isinstance(error, Compressed) == (words == "compressed")
    assert server.assembling == 0


def test_end_of_stream_is_reported_after_the_last_message():
    server, stream = opened(False)
    assert feed(server, data(message(b"last"), http2.END_STREAM)) == [b"last"]
    assert server.told == [("Frame", http2.DATA, http2.END_STREAM, 1, b"")]
    assert not stream.receiving


def test_events_of_the_layer_are_returned_when_it_ends_the_stream():
    server, stream = opened(False)

    class Twice(Layer):
        def receive(self, message):
            if message == b"stop":
                server.drop(stream)
            return [message, message]

    server.add(stream, Twice())
    wire = data(message(b"a") + message(b"stop") + message(b"b"))
    assert feed(server, wire) == [b"a", b"a", b"stop", b"stop"]
    assert stream.gone


def test_streams_share_the_connection_round_robin():
    client = Peer(True)
    feed(client, Peer(False).preface({http2.MAX_FRAME_SIZE: 2**24 - 1}))
    feed(client, http2.window_update(0, 2**30))
    size = 3 * 2**20
    streams = [Stream(number) for number in (1, 3, 5)]
    for stream in streams:
        client.add(stream)
        feed(client, http2.settings({http2.INITIAL_WINDOW_SIZE: 10}))
    for stream in streams:
        assert client.message(stream, [b"x" * size]) == []
    joined(client.output())
    feed(client, http2.settings({http2.INITIAL_WINDOW_SIZE: 2**30}))
    sent = frames_of(client.output())
    assert [number for *_, number, _ in sent[:6]] == [1, 3, 5, 1, 3, 5]
    sizes = [sum(len(data) for *_, number, data in sent if number == n) for n in (1, 3, 5)]
    assert max(sizes) - min(sizes) <= 2**18


@pytest.mark.parametrize("dropped", [False, True])
def test_trailing_frames_are_queued_behind_the_last_message(dropped):
    client, ours = opened(True, settings={http2.INITIAL_WINDOW_SIZE: 3})
    client.message(ours, [b"abc"])
    assert client.after(ours, lambda: [data(b"", http2.END_STREAM)]) == []
    raised(LocalProtocolError, client.message, ours, [b"more"])
    assert joined(client.output()) == data(b"\0\0\0")
    if dropped:
        client.drop(ours)
    feed(client, http2.window_update(1, 100))
    rest = data(b"\0\x03abc") + data(b"", http2.END_STREAM)
    assert joined(client.output()) == (b"" if dropped else rest)
    assert ours.waiting == 0


def test_held_stream_sends_no_window_update():
    server, stream = opened(False, window=65_535)
    server.hold(stream)
    feed(server, data(bytes(15_000)) * 4)
    assert server.control_output == []
    server.hold(stream, False)
    assert server.control_output == [http2.window_update(1, 60_000)]


def case(*frames, code=http2.PROTOCOL_ERROR, client=False):
    return (b"".join(frames), code, client)


SIZE, FLOW, CALM = http2.FRAME_SIZE_ERROR, http2.FLOW_CONTROL_ERROR, http2.ENHANCE_YOUR_CALM
f = http2.frame

CONNECTION_ERRORS = {
    "4.2 larger than SETTINGS_MAX_FRAME_SIZE": case(
        (1 << 16).to_bytes(3, "big") + b"\0\0\0\0\0\x01" + bytes(1 << 16), code=SIZE
    ),
    "4.3 interleaved with a header block": case(f(1, 0, 1, b"x"), http2.ping()),
    "4.3 another stream's CONTINUATION": case(f(1, 0, 1, b"x"), f(9, 4, 3, b"x")),
    "4.3 an unknown frame in a block": case(f(1, 0, 1, b"x"), f(77, 0, 1)),
    "6.1 DATA on stream 0": case(data(b"", number=0)),
    "6.1 padding as long as the payload": case(data(b"\x01", 8)),
    "6.1 padding longer than the payload": case(data(b"\x07abc", 8)),
    "4.2 no room for the padding's length": case(data(b"", 8), code=SIZE),
    "6.2 HEADERS on stream 0": case(f(1, 4, 0, b"x")),
    "6.2 padding longer than the block": case(f(1, 4 | 8, 1, b"\x05abc")),
    "6.2 no room for a priority": case(f(1, 4 | 0x20, 1, b"abcd"), code=SIZE),
    "6.2 padding into the priority": case(f(1, 4 | 8 | 0x20, 1, b"\x01abcde")),
    "6.3 PRIORITY on stream 0": case(f(2, 0, 0, bytes(5))),
    "6.4 RST_STREAM on stream 0": case(f(3, 0, 0, bytes(4))),
    "6.4 RST_STREAM of 3 bytes": case(f(3, 0, 1, bytes(3)), code=SIZE),
    "6.4 RST_STREAM of 5 bytes": case(f(3, 0, 1, bytes(5)), code=SIZE),
    "6.5 SETTINGS on a stream": case(f(4, 0, 1)),
    "6.5 SETTINGS with ACK and more": case(f(4, 1, 0, bytes(6)), code=SIZE),
    "6.5 SETTINGS of 5 bytes": case(f(4, 0, 0, bytes(5)), code=SIZE),
    "6.5.2 ENABLE_PUSH 2": case(http2.settings({2: 2})),
    "6.5.2 ENABLE_PUSH 1 of a server": case(http2.settings({2: 1}), client=True),
    "6.5.2 INITIAL_WINDOW_SIZE 2**31": case(http2.settings({4: 2**31}), code=FLOW),
    "6.5.2 MAX_FRAME_SIZE 16383": case(http2.settings({5: 16_383})),
    "6.5.2 MAX_FRAME_SIZE 2**24": case(http2.settings({5: 2**24})),
    "6.6 PUSH_PROMISE": case(f(5, 4, 1, bytes(4))),
    "8.4 PUSH_PROMISE of a server": case(f(5, 4, 1, bytes(4)), client=True),
    "6.7 PING on a stream": case(f(6, 0, 1, bytes(8))),
    "6.7 PING of 7 bytes": case(f(6, 0, 0, bytes(7)), code=SIZE),
    "6.8 GOAWAY on a stream": case(f(7, 0, 1, bytes(8))),
    "4.2 GOAWAY of 7 bytes": case(f(7, 0, 0, bytes(7)), code=SIZE),
    "6.9 WINDOW_UPDATE of 3 bytes": case(f(8, 0, 1, bytes(3)), code=SIZE),
    "6.9 WINDOW_UPDATE by 0": case(http2.window_update(0, 0)),
    "6.9.1 the connection's window over 2**31 - 1": case(http2.window_update(0, MOST), code=FLOW),
    "6.9.2 SETTINGS that open a window over 2**31 - 1": case(
        http2.window_update(1, 1), http2.settings({4: MOST}), code=FLOW
    ),
    "6.10 CONTINUATION on stream 0": case(f(9, 4, 0, b"x")),
    "6.10 CONTINUATION without a block": case(f(9, 4, 1, b"x")),
    "6.10 CONTINUATION behind a whole block": case(f(1, 4, 1, b"x"), f(9, 4, 1)),
    "10.5 more than any SETTINGS needs": case(f(4, 0, 0, bytes(16_386)), code=CALM),
}


@pytest.mark.parametrize(
    ("wire", "code", "client"), CONNECTION_ERRORS.values(), ids=list(CONNECTION_ERRORS)
)
def test_connection_error_has_its_code(wire, code, client):
    peer, _ = opened(client, limits=Limits(received=20_000))
    error = refused(peer, wire)
    assert error.code == code
    assert str(error).startswith(http2.CODES[code] + ": ")


def test_data_over_the_stream_window_fails_only_the_stream():
    """Section 6.9.1: a stream error (section 5.4.2); other streams go on."""
    server, stream = opened(False, window=65_535, all=2**20)
    server.hold(stream)
    feed(server, data(bytes(16_000)) * 9)
    failures = [entry for entry in server.told if entry[0] == "StreamFailed"]
    assert (failures[0][1], failures[0][2].code) == (1, FLOW)
    server.add(Stream(3))
    assert feed(server, data(message(b"fine"), number=3)) == [b"fine"]


def test_data_over_the_connection_window_is_a_connection_error():
    """Section 6.9.1; padding counts, and so do streams that are not there any more."""
    server, _ = opened(False, window=65_535, all=65_535)
    server.drop(server.streams[1])
    server.receive(data(bytes([200]) + bytes(16_000), http2.PADDED))
    assert server.receive_window == 65_535 - 16_001
    server.control_output.clear()
    peer = Peer(False, Limits(received=2**20), 65_535, 65_535)
    feed(peer, Peer(True).preface())
    assert refused(peer, data(bytes(65_536), number=9)).code == FLOW


def test_unknown_frames_flags_and_settings_are_ignored():
    """4.1 unknown frames, flags that a type does not have, the reserved bit; 6.5.2 settings."""
    server, _ = opened(False)
    assert feed(server, f(77, 255, 5, b"what") + f(2, 255, 1, bytes(5))) == []
    assert feed(server, http2.settings({0x1234: 7, 9: 2**32 - 1})) == []
    wire = bytearray(data(message(b"fine"), 0xF6 & ~http2.PADDED))
    wire[5] |= 0x80
    assert feed(server, bytes(wire)) == [b"fine"]
    assert server.told == [("Frame", http2.SETTINGS, 0, 0, {0x1234: 7, 9: 2**32 - 1})]


@pytest.mark.parametrize("piece", [1, 1000, 2**20])
def test_large_unknown_frame_is_ignored_without_buffering(piece):
    """Sections 4.1, 4.2 and 5.5: what is announced bounds it too."""
    server, _ = opened(False, limits=Limits(received=100_000))
    wire = f(77, 0, 0, bytes(70_000)) + data(message(b"behind it"))
    reader, events = FrameReader(server), []
    for frame in frames_in(reader, wire, piece):
        events += server.receive(frame)
        assert len(reader.room()) <= INBOX
    assert events == [b"behind it"]
    over = f(77, 0, 0)[3:]
    caught = raised(
        Http2Error, server.frame_size, (server.rules.most + 1).to_bytes(3, "big") + over, 0, 9
    )
    assert "FRAME_SIZE_ERROR" in str(caught)


def test_message_number_is_zero_between_messages():
    server, _ = opened(False)
    server.add(Stream(3))
    seen = [server.message_number]

    def after(wire):
        feed(server, wire)
        seen.append(server.message_number)

    after(data(message(b"whole")))
    after(data(message(b"half")[:3]))
    after(data(message(b"half")[3:6]))
    after(data(message(b"another")[:3], number=3))
    server.hold(server.streams[1])
    seen.append(server.message_number)
    server.hold(server.streams[1], False)
    after(data(message(b"half")[6:]))
    after(data(message(b"another")[3:], number=3))
    after(f(1, 0, 5, b"fields"))
    after(f(9, 4, 5, b"and more"))
    server.receive(f(77, 0, 0, bytes(5))[:9])
    seen.append(server.message_number)
    server.receive(bytes(5))
    seen.append(server.message_number)
    one, two, block, unknown = seen[2], seen[5], seen[8], seen[10]
    assert seen == [0, 0, one, one, one, two, two, 0, block, 0, unknown, 0]
    assert len({0, one, two, block, unknown}) == 5


def test_header_block_in_continuation_frames_is_joined():
    """Section 6.10."""
    server, _ = opened(False)
    feed(server, f(1, 1, 3, b"a") + f(9, 0, 3, b"b") + f(9, 0, 3) + f(9, 4, 3, b"c"))
    feed(server, f(1, 4, 5, b"d"))
    assert server.told == [("Frame", 1, 1, 3, b"abc"), ("Frame", 1, 4, 5, b"d")]


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 40_000])
def test_header_blocks_are_split_to_the_peers_frame_size(size):
    client, _ = opened(True, settings={http2.MAX_FRAME_SIZE: 16_384})
    server, _ = opened(False, limits=Limits(header=40_000))
    block = bytes(index % 251 for index in range(size))
    feed(server, http2.header_frames(3, block, True, client.peer_frame))
    [(_, kind, flags, number, payload)] = server.told
    assert (kind, number, payload) == (http2.HEADERS, 3, block)
    assert flags & http2.END_STREAM


def test_server_accepts_the_preface_and_settings():
    server = Peer(False)
    words = Peer(True).preface({http2.MAX_CONCURRENT_STREAMS: 7})
    for end in range(24):
        assert server.frame_size(words, 0, end) == 0
    assert server.frame_size(words, 0, len(words)) == 24
    feed(server, words)
    [(*_, settings)] = server.told
    assert settings[http2.ENABLE_PUSH] == 0
    assert settings[http2.MAX_CONCURRENT_STREAMS] == 7
    assert settings[http2.MAX_FRAME_SIZE] == 2**24 - 1
    assert server.peer_frame == 2**24 - 1


@pytest.mark.parametrize(
    ("client", "words", "expected"),
    [
        (False, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1,"),
        (False, b"POST /a HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1,"),
        (False, b"\x16\x03\x01\x02\0\x01\0", "TLS"),
        (False, b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "another protocol"),
        (False, b"\0\0\0\x04\0\0\0\0\0", "another protocol"),
        (True, b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/1,"),
        (True, b"\x15\x03\x01\0\x02\x02\x46\0\0\0", "TLS"),
        (True, b"SSH-2.0-OpenSSH_9.2\r\n", "another protocol"),
        (True, http2.ping(), "the first frame is PING"),
        (True, http2.frame(http2.SETTINGS, http2.ACK, 0), "expected SETTINGS"),
    ],
)
def test_error_names_the_protocol_of_a_foreign_peer(client, words, expected):
    error = refused(Peer(client), words)
    assert error.code == http2.PROTOCOL_ERROR
    assert expected in str(error)


@pytest.mark.parametrize(
    ("first", "block", "words"),
    [
        (True, 0, b"GET / HTTP/1.1"), (True, 0, http2.ping()), (False, 3, http2.ping()),
        (False, 0, f(9, 4, 1, b"x")), (False, 0, f(5, 4, 1, bytes(4))),
    ],
)  # fmt: skip
def test_error_has_the_offset_of_its_frame_in_the_buffer(first, block, words):
    rules = http2.FrameRules()
    rules.first, rules.block = first, block
    for start in (0, 7):
        buffer = bytes(start) + words
        error = raised(Http2Error, http2.frame_size, buffer, start, len(buffer), rules)
        assert error.offset == start
    rules.preface = True
    assert (
        raised(Http2Error, http2.frame_size, b"..." + words, 3, 3 + len(words), rules).offset == 3
    )
    prefix = bytes(3) + b"\1" + bytes(4)
    assert raised(Compressed, http2.message_size, prefix, 3, rules).offset == 3
    assert raised(LimitExceeded, http2.message_size, b"..\0" + b"\xff" * 4, 2, rules).offset == 2


def test_frame_encoder_rejects_values_over_the_field_widths():
    assert http2.frame_head(f(3, 4, 5, b"abc")) == (3, 3, 4, 5)
    assert len(http2.goaway(7, 1, "why" * 1000)) == 9 + 8 + 1000
    for wrong in ((256, 0, 0), (0, 256, 0), (0, 0, 2**31)):
        raised(EncodeError, f, *wrong)
    raised(EncodeError, f, 0, 0, 1, bytes(2**24))
    raised(DecodeError, http2.frame_head, b"12345678")
    assert http2.code_name(99) == "code 0x63"
