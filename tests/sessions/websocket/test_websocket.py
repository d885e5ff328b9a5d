import pytest

from rlwire import errors
from rlwire.codecs.websocket import frames, handshake
from rlwire.limits import Limits
from rlwire.sessions import websocket
from rlwire.sessions.layer import Layer, LayerPhase
from rlwire.sessions.stack import Stack
from rlwire.sessions.websocket import (
    Closed,
    HttpRefusal,
    Refused,
    WebSocketClientSession,
    WebSocketServerSession,
    basic_authorization,
)
from tests.raising import raised, raised_with

URL = "ws://test/path?query"


ERRORS = {
    "TURN": errors.RemoteProtocolError("not now"), "END": errors.RemoteProtocolError("over"),
    "BAD": errors.DecodeError("no word"), "LONG": errors.LimitExceeded("depth", 1, 2),
}  # fmt: skip


class Words(Layer):
    active = True

    def __init__(self):
        self.said = []
        self.ticks = []
        self.deadline = None

    def receive(self, message):
        text = bytes(message).decode()
        if text == "END":
            self.phase = LayerPhase.CLOSED
        if text in ERRORS:
            raise ERRORS[text]
        if text == "PING":
            self.said.append([b"PONG"])
            return []
        if text == "BOTH":
            self.said.append([b"OWN"])
            return ["BOTH"]
        return text.split()

    def send(self, event):
        if not event.isupper():
            raise errors.LocalProtocolError("shout")
        return [event.encode()]

    def reject(self, error):
        return [f"ERROR {error}".encode()]

    def next_deadline(self):
        return self.deadline

    def tick(self, now):
        self.ticks.append(now)
        if now >= 100:
            self.said.append([b"TICK"])

    def output(self):
        said, self.said = self.said, []
        return said


def opened(inner=None, **options):
    client = WebSocketClientSession(URL)
    outer = WebSocketServerSession(**options)
    server = outer if inner is None else Stack(outer, inner)
    server.receive(client.output()[0])
    client.receive(server.output()[0])
    return server, client


def test_receive_whole_accepts_only_complete_messages_while_open():
    for inner in (None, Words()):
        server, client = opened(inner)
        send, receive_whole = server.send, server.receive_whole
        assert len(send(b"HI" if inner is None else "HI")) == 1
        (data,) = client.send(b"HI")
        assert receive_whole(data, len(data)) == server.receive(data)
        assert receive_whole(data, len(data) - 1) is None
        # Not between the fragments of a message, nor once it is closing.
        assert server.receive(frames.FrameEncoder(True).frame(frames.BINARY, b"A", fin=False)) == []
        assert receive_whole(data, len(data)) is None
        assert len(server.receive(frames.FrameEncoder(True).frame(frames.CONTINUATION, b"B"))) == 1
        assert receive_whole(data, len(data)) is not None
        server.close_message()
        assert receive_whole(data, len(data)) is None
        assert "closing" in str(raised(errors.LocalProtocolError, send, "HI"))


def answer(server, client=None, **options):
    client = client or WebSocketClientSession(URL, **options)
    (request,) = client.output()
    try:
        server.receive(request)
    except errors.RlwireError as error:
        (said,) = server.output()
        assert server.closed
        caught = raised(Refused, client.receive, bytes(said[: said.index(b"\r\n\r\n") + 4]))
        assert caught.status == int(said[9:12])
        assert client.closed
        return error, bytes(said)
    (said,) = server.output()
    client.receive(said)
    assert client.opened
    return None, bytes(said)


@pytest.mark.parametrize(
    ("origins", "origin", "good"),
    [
        ((), None, True), ((), "https://a", False), (["https://a", "https://b"], "https://b", True),
        (["https://a"], "https://b", False), (["https://a"], "https://a.evil", False),
        ("https://a", "https://a", True), ("https://a", "https:", False),
        (["https://a"], None, True), ("*", "https://anything", True), ("*", "null", True),
        ((), "null", False),
    ],
)  # fmt: skip
def test_server_accepts_only_configured_origins(origins, origin, good):
    error, said = answer(WebSocketServerSession(origins=origins), origin=origin)
    assert (error is None) == good
    assert said.startswith(b"HTTP/1.1 101 " if good else b"HTTP/1.1 403 ")


