"""`tap`: forward the connections of a stream protocol, and yield their bytes as packets."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import queue
import signal
import socket
from collections.abc import Iterator
from threading import Semaphore, Thread
from time import monotonic, sleep, time
from typing import Final

from rlwire.errors import RlwireError, without_secret
from rlwire.recording.messages import Packet, RecordedConnection
from rlwire.serving.stopping import keep_signals
from rlwire.serving.threads import run_in_thread
from rlwire.transports.address import Address
from rlwire.transports.sockets import (
    connected_socket,
    listen,
    local_address,
    peer_name,
    prepare,
    unlink,
)
from rlwire.urls import parse_url

logger = logging.getLogger(__name__)

_CHUNK: Final = 2**16
_QUEUED: Final = 2**12  # packets: 256 MiB
_CONNECTIONS: Final = 256  # at a time
_CONNECT_TIMEOUT: Final = 30.0  # seconds to connect
_PAUSE: Final = 0.5  # seconds after a failed accept(), such as without descriptors


def tap(listening: str, server: str) -> Iterator[Packet]:
    """Connect each client of `listening` to `server` until SIGINT or SIGTERM.

    Threads forward the bytes unchanged. If the caller is slow, packets are dropped, and the next
    one has their number: no client or server waits for it.
    """
    here, there = _routes(listening), _routes(server)
    if [label for label, _ in here] != [label for label, _ in there]:
        both = f"{without_secret(listening)} and {without_secret(server)}"
        raise RlwireError(f"expected two URLs of one protocol, not {both}")
    carrier = Carrier()
    with contextlib.ExitStack() as stack:
        stack.enter_context(keep_signals())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: carrier.packets.put(None))
        for (label, where), (_, to) in zip(here, there, strict=True):
            sock = stack.enter_context(listen(where))
            stack.callback(unlink, sock)
            stack.callback(shut, sock)  # ends accept()
            logger.info("%s: listening on %s for %s", label, local_address(sock), to)
            run_in_thread(f"tap {label}", carrier.accept, sock, label, to)
        while (packet := carrier.packets.get()) is not None:
            yield packet


def _routes(text: str) -> list[tuple[str, Address]]:
    """Return the protocol and address of a URL; of Universe, those of the pixels too."""
    try:
        url = parse_url(text)
    except ValueError as error:
        raise RlwireError(f"expected a file or two URLs: {error}") from None
    carriers = {"TLS": url.tls, "shared memory": url.shm, "UDP": not url.protocol.carriers}
    for what in (name for name, used in carriers.items() if used):
        raise RlwireError(f"{text}: {what} cannot be tapped: pass record=FILE to one of the ends")
    if url.only_pixels or url.pixels_address is None:
        return [("rfb" if url.only_pixels else url.scheme, url.address)]
    return [(url.scheme, url.address), ("rfb", url.pixels_address)]


def shut(sock: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)


class Carrier:
    """Forwards connections, each in two threads, and queues their packets before it sends them."""

    def __init__(self) -> None:
        # One that a signal's handler may put into.
        self.packets: queue.SimpleQueue[Packet | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._free = Semaphore(_CONNECTIONS)

    def accept(self, sock: socket.socket, label: str, to: Address) -> None:
        while True:
            try:
                client, name = sock.accept()
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):  # the tap has ended
                    return
                logger.warning("%s: cannot accept a connection: %s", label, error)
                sleep(_PAUSE)
                continue
            peer = peer_name(client, name)
            if not self._free.acquire(blocking=False):
                client.close()
                logger.warning("%s: rejected, because %d connections are tapped already",
                               peer, _CONNECTIONS)  # fmt: skip
                continue
            connection = RecordedConnection(next(self._numbers), label, "server", peer)
            run_in_thread(f"tap {peer}", self.carry, connection, client, to)

    def carry(self, connection: RecordedConnection, client: socket.socket, to: Address) -> None:
        gaps = {True: 0, False: 0}  # packets dropped since the last one, by direction

        def pump(up: bool, source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(_CHUNK):
                    packet = Packet(
                        connection, up, time(), monotonic(), data, gaps[up], paid=len(data)
                    )
                    if self.packets.qsize() < _QUEUED:
                        self.packets.put(packet)  # before its reply
                        gaps[up] = 0
                    else:
                        gaps[up] += 1
                    sink.sendall(data)
            shut(sink, socket.SHUT_WR)

        ended = "closed"
        with client:
            try:
                with connected_socket(to, _CONNECT_TIMEOUT) as server:
                    server.settimeout(None)
                    prepare(client)
                    prepare(server)
                    back = Thread(target=pump, args=(False, server, client), daemon=True)
                    back.start()
                    pump(True, client, server)
                    back.join()
            except OSError as error:
                ended = f"cannot connect to {to}: {error.strerror or error}"
            dropped = sum(gaps.values())
            self.packets.put(Packet(connection, True, time(), monotonic(), b"", dropped, ended))
        self._free.release()
