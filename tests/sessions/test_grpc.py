"""gRPC's sessions, both sides, in memory and byte by byte."""

import pytest

from rlwire import errors
from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.headers import Headers
from rlwire.limits import Limits
from rlwire.sessions.grpc import OK, CallEnded, CallStatus, GrpcClientSession
from rlwire.sessions.grpc.client import GrpcClientCalls
from rlwire.sessions.grpc.server import BEGUN, CANCELLED, ENDED, GrpcServerSession, Last
from rlwire.sessions.http2.session import PING_TIMEOUT, UNUSED_TIMEOUT, WRITE_TIMEOUT
from rlwire.sessions.layer import LayerPhase
from tests.ends import End, carry
from tests.raising import raised, raised_with
from tests.sessions.http2.peers import (
    METHOD,
    Raw,
    RawMessages,
    begin,
    block,
    data,
    frames_of,
    message,
    raw_server,
)

SIZES = [0, 1, 4096, 4097, 16_384, 65_535, 65_536, 300_000, 5_000_000]


def connected(client=None, server=None, piece=1 << 30):
    one = End(client or GrpcClientSession(RawMessages(), METHOD), piece)
    two = End(server or GrpcServerSession(), piece, server=True)
    carry(one, two)
    ((call, sign),) = two.events
    assert sign is BEGUN
    two.events.clear()
    return one, two, call


def asked(*more):
    raw = raw_server()
    events = raw.say(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block(*more)))
    return raw, events, responses(raw)


def responses(raw):
    found = [payload for kind, _, _, payload in raw.hear() if kind == frames.HEADERS]
    return [dict(Headers().decode(payload)) for payload in found]


