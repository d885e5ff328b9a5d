"""TLS on event loops, against Python's own blocking TLS sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import ssl
import struct
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from rlwire.errors import ConnectionClosed, DeadlineExceeded
from rlwire.transports import tcp_asyncio
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tcp_asyncio import AsyncConnection
from tests.waiting import eventually_async

HEADER = 20
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


async def in_a_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


def dial(server: LoopServer, context: ssl.SSLContext) -> ssl.SSLSocket:
    where = (server.address.host, server.address.port)
    sock = socket.create_connection(where, timeout=10)
    return context.wrap_socket(sock, server_hostname="127.0.0.1")


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        assert more, "the stream ended early"
        data += more
    return data


def read_frame(sock: socket.socket) -> bytes:
    header = exactly(sock, HEADER)
    return exactly(sock, int.from_bytes(header[:4], "big") - HEADER)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_however_the_stream_is_cut(
    run: Any, blobs: Any, kind: Any, contexts: Contexts, version: ssl.TLSVersion
) -> None:
    theirs, ours = contexts
    bodies = [b"one", b"", bytes(5_000), b"four", os.urandom(300_000), *[b"small"] * 200]
    stream = b"".join(map(blobs.frame, bodies))

    def client(server: LoopServer) -> None:
        ours.maximum_version = version
        with dial(server, ours) as sock:
            assert sock.version() == version.name.replace("_", ".")
            for byte in blobs.frame(b"slowly"):
                sock.sendall(bytes([byte]))  # a record each
            assert read_frame(sock) == b"slowly"
            sock.sendall(stream)
            assert [read_frame(sock) for _ in bodies] == bodies
            for cut in range(0, 3 * len(stream) // 4, 16_383):
                sock.sendall(stream[cut : cut + 16_383])
            sock.sendall(stream[cut + 16_383 :])
            assert [read_frame(sock) for _ in bodies] == bodies

    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, tls=theirs, **kind) as server:
            try:
                await in_a_thread(client, server)
            finally:
                ours.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
            await eventually_async(lambda: server.connections == 0)

    run(main())


def test_large_messages_both_ways_at_once(run: Any, blobs: Any, contexts: Contexts) -> None:
    theirs, ours = contexts
    body = os.urandom(3_000_000)

    async def both(connection: AsyncConnection) -> None:
        async def send() -> None:
            for _ in range(5):
                await connection.send([b"head", memoryview(body)])

        sending = asyncio.create_task(send())
        for _ in range(5):
            assert await connection.receive() == b"head" + body
        await sending

    async def handler(connection: AsyncConnection) -> None:
        await both(connection)
        with pytest.raises(ConnectionClosed):
            await connection.receive()

    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, handler, tls=theirs) as server,
            await tcp_asyncio.connect(server.address, blobs(), tls=ours) as connection,
        ):
            await both(connection)

    run(main())


@pytest.fixture
def goodbyes(request: pytest.FixtureRequest) -> None:
    """For loops without readers asyncio's TLS is used, and that of Python 3.10 says none."""
    if sys.version_info < (3, 11) and "no readers" in request.node.name:
        pytest.skip("asyncio's TLS before Python 3.11 says no goodbye")


@pytest.mark.usefixtures("goodbyes")
def test_a_goodbye_is_answered(run: Any, blobs: Any, kind: Any, contexts: Contexts) -> None:
    theirs, ours = contexts

    def client(server: LoopServer) -> None:
        with dial(server, ours) as sock:
            sock.sendall(blobs.frame(b"last"))
            assert read_frame(sock) == b"last"
            sock.unwrap().close()  # raises unless the server says goodbye too

    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, tls=theirs, **kind) as server:
            await in_a_thread(client, server)
            await eventually_async(lambda: server.connections == 0)

    run(main())


@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_peer_that_leaves_without_a_goodbye(
    run: Any, blobs: Any, kind: Any, contexts: Contexts, how: str, log: Any
) -> None:
    theirs, ours = contexts

    def client(server: LoopServer) -> None:
        with dial(server, ours) as sock:
            sock.sendall(blobs.frame(b"x"))
            assert read_frame(sock) == b"x"
            if how == "resets":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, tls=theirs, **kind) as server:
            await in_a_thread(client, server)
            await eventually_async(lambda: server.connections == 0)

    run(main())
    assert "Traceback" not in log.text


