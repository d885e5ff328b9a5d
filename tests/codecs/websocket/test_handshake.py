import base64

import pytest

from rlwire.codecs.websocket import handshake as h
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from tests.raising import raised, raised_with

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
LINES = [
    "GET /chat?room=1 HTTP/1.1", "Host: server.example.com", "Upgrade: websocket",
    "Connection: keep-alive, Upgrade", f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13",
    "Origin: http://example.com",
]  # fmt: skip


def head(lines):
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def changed(old, new):
    found = [line for line in LINES if line.startswith(old)]
    assert len(found) == 1, old
    return [line for line in LINES if line != found[0]] + ([] if new is None else [new])


def first(line):
    return [line, *LINES[1:]]


def test_rfc_example_request_is_decoded():  # section 1.2 and 1.3
    request = h.read_request(head(LINES))
    assert (request.resource, request.path) == ("/chat?room=1", "/chat")
    assert request.origin == "http://example.com"
    assert h.accept_of(request.key) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert request.headers.get("HOST") == "server.example.com"
    assert request.headers.get("Nothing") is None
    assert "host" in request.headers
    assert len(request.headers) == 6
    assert next(iter(request.headers)) == ("Host", "server.example.com")
    assert "server.example.com" not in repr(request.headers)


def test_request_and_response_round_trip():
    target = h.parse_url("ws://localhost:15900/a%20b?c=d")
    wire = h.write_request(
        target, KEY, origin="https://example.org", headers=[("openai-observer", "true")]
    )
    assert h.head_size(wire, 0, len(wire), 8192, b"GET ") == len(wire)
    request = h.read_request(wire)
    assert (request.resource, request.path) == ("/a%20b?c=d", "/a b")
    assert request.headers.get("host") == "localhost:15900"
    assert request.headers.get("OpenAI-Observer") == "true"
    assert request.origin == "https://example.org"
    wire = h.write_response(101, key=KEY, headers=[("X-More", "yes")])
    response = h.read_response(wire)
    assert (response.status, response.reason) == (101, "Switching Protocols")
    assert response.headers.get("Sec-WebSocket-Accept") == h.accept_of(KEY)
    assert response.headers.get("X-More") == "yes"


def test_rejection_response_has_a_status_and_a_reason():
    wire = h.write_response(403, text="not you")
    assert wire.endswith(b"\r\n\r\nnot you\n")
    response = h.read_response(wire[: wire.index(b"\r\n\r\n") + 4])
    assert (response.status, response.headers.get("Content-Length")) == (403, "8")
    assert b"Sec-WebSocket-Version: 13\r\n" in h.write_response(426)
    old = h.read_response(b"HTTP/1.0 404 File not found\r\nServer: x\r\n\r\n")
    assert (old.status, old.reason) == (404, "File not found")
    assert h.read_response(b"HTTP/1.1 500\r\n\r\n").reason == ""


