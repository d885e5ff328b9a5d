"""The floor: a raw blocking socket exchange of given byte counts, nothing decoded.

What the socket, the kernel and two Python processes cost with no protocol at all, over TCP or UDP.
The server answers requests of `request_bytes` with `reply_bytes`, and then, after each `read_back`
of them, one of `ASK_BYTES` with the request it got last: the client compares that untimed, as it
does with a protocol's row, so that the timed exchanges of both stand in the same surroundings.

Not here: any protocol; which byte counts.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from time import perf_counter_ns

from rlwire.bench.processes import BenchError, ServerProcess
from rlwire.errors import on_error
from rlwire.transports.sockets import set_kernel_timeout

__all__ = ["ASK_BYTES", "Floor", "serve", "serve_datagrams"]

ASK_BYTES = 16
READ_SECONDS = 10.0
_WAITALL = getattr(socket, "MSG_WAITALL", 0)


def _fill(peer: socket.socket, view: memoryview) -> bool:
    """Receive until `view` is full; False at an end of stream."""
    size = peer.recv_into(view, 0, _WAITALL)
    while 0 < size < len(view):  # a signal, a timeout, or a platform without MSG_WAITALL
        more = peer.recv_into(view[size:], 0, _WAITALL)
        if more == 0:
            return False
        size += more
    return size > 0


def serve(
    report: Callable[[tuple[str, int]], None],
    request_bytes: int,
    reply_bytes: int,
    read_back: int,
) -> None:
    """Serve one client after the other on a free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        report(listener.getsockname())
        request = memoryview(bytearray(request_bytes))
        ask = memoryview(bytearray(ASK_BYTES))
        reply = bytes(reply_bytes)
        while True:
            peer, _address = listener.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                answered = 0
                while _fill(peer, request):
                    peer.sendall(reply)
                    answered += 1
                    if answered != read_back:
                        continue
                    answered = 0
                    if not _fill(peer, ask):
                        break
                    peer.sendall(request)


def serve_datagrams(
    report: Callable[[tuple[str, int]], None],
    request_bytes: int,
    reply_bytes: int,
    read_back: int,
) -> None:
    """The same over UDP, for any number of clients that take turns."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        report(server.getsockname())
        reply = bytes(reply_bytes)
        answered = 0
        while True:
            request, peer = server.recvfrom(request_bytes)
            server.sendto(reply, peer)
            answered += 1
            if answered == read_back:
                answered = 0
                _ask, peer = server.recvfrom(ASK_BYTES)
                server.sendto(request, peer)


class Floor:
    """A client of the echo server, and the server's process; a context manager.

    Args:
        requests: what is sent, in turn; all of one size.
        reply_bytes: how many bytes answer each.
        cores: where the server may run; None leaves that to the system.
        read_back: how many calls of `exchange` each `check` follows; 0: there are no checks.
        datagrams: UDP instead of TCP, each message one datagram.
    """

    def __init__(
        self,
        requests: list[bytes],
        reply_bytes: int,
        *,
        cores: list[int] | None = None,
        read_back: int = 1,
        datagrams: bool = False,
    ) -> None:
        self._requests = requests
        self._datagrams = datagrams
        self._asked = bytes(ASK_BYTES)
        self._reply = memoryview(bytearray(reply_bytes))
        self._back = memoryview(bytearray(len(requests[0])))
        if {len(request) for request in requests} != {len(requests[0])}:
            raise ValueError("the requests of one floor must all have the same size")
        self._server = ServerProcess(
            "raw echo",
            serve_datagrams if datagrams else serve,
            *(len(requests[0]), reply_bytes, read_back),
            cores=cores,
        )
        self._socket: socket.socket | None = None

    def __enter__(self) -> Floor:
        self._server.__enter__()
        with on_error(self._server.stop):
            if self._datagrams:
                peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                peer.connect(self._server.address)
            else:
                peer = socket.create_connection(self._server.address, timeout=READ_SECONDS)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.settimeout(None)  # a timeout in Python costs a poll() per call
            set_kernel_timeout(peer, socket.SO_RCVTIMEO, READ_SECONDS)
            self._socket = peer
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()
        self._server.stop()

    @property
    def server_pid(self) -> int:
        """The process number of the server."""
        return self._server.pid

    def exchange(self, index: int) -> None:
        """One timed exchange: the request number `index` out, the reply in."""
        self._ask(self._requests[index % len(self._requests)], self._reply)

    def exchange_in_parts(self, index: int) -> tuple[int, int, int]:
        """The same, and how many nanoseconds of it went into sending, waiting and receiving."""
        sent = came = 0

        def wait(peer: socket.socket) -> None:
            nonlocal sent, came
            sent = perf_counter_ns()
            select.select([peer], [], [], READ_SECONDS)
            came = perf_counter_ns()

        begin = perf_counter_ns()
        self._ask(self._requests[index % len(self._requests)], self._reply, wait)
        return sent - begin, came - sent, perf_counter_ns() - came

    def check(self, index: int) -> None:
        """Read the request back and compare it; untimed."""
        self._ask(self._asked, self._back)
        if self._back != self._requests[index % len(self._requests)]:
            raise BenchError(f"the raw echo of message {index} differs from what was sent")

    def _ask(
        self,
        data: bytes,
        answer: memoryview,
        wait: Callable[[socket.socket], None] | None = None,
    ) -> None:
        assert self._socket is not None, "enter the floor first"
        try:
            self._socket.sendall(data)
            if wait is not None:
                wait(self._socket)
            if self._datagrams:
                if self._socket.recv_into(answer) == len(answer):
                    return
                reason = "the raw echo server answered too little"
            elif _fill(self._socket, answer):
                return
            else:
                reason = "the raw echo server closed the connection"
        except BlockingIOError:
            reason = f"the raw echo server did not answer in {READ_SECONDS:.0f} s"
        except OSError as error:
            reason = f"the connection to the raw echo server broke: {error}"
        raise BenchError(self._server.epitaph() or reason)
