from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rlwire.buffers import Block
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.streams import TURN
from rlwire.transports import socket_asyncio, sockets, tcp, tcp_asyncio, turn
from rlwire.transports.address import Address
from rlwire.transports.answers_asyncio import LateAnswer
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.stream_asyncio import SocketStream, open_stream
from rlwire.transports.tcp_asyncio import AsyncConnection
from rlwire.transports.turn import PlainTurn, Turn
from tests.transports.conftest import Echo
from tests.waiting import eventually_async

HEADER = 20
Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def echo(connection: AsyncConnection) -> None:
    while True:
        await connection.send(bytes(await connection.receive()))


@contextlib.asynccontextmanager
async def plain(address: Any) -> Any:
    """Connect a plain socket; its methods are coroutines (send, frame, eof)."""
    family, sockaddr = address.resolve()[0]
    loop = asyncio.get_running_loop()
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, sockaddr)
        yield sock


async def read_frame(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < HEADER or len(data) < int.from_bytes(data[:4], "big"):
        want = int.from_bytes(data[:4], "big") if len(data) >= HEADER else HEADER
        more = await loop.sock_recv(sock, want - len(data))
        if not more:
            return b""
        data += more
    return data[HEADER:]


@pytest.mark.parametrize("where", ["127.0.0.1:0", "[::1]:0", "unix"])
def test_there_and_back(run: Run, blobs: Any, kind: Any, where: str, tmp_path: Path) -> None:
    async def main() -> None:
        address = f"unix:{tmp_path / 's'}" if where == "unix" else where
        async with LoopServer(address, blobs, **kind) as server:
            connection = await tcp_asyncio.connect(server.address, blobs())
            async with connection:
                assert connection.peer == str(server.address)
                for body in (b"small", bytes(5_000), os.urandom(5_000_000), b"small again"):
                    await connection.send([body[:3], memoryview(body)[3:]])
                    assert await connection.receive() == body
            assert connection.closed
        assert not (tmp_path / "s").exists()

    run(main())


def test_a_blocking_client(run: Run, blobs: Any, kind: Any) -> None:
    def client(address: Any) -> None:
        with tcp.connect(address, blobs()) as connection:
            for body in (b"small", bytes(3_000_000), b"", b"small"):
                connection.send(body)
                assert connection.receive() == body

    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, **kind) as server:
            await asyncio.gather(
                *(asyncio.get_running_loop().run_in_executor(None, client, server.address)
                  for _ in range(4))
            )  # fmt: skip

    run(main())


@pytest.mark.parametrize("calls", ["compiled", "Python's"])
@pytest.mark.parametrize("feed", ["bytes", "glued"])
def test_messages_arrive_however_they_are_cut(
    run: Run, blobs: Any, kind: Any, feed: str, calls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if calls == "Python's":
        monkeypatch.setattr(socket_asyncio, "AVAILABLE", False)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        bodies = [b"one", b"", b"three" * 100, b"four"]
        stream = b"".join(blobs.frame(body) for body in bodies)
        async with (
            LoopServer("127.0.0.1:0", blobs, **kind) as server,
            plain(server.address) as peer,
        ):
            for start in range(0, len(stream), 1 if feed == "bytes" else len(stream)):
                end = start + (1 if feed == "bytes" else len(stream))
                await loop.sock_sendall(peer, stream[start:end])
                if feed == "bytes" and start % 20 == 0:
                    await asyncio.sleep(0)
            assert [await read_frame(peer) for _ in bodies] == bodies

    run(main())


def test_a_large_array_is_received_in_place_and_a_held_view_is_safe(run: Run, blobs: Any) -> None:
    import numpy as np

    async def main() -> None:
        got: list[Any] = []

        async def handler(connection: AsyncConnection) -> None:
            for _ in range(3):
                got.append(await connection.receive())
                await connection.send(b"ok")

        async with (
            LoopServer("127.0.0.1:0", blobs, handler) as server,
            await tcp_asyncio.connect(server.address, blobs()) as connection,
        ):
            for byte in range(3):
                await connection.send(bytes([byte]) * 100_000)
                await connection.receive()
        for byte, body in enumerate(got):
            assert isinstance(body.obj, Block)
            assert np.frombuffer(body, np.uint8).ctypes.data % 64 == 0
            assert body == bytes([byte]) * 100_000

    run(main())


def test_large_parts_go_to_the_system_as_they_are(
    run: Run, blobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_asyncio, "AVAILABLE", False)  # Python's calls can be watched

    class Spy:
        def __init__(self, sock: socket.socket) -> None:
            self.sock = sock
            self.given: list[Any] = []

        def sendmsg(self, parts: list[Any]) -> int:
            self.given.append(list(parts))
            return self.sock.sendmsg(parts)

    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, echo) as server,
            await tcp_asyncio.connect(server.address, blobs()) as connection,
        ):
            stream = connection._stream
            if not isinstance(stream, SocketStream):
                pytest.skip("asyncio's transports do as they like")
            spy = Spy(stream._sock)
            stream.calls._sendmsg = spy.sendmsg  # type: ignore[attr-defined]
            large = memoryview(bytearray(20_000_000))
            receiving = asyncio.create_task(connection.receive())
            await connection.send([b"head", large, b"tail"])
            assert await receiving == b"head" + large + b"tail"
            assert spy.given[0][2] is large
            assert len(spy.given) > 1, "the system took it in several pieces"
            for parts in spy.given[1:]:
                assert any(part.obj is large.obj for part in parts if part[:4] != b"tail")

    run(main())