BAD_REQUESTS = {
    "another method": first("POST / HTTP/1.1"),
    "small letters": first("get / HTTP/1.1"),
    "HTTP/1.0": first("GET / HTTP/1.0"),
    "HTTP/2": first("GET / HTTP/2"),
    "two spaces": first("GET  / HTTP/1.1"),
    "no resource": first("GET HTTP/1.1"),
    "absolute form": first("GET http://example.com/ HTTP/1.1"),
    "a fragment": first("GET /#a HTTP/1.1"),
    "a control character in the resource": first("GET /\x01 HTTP/1.1"),
    "no Host": changed("Host", None),
    "an empty Host": changed("Host", "Host: "),
    "two Hosts": [*LINES, "Host: other"],
    "no Upgrade": changed("Upgrade", None),
    "an upgrade to something else": changed("Upgrade", "Upgrade: h2c"),
    "no Connection": changed("Connection", None),
    "another Connection": changed("Connection", "Connection: close"),
    "no key": changed("Sec-WebSocket-Key", None),
    "a short key": changed("Sec-WebSocket-Key", "Sec-WebSocket-Key: AAAA"),
    "a long key": changed(
        "Sec-WebSocket-Key", f"Sec-WebSocket-Key: {base64.b64encode(bytes(17)).decode()}"
    ),
    "no base64": changed("Sec-WebSocket-Key", "Sec-WebSocket-Key: !GhlIHNhbXBsZSBub25jZQ=="),
    "two keys": [*LINES, f"Sec-WebSocket-Key: {KEY}"],
    "two Origins": [*LINES, "Origin: http://example.com"],
    "two lengths": [*LINES, "Content-Length: 0", "Content-Length: 0"],
    "a folded line": [*LINES, "X-A: b", " c"],
    **{
        line: [*LINES, line]
        for line in (
            *("Content-Length: 5", "Transfer-Encoding: chunked", "nonsense", "X-A : b", ": b"),
            *("X(A): b", "X-A: b\nX-C: d", "X-A: b\rX-C: d", "X-A: b\0c"),
        )
    },
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_invalid_requests_are_rejected(name):
    assert type(raised(DecodeError, h.read_request, head(BAD_REQUESTS[name]))) is DecodeError


@pytest.mark.parametrize("line", [None, "Sec-WebSocket-Version: 8", "Sec-WebSocket-Version: 13, 8"])
def test_other_websocket_versions_are_rejected(line):
    raised(h.WrongVersion, h.read_request, head(changed("Sec-WebSocket-Version", line)))


def test_header_names_and_tokens_are_case_insensitive():
    lines = [LINES[0], *(line.upper() if "Key" not in line else line for line in LINES[1:])]
    assert h.read_request(head(lines)).key == KEY
    spaced = changed("Upgrade", "Upgrade:\t WebSocket \t")
    assert h.read_request(head(spaced)).headers.get("Upgrade") == "WebSocket"


BAD_RESPONSES = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/2": b"HTTP/2 200 OK\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n", "a status of four digits": b"HTTP/1.1 1010 OK\r\n\r\n",
    "an upgrade from HTTP/1.0": h.write_response(101, key=KEY).replace(b"/1.1", b"/1.0"),
    "an upgrade to nothing": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n",
    "no upgrade": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
    "two heads": h.write_response(101, key=KEY) * 2,
    "half a head": h.write_response(101, key=KEY)[:-1],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_RESPONSES)
def test_invalid_responses_are_rejected(name):
    raised(DecodeError, h.read_response, BAD_RESPONSES[name])


def test_request_head_over_the_header_limit_is_rejected():
    wire = head(LINES)
    for end in range(len(wire)):
        assert h.head_size(wire, 0, end, 8192, b"GET ") == 0
    assert h.head_size(b"xx" + wire + b"more", 2, len(wire) + 6, 8192, b"GET ") == len(wire)
    assert h.head_size(wire, 0, len(wire), len(wire), b"GET ") == len(wire)
    # What is known is not read again, but for what may be the beginning of the end.
    for known in range(len(wire)):
        assert h.head_size(wire, 0, len(wire), 8192, b"GET ", known) == len(wire)
    changed = wire[:20] + b"\r\n\r\n" + wire[20:]
    assert h.head_size(changed, 0, len(changed), 8192, b"GET ") == 24
    assert h.head_size(changed, 0, len(changed), 8192, b"GET ", 24) == len(changed)
    raised_with(LimitExceeded, "header", h.head_size, wire, 0, len(wire), len(wire) - 1, b"GET ")
    raised_with(LimitExceeded, "header", h.head_size, b"GET " + b"a" * 8188, 0, 8192, 8192, b"GET ")
    many = [*LINES, *(f"X-{i}: a" for i in range(100))]
    assert "header lines" in str(raised(LimitExceeded, h.read_request, head(many)))


@pytest.mark.parametrize("data", [b"\x16\x03\x01", b"P", b"GEx", b"\r\n", b"SSH"])
def test_non_http_request_is_rejected_at_its_first_invalid_byte(data):
    assert "'GET '" in str(raised(DecodeError, h.head_size, data, 0, len(data), 8192, b"GET "))


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("ws://example.org", h.Target(False, "example.org", 80, "/")),
        ("wss://example.org/", h.Target(True, "example.org", 443, "/")),
        ("ws://127.0.0.1:15900/v1?a=b%20c", h.Target(False, "127.0.0.1", 15900, "/v1?a=b%20c")),
        ("ws://[::1]:80?x", h.Target(False, "::1", 80, "/?x")),
        ("wss://me:se%20cret@h:1", h.Target(True, "h", 1, "/", h.basic_header("me", "se cret"))),
        ("ws+unix:///tmp/a", h.Target(False, "localhost", 80, "/", unix="/tmp/a")),
        (
            "wss+unix:///tmp/a%20b%3A:/c?d=e",
            h.Target(True, "localhost", 443, "/c?d=e", unix="/tmp/a b:"),
        ),
    ],
)
def test_urls_are_parsed(url, target):
    assert h.parse_url(url) == target


