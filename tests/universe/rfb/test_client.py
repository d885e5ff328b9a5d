import numpy as np

from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError
from rlwire.universe.rfb import Display, RfbClient, RfbServer
from tests.raising import raised

SOON = 20.0  # seconds, for what comes at once unless the machine is busy


def picture(seed, height=48, width=64):
    random = np.random.default_rng(seed)
    frame = np.full((height, width, 3), seed % 256, np.uint8)
    frame[: height // 2, : width // 3] = random.integers(0, 256, (height // 2, width // 3, 3))
    return frame


def test_unconnected_client_raises():
    client = RfbClient("127.0.0.1:1")
    raised(ConnectionClosed, getattr, client, "framebuffer")
    raised(ConnectionClosed, client.key, "a", True)
    for call in (client.update, client.poll):
        raised(ConnectionClosed, call)
    assert client.ended
    assert "127.0.0.1:1" in repr(client)
    assert "127.0.0.1:1" in str(raised(OSError, client.connect))
    client.close()


def test_client_reconnects_and_keeps_its_framebuffer():
    display = Display(8, 4)
    with RfbServer(display, "127.0.0.1:0") as server:
        client = RfbClient(str(server.address))
        with client:
            (changed,) = client.update(SOON)
            assert tuple(changed)[:4] == (0, 0, 8, 4)
            assert "127" in str(raised(LocalProtocolError, client.connect))
        client.connect()
        client.update(SOON)
        assert client.poll() == []
        assert "0.01" in str(raised(DeadlineExceeded, client.update, 0.01))
        frame = np.zeros((4, 8, 3), np.uint8)
        frame[1, 1:5] = 6
        display.show(frame)
        changes = []
        while not changes:
            changes = client.poll()
        assert all(each.width <= 8 for each in changes)
        out = np.zeros((4, 8, 3), np.uint8)
        assert client.snapshot(out) is out
        assert (out == frame).all()
    raised(ConnectionClosed, client.update, SOON)
    raised(ConnectionClosed, client.poll)
    assert client.ended
    assert (client.snapshot() == frame).all()
    client.close()
