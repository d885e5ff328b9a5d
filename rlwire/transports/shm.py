"""Unix sockets whose bytes go through shared memory instead, and how the two ends meet there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
from time import monotonic

from rlwire.transports.address import Address
from rlwire.transports.interface import Buffer
from rlwire.transports.shm_calls import AVAILABLE, WORDS, Rings, ask

SPIN = 50e-6
"""Seconds that a blocking connection asks before it sleeps, unless `Timeouts.spin` says else."""

_NOT_TRUSTED = {errno.EACCES, errno.EPERM, errno.EPROTO}


def check_available() -> None:
    """See that this system has shared memory of this kind."""
    if not AVAILABLE:
        raise OSError(
            errno.ENOTSUP, "connections over shared memory need Linux; use a unix socket (+unix)"
        )


def default_spin() -> float:
    """Return `SPIN`; 0.0 where this thread has one core only, which the other end may need."""
    return SPIN if AVAILABLE and len(os.sched_getaffinity(0)) > 1 else 0.0


def check_carrier(where: Address, tls: object) -> None:
    """See that nobody wants to encrypt what no network carries."""
    if where.shm and tls is not None:
        raise ValueError(f"{where}: shared memory has no TLS; what is in it is this user's alone")


def refused(error: BaseException | None) -> bool:
    """Return whether that is why a peer with which memory was to be shared was not trusted."""
    return isinstance(error, OSError) and error.errno in _NOT_TRUSTED


class ShmSocket(socket.socket):
    """A connected unix socket, and beside it two rings for its bytes.

    Attributes:
        rings: what has the bytes, after the handshake.
        spin: seconds that `recv_into` asks before it sleeps.
    """

    def __init__(self, sock: socket.socket, *, server_side: bool = False) -> None:
        check_available()
        super().__init__(fileno=sock.detach())
        self.rings = Rings()
        self.spin = 0.0
        self._server_side = server_side

    def handshake(self, seconds: float | None) -> None:
        """Meet the other end, and leave the socket in blocking mode."""
        until = None if seconds is None else monotonic() + seconds
        self.setblocking(False)
        if not self._server_side:
            ask(self.fileno())
        asked = b""
        while not self._met(asked):
            poll = select.poll()
            poll.register(self, select.POLLIN)
            left = None if until is None else max(until - monotonic(), 0.0)
            if not poll.poll(None if left is None else 1e3 * left):
                raise TimeoutError("timed out")
            asked += self._hear(len(asked))
        self.setblocking(True)

    async def handshake_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """`handshake`, which leaves the socket in non-blocking mode; whoever waits limits it."""
        self.setblocking(False)
        if not self._server_side:
            ask(self.fileno())
        asked = b""
        while not self._met(asked):
            readable = loop.create_future()
            loop.add_reader(self.fileno(), _wake, readable)
            try:
                await readable
            finally:
                loop.remove_reader(self.fileno())
            asked += self._hear(len(asked))

    def _hear(self, have: int) -> bytes:
        """Return more of what a client asks."""
        if not self._server_side:
            return b""
        data = self.recv(WORDS - have)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed before it was said what to share")
        return data

    def _met(self, asked: bytes) -> bool:
        if self._server_side and len(asked) < WORDS:
            return False
        try:
            if self._server_side:
                self.rings.answer(self.fileno(), asked)
            else:
                self.rings.meet(self.fileno())
        except BlockingIOError:
            return False
        return True

    def shutdown(self, how: int) -> None:
        """Send no more (SHUT_WR), receive no more (SHUT_RD), from any thread, or neither."""
        if how != socket.SHUT_RD:
            self.rings.end()
        if how != socket.SHUT_WR:
            self.rings.stop()

    def recv_into(  # type: ignore[override]
        self, buffer: memoryview | bytearray, nbytes: int = 0, flags: int = 0
    ) -> int:
        """Receive from the ring, as a socket would; of the flags, these two are known."""
        return self.rings.recv_into(
            memoryview(buffer)[: nbytes or None],
            whole=bool(flags & socket.MSG_WAITALL),
            wait=not flags & socket.MSG_DONTWAIT,
            spin=self.spin,
        )

    def sendall(self, data: Buffer, flags: int = 0) -> None:  # type: ignore[override]
        """Send all of it through the ring, as a socket would; no flag is known."""
        view = memoryview(data).cast("B")
        while view.nbytes:
            view = view[self.rings.send_from(view) :]

    def close(self) -> None:
        """Tell the other end that nothing more comes or is read, and give all back."""
        self.rings.close()
        super().close()

    def close_inherited(self) -> None:
        """In a child process: give all back without a word, as it is the parent's."""
        self.rings.forget()
        super().close()


def _wake(future: asyncio.Future[None]) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        future.set_result(None)
