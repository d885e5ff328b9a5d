"""`AsyncConnection.post`: one event without waiting, for whoever tells many at once."""

import asyncio

from rlwire.errors import ConnectionClosed, LimitExceeded
from rlwire.transports import sockets, tcp_asyncio
from rlwire.transports.sockets import Timeouts
from tests.raising import raised

BIG = 2**18


async def with_peer(blobs, use, timeout=None):
    """Call `use` with a connection and its peer, a plain socket."""
    with sockets.listen("127.0.0.1:0") as listener:
        connection = await tcp_asyncio.connect(
            sockets.local_address(listener), blobs(), timeout=timeout
        )
        peer, _ = listener.accept()
        with peer:
            peer.setblocking(False)
            await asyncio.wait_for(use(connection, peer), 20)
            connection.close()
            await connection.wait_closed()


async def exactly(peer, size):
    data = bytearray()
    while len(data) < size:
        more = await asyncio.get_running_loop().sock_recv(peer, size - len(data))
        assert more
        data += more
    return bytes(data)


def test_unsent_output_is_queued_in_order(run, blobs):
    async def use(connection, peer):
        want = b""

        def fill():
            nonlocal want
            for i in range(256):
                body = bytes([i]) * BIG
                connection.post(body, backlog=3 * BIG)
                want += blobs.frame(body)

        assert raised(LimitExceeded, fill).limit == "backlog"
        assert 3 * BIG < connection.core.waiting <= 4 * BIG + 20
        assert len(want) >= 4 * BIG
        assert await exactly(peer, len(want)) == want
        await asyncio.sleep(0.01)
        connection.post(b"again")
        assert await exactly(peer, 25) == blobs.frame(b"again")

    run(with_peer(blobs, use))


def test_meanwhile_a_task_receives_but_only_afterwards(run, blobs):

    async def use(connection, peer):
        receiving = asyncio.create_task(connection.receive())
        await asyncio.sleep(0)
        connection.post(bytes(40 * BIG))
        await asyncio.get_running_loop().sock_sendall(peer, blobs.frame(b"hello"))
        await asyncio.sleep(0.05)
        assert not receiving.done()
        await exactly(peer, 40 * BIG + 20)
        assert await receiving == b"hello"
        connection.post(b"there")
        assert await exactly(peer, 25) == blobs.frame(b"there")

    run(with_peer(blobs, use))


def test_a_peer_that_never_reads_is_cut(run, blobs, log):
    async def use(connection, peer):
        connection.post(bytes(40 * BIG))
        await connection.wait_closed()
        assert connection.core.broken or connection.closed
        raised(ConnectionClosed, connection.post, b"more")
        assert "within write=0.2 s" in log.text

    run(with_peer(blobs, use, Timeouts(write=0.2)))
