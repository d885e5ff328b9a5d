"""Raw socket exchanges, and a relay that counts bytes."""

from __future__ import annotations

import contextlib
import itertools
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlwire.bench.processes import ANSWER_SECONDS, BenchError, ServerProcess
from rlwire.transports.sockets import set_kernel_timeout

_WAITALL = getattr(socket, "MSG_WAITALL", 0)


class Sizes(NamedTuple):
    """Bytes on the wire, with framing."""

    request: int
    reply: int


def mean_size(messages: Sequence[bytes | memoryview]) -> int:
    return round(sum(map(len, messages)) / len(messages))


def _fill(peer: socket.socket, view: memoryview) -> bool:
    """Receive until `view` is full; return False at the end of the stream."""
    size = peer.recv_into(view, 0, _WAITALL)
    while 0 < size < len(view):  # a signal, a timeout, or a platform without MSG_WAITALL
        more = peer.recv_into(view[size:], 0, _WAITALL)
        if more == 0:
            return False
        size += more
    return size > 0


class RawMessages(NamedTuple):
    """Requests and replies of a raw exchange, each sent in turn."""

    requests: Sequence[bytes]
    replies: Sequence[bytes]


def raw_messages(sizes: Sizes, arrays: Iterable[NDArray[np.generic]] = ()) -> RawMessages:
    """Return messages of these sizes; the larger ones carry the bytes of `arrays`.

    A program that sends one buffer again and again reads it from the processor's cache, which a
    protocol that carries different observations cannot do.
    """
    size = max(sizes)
    turns = [np.resize(np.frombuffer(each.tobytes(), np.uint8), size).tobytes() for each in arrays]
    turns = turns or [bytes(size)]
    if sizes.reply == size:
        return RawMessages([bytes(sizes.request)], turns)
    return RawMessages(turns, [bytes(sizes.reply)])


def serve_raw(report: Callable[[tuple[str, int]], None], messages: RawMessages) -> None:
    request = memoryview(bytearray(len(messages.requests[0])))
    replies = itertools.cycle(messages.replies)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        report(listener.getsockname())
        while True:
            peer, _address = listener.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while _fill(peer, request):
                    peer.sendall(next(replies))


def serve_raw_datagrams(report: Callable[[tuple[str, int]], None], messages: RawMessages) -> None:
    replies = itertools.cycle(messages.replies)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        report(server.getsockname())
        while True:
            _request, peer = server.recvfrom(len(messages.requests[0]))
            server.sendto(next(replies), peer)


@contextlib.contextmanager
def raw_exchange(
    messages: RawMessages, cores: list[int] | None = None, *, datagrams: bool = False
) -> Iterator[Callable[..., None]]:
    """Start a raw server, connect, and yield a function that makes one blocking exchange.

    Each end sends its messages in turn, and receives into one buffer.
    """
    requests = itertools.cycle(messages.requests)
    reply = memoryview(bytearray(len(messages.replies[0])))
    serve = serve_raw_datagrams if datagrams else serve_raw
    with ServerProcess("raw echo", serve, messages, cores=cores) as server:
        if datagrams:
            peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            peer.connect(server.address)
        else:
            peer = socket.create_connection(server.address, timeout=ANSWER_SECONDS)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(None)  # Python's timeout costs a poll() per call
        set_kernel_timeout(peer, socket.SO_RCVTIMEO, ANSWER_SECONDS)

        def exchange(_number: int = 0) -> None:
            try:
                peer.sendall(next(requests))
                if not _fill(peer, reply):
                    raise BenchError("the raw echo server closed the connection")
            except (BenchError, OSError) as error:
                raise BenchError(server.exit_reason() or f"raw exchange failed: {error}") from error

        with peer:
            yield exchange


class Relay(socketserver.ThreadingTCPServer):
    """Forwards TCP between a client and a server, and counts the bytes each way."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.sent = self.answered = 0
        self.port: int = self.server_address[1]
        self._target = (host, port)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Forward a connection, in a thread of its own."""
        with contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            for each in (request, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(
                target=self._pump, args=(server, request, "answered"), daemon=True
            )
            back.start()
            self._pump(request, server, "sent")
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                setattr(self, name, getattr(self, name) + len(data))
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
