"""What the tests of the rewarder share: servers and clients that are closed again."""

import socket

import pytest

from rlwire.sessions.rewarder.client import handshake_headers
from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests.universe.resets import answer_resets


@pytest.fixture
def serving(stack):
    def serve(env_id="test.Game-v0", **options):
        options.setdefault("auth", "openai")  # which clients give
        return stack.enter_context(RewarderServer(env_id, "127.0.0.1:0", **options))

    return serve


@pytest.fixture
def answering(serving):

    def serve(**options):
        return answer_resets(serving(**options))

    return serve


@pytest.fixture
def join(stack):
    def connect(server, auth="openai", **options):
        return stack.enter_context(RewarderClient(str(server.address), auth=auth, **options))

    return connect


def raw_client(server, observer=True):
    """Return the socket of a client by hand that has shaken hands and reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((server.address.host, server.address.port))
    lines = "".join(f"{name}: {value}\r\n" for name, value in handshake_headers("openai", observer))
    sock.sendall(
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        + lines.encode()
        + b"\r\n"
    )
    return sock
