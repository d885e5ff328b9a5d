"""Unix sockets that transfer their bytes through shared memory."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterator
from time import monotonic

from rlwire.sessions.layer import Buffer
from rlwire.transports.address import Address
from rlwire.transports.shm_calls import AVAILABLE, WORDS, Rings, ask

SPIN = 50e-6
"""Seconds of busy-waiting of blocking connections, unless `Timeouts.spin` is given."""

_NOT_TRUSTED = {errno.EACCES, errno.EPERM, errno.EPROTO}


def check_available() -> None:
    """Raise OSError if this system does not support connections over shared memory."""
    if not AVAILABLE:
        raise OSError(
            errno.ENOTSUP, "connections over shared memory need Linux; use a unix socket (+unix)"
        )


def default_spin() -> float:
    """Return `SPIN`; 0.0 if this thread may use one core only."""
    return SPIN if AVAILABLE and len(os.sched_getaffinity(0)) > 1 else 0.0


def check_carrier(where: Address, tls: object) -> None:
    """Raise ValueError for TLS over shared memory."""
    if where.shm and tls is not None:
        raise ValueError(f"{where}: no TLS over shared memory, which only this user can read")


def refused(error: BaseException | None) -> bool:
    """Return whether the shared-memory handshake rejected the peer."""
    return isinstance(error, OSError) and error.errno in _NOT_TRUSTED


class ShmSocket(socket.socket):
    """A connected unix socket with two `rings`; `spin` seconds of busy-waiting in `recv_into`."""

    def __init__(self, sock: socket.socket, *, server_side: bool = False) -> None:
        check_available()
        super().__init__(fileno=sock.detach())
        self.rings = Rings()
        self.spin = 0.0
        self._server_side = server_side

    def handshake(self, seconds: float | None) -> None:
        """Exchange the rings with the peer within `seconds`; then the socket is blocking."""
        until = None if seconds is None else monotonic() + seconds
        for _ in self.handshake_steps():
            poll = select.poll()
            poll.register(self, select.POLLIN)
            left = None if until is None else max(until - monotonic(), 0.0)
            if not poll.poll(None if left is None else 1e3 * left):
                raise TimeoutError("timed out")
        self.setblocking(True)

    def handshake_steps(self) -> Iterator[None]:
        """Run the handshake in non-blocking mode; yield whenever the socket must be readable."""
        self.setblocking(False)
        asked = b""
        while self._server_side and len(asked) < WORDS:
            yield
            data = self.recv(WORDS - len(asked))
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed during the handshake")
            asked += data
        if not self._server_side:
            ask(self.fileno())
        while True:
            try:
                if self._server_side:
                    self.rings.answer(self.fileno(), asked)
                else:
                    self.rings.meet(self.fileno())
                return
            except BlockingIOError:
                yield

    def shutdown(self, how: int) -> None:
        """Stop sending (SHUT_WR), receiving (SHUT_RD, from any thread), or both."""
        if how != socket.SHUT_RD:
            self.rings.end()
        if how != socket.SHUT_WR:
            self.rings.stop()

    def recv_into(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]
        return self.rings.recv_into(buffer, self.spin)

    def sendall(self, data: Buffer, flags: int = 0) -> None:  # type: ignore[override]
        view = memoryview(data).cast("B")
        while view.nbytes:
            view = view[self.rings.send_from(view) :]

    def close(self) -> None:
        self.rings.close()
        super().close()

    def close_inherited(self) -> None:
        self.rings.forget()
        super().close()
