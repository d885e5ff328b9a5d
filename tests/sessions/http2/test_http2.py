"""The rules of RFC 9113 that a connection of gRPC's must keep, each by its section. MUSTs that
concern nobody here are listed in docs/protocols/http2.md."""

import hpack
import pytest

from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.frames import Http2Error
from rlwire.codecs.http2.headers import Headers
from rlwire.errors import RlwireError
from rlwire.limits import Limits
from rlwire.sessions.grpc import OK, CallEnded, CallStatus, GrpcClientSession
from rlwire.sessions.grpc.server import BEGUN, CANCELLED, ENDED, GrpcServerSession, Last
from rlwire.streams import NOTHING, StreamCore
from rlwire.transports.sockets import Timeouts
from tests.raising import raised, raised_with
from tests.sessions.http2.peers import (
    METHOD,
    Raw,
    RawMessages,
    begin,
    block,
    data,
    fields,
    frames_of,
    message,
    raw_server,
)

ANSWER = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0")]


def head(*more, number=1, end=False):
    flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
    return frames.frame(frames.HEADERS, flags, number, block(*more))


def answer(given, number=1, end=False):
    flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
    return frames.frame(frames.HEADERS, flags, number, hpack.Encoder().encode(given))


def raw_client(settings=None, **options):
    raw = Raw(GrpcClientSession(RawMessages(), METHOD, **options))
    raw.say(frames.settings(settings or {}))
    raw.began = raw.hear()
    return raw


def split(body):
    return data(message(body)[:5000]) + data(message(body)[5000:])


LARGE = [data(message(bytes([number]) * 20_000)) for number in range(3)]
READS = {
    "the same size": [*LARGE],
    "a ping between": [LARGE[0], frames.ping(), LARGE[1]],
    "a ping behind": [LARGE[0], LARGE[1] + frames.ping(), LARGE[2]],
    "another size": [*LARGE, data(message(b"small")), data(message(bytes(20_010))), LARGE[0]],
    "two frames": [*LARGE, split(bytes(20_000 - 9)), LARGE[0]],
    "other frames of the size": [
        *(LARGE[0], data(b"\1" + message(bytes(19_998)) + b"\0", frames.PADDED)),
        *(LARGE[1], frames.frame(77, 0, 0, bytes(20_005)), LARGE[2]),
    ],
    "two messages": [LARGE[0], data(message(bytes(9000)) + message(bytes(10_995))), LARGE[1]],
    "the end": [LARGE[0], frames.frame(0, frames.END_STREAM, 1, message(bytes(20_000)))],
    "compressed": [LARGE[0], data(message(bytes(20_000), 1))],
    "too large": [LARGE[0], data(message(bytes(30_000)))],
    "another stream": [LARGE[0], data(message(bytes(20_000)), number=3)],
    "a closed window": [*LARGE * 80],
}


@pytest.mark.parametrize("name", READS)
def test_messages_that_fill_a_read_are_received_as_those_in_pieces(name):
    found = []
    for chunk in (2**20, 1000):
        session = GrpcClientSession(RawMessages(), METHOD, limits=Limits(received=25_000))
        core = StreamCore(session, "the peer", Timeouts())
        core.begin(5.0)
        events: list = []
        try:
            for read in (frames.settings({}), answer(ANSWER), *READS[name]):
                while read:
                    room = core.room()
                    count = min(len(room), len(read), chunk)
                    room[:count], read = read[:count], read[count:]
                    event = core.feed(count)
                    while event is not NOTHING:
                        events.append(bytes(event))
                        event = core.next()
        except RlwireError as error:
            events.append((type(error), str(error)))
        core.queue_output()
        sent = [kind for kind, *_ in frames_of(core.output())[3:]]
        found.append((events, sent, core.counts.received, core.phase))
    assert found[0] == found[1]


# Faults, of which the peer is told by name (sections 5.4.1 and 5.4.2).


