"""What only tasks can do: wait in turns, be cancelled, be answered later, share a loop."""

import asyncio
import contextlib
import gc
import os
import socket
import threading
import time
import weakref

import pytest

from rlwire.errors import ConnectionClosed, DeadlineExceeded, LimitExceeded, LocalProtocolError
from rlwire.streams import TURN
from rlwire.transports import sockets, tcp_asyncio
from rlwire.transports.address import Address
from rlwire.transports.server import ServerSettings
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Timeouts
from rlwire.transports.stream_asyncio import open_stream, within
from rlwire.transports.tcp_asyncio import AsyncConnection
from tests.raising import raised
from tests.transports.drivers import Echo
from tests.waiting import eventually_async

BIG = 2**18


@contextlib.asynccontextmanager
async def connected(blobs, timeout=None):
    with sockets.listen("127.0.0.1:0") as listener:
        address = sockets.local_address(listener)
        connection = await tcp_asyncio.connect(address, blobs(), timeout=timeout)
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            yield connection, peer
        connection.close()
        await connection.wait_closed()


async def cancel(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_closed_connection_is_freed(run, blobs):
    kept = []

    async def main():
        def make_session():
            session = blobs()
            kept.append(weakref.ref(session))
            return session

        async with LoopServer("127.0.0.1:0", make_session, make_handler=Echo) as server:
            for _ in range(3):
                connection = await tcp_asyncio.connect(server.address, make_session())
                assert await connection.exchange(b"x") == b"x"
                kept.append(weakref.ref(connection))
                connection.close()
                await connection.wait_closed()
            del connection
            await eventually_async(lambda: server.statistics()["open"] == 0)
            await eventually_async(lambda: not any(ref() for ref in kept))

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()
    assert len(kept) == 9


async def test_hanging_resolver_ends_at_the_connect_timeout(run, blobs, monkeypatch):
    go_on = threading.Event()

    def resolve(self, **options):
        go_on.wait(30)
        return []

    monkeypatch.setattr(Address, "resolve", resolve)
    try:
        with pytest.raises(DeadlineExceeded, match=r"cannot connect to .*timed out"):
            await tcp_asyncio.connect("h.example:7", blobs(), timeout=Timeouts(connect=0.1))
    finally:
        go_on.set()


@pytest.mark.parametrize("word", [b"", b"nothing"])
async def test_flood_of_one_connection_lets_others_run(run, blobs, kind, word, raw, read_frame):
    received = []

    class Session(blobs):
        def receive(self, message):
            received.append(bytes(message)[self.header_size :])
            return list(super().receive(message))

    async with LoopServer("127.0.0.1:0", Session, **kind) as server:
        flood, good = raw(server.address), raw(server.address)
        await eventually_async(lambda: server.statistics()["open"] == 2)
        await asyncio.sleep(0)
        flood.send(blobs.frame(word) * 2000)
        good.send(blobs.frame(b"good"))
        assert await asyncio.to_thread(read_frame, good) == b"good"
        assert received.index(b"good") <= 4 * TURN
        await eventually_async(lambda: len(received) == 2001)


async def test_second_receiving_or_sending_task_is_rejected(run, blobs):
    async with connected(blobs) as (connection, _):
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


async def test_connection_whose_task_is_cancelled_as_it_opens_is_closed(run, blobs, monkeypatch):
    async def open_and_cancel(*arguments, **options):
        await open_stream(*arguments, **options)
        monkeypatch.undo()
        connecting.cancel()  # it has not seen that the stream is open

    monkeypatch.setattr(tcp_asyncio, "open_stream", open_and_cancel)
    with sockets.listen("127.0.0.1:0") as listener:
        address = sockets.local_address(listener)
        connecting = asyncio.create_task(tcp_asyncio.connect(address, blobs()))
        with pytest.raises(asyncio.CancelledError):
            await connecting
        peer, _ = listener.accept()
        with peer, contextlib.suppress(ConnectionResetError):
            peer.settimeout(10)
            assert peer.recv(1) == b""
        # The loop has forgotten the file, of which the next connection has the number.
        again = await tcp_asyncio.connect(address, blobs())
        again.close()
        await again.wait_closed()


async def test_limited_wait_raises_a_cancellation_that_arrives_with_its_result():
    """Before Python 3.12, `asyncio.wait_for` ignores it."""
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(within(20.0, future))
    await asyncio.sleep(0)
    future.set_result(None)
    await cancel(waiting)


async def test_cancelled_receive_loses_no_message(run, blobs):
    async with connected(blobs) as (connection, peer):
        receiving = asyncio.create_task(connection.receive())
        await asyncio.sleep(0.01)
        await cancel(receiving)
        receiving = asyncio.create_task(connection.receive())
        await asyncio.sleep(0.01)
        # The message comes and the task is cancelled before it can go on.
        peer.sendall(blobs.frame(b"precious"))
        connection.on_readable()
        await cancel(receiving)
        peer.sendall(blobs.frame(b"next"))
        assert await connection.receive() == b"precious"
        assert await connection.receive() == b"next"


@pytest.mark.parametrize("end", [lambda call: call.close(), lambda call: call.throw(KeyError)])
async def test_receive_that_ends_without_a_task_loses_no_message(run, blobs, end):
    async with connected(blobs) as (connection, peer):
        receiving = connection.receive()
        receiving.send(None)
        with contextlib.suppress(KeyError):
            end(receiving)
        peer.sendall(blobs.frame(b"next"))
        await asyncio.sleep(0.01)
        assert await connection.receive() == b"next"


@pytest.mark.parametrize("sent", [b"small", [b"in", b"parts"]])
async def test_reply_of_a_cancelled_exchange_is_discarded(run, blobs, sent):
    async with connected(blobs) as (connection, peer):
        # The answer has come, and the task is cancelled before it can go on.
        for _ in range(2):
            exchange = asyncio.create_task(connection.exchange(sent))
            await asyncio.sleep(0)
            assert peer.recv(1000)
            peer.sendall(blobs.frame(b"previous"))
            connection.on_readable()
            await cancel(exchange)
            exchange = asyncio.create_task(connection.exchange(sent))
            await asyncio.sleep(0)
            assert peer.recv(1000)
            peer.sendall(blobs.frame(b"own"))
            assert await exchange == b"own"
        # It has not come; nobody could tell it from the next one.
        exchange = asyncio.create_task(connection.exchange(sent))
        await asyncio.sleep(0)
        await cancel(exchange)
        with contextlib.suppress(OSError):
            peer.sendall(blobs.frame(b"previous"))
        assert connection.closed
        for call in (connection.exchange(sent), connection.receive()):
            with pytest.raises(ConnectionClosed, match="an exchange was cancelled"):
                await call


async def test_cancelled_send_closes_the_connection(run, blobs):
    async with connected(blobs) as (connection, _):
        sending = asyncio.create_task(connection.send(bytes(50_000_000)))
        await asyncio.sleep(0.05)
        await cancel(sending)
        with pytest.raises(ConnectionClosed, match="inside a message"):
            await connection.receive()


@pytest.mark.parametrize("admitted", [True, False])
async def test_flood_of_connections_lets_other_tasks_run(run, blobs, kind, admitted):
    results = [0]

    def make_session():
        results[0] += 1
        return blobs()

    storm = 200
    settings = ServerSettings(max_connections=2 * storm if admitted else 1)
    async with (
        LoopServer("127.0.0.1:0", make_session, settings=settings, **kind) as server,
        await tcp_asyncio.connect(server.address, blobs()) as good,
    ):
        assert await good.exchange(b"x") == b"x"
        with contextlib.ExitStack() as stack:
            # The loop does not run meanwhile: all wait in the listener's queue.
            for _ in range(storm):
                sock = stack.enter_context(sockets.connected_socket(server.address, 10.0))
                sock.sendall(b"\xff garbage")
            between = []
            until = time.monotonic() + 60
            while results[0] <= storm and time.monotonic() < until:
                before = results[0]
                assert await good.exchange(b"x") == b"x"
                between.append(results[0] - before)
            assert sum(between) >= storm, "the storm is over"
            assert max(between) <= 8, between


def test_closed_connection_does_not_read_a_reused_descriptor(run, blobs, read_frame):
    mine, peers = socket.socketpair()
    numbers = []

    class Reused(socket.socket):
        """Once it is closed another has its number, as one that another thread accepts may."""

        def close(self):
            number = self.fileno()
            super().close()
            if number != -1:
                numbers.append(number)
                os.dup2(mine.fileno(), number)

    async def main():
        near, far = socket.socketpair()
        sock = Reused(fileno=near.detach())
        sock.setblocking(False)
        connection = AsyncConnection(blobs(), "the peer", Timeouts(), accepted=True)
        await open_stream(connection, sock)
        connection.serve(Echo(connection))
        far.sendall(blobs.frame(b"hello"))
        assert await asyncio.to_thread(read_frame, far) == b"hello"
        far.close()
        await connection.wait_closed()

    with mine, peers:
        mine.setblocking(False)
        peers.sendall(b"for another")
        run(main())
        assert len(numbers) == 1
        os.close(numbers[0])
        assert mine.recv(100) == b"for another"


def test_loop_without_add_reader_is_rejected(blobs):

    class Proactor(asyncio.SelectorEventLoop):
        def remove_reader(self, file):
            raise NotImplementedError

    async def main():
        near, far = socket.socketpair()
        with near, far:
            connection = AsyncConnection(blobs(), "the peer", Timeouts())
            with pytest.raises(NotImplementedError, match="Proactor has no add_reader"):
                await open_stream(connection, near)

    loop = Proactor()
    loop.run_until_complete(main())
    with contextlib.suppress(NotImplementedError):
        loop.close()


async def test_unsent_output_is_queued_in_order(run, blobs, read_frame):
    def fill():
        for number in range(256):
            connection.post(bytes([number]) * BIG, backlog=3 * BIG)
            posted.append(number)

    posted = []
    async with connected(blobs) as (connection, peer):
        assert raised(LimitExceeded, fill).limit == "backlog"
        assert 3 * BIG < connection.core.waiting <= 4 * BIG + 20
        assert len(posted) >= 4
        for number in posted:
            assert await asyncio.to_thread(read_frame, peer) == bytes([number]) * BIG
        await asyncio.sleep(0.01)
        connection.post(b"again")
        assert await asyncio.to_thread(read_frame, peer) == b"again"


async def test_receive_waits_for_queued_output(run, blobs, read_frame):
    async with connected(blobs) as (connection, peer):
        receiving = asyncio.create_task(connection.receive())
        await asyncio.sleep(0)
        connection.post(bytes(40 * BIG))
        peer.sendall(blobs.frame(b"hello"))
        await asyncio.sleep(0.05)
        assert not receiving.done()
        await asyncio.to_thread(read_frame, peer)
        assert await receiving == b"hello"
        connection.post(b"there")
        assert await asyncio.to_thread(read_frame, peer) == b"there"


async def test_peer_that_never_reads_is_disconnected(run, blobs, log):
    async with connected(blobs, Timeouts(write=0.2)) as (connection, _):
        connection.post(bytes(40 * BIG))
        await connection.wait_closed()
        assert connection.core.broken or connection.closed
        raised(ConnectionClosed, connection.post, b"more")
        assert "within write=0.2 s" in log.text
