"""Sessions that send by themselves, over real sockets, for example WebSocket."""

import asyncio
import socket
import struct
import time
from contextlib import ExitStack, suppress

import pytest

from rlwire.codecs.websocket import frames
from rlwire.sessions import websocket
from rlwire.sessions.layer import Layer, LayerPhase
from rlwire.sessions.stack import Stack
from rlwire.transports import tcp
from rlwire.transports.sockets import Timeouts
from tests.raising import raised
from tests.transports.drivers import SERVERS, Echo, drivers, meanwhile, serving
from tests.waiting import eventually_async

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Over(Layer):
    """A protocol inside WebSocket that says goodbye and ends at once."""

    active = True
    close_reason = "as I said"

    def __init__(self):
        self.phase = LayerPhase.CLOSED
        self._said = ["goodbye"]

    def output(self):
        written, self._said = self._said, []
        return written


@pytest.fixture
def serve(start):
    return lambda make=websocket.WebSocketServerSession, **options: start(make, **options).address


def client(**options):
    return websocket.WebSocketClientSession("ws://localhost/", **options)


class Raw:
    def __init__(self, address, *, shake=True):
        self.sock = socket.create_connection((address.host, address.port), timeout=10)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.encoder, self.file = frames.FrameEncoder(True), self.sock.makefile("rb")
        if shake:
            self.sock.sendall(REQUEST)
            assert self.head().startswith(b"HTTP/1.1 101 ")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.sock.close()

    def head(self):
        return b"".join(iter(self.file.readline, b"\r\n"))

    def frame(self):
        head = self.file.read(2)
        if not head:
            return None
        size = head[1]
        if size > 125:
            size = int.from_bytes(self.file.read(2 if size == 126 else 8), "big")
        return head[0] & 15, self.file.read(size)

    def code(self):
        frame = self.frame()
        assert frame is not None
        opcode, payload = frame
        assert opcode == frames.CLOSE
        with suppress(ConnectionResetError):
            assert self.frame() is None
        return struct.unpack(">H", payload[:2])[0]


def test_both_sides_complete_the_close_handshake(serve, connect, log):
    address = serve()
    times = []
    for _ in range(3):  # a busy machine may be slow once
        with connect(address, client()) as peer:
            peer.exchange("a")
            begun = time.monotonic()
        times.append(time.monotonic() - begun)
        assert peer.session.closed or times[-1] > 0.9
        assert not peer.core.broken
    assert min(times) < 0.9  # nobody waited for a time to run out
    with Raw(address) as raw:
        raw.sock.sendall(raw.encoder.frame(frames.CLOSE, frames.encode_close(4000, "bye")))
        assert raw.code() == 4000
    assert {record.levelname for record in log.records} <= {"DEBUG"}


@pytest.mark.parametrize("server", SERVERS)
def test_messages_that_cross_a_close_do_not_break_the_connection(server, connect):

    class Leave(Echo):
        def answer(self, event):
            if event == "go":
                asyncio.get_running_loop().call_soon(self.connection.close)
            return event

    def handle(peer):
        assert peer.receive() == "go"
        peer.send("go")

    def talk(address):
        peer = connect(address, client())
        assert peer.exchange("go") == "go"
        for _ in range(50):
            peer.send(bytes(1000))
        while True:
            peer.receive()

    how = {"converse": handle} if server == "threads" else {"make_handler": Leave}
    with serving(server, "127.0.0.1:0", websocket.WebSocketServerSession, **how) as running:
        assert raised(websocket.Closed, talk, running.address).code == 1000


@pytest.mark.parametrize("server", SERVERS)
def test_stopping_server_sends_close_code_1001(server, connect):
    with ExitStack() as stack:
        make = websocket.WebSocketServerSession
        running = stack.enter_context(serving(server, "127.0.0.1:0", make, make_handler=Echo))
        peer = connect(running.address, client())
        peer.exchange("a")
        with meanwhile(lambda: (time.sleep(0.05), stack.close())):
            caught = raised(websocket.Closed, peer.receive)
            peer.close()
        assert caught.code == 1001  # which it sends at once or never


def test_server_reads_messages_sent_with_the_upgrade_request(serve):
    with Raw(serve(), shake=False) as raw:
        sent = raw.encoder.message("early")[0] + raw.encoder.message(bytes(10_000))[0]
        raw.sock.sendall(REQUEST + sent)
        assert raw.head().startswith(b"HTTP/1.1 101 ")
        assert raw.frame() == (frames.TEXT, b"early")
        assert raw.frame() == (frames.BINARY, bytes(10_000))


def test_server_close_without_a_reply_times_out(serve):
    with Raw(serve(lambda: Stack(websocket.WebSocketServerSession(), Over()))) as raw:
        begun = time.monotonic()
        assert raw.frame() == (frames.TEXT, b"goodbye")
        assert raw.code() == 1000
        assert time.monotonic() - begun < 5


def test_keep_alive_detects_a_lost_peer(serve):
    class Counting(websocket.WebSocketClientSession):
        pings = 0

        def _control(self, opcode, payload):
            self.pings += opcode == frames.PING
            super()._control(opcode, payload)

    timeouts = [60.0, 0.5]
    address = serve(
        lambda: websocket.WebSocketServerSession(ping_interval=0.1, ping_timeout=timeouts.pop(0))
    )
    with drivers("asyncio") as driver:
        waits = driver.connect(address, Counting("ws://localhost/"))

        async def receive_pings():
            receiving = asyncio.create_task(waits.connection.receive())
            # There is no second ping before the first one is answered.
            await eventually_async(lambda: waits.session.pings == 5)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving

        with Raw(address) as silent:
            driver.loop.run_until_complete(receive_pings())
            assert silent.frame() == (frames.PING, b"")
            assert silent.code() == 1011
            assert waits.exchange("still here") == "still here"


def test_server_stops_reading_a_ping_flood_without_a_reader(serve):
    address = serve(timeout=Timeouts(write=0.5))
    with tcp.connect(address, client()) as other, Raw(address) as raw:
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        pings = raw.encoder.frame(frames.PING, bytes(125)) * 1000
        raw.sock.settimeout(1)
        # The server stops reading long before 500 MB.
        raised(OSError, lambda: [raw.sock.sendall(pings) for _ in range(500_000_000 // len(pings))])
        assert other.exchange("a") == "a"