@pytest.mark.parametrize(("piece", "sizes"), [(1 << 30, SIZES), (1, SIZES[:6])])
def test_messages_of_all_sizes_are_exchanged_both_ways(piece, sizes):
    one, two, call = connected(piece=piece)
    for size in sizes:
        body = bytes(range(256)) * (size // 256) + b"e" * (size % 256)
        one.send(body)
        carry(one, two)
        who, received = two.events.pop()
        assert who is call
        assert bytes(received) == body
        two.send((call, [body]))
        carry(one, two)
        assert bytes(one.events.pop()) == body
    assert not one.events
    assert not two.events


def test_metadata_is_exchanged_both_ways():
    metadata = (("a-b", "c d"), ("raw-bin", b"\0\xff"), ("authorization", "Bearer x"))
    client = GrpcClientSession(RawMessages(), METHOD, metadata=metadata, authority="host:1")
    one, two, call = connected(client=client)
    assert call.method == METHOD
    assert call.metadata == metadata
    two.send((call, Last(CallStatus("ABORTED", "50 % of ü\n", (("t-bin", b"\1"),)), [b"last"])))
    ended = raised(CallEnded, carry, one, two)
    assert [bytes(event) for event in one.events] == [b"last"]
    assert ended.status == CallStatus("ABORTED", "50 % of ü\n", (("t-bin", b"\1"),))


def test_closing_client_ends_its_call_gracefully():
    one, two, call = connected()
    one.close()
    carry(one, two)
    assert two.events == [(call, ENDED)]
    two.send((call, Last(OK)))
    raised(errors.ConnectionClosed, carry, one, two)
    assert one.session.call.status == OK
    assert one.session.closed


def test_client_closing_before_the_reply_cancels_its_call():
    class Owing(RawMessages):
        pending = 1

    one, two, call = connected(client=GrpcClientSession(Owing(), METHOD))
    one.send(b"x")
    carry(one, two)
    one.close()
    raised(errors.ConnectionClosed, carry, one, two)
    assert two.events[1:] == [(call, CANCELLED)]
    assert call.gone
    assert two.session.send((call, [b"too late"])) == []  # nobody is there: no error


def test_goaway_ends_each_call_that_the_server_has_ignored():
    raw = Raw(GrpcClientCalls(METHOD))
    raw.say(frames.settings({}))
    calls = [raw.session.begin(RawMessages()) for _ in range(3)]
    raw.hear()
    raised(CallEnded, raw.say, frames.goaway(0))
    assert [call.status.code for call in calls] == ["UNAVAILABLE"] * 3


def test_inner_session_decides_whether_an_error_ends_the_call():
    class Inner(RawMessages):
        def receive(self, message):
            if bytes(message) == b"turn":
                raise errors.RemoteProtocolError("not now")
            if bytes(message) == b"bad":
                self.phase = LayerPhase.CLOSED
                raise errors.DecodeError("no word")
            return [bytes(message)]

    one, two, call = connected(client=GrpcClientSession(Inner(), METHOD))
    for body in (b"turn", b"fine", b"bad"):
        two.send((call, [body]))
    raised(errors.RemoteProtocolError, carry, one, two)
    assert one.core.next() == b"fine"
    raised(errors.DecodeError, one.core.next)
    one.flush()
    raised(errors.ConnectionClosed, carry, one, two)
    assert one.session.closed
    assert two.events == [(call, CANCELLED)]


def test_messages_over_the_sent_and_received_limits_are_rejected():
    limits = Limits(received=1000)
    one, two, call = connected(
        client=GrpcClientSession(RawMessages(), METHOD, max_sent=2000),
        server=GrpcServerSession(limits=limits),
    )
    assert raised(errors.LimitExceeded, one.send, b"x" * 2001).limit == "max_sent"
    one.send(b"x" * 1000)
    one.send(b"x" * 1001)
    assert raised(errors.LimitExceeded, carry, one, two).limit == "received"
    (_, received), cancelled = two.events
    assert len(received) == 1000
    assert cancelled == (call, CANCELLED)
    assert one.session.call.status.code == "RESOURCE_EXHAUSTED"
    assert "Received message larger than max (1001 vs. 1000)" in one.session.call.status.details


def test_metadata_and_limits_are_checked_at_construction():
    for metadata in ([("Upper", "x")], [("a", "ü")], [("grpc-x", "y")]):
        raised(errors.EncodeError, GrpcClientSession, RawMessages(), METHOD, metadata=metadata)
    for options in ({"max_sent": 0}, {"max_sent": 2**31}):
        raised_with(ValueError, next(iter(options)), GrpcServerSession, **options)
    raised(errors.LocalProtocolError, GrpcClientSession(RawMessages(), METHOD).send, b"x")


def test_call_past_its_deadline_gets_deadline_exceeded():
    raw, ((call, _),), _ = asked(("grpc-timeout", "3S"))
    assert raw.session.next_deadline() == 0.0
    raw.session.tick(100.0)
    assert raw.session.next_deadline() == 103.0
    raw.session.tick(102.9)
    assert not call.gone
    raw.session.tick(103.0)
    (response,) = responses(raw)
    assert response["grpc-status"] == "4"  # DEADLINE_EXCEEDED


def test_silent_peer_is_pinged_and_then_times_out():
    client = GrpcClientSession(RawMessages(), METHOD, ping_interval=10.0)
    _one, _two, _call = connected(client=client)
    client.tick(0.0)
    client.tick(9.0)
    assert not any(kind == frames.PING for kind, *_ in frames_of(client.output()))
    client.tick(10.0)
    assert [kind for kind, *_ in frames_of(client.output())] == [frames.PING]
    assert client.next_deadline() == 10.0 + PING_TIMEOUT
    assert "ping" in str(raised(errors.DeadlineExceeded, client.tick, 10.0 + PING_TIMEOUT))
    assert client.closed


def test_connection_without_a_call_is_closed_after_a_timeout():
    raw = raw_server()
    server = raw.session
    server.tick(0.0)
    server.tick(UNUSED_TIMEOUT - 1)
    assert server.phase is LayerPhase.OPEN
    server.tick(UNUSED_TIMEOUT)
    assert server.phase is LayerPhase.CLOSING
    assert frames.GOAWAY in [kind for kind, *_ in raw.hear()]


def test_call_with_a_closed_window_times_out_alone():
    raw = raw_server()
    raw.say(frames.settings({frames.INITIAL_WINDOW_SIZE: 3}))
    (first, _), (second, _) = raw.say(begin(1), begin(3))
    raw.session.send((first, [b"12345"]))
    raw.hear()
    raw.session.tick(0.0)
    assert raw.session.next_deadline() == WRITE_TIMEOUT
    raw.session.tick(WRITE_TIMEOUT - 0.1)
    raw.session.send((first, [b"more"]))
    assert not first.gone
    raw.session.tick(WRITE_TIMEOUT)
    assert first.gone
    assert not second.gone
    assert [(kind, number) for kind, _, number, _ in raw.hear()] == [(frames.RST_STREAM, 1)]


@pytest.mark.parametrize(
    ("more", "expected", "words"),
    [
        ((":method", "GET"), {":status": "405"}, ""),
        (("content-type", "text/html"), {":status": "415"}, ""),
        (("content-type", "application/grpcx"), {":status": "415"}, ""),
        (("content-type", ""), {":status": "415"}, ""),
        (
            ("grpc-encoding", "gzip"),
            {"grpc-status": "12", "grpc-accept-encoding": "identity"},
            "identity",
        ),
        (("grpc-timeout", "5x"), {"grpc-status": "13"}, "grpc-timeout"),
        (("te", ""), {"grpc-status": "13"}, "te"),
        (("a-bin", "*"), {"grpc-status": "13"}, "base64"),
    ],
)
def test_requests_that_are_not_calls_get_an_http_or_grpc_status(more, expected, words):
    raw, events, (response,) = asked(more)
    assert events == []
    assert response.items() >= expected.items()
    assert words in response.get("grpc-message", "")
    assert len(raw.say(begin(3))) == 1


def test_compressed_message_gets_a_grpc_status():
    raw, [(call, _)], _ = asked()
    assert raw.say(data(message(b"zip", 1))) == [(call, CANCELLED)]
    (response,) = responses(raw)
    assert response["grpc-status"] == "12"
