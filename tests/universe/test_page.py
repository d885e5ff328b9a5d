"""The page: its files, who may load it, and its WebSocket, which shows and plays a remote."""

import base64
import http.client
import io
import itertools
import json
import struct

import numpy as np
import pytest
from PIL import Image

from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.errors import ConnectionClosed
from rlwire.sessions.websocket import Refused
from rlwire.universe.page import PageServer
from rlwire.universe.rfb import Display
from rlwire.websocket import connect
from tests.raising import raised
from tests.waiting import eventually


@pytest.fixture
def received():
    return []


@pytest.fixture
def display(received):
    return Display(40, 30, on_input=lambda viewer, event: received.append(event))


@pytest.fixture
def make(display):
    made = []

    def make(**options):
        made.append(PageServer(display, 0, host="127.0.0.1", **options).start())
        return made[-1]

    yield make
    for server in made:
        server.stop()


def get(server, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def ws(server, path="/pixels", **options):
    return connect(f"ws://127.0.0.1:{server.address.port}{path}", **options)


def read_on(peer):
    while True:
        peer.receive()


def picture(message):
    pixels = Image.open(io.BytesIO(bytes(message)[8:]))
    return struct.unpack(">4H", bytes(message)[:8]), np.asarray(pixels)


def test_server_serves_the_files_of_the_page(make):
    server = make()
    assert server.url == f"http://127.0.0.1:{server.address.port}/"
    status, page, headers = get(server, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'src="universe.js"' in page
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Set-Cookie" not in headers
    status, script, headers = get(server, "/universe.js?x=1")
    assert (status, headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert b"new WebSocket(" in script


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/../rlx.js", "/rlx.js", "//", "/%2e%2e/x", "/about"]
)
def test_other_paths_of_the_page_are_404(make, path):
    server = make()
    assert get(server, path)[0] == 404
    assert "404" in str(raised(Refused, ws, server, path))


def test_page_receives_the_status_on_each_change(make):
    reported = {"name": "Pong", "score": 0}
    server = make(about=reported.copy)
    with ws(server) as peer:
        assert json.loads(peer.receive()) == {"name": "Pong", "score": 0}
        assert picture(peer.receive())[0] == (40, 30, 0, 0)
        peer.send('"shown"')
        reported["score"] = 1  # without any new pixels
        server.update()
        assert json.loads(peer.receive())["score"] == 1


def test_page_that_reads_slowly_receives_the_last_status(make):
    reported = {"score": ""}
    texts = itertools.cycle(["x" * 10_000, "y" * 10_000])
    server = make(about=reported.copy)
    with ws(server, timeout=10.0) as peer:
        peer.receive()
        peer.receive()
        peer.send('"shown"')
        (page,) = server._pages.viewers
        eventually(lambda: not page.showing)

        def blocks():
            reported["score"] = next(texts)
            server.update()
            return page.connection.blocked

        eventually(blocks)
        reported["score"] = "last"  # the environment changes no more
        server.update()
        while json.loads(peer.receive())["score"] != "last":
            pass


def test_page_receives_changes_after_it_confirms_a_frame(make, display):
    frame = np.zeros((30, 40, 3), np.uint8)
    with ws(make()) as peer:
        peer.receive()
        assert not picture(peer.receive())[1].any()
        for place in (2, 25):
            frame[place, place] = 10 * place
            display.show(frame)
        peer.send('"shown"')
        pixels = np.zeros_like(frame)
        while pixels[25, 25, 0] != 250:
            (width, height, x, y), part = picture(peer.receive())
            pixels[y : y + len(part), x : x + len(part[0])] = part
            peer.send('"shown"')
        assert (width, height) == (40, 30)
        assert (pixels == frame).all()
        display.show(np.full((60, 50, 3), 7, np.uint8))
        while (size := picture(peer.receive())[0]) != (50, 60, 0, 0):
            assert size[:2] == (40, 30)
            peer.send('"shown"')


def test_large_screen_is_sent_as_jpeg(make, display):
    display.show(np.full((800, 1000, 3), 90, np.uint8))
    with ws(make()) as peer:
        peer.receive()
        message = bytes(peer.receive())
        assert message[8:10] == b"\xff\xd8"
        assert abs(int(picture(message)[1][5, 5, 0]) - 90) < 4


def test_key_and_pointer_input_of_the_page_reaches_the_display(make, received):
    with ws(make()) as peer:
        for sent in (["Up", True], ["no such key", True], ["ArrowUp", False], ["w", True]):
            peer.send(json.dumps(sent))
        peer.send("[3, 4, 1]")
        eventually(lambda: len(received) == 4)
        assert received == [
            *(KeyEvent(0xFF52, True), KeyEvent(0xFF52, False), KeyEvent(119, True)),
            PointerEvent(3, 4, 1),
        ]


@pytest.mark.parametrize(
    "sent", ["", "{", "[1, 2]", '["Up"]', "[-1, 0, 0]", "[70000, 0, 0]", "[" * 9999, b"\0", b"1"]
)
def test_invalid_page_message_closes_the_connection(make, sent, received):
    with ws(make()) as peer:
        peer.send(sent)
        raised(ConnectionClosed, read_on, peer)
    assert received == []


def test_page_connection_closes_when_the_server_stops(make):
    server = make()
    with ws(server) as peer:
        peer.receive()
        server.stop()
        raised(ConnectionClosed, read_on, peer)


def test_page_whose_picture_fails_is_closed(make, display):
    with ws(make(about=lambda: {1: display, (2, 3): 4})) as peer:
        raised(ConnectionClosed, read_on, peer)


def test_websocket_from_a_foreign_origin_is_rejected(make):
    server = make(origins=["https://example.org"])
    for origin in (server.origin, f"http://localhost:{server.address.port}", "https://example.org"):
        ws(server, origin=origin).close()
    for origin in ("https://example.com", "null", f"http://evil.test:{server.address.port}"):
        assert "403" in str(raised(Refused, ws, server, origin=origin))


def test_page_and_websocket_require_the_password(make):
    server = make(auth="sesame")
    status, _, headers = get(server, "/")
    assert (status, headers["WWW-Authenticate"]) == (401, 'Basic realm="rlwire", charset="UTF-8"')
    assert "Set-Cookie" not in headers
    assert get(server, "/", Authorization=basic("me", "simsim"))[0] == 401
    assert get(server, "/healthz")[:2] == (200, b"OK\n")
    assert "401" in str(raised(Refused, ws, server))
    for words in (("sesame", ""), ("me", "sesame")):
        assert get(server, "/universe.js", Authorization=basic(*words))[0] == 200
    with ws(server, headers=[("Authorization", basic("me", "sesame"))]) as peer:
        assert json.loads(peer.receive()) == {}
        assert picture(peer.receive())[0] == (40, 30, 0, 0)


def test_page_cookie_authorizes_the_websocket(make):
    """Safari sends a page's credentials with no WebSocket."""
    server = make(auth="sesame")
    headers = get(server, "/", Authorization=basic("me", "sesame"))[2]
    cookie, _, flags = headers["Set-Cookie"].partition("; ")
    assert flags == "HttpOnly; SameSite=Strict"
    ws(server, headers=[("Cookie", f"other=1; {cookie}")]).close()
    for wrong in (cookie[:-1], cookie.partition("=")[2], make(auth="sesame")._service._cookie):
        assert "401" in str(raised(Refused, ws, server, headers=[("Cookie", wrong)]))
