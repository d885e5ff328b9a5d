import asyncio
import threading

import numpy as np
import pytest

from rlwire.codecs.rfb.messages import KeyEvent
from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError
from rlwire.transports.sockets import Timeouts
from rlwire.universe.rfb import AsyncRfbClient, Display, RfbClient, RfbServer
from tests.raising import raised

SOON = 20.0  # seconds, for what comes at once unless the machine is busy


def picture(seed, height=48, width=64):
    random = np.random.default_rng(seed)
    frame = np.full((height, width, 3), seed % 256, np.uint8)
    frame[: height // 2, : width // 3] = random.integers(0, 256, (height // 2, width // 3, 3))
    return frame


def has(client, frame):
    pixels = client.snapshot()
    return pixels.shape == frame.shape and bool((pixels == frame).all())


def await_picture(client, frame):
    while not has(client, frame):
        client.update(SOON)


# Against a server of rlwire's.


def test_a_task_watches_and_plays():
    received = []

    async def run():
        display = Display(64, 48, on_input=lambda viewer, message: received.append(message))
        with RfbServer(display, "127.0.0.1:0") as server:
            async with AsyncRfbClient(str(server.address)) as client:
                display.show(picture(9))
                while not has(client, picture(9)):
                    await client.update(SOON)
                await client.key("a", True)
                while not received:
                    await client.poll()
                waiting = asyncio.create_task(client.update())
                await asyncio.sleep(0)
                with pytest.raises(LocalProtocolError, match="another task"):
                    await client.update()
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                with pytest.raises(DeadlineExceeded):
                    await client.update(0.001)
                display.show(picture(10))
                while not has(client, picture(10)):
                    await client.update(SOON)
            assert client.ended
            with pytest.raises(ConnectionClosed):
                await client.update()

    asyncio.run(run())
    assert received == [KeyEvent(97, True)]


def test_the_server_ends():
    display = Display(64, 48)
    with RfbServer(display, "127.0.0.1:0") as server:
        client = RfbClient(str(server.address)).connect()
        client.update(SOON)
    raised(ConnectionClosed, client.update, SOON)
    raised(ConnectionClosed, client.poll)
    assert client.ended
    assert client.snapshot().shape == (48, 64, 3)
    client.close()


def test_unconnected_client_raises():
    client = RfbClient("127.0.0.1:1")
    for ask in (
        lambda: client.framebuffer,
        client.update,
        client.poll,
        lambda: client.key("a", True),
    ):
        raised(ConnectionClosed, ask)
    assert client.ended
    assert "127.0.0.1:1" in repr(client)
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
        client.connect()
    client.close()


def test_client_can_reconnect():
    display = Display(64, 48)
    with RfbServer(display, "127.0.0.1:0") as server:
        client = RfbClient(str(server.address))
        for seed in (1, 2):
            display.show(picture(seed))
            with client:
                await_picture(client, picture(seed))
                assert "127" in str(raised(LocalProtocolError, client.connect))


# Against a script.


def test_updates_and_polls(scripted):
    go_on, done = threading.Event(), threading.Event()

    def script(peer):
        peer.greet()
        peer.update(peer.rectangle(0, 0, 8, 4, 5))
        go_on.wait(SOON)
        peer.update(peer.rectangle(1, 1, 2, 2, 6), peer.rectangle(4, 1, 1, 1, 7))
        done.set()

    with RfbClient(scripted(script)) as client:
        (changed,) = client.update(SOON)
        assert tuple(changed) == (0, 0, 8, 4, 0)
        assert client.poll() == []
        assert "0.01" in str(raised(DeadlineExceeded, client.update, 0.01))
        assert (client.snapshot() == 5).all()
        go_on.set()
        done.wait(SOON)
        changes = []
        while not changes:
            changes = client.poll()
        assert [tuple(one)[:4] for one in changes] == [(1, 1, 2, 2), (4, 1, 1, 1)]
        out = np.zeros((4, 8, 3), np.uint8)
        assert client.snapshot(out) is out
        assert out[1, 1:5].max(-1).tolist() == [6, 6, 5, 7]


def test_a_server_that_says_nothing(scripted):
    times = Timeouts(connect=0.05)
    raised(DeadlineExceeded, RfbClient(scripted(lambda peer: None), timeout=times).connect)
