"""Raw socket exchanges, and a relay that counts bytes."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlwire.bench.processes import ANSWER_SECONDS, BenchError, ServerProcess
from rlwire.recording.tapping import Carrier, shut
from rlwire.serving.threads import run_in_thread
from rlwire.transports.sockets import listen, local_address, set_kernel_timeout
from rlwire.urls import parse_url


class Sizes(NamedTuple):
    """Bytes on the wire, with framing."""

    request: int
    reply: int


def mean_size(messages: Sequence[bytes | memoryview]) -> int:
    return round(sum(map(len, messages)) / len(messages))


def _fill(peer: socket.socket, view: memoryview) -> bool:
    """Receive until `view` is full; return False at the end of the stream."""
    size = peer.recv_into(view, 0, socket.MSG_WAITALL)
    while 0 < size < len(view):  # a signal, or a timeout
        more = peer.recv_into(view[size:], 0, socket.MSG_WAITALL)
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
            peer.sendall(next(requests))
            if not _fill(peer, reply):
                raise BenchError("the raw echo server closed the connection")

        with peer:
            yield exchange


class Relay:
    """Forwards TCP between a client and a server, and counts the bytes each way."""

    def __init__(self) -> None:
        self._carrier = Carrier()
        self._listening = listen("127.0.0.1:0")

    def to(self, url: str) -> str:
        """Begin to forward to the server of `url`; return the URL that its client connects to."""
        there, here = parse_url(url), local_address(self._listening)
        accept = self._carrier.accept
        run_in_thread("rlwire relay", accept, self._listening, "relay", there.address)
        return str(there.replace(host=here.host, port=here.port))

    def counted(self) -> Sizes:
        """Return the bytes since the last call."""
        found = {True: 0, False: 0}
        while not self._carrier.packets.empty():
            if (packet := self._carrier.packets.get()) is not None:
                found[packet.from_client] += len(packet.data)
        return Sizes(found[True], found[False])

    def close(self) -> None:
        shut(self._listening)
        self._listening.close()
