"""`connect` by URL; and the ``websockets`` package at the other end, in a process of its own."""

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from rlwire.sessions.websocket import Closed, Refused, WebSocketServerSession, basic_authorization
from rlwire.transports.server import ServerSettings, ThreadServer
from rlwire.websocket import connect, connect_asyncio
from tests.raising import raised
from tests.transports.drivers import SERVERS, serving

PEERS = Path(__file__).with_name("websocket_peers.py")
MESSAGES = ["text", "ünï 𝄞", b"", b"x" * 126, b"y" * 70_000, "z" * 300_000]


def make_session():
    return WebSocketServerSession()


def answer(peer):
    def reply(event):
        if event == "close":
            peer.session.leave(4003, "gladly")
            raise StopIteration
        return event

    return reply


def handler(peer):
    with contextlib.suppress(StopIteration):
        peer.serve(answer(peer))


async def async_handler(peer):
    while (event := await peer.receive()) != "close":
        await peer.send(event)
    peer.session.leave(4003, "gladly")


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    pytest.importorskip("websockets")
    process = subprocess.Popen(
        [sys.executable, PEERS, "serve"],
        stdout=subprocess.PIPE,
        cwd=tmp_path_factory.mktemp("peers"),
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def test_a_blocking_client_of_websockets(port):
    with connect(f"ws://127.0.0.1:{port}/") as peer:
        for message in MESSAGES:
            assert peer.exchange(message) == message
        assert peer.exchange("fragments") == "in three"
        assert peer.exchange("ping") == "ponged"
        caught = raised(Closed, peer.exchange, "close")
        assert (caught.code, caught.reason) == (4002, "as you wish")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_asyncio_client_of_websockets(port, loop):
    async def main():
        async with await connect_asyncio(f"ws://127.0.0.1:{port}/") as peer:
            for message in MESSAGES:
                assert await peer.exchange(message) == message
            assert await peer.exchange("fragments") == "in three"
            assert await peer.exchange("ping") == "ponged"
            with pytest.raises(Closed) as caught:
                await peer.exchange("close")
            assert caught.value.code == 4002

    if loop == "uvloop":
        pytest.importorskip("uvloop").run(main())
    else:
        asyncio.run(main())


def ask(port, cwd):
    done = subprocess.run(
        [sys.executable, PEERS, "ask", str(port)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("server", SERVERS)
def test_websockets_as_a_client(server, tmp_path):
    pytest.importorskip("websockets")
    converse = handler if server == "threads" else async_handler
    with serving(server, "127.0.0.1:0", make_session, converse=converse) as running:
        found = ask(running.address.port, tmp_path)
    assert found == {"extensions": 0, "closed": [4003, "gladly"]}


def test_tls_by_url():
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(served)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(trusting)
    with ThreadServer(
        "localhost:0", make_session, handler, settings=ServerSettings(served)
    ) as server:
        url = f"wss://localhost:{server.address.port}/"
        with connect(url, tls=trusting) as peer:
            assert peer.exchange("a") == "a"
        raised(ssl.SSLCertVerificationError, connect, url)

        async def main():
            async with await connect_asyncio(url, tls=trusting) as peer:
                assert await peer.exchange("a") == "a"

        asyncio.run(main())
        assert "wss" in str(raised(ValueError, connect, url.replace("wss", "ws"), tls=trusting))


def test_a_url_s_user_is_asked_for():
    check = basic_authorization(lambda user, password: (user, password) == ("openai", "pw"))
    with ThreadServer(
        "127.0.0.1:0", lambda: WebSocketServerSession(check=check), handler
    ) as server:
        with connect(f"ws://openai:pw@{server.address}/") as peer:
            assert peer.exchange("a") == "a"
        assert raised(Refused, connect, f"ws://openai:no@{server.address}/").status == 401


def test_urls_that_are_none():
    for url in ("http://a/", "ws://a/#b", "a:80"):
        with pytest.raises(ValueError):  # noqa: PT011
            connect(url)