def test_a_connection_is_freed_when_it_is_gone(run: Run, blobs: Any) -> None:
    """With its buffers, and without waiting for the garbage collector."""
    kept: list[weakref.ref[Any]] = []

    async def main() -> None:
        def make_session() -> Any:
            session = blobs()
            kept.append(weakref.ref(session))
            return session

        async with LoopServer("127.0.0.1:0", make_session, make_responder=Echo) as server:
            for _ in range(3):
                connection = await tcp_asyncio.connect(server.address, make_session())
                assert await connection.exchange(b"x") == b"x"
                kept.append(weakref.ref(connection))
                connection.close()
                await connection.wait_closed()
            del connection
            await eventually_async(lambda: server.connections == 0)
            await eventually_async(lambda: not any(ref() for ref in kept))

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()
    assert len(kept) == 9


@pytest.mark.parametrize("turns", ["hold", "do not hold"])
def test_a_task_that_waits_takes_its_turn_or_a_future(
    run: Run, blobs: Any, turns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first connection on a kind of loop on."""
    holds = type(turn._holds)()
    monkeypatch.setattr(turn, "_holds", holds)

    async def main() -> None:
        if turns == "do not hold":
            holds[type(asyncio.get_running_loop())] = False
        async with (
            LoopServer("127.0.0.1:0", blobs, echo) as server,
            await tcp_asyncio.connect(server.address, blobs()) as connection,
        ):
            assert type(connection._turn) is (Turn if turns == "hold" else PlainTurn)
            for body in (b"one", bytes(1_000_000), b"three"):
                assert await connection.exchange(body) == body
            for _ in range(2):
                receiving = asyncio.create_task(connection.receive())
                await asyncio.sleep(0)
                receiving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await receiving
            assert await connection.exchange(b"four") == b"four"

    run(main())


# --- connecting ---


def test_nobody_listens(run: Run, blobs: Any, log: Any) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            address = sock.getsockname()
        with pytest.raises(ConnectionRefusedError, match=r"cannot connect .*3 attempts"):
            await tcp_asyncio.connect(address, blobs(), backoff=Backoff(attempts=3, first=0.02))

    run(main())
    assert "attempt 2 of 3 failed" in log.text


def test_an_attempt_has_its_own_time(run: Run, blobs: Any) -> None:
    async def main() -> None:
        with socket.socket() as listener, socket.socket() as one, socket.socket() as two:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for filler in (one, two):
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            with pytest.raises(DeadlineExceeded, match="cannot connect to"):
                await tcp_asyncio.connect(
                    listener.getsockname(), blobs(), timeouts=Timeouts(connect=0.2)
                )

    run(main())


def test_a_resolver_that_hangs_has_the_attempt_s_time(
    run: Run, blobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def resolve(self: Address, **options: Any) -> list[Any]:
        go_on.wait(30)
        return []

    async def main() -> None:
        monkeypatch.setattr(Address, "resolve", resolve)
        try:
            with pytest.raises(DeadlineExceeded, match=r"cannot connect to .*timed out"):
                await tcp_asyncio.connect("h.example:7", blobs(), timeouts=Timeouts(connect=0.1))
        finally:
            go_on.set()

    run(main())


# --- peers ---


def test_a_malformed_frame_ends_its_own_connection_only(
    run: Run, blobs: Any, kind: Any, log: Any
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with LoopServer("127.0.0.1:0", blobs, **kind) as server:
            good = await tcp_asyncio.connect(server.address, blobs())
            async with good, plain(server.address) as bad:
                await good.send(b"one")
                assert await good.receive() == b"one"
                await loop.sock_sendall(bad, b"\xff garbage" * 100)
                assert await read_frame(bad) == b"refused: no frame begins with ff - at byte 0"
                assert await read_frame(bad) == b""
                await good.send(b"two")
                assert await good.receive() == b"two"

    run(main())
    assert "no frame begins with ff" in log.text
    assert [r.levelname for r in log.records if r.levelno > logging.INFO] == ["WARNING"]


def test_a_refused_peer_that_still_writes_sees_why(
    run: Run, blobs: Any, kind: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(blobs, "limit", 10_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with (
            LoopServer("127.0.0.1:0", blobs, **kind) as server,
            plain(server.address) as bad,
        ):
            await loop.sock_sendall(bad, blobs.frame(bytes(5_000_000)))
            assert b"over the limit received=10000" in await read_frame(bad)

    run(main())


def test_a_malformed_frame_and_a_reset_are_no_failure_of_ours(
    run: Run, blobs: Any, kind: Any, log: Any
) -> None:
    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, **kind) as server:
            for _ in range(5):
                async with plain(server.address) as peer:
                    await eventually_async(lambda: server.connections == 1)
                    peer.send(b"\xff")
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await eventually_async(lambda: server.connections == 0)

    run(main())
    assert "Traceback" not in log.text


def test_out_of_turn_leaves_the_connection_open(run: Run, blobs: Any) -> None:
    async def patient(connection: AsyncConnection) -> None:
        while True:
            try:
                event = await connection.receive()
            except RemoteProtocolError as error:
                connection.refuse(error)
            else:
                await connection.send(bytes(event))

    async def main(**kind: Any) -> None:
        loop = asyncio.get_running_loop()
        async with (
            LoopServer("127.0.0.1:0", blobs, **kind) as server,
            plain(server.address) as peer,
        ):
            await loop.sock_sendall(peer, blobs.frame(b"turn") + blobs.frame(b"fine"))
            assert await read_frame(peer) == b"refused: not now"
            assert await read_frame(peer) == b"fine"

    run(main(handler=patient))
    run(main(make_responder=Echo))


def test_a_half_closed_peer_gets_its_answers(run: Run, blobs: Any, kind: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with (
            LoopServer("127.0.0.1:0", blobs, **kind) as server,
            plain(server.address) as peer,
        ):
            large = os.urandom(3_000_000)
            await loop.sock_sendall(peer, blobs.frame(large) + blobs.frame(b"two"))
            peer.shutdown(socket.SHUT_WR)
            assert await read_frame(peer) == large
            assert await read_frame(peer) == b"two"
            assert await read_frame(peer) == b""
            await eventually_async(lambda: server.connections == 0)

    run(main())


def test_an_exchange_with_a_server_that_left_meanwhile(run: Run, blobs: Any, kind: Any) -> None:
    """Its end came while nobody was asking; what is sent then is answered by nobody."""

    async def main() -> None:
        server = await LoopServer("127.0.0.1:0", blobs, **kind).start()
        async with await tcp_asyncio.connect(server.address, blobs()) as connection:
            assert await connection.exchange(b"one") == b"one"
            await server.stop()
            await asyncio.sleep(0.05)
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(connection.exchange(b""), 5)

    run(main())


@pytest.mark.parametrize(("cut", "level"), [(-1, "WARNING"), (0, "DEBUG")])
def test_a_peer_that_leaves_is_logged(
    run: Run, blobs: Any, kind: Any, log: Any, cut: int, level: str
) -> None:
    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, **kind) as server:
            async with plain(server.address) as peer:
                await eventually_async(lambda: server.connections == 1)
                peer.send(blobs.frame(b"whole")[:cut])
            await eventually_async(lambda: server.connections == 0)

    run(main())
    (record,) = [r for r in log.records if "closed by the peer" in r.message]
    assert record.levelname == level


def test_the_peer_closes_inside_a_large_message(run: Run, blobs: Any) -> None:
    async def main() -> None:
        with sockets.listen("127.0.0.1:0") as listener:
            connection = await tcp_asyncio.connect(sockets.local_address(listener), blobs())
            peer, _ = listener.accept()
            peer.sendall(blobs.frame(bytes(100_000))[:50_000])
            peer.close()
            with pytest.raises(ConnectionClosed, match="after 50000 of 100020 message bytes"):
                await connection.receive()
            connection.close()
            await connection.wait_closed()

    run(main())


def test_the_peer_closes_inside_a_message(run: Run, blobs: Any) -> None:
    async def main() -> None:
        with sockets.listen("127.0.0.1:0") as listener:
            connection = await tcp_asyncio.connect(sockets.local_address(listener), blobs())
            peer, _ = listener.accept()
            peer.sendall(blobs.frame(b"whole") + blobs.frame(bytes(100))[:50])
            peer.close()
            assert await connection.receive() == b"whole"
            with pytest.raises(ConnectionClosed, match="after 50 of 120 message bytes"):
                await connection.receive()
            assert connection.broken
            connection.close()
            await connection.wait_closed()

    run(main())


def test_failing_code_is_logged_and_closes(run: Run, blobs: Any, log: Any) -> None:
    async def failing(connection: AsyncConnection) -> None:
        raise ZeroDivisionError("one of those days")

    async def main(**kind: Any) -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, **kind) as server,
            await tcp_asyncio.connect(server.address, blobs()) as connection,
        ):
            with contextlib.suppress(ConnectionClosed):
                await connection.send(b"fail")
            with pytest.raises(ConnectionClosed):
                await connection.receive()

    for kind in ({"handler": failing}, {"make_responder": Echo}):
        log.clear()
        run(main(**kind))
        assert "one of those days" in log.text


def test_a_session_with_a_defect_lets_nobody_wait(run: Run, blobs: Any, kind: Any) -> None:
    class Broken(blobs):
        def frame_size(self, buffer: Any, start: int, end: int) -> int:
            if b"defect" in bytes(buffer[start:end]):
                raise ZeroDivisionError("a defect")
            return int(super().frame_size(buffer, start, end))

    async def main() -> None:
        seen: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: seen.append(context.get("exception")))
        async with LoopServer("127.0.0.1:0", blobs, **kind) as server:
            client = await tcp_asyncio.connect(server.address, Broken())
            with pytest.raises(ZeroDivisionError):
                await client.exchange(b"defect")
            assert client.closed
            await client.wait_closed()
        async with LoopServer("127.0.0.1:0", Broken, **kind) as server:
            other = await tcp_asyncio.connect(server.address, blobs())
            bad = await tcp_asyncio.connect(server.address, blobs())
            with pytest.raises(ConnectionClosed):
                await bad.exchange(b"defect")
            assert await other.exchange(b"well") == b"well"
            for each in (other, bad):
                each.close()
        # A handler's own failure is logged; a responder has nobody but the loop to tell.
        assert [type(error) for error in seen] == [ZeroDivisionError] * ("make_responder" in kind)

    run(main())


def test_an_answer_that_cannot_be_sent_is_replaced(run: Run, blobs: Any) -> None:
    made: list[Echo] = []

    def make(connection: AsyncConnection) -> Echo:
        made.append(Echo(connection))
        return made[-1]

    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, make_responder=make) as server:
            async with await tcp_asyncio.connect(server.address, blobs()) as connection:
                await connection.send(b"number")
                assert await connection.receive() == b"number: TypeError"
            await eventually_async(lambda: server.connections == 0)

    run(main())
    assert [responder.closed for responder in made] == [1]


def test_a_peer_that_does_not_read_holds_up_only_itself(run: Run, blobs: Any, log: Any) -> None:
    class Flood(Echo):
        def answer(self, event: Any) -> Any:
            return bytes(20_000_000) if bytes(event) == b"flood" else bytes(event)

    async def main() -> None:
        times = Timeouts(write=0.2)
        async with LoopServer("127.0.0.1:0", blobs, make_responder=Flood, timeouts=times) as server:
            good = await tcp_asyncio.connect(server.address, blobs())
            async with good, plain(server.address) as bad:
                bad.send(blobs.frame(b"flood") * 3)
                await eventually_async(lambda: server.connections == 2)
                while server.connections == 2:
                    await good.send(b"x")
                    assert await good.receive() == b"x"
                    await asyncio.sleep(0.01)

    run(main())
    assert "did not take a message within write=0.2 s" in log.text


@pytest.mark.parametrize("kind", ["handler", "responder"])
@pytest.mark.parametrize("word", [b"", b"nothing"])
def test_a_flood_leaves_turns_to_the_others(run: Run, blobs: Any, kind: str, word: bytes) -> None:
    heard: list[bytes] = []

    class Session(blobs):  # type: ignore[misc]
        def receive(self, message: Any) -> list[Any]:
            heard.append(bytes(message)[HEADER:])
            return list(super().receive(message))

    served: Any = {"handler": echo} if kind == "handler" else {"make_responder": Echo}

    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", Session, **served) as server,
            plain(server.address) as flood,
            plain(server.address) as good,
        ):
            await eventually_async(lambda: server.connections == 2)
            await asyncio.sleep(0)
            flood.send(blobs.frame(word) * 2000)
            good.send(blobs.frame(b"good"))
            assert await read_frame(good) == b"good"
            assert heard.index(b"good") <= 4 * TURN
            await eventually_async(lambda: len(heard) == 2001)

    run(main())


def test_what_nobody_waits_for_any_more_keeps_no_loop_busy(run: Run, blobs: Any) -> None:
    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, handler=echo) as server:
            connection = await tcp_asyncio.connect(server.address, blobs())
            async with connection:
                for _ in range(3 * TURN):
                    await connection.send(b"word")
                for _ in range(TURN):
                    assert await connection.receive() == b"word"
                waits = asyncio.ensure_future(connection.receive())
                await asyncio.sleep(0)
                waits.cancel()  # while others have their turns
                loop, calls = asyncio.get_running_loop(), []
                plainly = loop.call_soon

                def call_soon(call: Any, *words: Any, **options: Any) -> Any:
                    calls.append(call)
                    return plainly(call, *words, **options)

                loop.call_soon = call_soon  # type: ignore[method-assign]
                await asyncio.sleep(0.05)
                del loop.call_soon  # type: ignore[method-assign]
                assert len(calls) < 50, len(calls)
                with contextlib.suppress(asyncio.CancelledError):
                    await waits
                left = [await connection.receive() for _ in range(2 * TURN - 1)]
                assert left == [b"word"] * (2 * TURN - 1)

    run(main())


class Later(Echo):
    """Answers with what comes later; `made` has it."""

    made: list[Any]
    kind: Any = staticmethod(lambda: asyncio.get_running_loop().create_future())

    def answer(self, event: Any) -> Any:
        self.made.append(self.kind())
        return self.made[-1]


@pytest.fixture(params=[Later.kind, LateAnswer], ids=["future", "late answer"])
def later(request: Any) -> type[Later]:
    class Kind(Later):
        made: ClassVar[list[Any]] = []
        kind = staticmethod(request.param)

    return Kind


def test_answers_that_come_later_come_in_order(run: Run, blobs: Any, later: Any) -> None:
    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, make_responder=later) as server,
            await tcp_asyncio.connect(server.address, blobs()) as connection,
        ):
            for word in (b"one", b"two" * 100_000, b"three"):
                await connection.send(word)
            for number in range(3):
                await eventually_async(lambda n=number: len(later.made) == n + 1)
                await asyncio.sleep(0)
                assert len(later.made) == number + 1
                later.made[number].set_result(b"%d" % number * 100_000)
                assert await connection.receive() == b"%d" % number * 100_000

    run(main())


def test_an_answer_that_comes_later_may_fail(run: Run, blobs: Any, later: Any, log: Any) -> None:
    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, make_responder=later) as server,
            await tcp_asyncio.connect(server.address, blobs()) as connection,
        ):
            await connection.send(b"number")
            await eventually_async(lambda: later.made)
            later.made[0].set_result(5)
            assert await connection.receive() == b"number: TypeError"
            await connection.send(b"x")
            await eventually_async(lambda: len(later.made) == 2)
            later.made[1].set_exception(ZeroDivisionError("one of those days"))
            with pytest.raises(ConnectionClosed):
                await connection.receive()

    run(main())
    assert "one of those days" in log.text


def test_a_defect_behind_an_answer_is_its_connection_s(
    run: Run, blobs: Any, later: Any, log: Any
) -> None:
    class Broken(blobs):
        def frame_size(self, buffer: Any, start: int, end: int) -> int:
            if bytes(buffer[start:end]) == blobs.frame(b"defect"):
                raise ZeroDivisionError("a defect")
            size: int = super().frame_size(buffer, start, end)
            return size

    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", Broken, make_responder=later) as server,
            plain(server.address) as bad,
        ):
            bad.send(blobs.frame(b"x") + blobs.frame(b"y") + blobs.frame(b"defect"))
            await eventually_async(lambda: later.made)
            later.made[0].set_result(b"done")
            await eventually_async(lambda: server.connections == 0)

    run(main())
    assert "closed, its session failed" in log.text


def test_who_leaves_cancels_its_answer(run: Run, blobs: Any, later: Any) -> None:
    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, make_responder=later) as server:
            async with plain(server.address) as peer:
                peer.send(blobs.frame(b"x"))
                await eventually_async(lambda: later.made)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await eventually_async(lambda: server.connections == 0)
            if isinstance(later.made[0], LateAnswer):
                later.made[0].set_result(b"for nobody")
            else:
                assert later.made[0].cancelled()

    run(main())


def test_a_server_that_stops_lets_an_answer_come(run: Run, blobs: Any, later: Any) -> None:
    async def main() -> None:
        server = await LoopServer("127.0.0.1:0", blobs, make_responder=later).start()
        async with await tcp_asyncio.connect(server.address, blobs()) as connection:
            await connection.send(b"x")
            await eventually_async(lambda: later.made)
            stopping = asyncio.ensure_future(server.stop(10))
            await asyncio.sleep(0)
            later.made[0].set_result(b"done")
            assert await connection.receive() == b"done"
            with pytest.raises(ConnectionClosed):
                await connection.receive()
        await stopping

    run(main())


# --- times ---


def test_idle_leaves_a_client_open(run: Run, blobs: Any) -> None:
    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, echo) as server:
            connection = await tcp_asyncio.connect(
                server.address, blobs(), timeouts=Timeouts(idle=1.5)
            )
            async with connection:
                begun = time.monotonic()
                with pytest.raises(DeadlineExceeded, match=r"no message began within idle=1\.5 s"):
                    await connection.receive()
                assert 1.5 <= time.monotonic() - begun < 10
                await connection.send(b"x")
                assert await connection.receive() == b"x"

    run(main())


def test_idle_counts_from_the_last_message(run: Run, blobs: Any, kind: Any) -> None:
    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, timeouts=Timeouts(idle=1.5), **kind) as server,
            await tcp_asyncio.connect(server.address, blobs()) as connection,
        ):
            for _ in range(4):
                await asyncio.sleep(0.5)
                await connection.send(b"x")
                assert await connection.receive() == b"x"

    run(main())


def test_an_idle_peer_is_told_and_closed(run: Run, blobs: Any, kind: Any, log: Any) -> None:
    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, timeouts=Timeouts(idle=0.1), **kind) as s,
            plain(s.address) as peer,
        ):
            assert b"no message began within idle=0.1 s" in await read_frame(peer)
            assert await read_frame(peer) == b""

    run(main())
    assert "closed, too slow" in log.text


def test_a_dribbling_peer_is_closed(run: Run, blobs: Any, kind: Any, log: Any) -> None:
    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, timeouts=Timeouts(read=0.2), **kind) as s,
            plain(s.address) as peer,
        ):
            begun = time.monotonic()
            with contextlib.suppress(OSError):
                for byte in blobs.frame(bytes(1000)):
                    peer.send(bytes([byte]))
                    await asyncio.sleep(0.02)
                    if not s.connections:
                        break
            assert time.monotonic() - begun < 10

    run(main())
    assert "bytes of a message came within read=0.2 s" in log.text


def test_a_client_whose_server_does_not_read(run: Run, blobs: Any) -> None:
    async def main() -> None:
        with sockets.listen("127.0.0.1:0") as listener:
            connection = await tcp_asyncio.connect(
                sockets.local_address(listener), blobs(), timeouts=Timeouts(write=0.2)
            )
            with pytest.raises(DeadlineExceeded, match=r"write=0\.2 s"):
                await connection.send(bytes(50_000_000))
            assert connection.closed
            await connection.wait_closed()
            with pytest.raises(ConnectionClosed):
                await connection.send(b"x")

    run(main())


# --- tasks ---


def test_one_task_receives_and_one_sends(run: Run, blobs: Any) -> None:
    async def main() -> None:
        with sockets.listen("127.0.0.1:0") as listener:
            connection = await tcp_asyncio.connect(sockets.local_address(listener), blobs())
            receiving = asyncio.create_task(connection.receive())
            sending = asyncio.create_task(connection.send(bytes(50_000_000)))
            await asyncio.sleep(0.05)
            with pytest.raises(LocalProtocolError, match="another task is receiving"):
                await connection.receive()
            with pytest.raises(LocalProtocolError, match="another task is sending"):
                await connection.send(b"x")
            connection.close()
            for task in (receiving, sending):
                with pytest.raises(ConnectionClosed, match="closed on this side"):
                    await task
            await connection.wait_closed()

    run(main())


def test_a_cancelled_receive_loses_nothing(run: Run, blobs: Any) -> None:
    async def main() -> None:
        with sockets.listen("127.0.0.1:0") as listener:
            connection = await tcp_asyncio.connect(sockets.local_address(listener), blobs())
            peer, _ = listener.accept()
            with peer:
                receiving = asyncio.create_task(connection.receive())
                await asyncio.sleep(0.01)
                receiving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await receiving
                receiving = asyncio.create_task(connection.receive())
                await asyncio.sleep(0.01)
                # The message comes and the task is cancelled before it can go on.
                peer.sendall(blobs.frame(b"precious"))
                connection.on_readable()
                receiving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await receiving
                peer.sendall(blobs.frame(b"next"))
                assert await connection.receive() == b"precious"
                assert await connection.receive() == b"next"
            connection.close()
            await connection.wait_closed()

    run(main())


@pytest.mark.parametrize("sent", [b"small", [b"in", b"parts"]])
def test_an_exchange_that_is_cancelled_leaves_its_answer_to_nobody(
    run: Run, blobs: Any, sent: Any
) -> None:
    async def main() -> None:
        with sockets.listen("127.0.0.1:0") as listener:
            connection = await tcp_asyncio.connect(sockets.local_address(listener), blobs())
            peer, _ = listener.accept()
            with peer:
                # The answer has come, and the task is cancelled before it can go on.
                peer.settimeout(10)
                # asyncio's transports read when they like, not when a test does.
                for _ in range(2 if isinstance(connection._stream, SocketStream) else 0):
                    exchange = asyncio.create_task(connection.exchange(sent))
                    await asyncio.sleep(0)
                    assert peer.recv(1000)
                    peer.sendall(blobs.frame(b"previous"))
                    connection.on_readable()
                    exchange.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await exchange
                    exchange = asyncio.create_task(connection.exchange(sent))
                    await asyncio.sleep(0)
                    assert peer.recv(1000)
                    peer.sendall(blobs.frame(b"own"))
                    assert await exchange == b"own"
                # It has not come; nobody could tell it from the next one.
                exchange = asyncio.create_task(connection.exchange(sent))
                await asyncio.sleep(0)
                exchange.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await exchange
                with contextlib.suppress(OSError):
                    peer.sendall(blobs.frame(b"previous"))
                assert connection.closed
                for call in (connection.exchange(sent), connection.receive()):
                    with pytest.raises(ConnectionClosed, match="an exchange was cancelled"):
                        await call
            await connection.wait_closed()

    run(main())


def test_a_cancelled_send_closes(run: Run, blobs: Any) -> None:
    async def main() -> None:
        with sockets.listen("127.0.0.1:0") as listener:
            connection = await tcp_asyncio.connect(sockets.local_address(listener), blobs())
            sending = asyncio.create_task(connection.send(bytes(50_000_000)))
            await asyncio.sleep(0.05)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            with pytest.raises(ConnectionClosed, match="inside a message"):
                await connection.receive()
            await connection.wait_closed()

    run(main())


def test_broken_bytes_reach_the_task(run: Run, blobs: Any) -> None:
    async def main() -> None:
        with sockets.listen("127.0.0.1:0") as listener:
            connection = await tcp_asyncio.connect(sockets.local_address(listener), blobs())
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"\xff")
                with pytest.raises(DecodeError):
                    await connection.receive()
                with pytest.raises(ConnectionClosed, match="of no more use"):
                    await connection.receive()
            connection.close()
            await connection.wait_closed()

    run(main())


# --- the server ---


def test_connections_over_the_limit_are_refused(run: Run, blobs: Any, kind: Any, log: Any) -> None:
    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, max_connections=1, **kind) as server:
            async with await tcp_asyncio.connect(server.address, blobs()) as first:
                await first.send(b"x")
                assert await first.receive() == b"x"
                async with plain(server.address) as second:
                    assert b"2 is over the limit max_connections=1" in await read_frame(second)
                    assert await read_frame(second) == b""
            await eventually_async(lambda: server.connections == 0)
            async with await tcp_asyncio.connect(server.address, blobs()) as third:
                await third.send(b"x")
                assert await third.receive() == b"x"

    run(main())
    assert "refused, 2 is over the limit" in log.text


@pytest.mark.parametrize("admitted", [True, False])
def test_a_storm_of_connections_leaves_room_between(
    run: Run, blobs: Any, kind: Any, admitted: bool
) -> None:
    """What is counted is how many of the storm are taken in between two answers to a client."""
    came: list[int] = [0]

    def make_session() -> Any:
        came[0] += 1
        return blobs()

    async def main() -> None:
        storm = 200
        options = {"max_connections": 2 * storm if admitted else 1}
        async with (
            LoopServer("127.0.0.1:0", make_session, **options, **kind) as server,
            await tcp_asyncio.connect(server.address, blobs()) as good,
        ):
            assert await good.exchange(b"x") == b"x"
            with contextlib.ExitStack() as stack:
                # The loop does not run meanwhile: all wait in the listener's queue.
                for _ in range(storm):
                    where = (server.address.host, server.address.port)
                    sock = stack.enter_context(socket.create_connection(where, timeout=10))
                    sock.sendall(b"\xff garbage")
                between = []
                until = time.monotonic() + 60
                while came[0] <= storm and time.monotonic() < until:
                    before = came[0]
                    assert await good.exchange(b"x") == b"x"
                    between.append(came[0] - before)
                assert sum(between) >= storm, "the storm is over"
                assert max(between) <= 8, between

    run(main())


def test_accept_errors_are_survived(run: Run, blobs: Any, kind: Any, log: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        errors = [errno.EMFILE, errno.ECONNABORTED]

        class Failing:
            async def sock_accept(self, listener: socket.socket) -> Any:
                if errors:
                    raise OSError(errors.pop(), "as the test wants it")
                return await loop.sock_accept(listener)

            def __getattr__(self, name: str) -> Any:
                return getattr(loop, name)

        server = LoopServer("127.0.0.1:0", blobs, **kind)
        accept: Callable[[Any], Awaitable[None]] = server._accept
        server._accept = lambda _: accept(Failing())
        async with server, await tcp_asyncio.connect(server.address, blobs()) as connection:
            await connection.send(b"x")
            assert await connection.receive() == b"x"

    run(main())
    assert log.text.count("cannot accept a connection") == 2


def test_stop_while_clients_are_connected(run: Run, blobs: Any, kind: Any) -> None:
    async def main() -> None:
        server = await LoopServer("127.0.0.1:0", blobs, **kind).start()
        connections = [await tcp_asyncio.connect(server.address, blobs()) for _ in range(5)]
        for connection in connections:
            await connection.send(b"x")
            assert await connection.receive() == b"x"
        begun = time.monotonic()
        await server.stop()
        assert time.monotonic() - begun < 4
        assert server.connections == 0
        await server.wait()
        for connection in connections:
            with pytest.raises(ConnectionClosed):
                await connection.receive()
            connection.close()
            await connection.wait_closed()
        await server.stop()

    run(main())


def test_stop_lets_a_handler_send_its_answer(run: Run, blobs: Any) -> None:
    async def slow(connection: AsyncConnection) -> None:
        while True:
            event = bytes(await connection.receive())
            await asyncio.sleep(0.2)
            await connection.send(event)

    async def main() -> None:
        server = await LoopServer("127.0.0.1:0", blobs, slow).start()
        async with await tcp_asyncio.connect(server.address, blobs()) as connection:
            await connection.send(b"work")
            await asyncio.sleep(0.05)
            stopping = asyncio.create_task(server.stop())
            assert await connection.receive() == b"work"
            with pytest.raises(ConnectionClosed):
                await connection.receive()
            await stopping

    run(main())


def test_stop_cancels_a_stuck_handler(run: Run, blobs: Any) -> None:
    ended = []

    async def stuck(connection: AsyncConnection) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def main() -> None:
        server = await LoopServer("127.0.0.1:0", blobs, stuck).start()
        async with await tcp_asyncio.connect(server.address, blobs()):
            await eventually_async(lambda: server.connections == 1)
            await asyncio.sleep(0.05)
            begun = time.monotonic()
            await server.stop(grace=0.4)
            assert time.monotonic() - begun < 10

    run(main())
    assert ended == [True]


def test_a_server_starts_once(run: Run, blobs: Any) -> None:
    async def main() -> None:
        async with LoopServer("127.0.0.1:0", blobs, echo) as server:
            with pytest.raises(RuntimeError, match="starts once"):
                await server.start()

    run(main())


@pytest.mark.parametrize("arguments", [{}, {"handler": echo, "make_responder": Echo}])
def test_a_server_has_one_way_to_answer(blobs: Any, arguments: Any) -> None:
    with pytest.raises(TypeError, match="either handler or make_responder"):
        LoopServer("127.0.0.1:0", blobs, **arguments)


def test_many_connections_take_no_threads(run: Run, blobs: Any, kind: Any) -> None:
    async def main() -> None:
        async with (
            LoopServer("127.0.0.1:0", blobs, **kind) as server,
            contextlib.AsyncExitStack() as stack,
        ):
            before = threading.active_count()
            peers = [await stack.enter_async_context(plain(server.address)) for _ in range(50)]
            for peer in peers:
                peer.send(blobs.frame(b"x"))
            assert [await read_frame(peer) for peer in peers] == [b"x"] * 50
            assert server.connections == 50
            assert threading.active_count() == before

    run(main())


@pytest.mark.skipif(sys.platform == "win32", reason="sockets have no such numbers there")
def test_a_closed_connection_reads_nothing_of_who_has_its_number(run: Run, blobs: Any) -> None:
    mine, peers = socket.socketpair()
    numbers = []

    class Reused(socket.socket):
        """Once it is closed another has its number, as one that another thread accepts may."""

        def close(self) -> None:
            number = self.fileno()
            super().close()
            if number != -1:
                numbers.append(number)
                os.dup2(mine.fileno(), number)

    async def main() -> None:
        near, far = socket.socketpair()
        sock = Reused(fileno=near.detach())
        sock.setblocking(False)
        connection = AsyncConnection(blobs(), "the peer", Timeouts(), accepted=True)
        await open_stream(connection, sock)
        connection.serve(Echo(connection))
        far.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(far, blobs.frame(b"hello"))
        assert await read_frame(far) == b"hello"
        far.close()
        await connection.wait_closed()

    with mine, peers:
        mine.setblocking(False)
        peers.sendall(b"for another")
        run(main())
        assert len(numbers) == 1
        os.close(numbers[0])
        assert mine.recv(100) == b"for another"
