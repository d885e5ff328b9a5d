"""`tap`: forward the connections of a stream protocol, and yield their bytes as packets."""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from rlwire.errors import RlwireError
from rlwire.recording.messages import Packet, RecordedConnection
from rlwire.registry import parse_url
from rlwire.serving.stopping import stop_signals
from rlwire.transports.address import Address
from rlwire.transports.sockets import listen, local_address, peer_name, prepare, unlink

logger = logging.getLogger(__name__)

_CHUNK: Final = 2**16
_QUEUED: Final = 2**12  # 256 MiB


def tap(listening: str, server: str) -> Iterator[Packet]:
    """Connect each client of `listening` to `server` until SIGINT or SIGTERM.

    Bytes are forwarded at once, unchanged. If the caller is slow, packets are dropped, and the next
    one has their number: no client or server waits for it.
    """
    here, there = _routes(listening), _routes(server)
    if [label for label, _ in here] != [label for label, _ in there]:
        raise RlwireError(f"expected two URLs of one protocol, not {listening} and {server}")
    carrier = _Carrier()
    with contextlib.ExitStack() as stack, stop_signals() as stopping:
        for (label, where), (_, to) in zip(here, there, strict=True):
            sock = stack.enter_context(listen(where))
            stack.callback(unlink, sock)
            stack.callback(_shut, sock, socket.SHUT_RDWR)  # ends accept()
            logger.info("%s: listening on %s for %s", label, local_address(sock), to)
            _start(carrier.accept, sock, label, to)
        stack.callback(stopping.ask)
        _start(lambda: (stopping.wait(), carrier.packets.put(None)))
        while (packet := carrier.packets.get()) is not None:
            yield packet


def _routes(text: str) -> list[tuple[str, Address]]:
    """Return the protocols and addresses of a URL: Universe has pixels too."""
    try:
        url = parse_url(text)
    except ValueError as error:
        raise RlwireError(str(error)) from None
    if url.tls or url.shm or "unix" not in url.protocol.carriers:
        what = "UDP" if not (url.tls or url.shm) else "TLS" if url.tls else "shared memory"
        raise RlwireError(f"{text}: {what} cannot be tapped: pass record=FILE to one of the ends")
    routes = [("rfb" if url.only_pixels else url.scheme, url.address)]
    if url.pixels_address is not None and not url.only_pixels:
        routes.append(("rfb", url.pixels_address))
    return routes


def _start(run: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, daemon=True)
    thread.start()
    return thread


def _shut(sock: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)


class _Carrier:
    def __init__(self) -> None:
        self.packets: queue.Queue[Packet | None] = queue.Queue(_QUEUED)
        self._numbers = itertools.count(1)

    def accept(self, sock: socket.socket, label: str, to: Address) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, name = sock.accept()
                peer = peer_name(client, name)
                connection = RecordedConnection(next(self._numbers), label, "server", peer)
                _start(self._carry, client, connection, to)

    def _carry(self, client: socket.socket, connection: RecordedConnection, to: Address) -> None:
        ended = "closed"
        with client:
            try:
                server = socket.socket(socket.AF_UNIX) if to.path else None
                if server is None:
                    server = socket.create_connection((to.host, to.port))
                else:
                    server.connect(to.path)
            except OSError as error:
                ended = f"cannot connect to {to}: {error.strerror or error}"
            else:
                with server:
                    prepare(client)
                    prepare(server)
                    back = _start(self._pump, connection, server, client, False)
                    self._pump(connection, client, server, True)
                    back.join()
        self.packets.put(Packet(connection, True, time.time(), time.monotonic(), b"", 0, ended))

    def _pump(
        self, connection: RecordedConnection, source: socket.socket, to: socket.socket, up: bool
    ) -> None:
        gap = 0
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                packet = Packet(connection, up, time.time(), time.monotonic(), data, gap)
                to.sendall(data)
                try:
                    self.packets.put_nowait(packet)
                    gap = 0
                except queue.Full:
                    gap += 1
        _shut(to, socket.SHUT_WR)
