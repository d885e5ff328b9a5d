from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from rlwire.errors import ConnectionClosed, DeadlineExceeded, RlwireError
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.server import ThreadServer
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tls import ClientTLS, ServerTLS

BODIES = [b"small", os.urandom(5_000), os.urandom(2_000_000), b"", b"small again"]


def test_there_and_back(files: Any, serve: Any, blobs: Any) -> None:
    server = serve(tls=ServerTLS(files.server)())
    context = ClientTLS(files.ca)()
    with tcp.connect(server.address, blobs(), tls=context) as connection:
        for body in BODIES:
            connection.send([body[:3], memoryview(body)[3:]])
            assert connection.receive() == body
        assert connection._sock.version() in ("TLSv1.2", "TLSv1.3")


def without_certificate(server: ThreadServer, session: Any, files: Any) -> None:
    # With TLS 1.3 a client learns in its first read that its certificate was missed.
    with tcp.connect(server.address, session, tls=ClientTLS(files.ca)()) as connection:
        connection.receive()


def test_mutual(files: Any, serve: Any, blobs: Any, log: Any, eventually: Any) -> None:
    server = serve(tls=ServerTLS(files.server, client_ca=files.ca)())
    context = ClientTLS(files.ca, files.client)()
    with tcp.connect(server.address, blobs(), tls=context) as connection:
        connection.send(b"it is me")
        assert connection.receive() == b"it is me"
    with pytest.raises((ConnectionClosed, ssl.SSLError)):
        without_certificate(server, blobs(), files)
    eventually(lambda: "lost: " in log.text)


def test_an_unknown_authority_is_refused_at_once(files: Any, serve: Any, blobs: Any) -> None:
    server = serve(tls=ServerTLS(files.server)())
    begun = time.monotonic()
    with pytest.raises(ssl.SSLCertVerificationError, match=r"1 attempt .*certificate verify"):
        tcp.connect(
            server.address, blobs(), tls=ClientTLS()(), backoff=Backoff(attempts=5, first=30)
        )
    assert time.monotonic() - begun < 15


def test_another_hosts_certificate_is_refused(files: Any, serve: Any, blobs: Any) -> None:
    server = serve(tls=ServerTLS(files.server)())
    context = ClientTLS(files.ca)()
    with pytest.raises(ssl.SSLCertVerificationError, match="example"):
        tcp.connect(server.address, blobs(), tls=context, server_hostname="agents.example")
    with tcp.connect(
        server.address, blobs(), tls=context, server_hostname="localhost"
    ) as connection:
        connection.send(b"x")
        assert connection.receive() == b"x"


def test_a_unix_socket_needs_the_name(files: Any, blobs: Any, echo: Any, tmp_path: Path) -> None:
    context = ServerTLS(files.server)()
    with ThreadServer(f"unix:{tmp_path / 's'}", blobs, echo, tls=context) as server:
        with pytest.raises(ValueError, match="server_hostname"):
            tcp.connect(server.address, blobs(), tls=ClientTLS(files.ca)())
        with tcp.connect(
            server.address, blobs(), tls=ClientTLS(files.ca)(), server_hostname="localhost"
        ) as connection:
            connection.send(b"x")
            assert connection.receive() == b"x"


def test_old_versions_are_refused(files: Any, serve: Any, blobs: Any) -> None:
    server = serve(tls=ServerTLS(files.server)())
    old = ClientTLS(files.ca)()
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError, match="cannot connect"):
        tcp.connect(server.address, blobs(), tls=old)


def test_a_client_that_speaks_no_tls_disturbs_nobody(
    files: Any, serve: Any, blobs: Any, raw: Any, log: Any, eventually: Any
) -> None:
    server = serve(tls=ServerTLS(files.server)(), timeouts=Timeouts(connect=1.5))
    plain, silent = raw(server.address), raw(server.address)
    plain.sendall(blobs.frame(b"hello"))
    with tcp.connect(server.address, blobs(), tls=ClientTLS(files.ca)()) as connection:
        connection.send(b"x")
        assert connection.receive() == b"x"
        eventually(lambda: server.connections == 1)
    assert silent.recv(10) == b""
    assert "no TLS handshake within connect=1.5 s" in log.text


def test_times_hold(files: Any, serve: Any, blobs: Any) -> None:
    server = serve(tls=ServerTLS(files.server)())
    times = Timeouts(read=0.3, write=0.3, idle=1.5)
    context = ClientTLS(files.ca)()
    with tcp.connect(server.address, blobs(), tls=context, timeouts=times) as connection:
        with pytest.raises(DeadlineExceeded, match="idle"):
            connection.receive()
        connection.send(b"x")
        assert connection.receive() == b"x"


