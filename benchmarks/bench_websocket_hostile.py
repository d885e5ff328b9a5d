"""What do WebSocket servers do with frames and requests that should not be?

Each server runs in a process of its own, with its defaults but for a message limit of 1 MiB and no
compression; each case is one connection by hand. The table tells the close code that came, or what
came instead, and how much the process grew if that was over 8 MB. A server that died is started
again for the next case.

`python benchmarks/bench_websocket_hostile.py` prints the table; a server is told that a case went
on by a message that must come back.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import bench_websocket_echo as echo
import picows
from pairs import TINY, print_head, print_table

from rlwire.codecs.websocket import BINARY, CLOSE, CONTINUATION, PING, TEXT, Framer
from rlwire.limits import Limits
from rlwire.sessions import websocket
from rlwire.transports.server import ThreadServer
from rlwire.transports.server_asyncio import LoopServer

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
WAIT = 0.3 if TINY else 2.0  # seconds for a server to say something
SILENT = 0.3 if TINY else 15.0  # seconds that a handshake is left unfinished
FLOOD = 2**20 if TINY else 64 * 2**20  # bytes
GROWN = 8  # megabytes that are told
FRAMER = Framer(True)


def make_session() -> websocket.Server:
    """Ours."""
    return websocket.Server(websocket.Messages(), limits=Limits(received=echo.MOST))


def serve_threads() -> None:
    """Ours, a thread a connection."""
    server = ThreadServer("127.0.0.1:0", make_session, lambda peer: peer.serve(lambda event: event))
    with server.start():
        print(server.address.port, flush=True)
        server.wait()


async def serve_asyncio() -> None:
    """Ours, all connections on one loop."""
    server = await LoopServer(
        "127.0.0.1:0", make_session, make_responder=lambda peer: echo.Echo()
    ).start()
    print(server.address.port, flush=True)
    await server.wait()


class Listener(picows.WSListener):  # type: ignore[misc]
    """picows echoes each frame of data."""

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if frame.msg_type == picows.WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        elif frame.msg_type not in (picows.WSMsgType.PING, picows.WSMsgType.PONG):
            transport.send(frame.msg_type, frame.get_payload_as_bytes(), frame.fin)


async def serve_picows() -> None:
    """picows."""
    server = await picows.ws_create_server(
        lambda request: Listener(), "127.0.0.1", 0, max_frame_size=echo.MOST
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


SERVERS: dict[str, Callable[[], Any]] = {
    "rlwire threads": serve_threads,
    "rlwire asyncio": lambda: echo.asyncio.run(serve_asyncio()),
    "websockets asyncio": lambda: echo.serve_websockets("asyncio"),
    "websockets sync": lambda: echo.serve_websockets_sync(""),
    "picows": lambda: echo.asyncio.run(serve_picows()),
}


def header(first: int, second: int, length: bytes = b"") -> bytes:
    """A header by hand, with a mask of zeros."""
    return bytes([first, 0x80 | second]) + length + bytes(4)


def long(size: int) -> bytes:
    """The header of a binary frame with a length in eight bytes."""
    return header(0x82, 127, size.to_bytes(8, "big"))


FRAMES: dict[str, bytes] = {
    "length 2**63 + 10": long(2**63 + 10) + bytes(100),
    "length 2**64 - 1": long(2**64 - 1) + bytes(100),
    "length 2**63 - 1": long(2**63 - 1) + bytes(100),
    "length over the limit by one": long(echo.MOST + 1) + bytes(100),
    "length 5 in two bytes": header(0x82, 126, b"\x00\x05") + bytes(5),
    "length 200 in eight bytes": long(200) + bytes(200),
    "reserved bit": header(0xA2, 5) + bytes(5),
    "reserved opcode 3": header(0x83, 5) + bytes(5),
    "ping in fragments": header(0x09, 1) + b"a" + header(0x80, 1) + b"b",
    "ping of 126 bytes": header(0x89, 126, b"\x00\x7e") + bytes(126),
    "text that is not UTF-8": header(0x81, 2) + b"\xff\xfe",
    "frame without a mask": b"\x82\x05hello",
    "continuation of nothing": header(0x80, 5) + b"hello",
    "message inside another": header(0x01, 1) + b"a" + header(0x81, 1) + b"b",
    "close with one byte": header(0x88, 1) + b"\x03",
    "close code 1005": header(0x88, 2) + b"\x03\xed",
}


class Process:
    """One server, started again when it has died."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start()

    def start(self) -> None:
        """Start it."""
        self.process = subprocess.Popen(
            [sys.executable, __file__, "serve", self.name],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def connect(self, *, shake: bool = True) -> socket.socket:
        """A connection, after the handshake or before it."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        if shake:
            sock.sendall(REQUEST)
            data = b""
            while b"\r\n\r\n" not in data:
                data += sock.recv(1024)
            assert b" 101 " in data
        return sock

    def memory(self) -> float:
        """Megabytes in use; 0 where that is not known."""
        with suppress(OSError), open(f"/proc/{self.process.pid}/status") as file:
            for line in file:
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) / 1024
        return 0.0

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()


def outcome(sock: socket.socket) -> str:
    """What a server says within the time: a close code, the end, or that it goes on."""
    data = b""
    until = time.monotonic() + WAIT
    ended = "stays open"
    while (left := until - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            more = sock.recv(65536)
        except TimeoutError:
            break
        except OSError:
            ended = "reset"
            break
        if not more:
            ended = "hung up"
            break
        data = (data + more)[-(2**20) :]
    if data.startswith(b"HTTP/1.1 "):
        return f"HTTP {data[9:12].decode()}"
    at, echoed = 0, False
    with suppress(IndexError):
        while at < len(data):
            size = data[at + 1] & 127
            if data[at] == 0x80 | CLOSE:
                code = int.from_bytes(data[at + 2 : at + 4], "big")
                return f"{code}, echoed" if echoed else str(code or 1005)
            echoed = echoed or data[at] & 15 in (CONTINUATION, TEXT, BINARY)
            if size > 125:
                break
            at += 2 + size
    if ended == "stays open" and echoed:
        return "accepted"
    return ended


def flood(sock: socket.socket, data: bytes, total: int) -> None:
    """Send until it was enough, or the server has had enough."""
    sock.settimeout(WAIT)
    with suppress(OSError):
        for _ in range(total // len(data) + 1):
            sock.sendall(data)


def send_frames(data: bytes) -> Callable[[Process], str]:
    """A case of some bytes after the handshake."""

    def case(server: Process) -> str:
        with server.connect() as sock:
            sock.sendall(data)
            return outcome(sock)

    return case


def endless_fragments(server: Process) -> str:
    """A message in fragments of 32 KB that goes on past any limit."""
    with server.connect() as sock:
        sock.sendall(FRAMER.frame(BINARY, b"a", False))
        flood(sock, FRAMER.frame(CONTINUATION, bytes(32768), False), FLOOD)
        return outcome(sock)


def empty_fragments(server: Process) -> str:
    """A message in empty fragments without end."""
    with server.connect() as sock:
        sock.sendall(FRAMER.frame(BINARY, b"a", False))
        flood(sock, FRAMER.frame(CONTINUATION, b"", False) * 1000, FLOOD // 16)
        return outcome(sock)


def header_flood(server: Process) -> str:
    """Header lines without end."""
    with server.connect(shake=False) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n")
        flood(sock, b"X-Flood: " + b"a" * 1000 + b"\r\n", FLOOD)
        return outcome(sock)


def line_flood(server: Process) -> str:
    """One header line without end."""
    with server.connect(shake=False) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nX-Flood: ")
        flood(sock, b"a" * 65536, FLOOD)
        return outcome(sock)


def never_reads(server: Process) -> str:
    """A client that sends messages and never takes the echoes."""
    with server.connect() as sock:
        flood(sock, FRAMER.frame(BINARY, bytes(65536)), FLOOD)
        return "stops being read" if server.process.poll() is None else "died"


def ping_flood(server: Process) -> str:
    """A client that sends pings and never takes the pongs."""
    with server.connect() as sock:
        flood(sock, FRAMER.frame(PING, bytes(125)) * 500, FLOOD)
        return "stops being read" if server.process.poll() is None else "died"


def silence(server: Process) -> str:
    """A connection that asks for nothing."""
    with server.connect(shake=False) as sock:
        sock.settimeout(SILENT)
        begun = time.monotonic()
        with suppress(TimeoutError):
            sock.recv(1024)
            return f"cut after {time.monotonic() - begun:.0f} s"
        return f"open after {SILENT:.0f} s"


CASES: dict[str, Callable[[Process], str]] = {
    **{name: send_frames(data) for name, data in FRAMES.items()},
    "fragments without end": endless_fragments,
    "empty fragments without end": empty_fragments,
    "header lines without end": header_flood,
    "a header line without end": line_flood,
    "a client that never reads": never_reads,
    "pings from a client that never reads": ping_flood,
    "a handshake that never comes": silence,
}


def run(server: Process, case: Callable[[Process], str]) -> str:
    """What became of one case."""
    before = server.memory()
    try:
        told = case(server)
    except OSError as error:
        told = f"refused: {type(error).__name__}"
    grown = server.memory() - before
    if grown > GROWN:
        told += f", +{grown:.0f} MB"
    with suppress(OSError):
        server.connect().close()
    time.sleep(0.05)
    if server.process.poll() is not None:
        told += f", the process died ({server.process.returncode})"
        server.start()
    return told


def main() -> None:
    """Print the table."""
    print_head("Hostile clients: what came back.", "picows", "websockets")
    rows = []
    for title, case in CASES.items():
        cells = [title]
        for name in SERVERS:
            server = Process(name)
            try:
                cells.append(run(server, case))
            finally:
                server.end()
        rows.append(tuple(cells))
        print(" | ".join(cells), file=sys.stderr, flush=True)
    print_table(("the client sends", *SERVERS), rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        SERVERS[sys.argv[2]]()
    else:
        main()
