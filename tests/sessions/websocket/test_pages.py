"""What a WebSocket's port says to who wants a page of it: a health check, or any other."""

import pytest

from rlwire.codecs.websocket.handshake import read_response
from rlwire.errors import ConnectionClosed, DecodeError, LimitExceeded
from rlwire.sessions.websocket import HttpRefusal, Page, PageServed, WebSocketServerSession, health
from tests.raising import raised

joined = b"".join


HEALTHY = [
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /healthz?verbose HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /healthz HTTP/1.0\r\n\r\n",
]


@pytest.mark.parametrize("head", HEALTHY)
def test_health_check_gets_status_200(head):
    server = WebSocketServerSession(pages=health, check=lambda request: HttpRefusal(401))
    assert server.frame_size(head, 0, len(head)) == len(head)
    assert isinstance(raised(PageServed, server.receive, head), ConnectionClosed)
    response, _, body = joined(server.output()).partition(b"\r\n\r\n")
    assert read_response(response + b"\r\n\r\n").status == 200
    assert body == b"OK\n"
    assert server.closed


def pages(path, headers):
    if path == "/a page":
        return Page(b"<p>\n\xff", "text/html", headers=(("X-More", headers.get("Host")),))
    return Page(b"", status=404) if path.startswith("/none") else None


def answer(head):
    server = WebSocketServerSession(pages=pages)
    assert server.frame_size(head, 0, len(head)) == len(head)
    raised(PageServed, server.receive, head)
    assert server.closed
    response, _, body = joined(server.output()).partition(b"\r\n\r\n")
    return read_response(response + b"\r\n\r\n"), body


def test_page_is_served_with_its_type_and_length():
    response, body = answer(b"GET /a%20page?x=1 HTTP/1.1\r\nHost: here\r\n\r\n")
    assert (response.status, body) == (200, b"<p>\n\xff")
    assert response.headers.get("Content-Type") == "text/html"
    assert response.headers.get("Content-Length") == "5"
    assert response.headers.get("X-More") == "here"
    assert answer(b"GET /none HTTP/1.1\r\n\r\n")[0].status == 404


@pytest.mark.parametrize(
    ("head", "error"),
    [
        (b"POST /none HTTP/1.1\r\nHost: x\r\n\r\n", DecodeError),
        (b"GET none HTTP/1.1\r\nHost: x\r\n\r\n", DecodeError),
        (b"GET /none HTTP/1.1\r\nno header\r\n\r\n", DecodeError),
        (b"GET /none HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", LimitExceeded),
        (b"GET /healthzz HTTP/1.1\r\nHost: x\r\n\r\n", DecodeError),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", DecodeError),
        (b"GET /healthz SMTP/1.1\r\nHost: x\r\n\r\n", DecodeError),
        (b"GET /x?/healthz HTTP/1.1\r\nHost: x\r\n\r\n", DecodeError),
    ],
)
def test_unsupported_methods_and_paths_are_rejected(head, error):
    server = WebSocketServerSession(pages=lambda *get: health(*get) or pages(*get))
    raised(error, server.receive, head)
    assert joined(server.output()).startswith(b"HTTP/1.1 4")
    assert server.closed
