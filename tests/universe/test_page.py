"""The page: its files, who may load it, and its two WebSockets, which are relayed to a remote."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlwire.errors import ConnectionClosed
from rlwire.registry import URL
from rlwire.sessions.websocket import Closed, Refused
from rlwire.universe.page import PageServer, novnc_files
from rlwire.universe.rewarder import RewarderServer
from rlwire.websocket import connect

SOURCES = {
    "core/rfb.js": b"export default class RFB extends EventTargetMixin {}\n",
    "core/util/int.js": b"export {}\n",
    "vendor/pako/inflate.js": b"export {}\n",
    "package.json": b"{}",
}


@pytest.fixture
def novnc(tmp_path: Path) -> Path:
    for name, data in SOURCES.items():
        path = tmp_path / "novnc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "novnc"


@pytest.fixture
def echo() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        with sock:
            sock.sendall(b"hello")
            while data := sock.recv(4096):
                sock.sendall(data[::-1])

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def rewarder() -> Iterator[RewarderServer]:
    with RewarderServer("a.Game-v0", "127.0.0.1:0", auth=None) as server:
        yield server


Make = Callable[..., PageServer]


@pytest.fixture
def make(novnc: Path, echo: int, rewarder: RewarderServer) -> Iterator[Make]:
    made = []

    def make(**options: Any) -> PageServer:
        remote = URL("universe", "127.0.0.1", rewarder.address.port, pixels=echo)
        fixed = {"host": "127.0.0.1", "novnc": novnc}
        options = {**fixed, "remote": lambda: remote, **options}
        made.append(PageServer(options.pop("remote"), 0, **options).start())
        return made[-1]

    yield make
    for server in made:
        server.stop()


def get(server: PageServer, path: str, **headers: str) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def ws(server: PageServer, path: str, **options: Any) -> Any:
    return connect(f"ws://127.0.0.1:{server.address.port}{path}", **options)


def test_its_files(make: Make) -> None:
    server = make()
    assert server.url == f"http://127.0.0.1:{server.address.port}/"
    status, page, headers = get(server, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'src="universe.js"' in page
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    status, script, headers = get(server, "/universe.js?x=1")
    assert (status, headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert b'from "./novnc/core/rfb.js"' in script
    for name, data in SOURCES.items():
        wanted = (200, data) if name.endswith(".js") else (404, b"there is no such page\n")
        assert get(server, f"/novnc/{name}")[:2] == wanted


@pytest.mark.parametrize(
    "path", ["/novnc/", "/novnc/../../etc/passwd", "/../rlx.js", "/rlx.js", "//", "/novnc/%2e%2e/x"]
)
def test_it_has_no_other_files(make: Make, path: str) -> None:
    assert get(make(), path)[0] == 404


def test_what_it_tells_of_the_environment(make: Make) -> None:
    server = make(about=lambda: {"name": "Pong", "keys": {"Left": 3}})
    status, body, _ = get(server, "/about")
    assert status == 200
    assert json.loads(body) == {"rewards": True, "name": "Pong", "keys": {"Left": 3}}


def test_what_it_tells_is_for_its_own_names(make: Make) -> None:
    server = make(origins=["https://example.org"], about=lambda: {"name": "Pong"})
    port = server.address.port
    for host in (f"localhost:{port}", "127.0.0.1", "[::1]:80", "Example.org", "192.0.2.7:1"):
        assert get(server, "/about", Host=host)[0] == 200
    for host in (f"evil.test:{port}", "", "localhost.evil.test", "127.0.0.1.evil.test", "[::1"):
        status, body, _ = get(server, "/about", Host=host)
        assert status == 421
        assert b"Pong" not in body
    assert get(make(origins="*"), "/about", Host="any.test")[0] == 200


def test_the_pixels_are_relayed_as_bytes_in_binary_messages(make: Make) -> None:
    with ws(make(), "/pixels", kind="binary") as peer:
        assert bytes(peer.receive()) == b"hello"
        peer.send(b"abc")
        got = bytes(peer.receive())
        while len(got) < 3:
            got += peer.receive()
        assert got == b"cba"


def test_a_text_for_the_pixels_ends_it(make: Make) -> None:
    with ws(make(), "/pixels") as peer:
        assert bytes(peer.receive()) == b"hello"
        peer.send("abc")
        with pytest.raises(ConnectionClosed):
            peer.receive()


def test_the_page_observes_the_rewarder(make: Make, rewarder: RewarderServer) -> None:
    with ws(make(), "/rewards") as peer:
        assert json.loads(peer.receive())["body"]["env_id"] == "a.Game-v0"
        rewarder.reward(1.5)
        assert json.loads(peer.receive())["body"]["reward"] == 1.5
        # It cannot act, whoever has the page.
        action = {"method": "v0.agent.action", "body": {"action": []}}
        action["headers"] = {"message_id": 0, "sent_at": 0}
        peer.send(json.dumps(action))
        assert json.loads(peer.receive())["method"] == "v0.reply.error"
        assert not rewarder.active


def test_other_places_lead_nowhere(make: Make, rewarder: RewarderServer, echo: int) -> None:
    with pytest.raises(Refused, match="404"):
        ws(make(), "/else")
    only = URL("universe", "127.0.0.1", pixels=echo, only_pixels=True)
    server = make(remote=lambda: only)
    assert json.loads(get(server, "/about")[1]) == {"rewards": False}
    with ws(server, "/rewards") as peer, pytest.raises(Closed, match="1013"):
        peer.receive()


def test_only_its_own_scripts_may_connect(make: Make) -> None:
    server = make(origins=["https://example.org"])
    for origin in (server.origin, f"http://localhost:{server.address.port}", "https://example.org"):
        ws(server, "/rewards", origin=origin).close()
    for origin in ("https://example.com", "null", f"http://evil.test:{server.address.port}"):
        with pytest.raises(Refused, match="403"):
            ws(server, "/rewards", origin=origin)


def test_a_password_is_asked_for_before_anything_is_shown(make: Make) -> None:
    server = make(auth="sesame")
    status, _, headers = get(server, "/")
    assert (status, headers["WWW-Authenticate"]) == (401, 'Basic realm="rlwire", charset="UTF-8"')
    for words in (("sesame", ""), ("me", "sesame")):
        assert get(server, "/about", Authorization=basic(*words))[0] == 200
    assert get(server, "/", Authorization=basic("me", "simsim"))[0] == 401
    assert get(server, "/healthz")[:2] == (200, b"OK\n")
    with pytest.raises(Refused, match="401"):
        ws(server, "/rewards")
    ws(server, "/rewards", headers=[("Authorization", basic("me", "sesame"))]).close()


class TestNoVNC:
    def test_a_folder(self, novnc: Path) -> None:
        assert sorted(novnc_files(novnc)) == sorted(set(SOURCES) - {"package.json"})

    def test_where_npm_puts_it(
        self, novnc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(FileNotFoundError, match="npm install @novnc/novnc"):
            novnc_files()
        (tmp_path / "node_modules" / "@novnc").mkdir(parents=True)
        novnc.rename(tmp_path / "node_modules" / "@novnc" / "novnc")
        assert len(novnc_files()) == 3

    def test_what_is_none(self, novnc: Path) -> None:
        (novnc / "core" / "rfb.js").write_bytes(b"exports.default = RFB;")
        with pytest.raises(ValueError, match=r"1\.7 or newer"):
            novnc_files(novnc)