@pytest.mark.usefixtures("goodbyes")
def test_a_refused_peer_that_still_writes_sees_why(
    run: Any, blobs: Any, kind: Any, contexts: Contexts
) -> None:
    theirs, ours = contexts

    def client(server: LoopServer) -> None:
        with dial(server, ours) as sock:
            sock.sendall(b"\xff" * 100)
            with contextlib.suppress(OSError):
                sock.sendall(bytes(100_000))
            assert read_frame(sock) == b"refused: no frame begins with ff - at byte 0"

    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, tls=theirs, **kind) as server:
            await in_a_thread(client, server)
            await eventually_async(lambda: server.connections == 0)

    run(main())


def test_bytes_that_are_no_tls(run: Any, blobs: Any, kind: Any, contexts: Contexts) -> None:
    theirs, ours = contexts

    def client(server: LoopServer) -> None:
        with dial(server, ours) as sock:
            sock.sendall(blobs.frame(b"x"))
            assert read_frame(sock) == b"x"
            socket.socket.send(sock, b"no record of TLS's begins like this")
            with contextlib.suppress(OSError):
                while sock.recv(100):
                    pass

    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, tls=theirs, **kind) as server:
            await in_a_thread(client, server)
            await eventually_async(lambda: server.connections == 0)
            async with await tcp_asyncio.connect(server.address, blobs(), tls=ours) as good:
                assert await good.exchange(b"x") == b"x"

    run(main())


def test_a_peer_that_does_not_read_is_closed(
    run: Any, blobs: Any, contexts: Contexts, request: Any
) -> None:
    if "no readers" in request.node.name:
        pytest.skip("asyncio's own TLS keeps all that the peer does not take")
    theirs, ours = contexts
    caught: list[Exception] = []

    async def handler(connection: AsyncConnection) -> None:
        try:
            await connection.send(bytes(50_000_000))
        except DeadlineExceeded as error:
            caught.append(error)

    async def main() -> None:
        times = Timeouts(write=0.2)
        async with LoopServer("127.0.0.1:0", blobs, handler, tls=theirs, timeouts=times) as server:
            with await in_a_thread(dial, server, ours):
                await eventually_async(lambda: caught)
            await eventually_async(lambda: server.connections == 0)
        assert "did not take a message within write=0.2 s" in str(caught[0])

    run(main())


def client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("said", ["nothing", "half a word", "hello", "all"])
def test_handshakes_take_little_and_leave_nothing(
    run: Any, blobs: Any, kind: Any, contexts: Contexts, said: str, request: Any, caplog: Any
) -> None:
    """What Python allocates is counted; asyncio's own TLS takes 256 KiB for each."""
    caplog.set_level(logging.CRITICAL, logger="rlwire")  # pytest keeps records, with their errors
    count = 30
    hello = client_hello()
    words = {"nothing": b"", "half a word": hello[:40], "hello": hello}.get(said)
    sizes: list[int] = []

    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, tls=contexts[0], **kind) as server:

            async def half(sizes: list[int]) -> None:
                with contextlib.ExitStack() as stack:
                    for _ in range(count):
                        if words is None:
                            tls = stack.enter_context(await in_a_thread(dial, server, contexts[1]))
                            tls.sendall(blobs.frame(b"x"))
                            continue
                        where = (server.address.host, server.address.port)
                        sock = stack.enter_context(socket.create_connection(where, timeout=10))
                        sock.sendall(words)
                    await eventually_async(lambda: server.connections == count)
                    await asyncio.sleep(0.02)
                    sizes.append(tracemalloc.get_traced_memory()[0])
                await eventually_async(lambda: server.connections == 0)
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
    ours = "no readers" not in request.node.name
    if words is not None or ours:  # asyncio's leaves some objects to the garbage collector
        assert after - before < count * (2_000 if ours else 20_000), "no buffer waits for it"
    if ours:
        assert meanwhile - before < count * 40_000
