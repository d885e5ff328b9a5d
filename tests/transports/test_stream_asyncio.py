from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rlwire.transports import stream_asyncio
from rlwire.transports.stream_asyncio import SocketStream, Stream, behind, open_stream

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: Any) -> Run:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").run  # type: ignore[no-any-return]
    return asyncio.run


@pytest.fixture(params=["socket", "transport"], autouse=True)
def kind(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "transport":

        def fail(*_: Any) -> Any:
            raise NotImplementedError

        monkeypatch.setattr(stream_asyncio, "SocketStream", fail)
    return str(request.param)


class Owner:
    """Takes note of what it is told."""

    def __init__(self) -> None:
        self.stream: Any = None
        self.buffer = bytearray(1000)
        self.got = b""
        self.told: list[Any] = []
        self.keep = True

    def on_stream(self, stream: Stream) -> None:
        self.stream = stream

    def on_readable(self) -> None:
        try:
            count = self.stream.recv_into(self.room())
        except BlockingIOError:
            return
        except OSError as error:
            self.stream.fail(error)
            return
        if count:
            self.got += self.buffer[:count]
        else:
            self.stream.end_of_input()

    def on_writable(self) -> None:
        self.told.append("writable")

    def on_eof(self) -> bool:
        self.told.append("eof")
        return self.keep

    def on_lost(self, error: Exception | None) -> None:
        self.told.append(type(error))

    def room(self) -> memoryview:
        return memoryview(self.buffer)


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


async def eventually(condition: Callable[[], Any]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


async def read_all(far: socket.socket) -> bytes:
    data = b""
    while more := await asyncio.get_running_loop().sock_recv(far, 1 << 20):
        data += more
    return data


def test_there_and_back(run: Run, kind: str) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            assert isinstance(owner.stream, SocketStream) == (kind == "socket")
            assert owner.stream.half_closes
            far.send(b"hello")
            await eventually(lambda: owner.got == b"hello")
            assert owner.stream.write([b"one"]) == []
            assert owner.stream.write([b"two", b"", b"three"]) == []
            owner.stream.close()
            assert owner.stream.closing
            assert await read_all(far) == b"onetwothree"
            await eventually(lambda: owner.told == [type(None)])

    run(main())


def test_nothing_is_read_while_it_is_not_wanted(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            owner.stream.listen(False)
            owner.stream.listen(False)
            far.send(b"hello")
            await asyncio.sleep(0.02)
            assert owner.got == b""
            owner.stream.listen(True)
            owner.stream.listen(True)
            await eventually(lambda: owner.got == b"hello")
            owner.stream.abort()
            await eventually(lambda: owner.told)

    run(main())


def test_another_function_may_be_told(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            calls: list[int] = []

            def readable() -> None:
                calls.append(1)
                owner.on_readable()

            owner.stream.listen(False)
            owner.stream.readable = readable
            owner.stream.listen(True)
            far.send(b"hello")
            await eventually(lambda: owner.got == b"hello")
            assert calls == [1]
            owner.stream.close()
            await eventually(lambda: owner.told)

    run(main())


@pytest.mark.parametrize("keep", [True, False])
def test_a_peer_that_sends_no_more(run: Run, keep: bool) -> None:
    async def main() -> None:
        owner, far = await ends()
        owner.keep = keep
        with far:
            far.shutdown(socket.SHUT_WR)
            await eventually(lambda: owner.told)
            assert owner.told[0] == "eof"
            if keep:
                await asyncio.sleep(0.02)
                assert owner.told == ["eof"]
                owner.stream.write([b"still"])
                owner.stream.close()
            assert await read_all(far) == (b"still" if keep else b"")
            await eventually(lambda: owner.told == ["eof", type(None)])

    run(main())


def test_a_peer_that_resets(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        await eventually(lambda: owner.told)
        assert owner.told == [ConnectionResetError]
        assert owner.stream.closing

    run(main())


def test_what_is_not_taken_at_once(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            large = bytes(range(256)) * 100_000
            rest = owner.stream.write([b"head", memoryview(large)])
            assert rest
            reading = asyncio.ensure_future(read_all(far))
            while rest:
                owner.told.clear()
                owner.stream.await_writable(True)
                await eventually(lambda: owner.told)
                owner.stream.await_writable(False)
                rest = owner.stream.rewrite(rest)
            owner.stream.close()
            assert await reading == b"head" + large

    run(main())


@pytest.mark.parametrize("way", ["close", "write_eof"])
def test_last_words_are_waited_for(run: Run, way: str) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            large = bytes(range(256)) * 100_000
            owner.stream.write_last(large)
            owner.stream.write_last(b"bye")
            getattr(owner.stream, way)()
            await asyncio.sleep(0.02)
            assert type(None) not in owner.told
            assert await read_all(far) == large + b"bye"
            if way == "write_eof":
                far.send(b"yes")
                await eventually(lambda: owner.got == b"yes")
                owner.stream.close()
            await eventually(lambda: owner.told[-1:] == [type(None)])

    run(main())


def test_an_abort_waits_for_nothing(run: Run) -> None:
    async def main() -> None:
        owner, far = await ends()
        with far:
            owner.stream.write_last(bytes(30_000_000))
            owner.stream.close()
            owner.stream.abort()
            owner.stream.abort()
            await eventually(lambda: owner.told == [type(None)])
            owner.stream.close()
            owner.stream.write_last(b"late")
            owner.stream.listen(True)
            owner.stream.await_writable(True)
            await asyncio.sleep(0.01)
            assert owner.told == [type(None)]

    run(main())


def test_last_words_to_nobody(run: Run, kind: str) -> None:
    async def main() -> None:
        owner, far = await ends()
        owner.stream.listen(False)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        await asyncio.sleep(0.01)
        owner.stream.write_last(b"anyone?")
        if kind == "socket":
            assert owner.stream.closing
            assert not owner.stream.write_eof()
        owner.stream.close()
        await eventually(lambda: owner.told)

    run(main())


@pytest.mark.parametrize("sent", range(8))
def test_what_is_behind(sent: int) -> None:
    parts: list[Any] = [b"ab", b"", b"cde", bytearray(b"fg")]
    assert b"".join(behind(parts, sent)) == b"abcdefg"[sent:]
