"""TLS: certificates, versions, goodbyes and handshakes, against Python's own TLS sockets."""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import ssl
import time
import tracemalloc
import warnings

import pytest

from rlwire.errors import ConnectionClosed, RlwireError
from rlwire.transports import tcp_asyncio
from rlwire.transports.server import ServerSettings
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Backoff, connected_socket
from rlwire.transports.tls import ClientTLS, ServerTLS
from tests.raising import raised
from tests.transports.drivers import reset
from tests.waiting import eventually, eventually_async


def test_mutual_tls_rejects_a_client_without_certificate(files, start, connect, blobs, log):
    server = start(tls=ServerTLS(files.server, client_ca=files.ca))
    own = ClientTLS(files.ca, files.client)
    assert connect(server.address, blobs(), tls=own).exchange(b"me") == b"me"
    with pytest.raises((RlwireError, OSError)):
        # With TLS 1.3 a client learns in its first read that its certificate was missed.
        connect(server.address, blobs(), tls=ClientTLS(files.ca)).receive()
    eventually(lambda: "SSL" in log.text or "lost: " in log.text)


def test_certificate_of_an_unknown_authority_is_rejected_without_retry(
    files, start, connect, blobs
):
    server = start(tls=ServerTLS(files.server)())
    begun = time.monotonic()
    with pytest.raises(
        ssl.SSLCertVerificationError, match=r"1 attempt .*certificate verify.*\?tls.ca="
    ):
        connect(server.address, blobs(), tls=ClientTLS()(), backoff=Backoff(attempts=5, first=30))
    assert time.monotonic() - begun < 15


def test_certificate_of_another_host_is_rejected(files, start, connect, blobs):
    server = start(tls=ServerTLS(files.server)())
    context = ClientTLS(files.ca)()
    with pytest.raises(ssl.SSLCertVerificationError, match="example"):
        connect(server.address, blobs(), tls=context, server_hostname="agents.example")
    connection = connect(server.address, blobs(), tls=context, server_hostname="localhost")
    assert connection.exchange(b"x") == b"x"


def test_tls_over_a_unix_socket_requires_server_hostname(files, start, connect, blobs, tmp_path):
    server = start(listener=f"unix:{tmp_path / 's'}", tls=ServerTLS(files.server))
    nameless, named = ClientTLS(files.ca)(), ClientTLS(files.ca, server_hostname="localhost")
    for options in ({"tls": nameless, "server_hostname": "localhost"}, {"tls": named}):
        assert connect(server.address, blobs(), **options).exchange(b"x") == b"x"
    caught = raised(ValueError, connect, server.address, blobs(), tls=nameless)
    assert "server_hostname" in str(caught)


def test_old_tls_versions_are_rejected(files, start, connect, blobs):
    server = start(tls=ServerTLS(files.server)())
    old = ClientTLS(files.ca)()
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    raised(OSError, connect, server.address, blobs(), tls=old)


@pytest.mark.parametrize("side", ["client", "server"])
def test_missing_or_invalid_certificate_files_are_named(files, tmp_path, side):
    kind = ClientTLS if side == "client" else ServerTLS
    empty = tmp_path / "empty.pem"
    empty.touch()
    assert "missing.pem" in str(raised(FileNotFoundError, kind(tmp_path / "missing.pem")))
    assert "empty.pem" in str(raised(ssl.SSLError, kind(empty)))
    caught = raised(FileNotFoundError, kind(cert=files.server, key=tmp_path / "missing.pem"))
    assert "missing.pem" in str(caught)
    assert "ca.pem" in str(raised(ssl.SSLError, kind(cert=files.ca)))
    if side == "client":
        assert "cert" in str(raised(ValueError, ClientTLS(files.ca, key=files.client)))


def shake(server, contexts):
    sock = connected_socket(server.address, 10.0)
    return contexts[1].wrap_socket(sock, server_hostname="127.0.0.1")


@pytest.fixture
def dial(contexts, stack):
    return lambda server: stack.enter_context(shake(server, contexts))


def gone(server):
    eventually(lambda: server.statistics()["open"] == 0)


def test_close_notify_is_answered(start, dial, blobs, contexts, read_frame):
    server = start(tls=contexts[0])
    sock = dial(server)
    sock.sendall(blobs.frame(b"last"))
    assert read_frame(sock) == b"last"
    sock.unwrap().close()  # raises unless the server says goodbye too
    gone(server)


@pytest.mark.parametrize("how", ["closes", "resets", "says what is no TLS"])
def test_close_without_close_notify_ends_the_connection_without_traceback(
    start, dial, blobs, contexts, read_frame, how, log
):
    server = start(tls=contexts[0])
    sock = dial(server)
    sock.sendall(blobs.frame(b"x"))
    assert read_frame(sock) == b"x"
    if how == "resets":
        reset(sock)
    elif how != "closes":
        socket.socket.send(sock, b"no record of TLS's begins like this")
        with contextlib.suppress(OSError):
            while sock.recv(100):
                pass
    sock.close()
    gone(server)
    assert "Traceback" not in log.text


async def test_large_tls_messages_in_both_directions_do_not_deadlock(run, blobs, contexts):
    theirs, ours = contexts
    body = os.urandom(3_000_000)

    async def both(connection):
        async def send():
            for _ in range(5):
                await connection.send([b"head", memoryview(body)])

        sending = asyncio.create_task(send())
        for _ in range(5):
            assert await connection.receive() == b"head" + body
        await sending

    async def handler(connection):
        await both(connection)
        with pytest.raises(ConnectionClosed):
            await connection.receive()

    async with (
        LoopServer("127.0.0.1:0", blobs, handler, settings=ServerSettings(theirs)) as server,
        await tcp_asyncio.connect(server.address, blobs(), tls=ours) as connection,
    ):
        await both(connection)


def client_hello():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("output", ["nothing", "half a word", "hello", "all"])
def test_tls_handshakes_use_bounded_memory_and_free_it(run, blobs, kind, contexts, output, caplog):
    caplog.set_level(logging.CRITICAL, logger="rlwire")  # pytest keeps records, with their errors
    count = 30
    hello = client_hello()
    words = {"nothing": b"", "half a word": hello[:40], "hello": hello}.get(output)
    sizes = []

    async def main():
        async with LoopServer(
            "127.0.0.1:0", blobs, settings=ServerSettings(contexts[0]), **kind
        ) as server:

            async def half(sizes):
                with contextlib.ExitStack() as stack:
                    for _ in range(count):
                        if words is None:
                            stack.enter_context(
                                await asyncio.to_thread(shake, server, contexts)
                            ).sendall(blobs.frame(b"x"))
                            continue
                        stack.enter_context(connected_socket(server.address, 10.0)).sendall(words)
                    await eventually_async(lambda: server.statistics()["open"] == count)
                    await asyncio.sleep(0.02)
                    sizes.append(tracemalloc.get_traced_memory()[0])
                await eventually_async(lambda: server.statistics()["open"] == 0)
                sizes.append(tracemalloc.get_traced_memory()[0])

            await half([])  # what is made once
            sizes.append(tracemalloc.get_traced_memory()[0])
            await half(sizes)

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        run(main())
    finally:
        tracemalloc.stop()
        gc.enable()
    before, meanwhile, after = sizes
    assert after - before < count * 2_000, "no buffer waits for the garbage collector"
    assert meanwhile - before < count * 40_000
