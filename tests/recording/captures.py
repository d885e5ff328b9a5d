"""A relay on loopback that keeps what a client and a server send to each other."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

Chunks = list[tuple[bool, bytes]]  # whether the client sent it, and what


class Relay:
    """Carries the connections to one server; `connections` has the chunks of each."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self.connections: list[Chunks] = []
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self._threads: list[threading.Thread] = []
        self.port: int = self._sockets[0].getsockname()[1]
        self._start(self._accept)

    @property
    def chunks(self) -> Chunks:
        """What the only connection carried."""
        (chunks,) = self.connections
        return chunks

    def _start(self, work: object, *given: object) -> None:
        self._threads.append(threading.Thread(target=work, args=given, daemon=True))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._sockets[0].accept()
                server = socket.create_connection(self._to)
                self._sockets += [client, server]
                chunks: Chunks = []
                self.connections.append(chunks)
                self._start(self._carry, client, server, True, chunks)
                self._start(self._carry, server, client, False, chunks)

    @staticmethod
    def _carry(
        source: socket.socket, sink: socket.socket, from_client: bool, chunks: Chunks
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                chunks.append((from_client, data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)


@contextlib.contextmanager
def relay(port: int, host: str = "127.0.0.1") -> Iterator[Relay]:
    made = Relay(host, port)
    try:
        yield made
    finally:
        made.close()
