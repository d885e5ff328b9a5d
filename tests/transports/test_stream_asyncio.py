from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rlwire.transports import socket_asyncio, stream_asyncio
from rlwire.transports.socket_asyncio import SocketStream, Stream
from rlwire.transports.stream_asyncio import open_stream
from tests.waiting import eventually_async

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: Any) -> Run:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").run
    return asyncio.run


@pytest.fixture(params=["socket", "transport"], autouse=True)
def kind(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "transport":

        def fail(*_: Any) -> Any:
            raise NotImplementedError

        monkeypatch.setattr(stream_asyncio, "SocketStream", fail)
    monkeypatch.setattr(socket_asyncio, "AVAILABLE", False)  # its calls are tested with a core
    return str(request.param)


class Owner:
    """Takes note of what it is told."""

    def __init__(self) -> None:
        self.core: Any = None  # its bytes are looked at here
        self.stream: Any = None
        self.buffer = bytearray(1000)
        self.got = b""
        self.told: list[Any] = []
        self.wanted = True

    @property
    def io(self) -> Any:
        """What the stream's calls read and write."""
        return self.stream._sock if type(self.stream) is SocketStream else self.stream

    def on_stream(self, stream: Stream) -> None:
        self.stream = stream
        stream.listen(True)

    def on_readable(self) -> None:
        if not self.wanted:
            self.stream.listen(False)
            return
        try:
            count = self.io.recv_into(memoryview(self.buffer))
        except BlockingIOError:
            return
        except OSError as error:
            self.told.append(type(error))
            self.stream.abort()
            return
        self.got += self.buffer[:count]
        if not count:
            self.stream.listen(False)
            self.told.append("eof")

    def on_writable(self) -> None:
        self.told.append("writable")

    def on_lost(self, error: Exception | None) -> None:
        self.told.append(type(error))


async def ends() -> tuple[Owner, socket.socket]:
    """Both ends of a connection: one of ours, and a plain socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.setblocking(False)
    far.setblocking(False)
    owner = Owner()
    await open_stream(owner, near)
    return owner, far


async def read_all(far: socket.socket) -> bytes:
    data = b""
    while more := await asyncio.get_running_loop().sock_recv(far, 1 << 20):
        data += more
    return data


async def write(owner: Owner, data: Any) -> None:
    """Send all of it, as a connection does."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[owner.io.sendmsg([rest[:7], rest[7:]]) :]
        except BlockingIOError:
            owner.told.clear()
            owner.stream.await_writable(True)
            await eventually_async(lambda: owner.told)
            owner.stream.await_writable(False)


def test_there_and_back(run: Run, kind: str) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            assert isinstance(owner.stream, SocketStream) == (kind == "socket")
            assert owner.stream.half_closes
            far.send(b"hello")
            await eventually_async(lambda: owner.got == b"hello")
            assert owner.io.sendmsg([b"one"]) == 3
            assert owner.io.sendmsg([b"two", b"", b"three"]) == 8
            owner.stream.close()
            assert await read_all(far) == b"onetwothree"
            await eventually_async(lambda: owner.told == [type(None)])

    run(main())


@pytest.mark.parametrize("first", ["the stream", "the owner"])
def test_nothing_is_read_while_it_is_not_wanted(run: Run, first: str) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            if first == "the owner":
                owner.wanted = False  # it says so when it is told that there is something
            else:
                owner.stream.listen(False)
                owner.stream.listen(False)
            sent = bytes(range(256)) * 20
            far.send(sent)
            await asyncio.sleep(0.02)
            assert owner.got == b""
            owner.wanted = True
            owner.stream.listen(True)
            owner.stream.listen(True)
            await eventually_async(lambda: owner.got == sent)
            owner.stream.abort()
            await eventually_async(lambda: owner.told)

    run(main())


@pytest.mark.parametrize("wanted", [True, False])
def test_a_peer_that_sends_no_more(run: Run, wanted: bool) -> None:
    async def main() -> None:
        owner, far = await ends()
        owner.wanted = wanted
        with far:
            far.send(b"last")
            far.shutdown(socket.SHUT_WR)
            await asyncio.sleep(0.02)
            if not wanted:
                assert owner.told == []
                owner.wanted = True
                owner.stream.listen(True)
            await eventually_async(lambda: owner.told == ["eof"])
            assert owner.got == b"last"
            owner.io.sendmsg([b"still"])
            owner.stream.close()
            assert await read_all(far) == b"still"
            await eventually_async(lambda: owner.told == ["eof", type(None)])

    run(main())


def test_a_peer_that_resets(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        await eventually_async(lambda: owner.told)
        assert owner.told[0] is ConnectionResetError

    run(main())


def test_what_is_not_taken_at_once(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            large = bytes(range(256)) * 100_000
            reading = asyncio.ensure_future(read_all(far))
            await write(owner, large)
            owner.stream.close()
            assert await reading == large

    run(main())


def test_the_last_is_read_after_our_end(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            owner.io.sendmsg([b"bye"])
            owner.stream.shutdown()
            assert await read_all(far) == b"bye"
            far.send(b"yes")
            await eventually_async(lambda: owner.got == b"yes")
            owner.stream.close()
            await eventually_async(lambda: owner.told[-1:] == [type(None)])

    run(main())


@pytest.mark.parametrize("way", ["read", "close", "abort"])
def test_what_a_transport_brought_outlives_it(run: Run, kind: str, way: str) -> None:
    """asyncio's TLS ends when the peer's end comes, whether anybody has read what came before."""
    if kind == "socket":
        pytest.skip("there is none")

    async def main() -> None:
        owner, far = await ends()
        with far:
            stream = owner.stream
            owner.stream.listen(False)
            stream.data_received(b"last words")
            stream.connection_lost(None)
            await asyncio.sleep(0.01)
            assert (owner.got, owner.told) == (b"", [])
            with pytest.raises(ConnectionResetError):
                stream.sendmsg([b"too late"])
            if way == "read":
                stream.listen(True)
                await eventually_async(lambda: owner.told[-1:] == [type(None)])
                assert (owner.got, owner.told) == (b"last words", ["eof", type(None)])
            else:
                getattr(stream, way)()
                await eventually_async(lambda: owner.told == [type(None)])
            stream._transport.abort()
            await asyncio.sleep(0.01)
            assert owner.told[-1] is type(None)
            assert owner.told.count(type(None)) == 1

    run(main())


def test_an_abort_waits_for_nothing(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            with contextlib.suppress(BlockingIOError):
                while True:
                    owner.io.sendmsg([bytes(30_000_000)])
            owner.stream.abort()
            owner.stream.abort()
            await eventually_async(lambda: owner.told == [type(None)])
            owner.stream.close()
            owner.stream.shutdown()
            owner.stream.listen(True)
            owner.stream.await_writable(True)
            await asyncio.sleep(0.01)
            assert owner.told == [type(None)]

    run(main())


def test_what_is_sent_to_nobody(run: Run, kind: str) -> None:
    async def main() -> None:
        owner, far = await ends()
        owner.stream.listen(False)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        await asyncio.sleep(0.01)
        if kind == "socket":
            with pytest.raises(OSError, match=r"reset|[Bb]roken"):
                owner.io.sendmsg([b"anyone?"])
        owner.stream.close()
        await eventually_async(lambda: owner.told)

    run(main())
