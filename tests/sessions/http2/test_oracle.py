"""What we say is what `h2` and `hyperframe` read, and the other way round; windows agree."""

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hyperframe import frame as hyper
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2.headers import Headers
from rlwire.sessions.http2.core import Http2Core, Stream
from rlwire.sessions.http2.events import Frame

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "b")]
SIZES = st.one_of(st.integers(0, 300), st.sampled_from([16_379, 16_384, 40_000, 70_000]))


class Ours(Http2Core):
    def __init__(self, client, window):
        super().__init__(client, None, window, 2 * window)
        self.fields = Headers()
        self.lists = []
        self.control_output.append(self.preface())

    def receive(self, frame):
        messages = [each[1] for each in super().receive(frame) if each is not None]
        event, self.frame_event = self.frame_event, None
        kind, flags, number, payload = event if isinstance(event, Frame) else (-1, 0, 0, b"")
        if kind == http2.HEADERS:
            end = bool(flags & http2.END_STREAM)
            self.lists.append((number, self.fields.decode(payload), end))
            if number not in self.streams:
                self.add(Stream(number))
        elif kind == http2.SETTINGS and not flags & http2.ACK:
            self.control_output.append(http2.frame(http2.SETTINGS, http2.ACK, 0))
        return messages


def other(client):
    config = h2.config.H2Configuration(client_side=client, header_encoding="latin-1")
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    return connection


def exchange(ours, theirs):
    mine, others, rest = [], [], b""
    while True:
        written = b"".join(map(bytes, ours.output()))
        if written:
            others += theirs.receive_data(written)
        rest += theirs.data_to_send()
        if not written and not rest:
            return mine, others
        at = 0
        while size := ours.frame_size(rest, at, len(rest)) if at < len(rest) else 0:
            mine += ours.receive(rest[at : at + size])
            at += size
        rest = rest[at:]
        assert not rest


@settings(deadline=None)
@given(
    st.integers(65_535, 200_000),
    st.lists(st.tuples(SIZES, st.none() | st.integers(0, 255), st.integers(1, 50)), max_size=12),
)
def test_frames_sent_by_h2_are_received(window, pieces):
    ours, theirs = Ours(False, window), other(True)
    theirs.send_headers(1, REQUEST)
    exchange(ours, theirs)
    assert ours.lists == [(1, REQUEST, False)]
    stream = ours.streams[1]
    sent, got = [], []
    for size, padding, cut in pieces:
        message = bytes(index % 253 for index in range(size))
        sent.append(message)
        wire = b"\0" + size.to_bytes(4, "big") + message
        at = 0
        while at < len(wire):
            more = 0 if padding is None else padding + 1
            room = min(
                theirs.local_flow_control_window(1) - more,
                theirs.max_outbound_frame_size - more,
                -(-len(wire) // cut),
            )
            assert room > 0  # ours opens it when half is used
            theirs.send_data(1, wire[at : at + room], pad_length=padding)
            at += room
            got += exchange(ours, theirs)[0]
            left = theirs.local_flow_control_window(1)
            assert left == min(ours.receive_window, stream.receive_window)
    assert [bytes(message) for message in got] == sent
    theirs.end_stream(1)
    exchange(ours, theirs)
    assert not stream.receiving


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("message"), SIZES),
            st.tuples(st.just("open"), st.integers(1, 100_000)),
            st.tuples(st.just("open all"), st.integers(1, 100_000)),
            st.tuples(st.just("initial"), st.integers(0, 100_000)),
            st.tuples(st.just("frame"), st.integers(16_384, 2**24 - 1)),
        ),
        max_size=14,
    )
)
def test_sent_frames_are_received_by_h2(steps):
    ours, theirs = Ours(True, 65_535), other(False)
    exchange(ours, theirs)
    stream = Stream(1)
    ours.add(stream)
    ours.control_output.append(
        http2.header_frames(1, ours.fields.encode(REQUEST), False, ours.peer_frame)
    )
    _, events = exchange(ours, theirs)
    assert isinstance(events[-1], h2.events.RequestReceived)
    assert events[-1].headers == REQUEST
    expected, got = b"", b""

    def take(events):
        return b"".join(e.data for e in events if isinstance(e, h2.events.DataReceived))

    for what, size in steps:
        if what == "message":
            message = bytes(index % 251 for index in range(size))
            expected += b"\0" + size.to_bytes(4, "big") + message
            half = size // 2
            for buffer in ours.message(stream, [message[:half], memoryview(message)[half:]]):
                got += take(theirs.receive_data(bytes(buffer)))
        elif what == "open":
            theirs.increment_flow_control_window(size, 1)
        elif what == "open all":
            theirs.increment_flow_control_window(size)
        elif what == "initial":
            theirs.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: size})
        else:
            theirs.update_settings({h2.settings.SettingCodes.MAX_FRAME_SIZE: size})
        got += take(exchange(ours, theirs)[1])
        assert theirs.remote_flow_control_window(1) == min(ours.send_window, stream.send_window)
        assert stream.waiting == len(expected) - len(got)
    for _ in range(100):
        if not stream.waiting:
            break
        theirs.increment_flow_control_window(50_000, 1)
        theirs.increment_flow_control_window(50_000)
        got += take(exchange(ours, theirs)[1])
    assert got == expected


def fields(data, padding, flags):
    return hyper.HeadersFrame(
        3,
        data,
        pad_length=padding if "PADDED" in flags else 0,
        depends_on=1,
        stream_weight=7,
        flags=["END_HEADERS", *flags],
    )


WORD = st.integers(0, 2**32 - 1)
FRAMES = st.one_of(
    st.builds(hyper.PingFrame, st.just(0), st.binary(min_size=8, max_size=8)),
    st.builds(hyper.RstStreamFrame, st.just(1), WORD),
    st.builds(hyper.GoAwayFrame, st.just(0), st.integers(0, 2**31 - 1), WORD, st.binary()),
    st.builds(
        fields,
        st.binary(max_size=50),
        st.integers(0, 255),
        st.sets(st.sampled_from(["END_STREAM", "PADDED", "PRIORITY"])),
    ),
)


@settings(deadline=None)
@given(FRAMES)
def test_frames_serialized_by_hyperframe_are_decoded(frame):
    rules = http2.FrameRules()
    kind, flags, number, payload = http2.open_frame(frame.serialize(), rules)
    assert (kind, number) == (frame.type, frame.stream_id)
    assert bool(flags & http2.END_STREAM) == ("END_STREAM" in frame.flags)
    body = frame.data if isinstance(frame, hyper.HeadersFrame) else frame.serialize_body()
    assert payload == body


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (http2.ping(b"12345678", True), hyper.PingFrame(0, b"12345678", flags=["ACK"])),
        (http2.reset(7, 8), hyper.RstStreamFrame(7, 8)),
        (http2.goaway(9, 2, "why"), hyper.GoAwayFrame(0, 9, 2, b"why")),
        (http2.window_update(3, 2**31 - 1), hyper.WindowUpdateFrame(3, 2**31 - 1)),
        (http2.settings({4: 70_000, 5: 20_000}), hyper.SettingsFrame(0, {4: 70_000, 5: 20_000})),
        (http2.frame(0, 1, 5, b"abc"), hyper.DataFrame(5, b"abc", flags=["END_STREAM"])),
    ],
    ids=["ping", "reset", "goaway", "window", "settings", "data"],
)
def test_encoded_frames_equal_those_of_hyperframe(ours, theirs):
    assert ours == theirs.serialize()