FAULTS = {
    "DATA on an idle stream (5.1)": ([frames.frame(0, 0, 1, b"x")], "PROTOCOL_ERROR"),
    "RST_STREAM on an idle stream (5.1)": ([frames.reset(1, 0)], "PROTOCOL_ERROR"),
    "WINDOW_UPDATE on an idle stream (5.1)": ([frames.window_update(1, 1)], "PROTOCOL_ERROR"),
    "an even number (5.1.1)": ([begin(2)], "PROTOCOL_ERROR"),
    "a number that goes down (5.1.1)": ([begin(5), begin(3)], "STREAM_CLOSED"),
    "no HPACK (4.3)": ([frames.frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff")], "COMPRESSION_ERROR"),
    "a short ping (6.7)": ([frames.frame(6, 0, 0, b"1")], "FRAME_SIZE_ERROR"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_connection_error_is_sent_in_goaway(name):
    written, code = FAULTS[name]
    raw = raw_server()
    raised_with(Http2Error, code, raw.say, *written)
    assert raw.session.closed
    kind, _, number, payload = raw.hear()[-1]
    assert (kind, number) == (frames.GOAWAY, 0)
    assert frames.code_name(int.from_bytes(payload[4:8], "big")) == code


def malformed_head(field, behind=False):
    """A request with a field that our own encoder would refuse."""
    given = [pair for pair in fields() if not behind or pair[0] != field[0]]
    given.insert(len(given) if behind or field[0][0] != ":" else 4, field)
    return answer(given)


STREAM_FAULTS = {
    "DATA after the end (5.1)": [begin(1, 5), frames.frame(0, 0, 1, b"x")],
    "HEADERS after the end (5.1)": [begin(1, 5), begin(1, 5)],
    "a window of 0 more (6.9)": [begin(1), frames.window_update(1, 0)],
    "a window over 2^31-1 (6.9.1)": [begin(1), frames.window_update(1, 2**31 - 1)],
    "headers between messages (8.1)": [begin(1), begin(1)],
    "PRIORITY of 4 bytes (6.3)": [begin(1), frames.frame(2, 0, 1, bytes(4))],
    "a name in capitals (8.2.1)": [malformed_head(("Upper", "x"))],
    "a line break in a value (8.2.1)": [malformed_head(("a", "b\r\nc"))],
    "connection: close (8.2.2)": [malformed_head(("connection", "close"))],
    "te: gzip (8.2.2)": [malformed_head(("te", "gzip"))],
    "a pseudo-field of an answer (8.3)": [malformed_head((":status", "200"))],
    "an unknown pseudo-field (8.3)": [malformed_head((":what", "x"))],
    "a pseudo-field twice (8.3)": [malformed_head((":path", "/"))],
    "a pseudo-field behind others (8.3)": [malformed_head((":authority", "a"), behind=True)],
    "no :path (8.3.1)": [head((":path", ""))],
    "no :method (8.3.1)": [head((":method", ""))],
    "no :scheme (8.3.1)": [head((":scheme", ""))],
    "a :path that does not begin with / (8.3.1)": [head((":path", "a"))],
    "pseudo-fields in trailers (8.1)": [begin(1), begin(1, 5)],
    "less DATA than content-length (8.1.1)": [
        head(("content-length", "7")),
        data(message(b""), frames.END_STREAM),
    ],
    "more DATA than content-length (8.1.1)": [head(("content-length", "5")), data(message(b"x"))],
    "content-length and no DATA (8.1.1)": [head(("content-length", "5"), end=True)],
    "content-length and trailers too soon (8.1.1)": [
        head(("content-length", "7")),
        data(message(b"")),
        answer([("a", "b")], end=True),
    ],
    "a content-length of none (8.1.1)": [head(("content-length", "-1"))],
    "two content-lengths (8.1.1)": [
        answer([*fields(("content-length", "5")), ("content-length", "6")])
    ],
}
OTHER_CODES = {
    "DATA after the end (5.1)": "STREAM_CLOSED",
    "HEADERS after the end (5.1)": "STREAM_CLOSED",
    "a window over 2^31-1 (6.9.1)": "FLOW_CONTROL_ERROR",
    "PRIORITY of 4 bytes (6.3)": "FRAME_SIZE_ERROR",
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_stream_error_resets_only_its_stream(name):
    raw = raw_server()
    raw.say(*STREAM_FAULTS[name])
    assert not raw.session.closed
    resets = [frame for frame in raw.hear() if frame[0] == frames.RST_STREAM]
    assert [(number, frames.code_name(int.from_bytes(p, "big"))) for _, _, number, p in resets] == [
        (1, OTHER_CODES.get(name, "PROTOCOL_ERROR"))
    ]
    assert 1 not in raw.session.core.streams


def test_sent_frames_have_only_flags_of_their_type():
    """4.1: unused flags and the reserved bit MUST be unset; 4.2: 16,384 bytes until told more."""
    known = {
        frames.DATA: frames.END_STREAM,
        frames.HEADERS: frames.END_STREAM | frames.END_HEADERS,
        frames.SETTINGS: frames.ACK,
        frames.PING: frames.ACK,
        frames.CONTINUATION: frames.END_HEADERS,
    }
    raw = raw_server(limits=Limits(header=100_000))
    raw.say(frames.window_update(0, 2**30), frames.settings({frames.INITIAL_WINDOW_SIZE: 2**30}))
    ((call, _),) = raw.say(begin(1))
    raw.session.send((call, [bytes(100_000)]))
    metadata = tuple((f"name{number}", "x" * 100) for number in range(200))
    raw.session.send((call, Last(CallStatus("OK", "", metadata))))
    raw.say(frames.ping(), frames.settings({}))
    raw.session.drain()
    written = raw.hear()
    assert {frames.TYPES[kind] for kind, *_ in written} >= {
        "DATA", "HEADERS", "CONTINUATION", "SETTINGS", "PING", "GOAWAY", "RST_STREAM",
    }  # fmt: skip
    for kind, flags, _, payload in written:
        assert flags & ~known.get(kind, 0) == 0
        assert len(payload) <= 16_384
    # 4.3: a block MUST NOT have other frames between its own.
    at = [kind for kind, *_ in written].index(frames.CONTINUATION)
    assert written[at - 1][0] == frames.HEADERS


def test_smaller_header_table_is_announced_before_its_use():
    """4.3.1: the first block after a smaller table MUST begin with an update of its size."""
    raw = raw_server()
    raw.say(frames.settings({frames.HEADER_TABLE_SIZE: 100}))
    ((call, _), _) = raw.say(begin(1, 5))
    raw.session.send((call, Last(OK, [b"x"])))
    blocks = [payload for kind, _, _, payload in raw.hear() if kind == frames.HEADERS]
    assert blocks[0][:2] == b"\x3f\x45"  # 100, in five bits and more
    decoder = hpack.Decoder()
    decoder.max_allowed_table_size = 100
    assert (":status", "200") in decoder.decode(blocks[0])
    assert decoder.decode(blocks[1]) == [("grpc-status", "0")]


def test_settings_are_the_first_frame_of_both_sides():
    """3.4: a client's preface, and SETTINGS of either side, MUST be the first."""
    words = b"".join(map(bytes, GrpcClientSession(RawMessages(), METHOD).output()))
    assert words.startswith(frames.PREFACE)
    assert frames.frame_head(words, 24)[1:] == (frames.SETTINGS, 0, 0)
    server = Raw(GrpcServerSession())
    server.say(frames.PREFACE, frames.settings({}))
    first, second = [written[:2] for written in server.hear() if written[0] == frames.SETTINGS]
    assert (first, second) == ((frames.SETTINGS, 0), (frames.SETTINGS, frames.ACK))


def test_settings_and_pings_are_acknowledged_but_acks_are_not():
    """6.5, 6.5.3; 6.7: a PING MUST be answered with its bytes, an answer MUST NOT be."""
    raw = raw_server()
    written = frames.settings({frames.INITIAL_WINDOW_SIZE: 5, 0x99: 1}), frames.ping(b"12345678")
    raw.say(*written)
    expected = [(frames.SETTINGS, frames.ACK, 0, b""), (frames.PING, frames.ACK, 0, b"12345678")]
    assert raw.hear() == expected
    raw.say(frames.frame(frames.SETTINGS, frames.ACK, 0), frames.ping(b"12345678", True))
    assert raw.hear() == []
    assert raw.session.core.peer_window == 5


def test_last_value_of_a_setting_applies_and_each_is_validated():
    """6.5.3: values MUST be processed in the order in which they appear."""
    raw = raw_server()
    pair = b"\0\4\0\0\0\x05", b"\0\4\0\0\0\x09"
    raw.say(frames.frame(frames.SETTINGS, 0, 0, b"".join(pair)))
    assert raw.session.core.peer_window == 9
    caught = raised(
        Http2Error, raw.say, frames.frame(frames.SETTINGS, 0, 0, b"\0\4\xff\0\0\0" + pair[0])
    )
    assert "FLOW_CONTROL_ERROR" in str(caught)


def test_last_stream_id_of_goaway_never_increases():
    """6.8: the last stream MUST NOT increase; what came before the second GOAWAY is answered."""
    raw = raw_server()
    raw.say(begin(1))
    raw.session.drain()
    raw.say(begin(3))
    (_, _, _, pinged) = raw.hear()[1]
    raw.say(frames.ping(pinged, True))
    written = raw.hear()
    raw.say(begin(5))  # it is refused
    written += [(frames.GOAWAY, 0, 0, bytes(raw.session.close_message()[-1])[9:])]
    last = [int.from_bytes(payload[:4], "big") for kind, _, _, payload in written if kind == 7]
    assert last[0] == 3
    assert last == sorted(last, reverse=True)


# States of streams (section 5.1).


def test_frames_on_a_locally_reset_stream_are_ignored():
    """5.1, closed: MUST be ignored, but their fields and bytes count (4.3, 6.9)."""
    raw = raw_server()
    raw.say(begin(1), frames.window_update(1, 0))
    raw.hear()
    before = raw.session.core.receive_window
    sender = Headers()
    sender.encode(fields())  # what stream 1 has left in the table
    trailers = frames.frame(frames.HEADERS, 5, 1, sender.encode([("custom", "value")]))
    raw.say(data(message(b"late")), frames.window_update(1, 7), frames.reset(1, 0), trailers)
    assert raw.hear() == []
    assert before - raw.session.core.receive_window == 9
    ((_, sign),) = raw.say(
        frames.frame(frames.HEADERS, 4, 3, sender.encode([*fields(), ("custom", "value")]))
    )
    assert sign is BEGUN


def test_no_frame_is_sent_on_a_stream_reset_by_the_peer():
    """5.1, closed; 5.4.2: least of all a RST_STREAM."""
    raw = raw_server()
    ((call, _),) = raw.say(begin(1))
    raw.session.send((call, [b"answer"]))
    raw.hear()
    assert raw.say(frames.reset(1, frames.CANCEL))[-1] == (call, CANCELLED)
    raw.session.send((call, Last(OK, [b"late"])))
    raw.say(frames.reset(1, frames.CANCEL), frames.window_update(1, 1))
    assert raw.hear() == []
    assert "STREAM_CLOSED" in str(raised(Http2Error, raw.say, data(b"x")))


def test_window_updates_of_ended_streams_are_ignored():
    """5.1, half-closed and closed: WINDOW_UPDATE and RST_STREAM may come for a while."""
    raw = raw_server()
    ((call, _), (_, sign)) = raw.say(begin(1, 5))
    assert sign is ENDED
    raw.say(frames.window_update(1, 100))
    raw.session.send((call, Last(OK)))
    raw.say(frames.window_update(1, 100), frames.reset(1, frames.NO_ERROR))
    assert not raw.session.closed


def test_priority_frames_are_accepted_in_every_stream_state():
    """5.1 and 5.3: of idle, open and closed streams."""
    raw = raw_server()
    ((call, _), _) = raw.say(begin(1, 5))
    raw.session.send((call, Last(OK)))
    raw.hear()
    raw.say(*[frames.frame(frames.PRIORITY, 0, number, bytes(5)) for number in (1, 3, 101)])
    assert raw.hear() == []
    assert len(raw.say(begin(3))) == 1


def test_client_rejects_a_stream_opened_by_the_server():
    """5.1.1 and 8.4: an even number was never promised, an odd one is the client's to begin."""
    for number in (2, 3):
        assert "PROTOCOL_ERROR" in str(raised(Http2Error, raw_client().say, answer(ANSWER, number)))


# Messages of HTTP (section 8.1).


def test_complete_reply_is_delivered_despite_a_reset():
    """8.1: a client MUST NOT discard it for a RST_STREAM with NO_ERROR behind it."""
    raw = raw_client()
    assert raw.say(answer(ANSWER), data(message(b"whole"))) == [b"whole"]
    raised(CallEnded, raw.say, answer(TRAILERS, end=True), frames.reset(1, frames.NO_ERROR))
    assert raw.session.call.status == OK


def of_length(length):
    """An answer of that content-length, whose DATA has 12 bytes beside its padding."""
    return [
        answer([*ANSWER, ("content-length", str(length))]),
        data(bytes([2]) + message(b"a") + bytes(2), frames.PADDED),
        data(message(b"b")),
    ]


ANSWERS = {
    "no :status (8.3.2)": [answer([("content-type", "application/grpc")])],
    "two of them (8.3.2)": [answer([(":status", "200"), *ANSWER])],
    "a request's field (8.3)": [answer([(":path", "/"), *ANSWER])],
    "headers behind the final ones (8.1)": [answer(ANSWER), answer([("a", "b")])],
    "a :status in trailers (8.1)": [answer(ANSWER), answer([(":status", "200")], end=True)],
    "connection: close (8.2.2)": [answer([*ANSWER, ("connection", "close")])],
    "more DATA than content-length (8.1.1)": of_length(11),
    "less DATA than content-length (8.1.1)": [*of_length(13), answer(TRAILERS, end=True)],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_malformed_response_resets_its_stream(name):
    """8.1.1: a stream error PROTOCOL_ERROR, and it MUST NOT be taken."""
    raw = raw_client()
    assert "8" in str(raised((CallEnded, Http2Error), raw.say, *ANSWERS[name]))
    resets = [payload for kind, _, _, payload in raw.hear() if kind == frames.RST_STREAM]
    assert resets == [frames.PROTOCOL_ERROR.to_bytes(4, "big")]


def test_content_length_includes_prefixes_but_no_padding():
    raw = raw_client()
    assert raw.say(*of_length(12)) == [b"a", b"b"]
    raised(CallEnded, raw.say, answer(TRAILERS, end=True))


@pytest.mark.parametrize("written", [frames.reset(1, frames.REFUSED_STREAM), frames.goaway(0)])
def test_unprocessed_call_has_status_unavailable(written):
    """8.7: REFUSED_STREAM, and streams above GOAWAY's last; the status says so, UNAVAILABLE."""
    raw = raw_client()
    raised(CallEnded, raw.say, written)
    assert raw.session.call.status.code == "UNAVAILABLE"
