"""Many who say nothing, or too many from one place: the others are served all the same."""

import contextlib
import os
import socket

import pytest

from rlwire.errors import ConnectionClosed
from rlwire.sessions import websocket
from rlwire.transports import tcp
from rlwire.transports.sockets import Timeouts, listen, local_address
from tests.raising import raised
from tests.transports.drivers import echoing, serving
from tests.waiting import eventually


@pytest.fixture(params=["threads handler", "asyncio handler", "asyncio responder"])
def serve(request, stack):
    kind, how = request.param.split()
    return lambda make_session, where="127.0.0.1:0", **options: stack.enter_context(
        serving(kind, where, make_session, **echoing(kind, how), **options)
    )


def is_served(blobs, address, **options):
    with tcp.connect(address, blobs(), **options) as connection:
        try:
            return bytes(connection.exchange(b"x")) == b"x"
        except ConnectionClosed:
            return False


def test_one_address_cannot_exhaust_the_connections(serve, blobs, from_address, read_frame, log):
    server = serve(blobs, max_connections=10, max_connections_per_address=4)
    silent = [from_address("127.0.0.2", server.address) for _ in range(30)]
    for refused in silent[4:]:
        assert b"5 is over the limit max_connections_per_address=4" in read_frame(refused)
        assert read_frame(refused) == b""
    assert is_served(blobs, server.address)
    assert "max_connections_per_address=4 - at address 127.0.0.2" in log.text
    # Others have their own share, up to the maximum of all.
    others = [from_address("127.0.0.3", server.address) for _ in range(4)]
    assert is_served(blobs, server.address)
    eventually(lambda: server.statistics()["open"] == 8)
    last = [from_address("127.0.0.4", server.address) for _ in range(3)]
    assert b"11 is over the limit max_connections=10" in read_frame(last[2])
    for sock in (*silent, *others, *last):
        sock.close()
    eventually(lambda: is_served(blobs, server.address))


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="no users of unix sockets")
@pytest.mark.parametrize("carrier", ["unix", "shm"])
def test_another_user_cannot_exhaust_the_connections(
    serve, blobs, raw, tmp_path, monkeypatch,
    log, carrier,
):  # fmt: skip
    server = serve(
        blobs,
        where=f"{carrier}:{tmp_path}/socket",
        max_connections=10,
        max_connections_per_address=4,
    )
    with monkeypatch.context() as elsewhere:  # who connects is then somebody else
        elsewhere.setattr("os.geteuid", lambda: 4711)
        silent = [raw(server.address) for _ in range(12)]
        for refused in silent[4:]:
            while refused.recv(100):
                pass
        eventually(lambda: server.statistics()["open"] == 4)
        assert server.statistics()["rejected"] == 8
    assert f"max_connections_per_address=4 - at user {os.getuid()}" in log.text
    assert is_served(blobs, server.address)
    # Of its own user all are let in, up to the maximum of all.
    own = [raw(server.address) for _ in range(5)]
    eventually(lambda: server.statistics()["open"] == 9)
    assert is_served(blobs, server.address)
    for sock in (*silent, *own):
        sock.close()
    eventually(lambda: server.statistics()["open"] == 0)


def test_silent_peer_is_disconnected_at_the_first_message_timeout(serve, blobs, raw, read_frame):
    with listen("127.0.0.1:0") as listener:
        talker = raw(local_address(listener))
        talker.sendall(blobs.frame(b"x"))  # in time, however slow this machine is
        server = serve(blobs, listener, timeout=Timeouts(first=0.5))
        assert read_frame(talker) == b"x"
        silent = raw(server.address)
        assert b"first=0.5 s" in read_frame(silent)
        assert read_frame(silent) == b""
        # Who has said a word may be silent for longer.
        talker.sendall(blobs.frame(b"y"))
        assert read_frame(talker) == b"y"


def test_incomplete_websocket_handshake_ends_at_the_first_timeout(serve, raw):
    server = serve(
        lambda: websocket.WebSocketServerSession(kind="binary"),
        timeout=Timeouts(first=0.2, connect=30),
    )
    assert raw(server.address).recv(65536).startswith(b"HTTP/1.1 408 ")


class ShakesLonger(Timeouts):
    handshake = 30.0


def test_clients_without_tls_or_a_first_message_are_disconnected(
    serve, blobs, raw, contexts, log, monkeypatch
):
    context, trusting = contexts
    server = serve(blobs, tls=context)
    with tcp.connect(server.address, blobs(), tls=trusting) as talker:
        # Only for those that come now, and are meant to be late.
        monkeypatch.setattr(server, "_timeouts", Timeouts(first=0.5, connect=30))
        plain, silent = raw(server.address), raw(server.address)
        plain.sendall(blobs.frame(b"hello"))
        assert talker.exchange(b"x") == b"x"
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(100) == b"", "before the handshake"
        eventually(lambda: "no TLS handshake within connect=0.5 s" in log.text)
        monkeypatch.setattr(server, "_timeouts", ShakesLonger(first=0.5))
        with tcp.connect(server.address, blobs(), tls=trusting) as shaken:
            assert b"first=0.5" in bytes(shaken.receive()), "behind it"
            raised(ConnectionClosed, shaken.receive)
        assert talker.exchange(b"x") == b"x"


def test_tls_connections_over_the_limit_are_rejected_and_logged(
    serve, blobs, from_address, contexts, log
):
    context, trusting = contexts
    server = serve(blobs, tls=context, max_connections_per_address=2)
    silent = [from_address("127.0.0.2", server.address) for _ in range(5)]
    for sock in silent[2:]:
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert is_served(blobs, server.address, tls=trusting)
    assert log.text.count("max_connections_per_address=2") == 3