def test_a_peer_that_does_not_read_is_closed(files: Any, blobs: Any) -> None:
    release = threading.Event()

    def handler(connection: tcp.Connection) -> None:
        release.wait(10)

    context = ServerTLS(files.server)()
    with ThreadServer("127.0.0.1:0", blobs, handler, tls=context) as server:
        connection = tcp.connect(
            server.address, blobs(), tls=ClientTLS(files.ca)(), timeouts=Timeouts(write=0.3)
        )
        with pytest.raises(DeadlineExceeded, match="did not take"):
            connection.send(bytes(50_000_000))
        assert connection.closed
        release.set()


def test_stop_wakes_a_tls_handler(files: Any, serve: Any, blobs: Any) -> None:
    server = serve(tls=ServerTLS(files.server)())
    with tcp.connect(server.address, blobs(), tls=ClientTLS(files.ca)()) as connection:
        connection.send(b"x")
        assert connection.receive() == b"x"
        begun = time.monotonic()
        server.stop(grace=5)
        assert time.monotonic() - begun < 4
        with pytest.raises(ConnectionClosed):
            connection.receive()


def test_a_malformed_frame_is_answered(files: Any, serve: Any, blobs: Any) -> None:
    server = serve(tls=ServerTLS(files.server)())
    with tcp.connect(server.address, blobs(), tls=ClientTLS(files.ca)()) as connection:
        connection._sock.sendall(b"\xff" * 50)
        assert connection.receive() == b"refused: no frame begins with ff - at byte 0"
        with pytest.raises(ConnectionClosed):
            connection.receive()


async def without_certificate_asyncio(server: LoopServer, session: Any, files: Any) -> None:
    connection = await tcp_asyncio.connect(server.address, session, tls=ClientTLS(files.ca)())
    async with connection:
        await connection.receive()


def test_asyncio(files: Any, blobs: Any) -> None:
    async def handler(connection: tcp_asyncio.AsyncConnection) -> None:
        while True:
            await connection.send(bytes(await connection.receive()))

    async def main() -> None:
        context = ServerTLS(files.server, client_ca=files.ca)()
        server = await LoopServer("127.0.0.1:0", blobs, handler, tls=context).start()
        async with server:
            connection = await tcp_asyncio.connect(
                server.address, blobs(), tls=ClientTLS(files.ca, files.client)()
            )
            async with connection:
                for body in BODIES:
                    await connection.send([body[:3], memoryview(body)[3:]])
                    assert await connection.receive() == body
                with pytest.raises(OSError, match="verify"):
                    await tcp_asyncio.connect(server.address, blobs(), tls=ClientTLS()())
                with pytest.raises((RlwireError, OSError)):
                    await without_certificate_asyncio(server, blobs(), files)

    asyncio.run(main())


@pytest.mark.parametrize("side", ["client", "server"])
def test_files_that_are_missing_or_wrong_are_named(files: Any, tmp_path: Path, side: str) -> None:
    kind: Any = ClientTLS if side == "client" else ServerTLS
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        kind(tmp_path / "missing.pem")()
    with pytest.raises(ssl.SSLError, match=r"empty\.pem"):
        kind(empty)()
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        kind(cert=files.server, key=tmp_path / "missing.pem")()
    with pytest.raises(ssl.SSLError, match=r"ca\.pem"):
        kind(cert=files.ca)()


def test_a_key_alone_is_a_mistake(files: Any) -> None:
    with pytest.raises(ValueError, match="without cert"):
        ClientTLS(files.ca, key=files.client)()


def test_over_the_limit_a_tls_peer_is_just_closed(
    files: Any, serve: Any, blobs: Any, raw: Any, log: Any
) -> None:
    server = serve(tls=ServerTLS(files.server)(), max_connections=1)
    with tcp.connect(server.address, blobs(), tls=ClientTLS(files.ca)()) as connection:
        connection.send(b"x")
        assert connection.receive() == b"x"
        second: socket.socket = raw(server.address)
        assert second.recv(100) == b""
    assert "max_connections=1" in log.text


def test_files_instead_of_contexts(serve: Any, blobs: Any, files: Any) -> None:
    """One end each makes its context of files, and the name to be checked is among them."""
    server = serve(tls=ServerTLS(files.server))
    where = f"127.0.0.1:{server.address.port}"
    named = ClientTLS(files.ca, server_hostname="localhost")
    with tcp.connect(where, blobs(), tls=named) as connection:
        assert bytes(connection.exchange(b"here")) == b"here"

    async def talk() -> None:
        async with await tcp_asyncio.connect(where, blobs(), tls=named) as connection:
            assert bytes(await connection.exchange(b"there")) == b"there"

    asyncio.run(talk())
    with pytest.raises(OSError, match="none"):
        tcp.connect(where, blobs(), tls=ClientTLS(files.ca.parent / "none"))