def test_basic_authorization_checks_user_and_password():
    check = basic_authorization(
        lambda user, password: (
            handshake.same_secret(user, "openai") & handshake.same_secret(password, "")
        )
    )
    for url, headers, good in (
        ("ws://test/", [], False),
        ("ws://openai@test/", [], True),
        ("ws://openai:x@test/", [], False),
        ("ws://test/", [("Authorization", handshake.basic_header("openai", ""))], True),
        ("ws://test/", [("Authorization", "Bearer openai")], False),
    ):
        error, said = answer(
            WebSocketServerSession(check=check), WebSocketClientSession(url, headers=headers)
        )
        assert (error is None) == good
        if not good:
            assert said.startswith(b"HTTP/1.1 401 ")
            assert b'WWW-Authenticate: Basic realm="rlwire"' in said


def test_check_receives_the_request_and_selects_the_http_status():
    seen = []

    def check(request):
        seen.append(request)
        return HttpRefusal(404, "no such room") if request.path != "/path" else None

    assert (
        answer(WebSocketServerSession(check=check), headers=[("openai-observer", "true")])[0]
        is None
    )
    assert seen[0].headers.get("openai-observer") == "true"
    error, said = answer(
        WebSocketServerSession(check=check), WebSocketClientSession("ws://test/other")
    )
    assert "404 no such room" in str(error)
    assert said.endswith(b"no such room\n")
    assert "400 to 599" in str(raised(ValueError, HttpRefusal, 200))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 426),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"GET /" + b"a" * 9000, 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431),
    ],
)
def test_invalid_handshake_request_gets_an_http_error(data, status):
    server = WebSocketServerSession()
    with pytest.raises((errors.DecodeError, errors.LimitExceeded)):
        server.frame_size(data, 0, len(data)) and server.receive(data)
    (said,) = server.output()
    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert (
        handshake.read_response(said[: said.index(b"\r\n\r\n") + 4]).headers.get("Connection")
        == "close"
    )
    assert server.closed
    assert server.reject(errors.DecodeError("again")) == []


@pytest.mark.parametrize(
    ("error", "status"),
    [(errors.LimitExceeded("max_connections", 1, 2), 503), (errors.DeadlineExceeded("slow"), 408)],
)
def test_rejection_before_the_handshake_is_an_http_error(error, status):
    server = WebSocketServerSession()
    assert server.reject(error)[0].startswith(b"HTTP/1.1 %d " % status)
    assert server.closed
    client = WebSocketClientSession(URL)
    client.output()
    assert client.reject(error) == []
    assert client.closed