def test_host_header_omits_the_default_port():
    assert h.parse_url("ws://a:80").authority == "a"
    assert h.parse_url("wss://a:443").authority == "a"
    assert h.parse_url("wss://a:80").authority == "a:80"
    assert h.parse_url("ws://[::1]:9").authority == "[::1]:9"


@pytest.mark.parametrize(
    "url",
    [
        "http://a", "a:80", "ws:///a", "ws://", "ws://a#b", "ws://a/#", "ws://a/b c",
        "ws://a/\r\nX: y", "ws://a/é", "ws://a:99999", "ws://a:b", "ws://a\t/", "",
        "ws+unix://a/b", "ws+unix:b", "ws+unix:///a:b",
    ],
)  # fmt: skip
def test_invalid_urls_are_rejected(url):
    with pytest.raises(ValueError):  # noqa: PT011
        h.parse_url(url)


@pytest.mark.parametrize(
    "headers",
    [
        [("X-A", "b\r\nX-C: d")], [("X-A", "b\n")], [("X-A", "b\0")], [("X-A\r\nX-B", "c")],
        [("X A", "b")], [("", "b")], [("X-A", "世界")], [("Host", "other")],
        [("sec-websocket-key", KEY)], [("Transfer-Encoding", "chunked")],
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "write",
    [
        lambda headers: h.write_request(h.parse_url("ws://a"), KEY, headers=headers),
        lambda headers: h.write_response(101, key=KEY, headers=headers),
        lambda headers: h.write_response(401, headers=headers),
    ],
)
def test_header_injection_is_rejected(write, headers):
    raised(EncodeError, write, headers)


def test_request_encoder_rejects_line_breaks_in_each_field():
    raised(EncodeError, h.write_request, h.parse_url("ws://a"), KEY, origin="http://a\r\n")
    raised(EncodeError, h.write_request, h.Target(False, "a", 80, "/ HTTP/1.1\r\nX: y"), KEY)
    raised(EncodeError, h.write_request, h.Target(False, "a\r\nX: y", 80, "/"), KEY)


def test_basic_credentials_round_trip():
    assert h.basic_header("Aladdin", "open sesame") == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert h.basic_credentials("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==") == ("Aladdin", "open sesame")
    assert h.basic_credentials(h.basic_header("ü", "a:b")) == ("ü", "a:b")
    assert h.basic_credentials(h.basic_header("openai", "")) == ("openai", "")
    for value in (None, "", "Basic", "Basic !", "Bearer abc", "Basic QQ==", "Basic //8="):
        assert h.basic_credentials(value) is None
    raised(EncodeError, h.basic_header, "a:b", "c")


def test_header_overrides_the_credentials_of_a_url():
    target = h.parse_url("ws://a:b@c")
    assert b"Authorization: Basic YTpi\r\n" in h.write_request(target, KEY)
    wire = h.write_request(target, KEY, headers=[("authorization", "Bearer x")])
    assert wire.lower().count(b"authorization") == 1
    assert b"Bearer x" in wire


def test_same_secret_compares_any_text():
    assert h.same_secret("pässword", "pässword")
    assert not h.same_secret("pässword", "password")
    assert not h.same_secret("", "password")
    assert not h.same_secret("\ud800", "password")


def test_header_lookup_is_case_insensitive():
    headers = h.HeaderLines([("A", "1, 2"), ("b", ""), ("a", "3")])
    assert headers.tokens("A") == ["1", "2", "3"]
    assert headers.all("a") == ["1, 2", "3"]
    assert headers.get("B") == ""
    raised_with(DecodeError, r"2.*'a'|'a'.*2", headers.get, "a")
