"""`connect` by URL; and the ``websockets`` package at the other end."""

import asyncio
import contextlib
import ssl

import pytest
import trustme

from rlwire.sessions.websocket import Closed, Refused, WebSocketServerSession, basic_authorization
from rlwire.transports.server import ServerSettings, ThreadServer
from rlwire.websocket import connect, connect_asyncio
from tests.raising import raised
from tests.transports.drivers import LOOPS, SERVERS, meanwhile, new_loop, serving

MESSAGES = ["text", "ünï 𝄞", b"", b"x" * 126, b"y" * 70_000, "z" * 300_000]


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
def url():
    """A server of ``websockets``. Its own compression stays on: it must be declined."""
    server = pytest.importorskip("websockets.sync.server")

    def echo(peer):
        for message in peer:
            if message == "fragments":
                peer.send(["in ", "", "three"])
            elif message == "close":
                peer.close(4002, "as you wish")
            elif message == "ping":
                assert peer.ping().wait(10)
                peer.send("ponged")
            else:
                peer.send(message)

    with server.serve(echo, "127.0.0.1", 0) as running, meanwhile(running.serve_forever):
        yield "ws://{}:{}/".format(*running.socket.getsockname())
        running.shutdown()


def test_blocking_client_exchanges_messages_with_websockets(url):
    with connect(url) as peer:
        for message in MESSAGES:
            assert peer.exchange(message) == message
        assert peer.exchange("fragments") == "in three"
        assert peer.exchange("ping") == "ponged"
        caught = raised(Closed, peer.exchange, "close")
        assert (caught.code, caught.reason) == (4002, "as you wish")


@pytest.mark.parametrize("kind", LOOPS)
def test_asyncio_client_exchanges_messages_with_websockets(url, kind):
    async def main():
        async with await connect_asyncio(url) as peer:
            for message in MESSAGES:
                assert await peer.exchange(message) == message
            assert await peer.exchange("fragments") == "in three"
            assert await peer.exchange("ping") == "ponged"
            with pytest.raises(Closed) as caught:
                await peer.exchange("close")
            assert caught.value.code == 4002

    with contextlib.closing(new_loop(kind)) as loop:
        loop.run_until_complete(main())


@pytest.mark.parametrize("server", SERVERS)
def test_server_exchanges_messages_with_websockets(server):
    client = pytest.importorskip("websockets.sync.client")
    exceptions = pytest.importorskip("websockets.exceptions")
    converse = handler if server == "threads" else async_handler
    with (
        serving(server, "127.0.0.1:0", WebSocketServerSession, converse=converse) as running,
        client.connect(f"ws://{running.address}/", proxy=None) as peer,
    ):
        assert not peer.protocol.extensions
        for message in MESSAGES:
            peer.send(message)
            assert peer.recv() == message
        peer.send(["in ", "", "three"])
        assert peer.recv() == "in three"
        assert peer.ping(b"payload").wait(10)
        peer.send("close")
        closed = raised(exceptions.ConnectionClosed, peer.recv).rcvd
        assert (closed.code, closed.reason) == (4003, "gladly")


def test_wss_url_uses_tls():
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(served)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(trusting)
    with ThreadServer(
        "localhost:0", WebSocketServerSession, handler, settings=ServerSettings(served)
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


def test_server_checks_the_user_and_password_of_a_url():
    check = basic_authorization(lambda user, password: (user, password) == ("openai", "pw"))
    with ThreadServer(
        "127.0.0.1:0", lambda: WebSocketServerSession(check=check), handler
    ) as server:
        with connect(f"ws://openai:pw@{server.address}/") as peer:
            assert peer.exchange("a") == "a"
        assert raised(Refused, connect, f"ws://openai:no@{server.address}/").status == 401


def test_client_rejects_invalid_websocket_urls():
    for url in ("http://a/", "ws://a/#b", "a:80"):
        raised(ValueError, connect, url)