@pytest.mark.parametrize(
    "change",
    [
        lambda wire: handshake.write_response(101, key="AAAAAAAAAAAAAAAAAAAAAA=="),
        lambda wire: wire[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        lambda wire: wire[:-2] + b"Sec-WebSocket-Protocol: not-offered\r\n\r\n",
        lambda wire: wire.replace(b"Sec-WebSocket-Accept", b"X-Accept"),
        lambda wire: wire[:-2] + b"Sec-WebSocket-Accept: x\r\n\r\n",
        lambda wire: wire.replace(b"Upgrade: websocket", b"Upgrade: h2c"),
        lambda wire: wire.replace(b"HTTP/1.1 101", b"HTTP/1.1 1O1"),
    ],
)
def test_client_rejects_invalid_handshake_responses(change):
    client, server = WebSocketClientSession(URL), WebSocketServerSession()
    server.receive(client.output()[0])
    wrong = change(bytes(server.output()[0]))
    raised((errors.DecodeError, errors.RemoteProtocolError), client.receive, wrong)
    assert client.closed
    assert client.output() == []


def test_server_accepts_no_extensions():
    offer = [("Sec-WebSocket-Extensions", "permessage-deflate")]
    raised(errors.EncodeError, WebSocketClientSession, URL, headers=offer)
    (request,) = WebSocketClientSession(URL).output()
    server = WebSocketServerSession()
    server.receive(
        bytes(request[:-2]) + b"Sec-WebSocket-Extensions: permessage-deflate; server_no\r\n\r\n"
    )
    assert b"extensions" not in server.output()[0].lower()


@pytest.mark.parametrize(("kind", "wrong"), [("text", b"binary"), ("binary", "text")])
def test_message_of_another_kind_closes_with_1003(kind, wrong):
    server, client = opened(kind=kind)
    (wire,) = client.send(wrong)
    assert server.receive_whole(wire, len(wire)) is None
    raised_with(errors.RemoteProtocolError, f"expected {kind}", server.receive, wire)
    assert server.output()[0][2:4] == (1003).to_bytes(2, "big")
    assert server.closed


def test_received_limit_counts_all_fragments():
    framer = frames.FrameEncoder(True)
    server, _ = opened(limits=Limits(received=100))
    first = framer.frame(frames.BINARY, bytes(60), False)
    assert server.frame_size(first, 0, len(first)) == len(first)
    server.receive(first)
    second = framer.frame(frames.CONTINUATION, bytes(41))
    assert raised(errors.LimitExceeded, server.frame_size, second, 0, 2).limit == "received"
    many, _ = opened()
    many.receive(framer.frame(frames.TEXT, b"", False))
    empty = framer.frame(frames.CONTINUATION, b"", False)
    for _ in range(websocket.FRAGMENTS - 1):
        many.receive(empty)
    assert raised(errors.LimitExceeded, many.receive, empty).limit == "fragments"
    for closed in (server, many):
        assert closed.output()[0][2:4] == (1009).to_bytes(2, "big")
        assert closed.closed


def test_only_the_last_of_many_pings_gets_a_pong():
    server, _ = opened()
    framer = frames.FrameEncoder(True)
    for i in range(1000):
        server.receive(framer.frame(frames.PING, b"%d" % i))
    assert server.output() == [b"\x8a\x03999"]
    assert server.output() == []
    server.receive(framer.frame(frames.PING, b"x"))
    assert [bytes(said[:1]) for said in server.close_message()] == [b"\x8a", b"\x88"]


def test_each_close_cause_has_its_close_code():
    for act, expected in (
        (lambda server: server.close_message(), (1000, "")),
        (lambda server: server.close_message(stopping=True), (1001, "")),
        (lambda server: (server.leave(4000, "bye"), server.close_message(True))[1], (4000, "bye")),
    ):
        server, client = opened()
        (said,) = act(server)
        caught = raised(Closed, client.receive, said)
        assert (caught.code, caught.reason) == expected
        assert isinstance(caught, errors.ConnectionClosed)
    raised(errors.EncodeError, server.leave, 1006)


def test_stream_end_without_close_is_reported_as_1006():
    server, client = opened()
    assert "1006" in server.stream_ended()
    assert server.closed
    client.close_message()
    assert "1006" in client.stream_ended()
    assert WebSocketClientSession(URL).stream_ended() == "in the handshake"
    assert WebSocketServerSession().stream_ended() == ""  # who said nothing has nothing left to say
    server, client = opened()
    raised(Closed, server.receive, frames.FrameEncoder(True).frame(frames.CLOSE))
    assert server.stream_ended() == ""


def shouting(**options):
    words = Words()
    server, client = opened(words, kind="text", **options)
    return server, client, words


def whole(server, client, text):
    (wire,) = client.send(text)
    return server.receive_whole(bytearray(wire), len(wire))


def framed(server, client, text):
    (wire,) = client.send(text)
    return server.receive(wire)


@pytest.mark.parametrize("receive", [whole, framed])
def test_inner_session_may_send_unprompted(receive):
    server, client, words = shouting()
    assert receive(server, client, "PING") == []
    assert client.receive(server.output()[0]) == ["PONG"]
    assert receive(server, client, "BOTH") == ["BOTH", None]  # so that a transport asks
    assert client.receive(server.output()[0]) == ["OWN"]
    assert server.output() == []
    words.deadline = 7.0
    server.tick(1.0)
    assert words.ticks == [1.0]
    assert server.next_deadline() == 7.0
    server.tick(100.0)
    assert client.receive(server.output()[0]) == ["TICK"]


def test_inner_session_error_selects_the_close_code():
    for text, code in (("BAD", 1007), ("LONG", 1009), ("END", 1008)):
        server, client, _ = shouting()
        assert raised(type(ERRORS[text]), whole, server, client, text) is ERRORS[text]
        assert not server.closed
        words, close = server.reject(ERRORS[text])
        assert client.receive(words) == [f"ERROR {ERRORS[text]}"]
        assert raised(Closed, client.receive, close).code == code
        assert server.closed
    server, client, _ = shouting()
    assert "not now" in str(raised(errors.RemoteProtocolError, whole, server, client, "TURN"))
    (words,) = server.reject(ERRORS["TURN"])
    assert client.receive(words) == ["ERROR not now"]
    assert whole(server, client, "GO ON") == ["GO", "ON"]


def test_idle_connection_is_pinged():
    server, client = opened(ping_interval=10.0, ping_timeout=5.0)
    assert server.next_deadline() is None
    server.tick(100.0)
    assert server.next_deadline() == 110.0
    server.tick(109.0)
    assert server.output() == []
    server.tick(110.0)
    (ping,) = server.output()
    assert ping == b"\x89\x00"
    assert server.next_deadline() == 115.0
    client.receive(ping)
    server.receive(client.output()[0])
    server.tick(112.0)
    assert server.next_deadline() == 122.0
    (wire,) = client.send("anything is a sign of life")
    assert server.receive_whole(wire, len(wire)) is not None
    server.tick(121.0)
    assert server.next_deadline() == 131.0
    server.tick(131.0)
    assert server.output() == [ping]
    server.tick(135.9)  # an unanswered ping ends the connection
    assert "5" in str(raised(errors.DeadlineExceeded, server.tick, 136.0))
    assert server.closed
    assert raised(Closed, client.receive, server.output()[0]).code == 1011
    server.tick(199.0)
    assert server.next_deadline() is None


def test_fragmented_message_times_out():
    server, _ = opened()
    framer = frames.FrameEncoder(True)
    server.tick(0.0)
    for now in range(0, 60, 10):
        server.receive(framer.frame(frames.TEXT if now == 0 else frames.CONTINUATION, b"a", False))
        server.tick(float(now))
    assert server.next_deadline() == 60.0
    assert "6" in str(raised(errors.DeadlineExceeded, server.tick, 60.0))
    server, _ = opened()
    for begun in (0.0, 59.0, 118.0):  # each message has its own
        server.receive(framer.frame(frames.TEXT, b"a", False))
        server.tick(begun)
        server.receive(framer.frame(frames.CONTINUATION, b"b"))
    server.tick(199.0)


class Ending(Words):
    close_reason = "a reason " + "x" * 200

    def receive(self, message):
        if bytes(message) == b"LAST":
            self.said.append([b"BYE"])
            self.phase = LayerPhase.CLOSED
        return super().receive(message)

    def tick(self, now):
        super().tick(now)
        if now >= 100:
            self.phase = LayerPhase.CLOSED


@pytest.mark.parametrize("how", ["receive", "tick", "opening"])
def test_ending_inner_session_closes_the_websocket(how):
    inner = Ending()
    if how == "opening":
        inner.said, inner.phase = [[b"BYE"]], LayerPhase.CLOSED
    server, _client = opened(inner, kind="binary")
    framer = frames.FrameEncoder(True)
    if how == "receive":
        assert server.phase is LayerPhase.OPEN
        assert server.receive(framer.frame(frames.BINARY, b"LAST")) == ["LAST", None]
        assert server.output() == [b"\x82\x03BYE"]
    elif how == "tick":
        server.tick(1.0)
        assert server.phase is LayerPhase.OPEN
        server.tick(100.0)
        assert server.output() == [b"\x82\x04TICK"]
    assert server.phase is LayerPhase.CLOSING
    assert not server.closed
    (close,) = server.close_message(stopping=True)
    code, reason = frames.decode_close(close[2:])
    assert (code, reason) == (1000, Ending.close_reason[:123])
    assert server.phase is LayerPhase.CLOSING


@pytest.mark.parametrize("name", ["ping_interval", "ping_timeout"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_session_rejects_non_positive_timeouts(name, value):
    for session in (WebSocketServerSession, lambda **times: WebSocketClientSession(URL, **times)):
        raised_with(ValueError, name, session, **{name: value})
