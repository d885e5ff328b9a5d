"""The streams below asyncio connections: a plain socket, TLS, or rings in shared memory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rlwire.errors import on_error
from rlwire.sessions.layer import Buffer
from rlwire.streams import StreamCore
from rlwire.transports.shm import ShmSocket
from rlwire.transports.socket_calls import PlainCalls, SocketCalls
from rlwire.transports.tls import RECORD, first_record

_T = TypeVar("_T")
_CHUNK = 4 * RECORD  # bytes that one call encrypts or receives


class SocketStream:
    """A non-blocking socket, and the loop's callbacks for it.

    It calls its owner's `on_stream`, `on_readable` if `reading`, `on_writable` and `on_lost`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: Any) -> None:
        self._owner = owner
        self._loop = loop
        self._sock = sock
        # Not the socket: asyncio would format it, in two system calls, for an exception that it
        # suppresses, whenever the socket has no reader or writer yet. Valid until `abort`.
        self._file = sock.fileno()
        self.reading = self._has_writer = self._aborted = False
        self.calls = self._make_calls(owner.core)
        owner.on_stream(self)

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return SocketCalls(core, self._file, blocking=False)

    def fileno(self) -> int:
        return self._file

    def set_reading(self, wanted: bool) -> None:
        if wanted == self.reading or self._aborted:
            return
        self.reading = wanted
        if wanted:
            self._loop.add_reader(self._file, self._owner.on_readable)
        else:
            self._loop.remove_reader(self._file)

    def await_writable(self, wanted: bool) -> None:
        if wanted != self._has_writer and not self._aborted:
            self._call_when_writable(self._owner.on_writable if wanted else None)

    def shutdown(self) -> None:
        """Send the end of the stream; the peer's bytes can still be read."""
        with contextlib.suppress(OSError):  # the peer has already closed
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close after everything has been written."""
        self.abort()

    def abort(self) -> None:
        if self._aborted:
            return
        self.set_reading(False)
        self._aborted = True
        self._call_when_writable(None)
        self.calls.forget()
        self._sock.close()
        # Later, because the caller may still be using the owner.
        self._loop.call_soon(self._end)

    def close_inherited(self) -> None:
        """Close this process's descriptor only, without notifying the loop or the owner."""
        if not self._aborted:
            self.calls.forget()
        self._aborted = True
        self._sock.close()

    def _call_when_writable(self, call: Callable[[], None] | None) -> None:
        if call is not None:
            self._loop.add_writer(self._file, call)
        elif self._has_writer:
            self._loop.remove_writer(self._file)
        self._has_writer = call is not None

    def _end(self) -> None:
        owner = self._owner
        del self._owner, self.calls  # they refer to the stream
        owner.on_lost(None)


class ShmStream(SocketStream):
    """Two rings in shared memory, and a socket that wakes the loop up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: ShmSocket, owner: Any) -> None:
        self._rings = sock.rings
        self._watched = self._scheduled = False
        super().__init__(loop, sock, owner)

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return SocketCalls(core, self._file, blocking=False, rings=self._rings)

    def set_reading(self, wanted: bool) -> None:
        if wanted != self.reading and not self._aborted:
            self.reading = wanted
            self._watch()

    def shutdown(self) -> None:
        self._rings.end()

    def close_inherited(self) -> None:
        self._rings.forget()
        super().close_inherited()

    def _call_when_writable(self, call: Callable[[], None] | None) -> None:
        self._has_writer = call is not None
        self._watch()

    def _watch(self) -> None:
        """Add the socket to the loop while the owner waits to read or write."""
        wanted = self.reading or self._has_writer
        if wanted != self._watched:
            self._watched = wanted
            if wanted:
                self._loop.add_reader(self._file, self._on_ready)
            else:
                self._loop.remove_reader(self._file)
        if wanted:
            self._poll()

    def _poll(self) -> None:
        """Ask the peer for wake-ups; for bytes that have already arrived, there is none."""
        readable, writable = self._rings.poll_in(), self._has_writer and self._rings.poll_out()
        if ((readable and self.reading) or writable) and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._on_ready)

    def _on_ready(self) -> None:
        """Let the owner read and write what is possible."""
        self._scheduled = False
        if self._has_writer:
            self._owner.on_writable()
        if self.reading:
            self._owner.on_readable()
        if self._watched:
            self._poll()


class TLSStream(SocketStream):
    """A TLS socket after its handshake."""

    _sock: ssl.SSLSocket

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: ssl.SSLSocket, owner: Any) -> None:
        self._retry: Buffer = b""  # what OpenSSL could not write, and expects again
        self._scheduled = self._shut = False
        super().__init__(loop, sock, owner)

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return PlainCalls(core, self, blocking=False)

    def set_reading(self, wanted: bool) -> None:
        super().set_reading(wanted)
        self._schedule_read()

    def sendmsg(self, buffers: list[Buffer]) -> int:
        data = self._retry
        data = memoryview(data or first_record(buffers))[:_CHUNK]
        try:
            sent = self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._retry = data
            raise BlockingIOError from None
        self._retry = b""
        return sent

    def recv_into(self, buffer: Buffer) -> int:
        if self._shut:
            return socket.socket.recv_into(self._sock, buffer)
        try:
            got = self._sock.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        self._schedule_read()
        return got

    def shutdown(self) -> None:
        """Send close_notify and the end of the stream; `recv_into` then reads below TLS."""
        self._shut = True
        with contextlib.suppress(OSError, ValueError):  # such as SSLWantReadError: it is sent
            self._sock.unwrap()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_WR)

    def close(self) -> None:
        if not (self._shut or self._aborted):
            self.shutdown()
        self.abort()

    def _schedule_read(self) -> None:
        """Schedule `on_readable` for bytes that are already decrypted."""
        if self.reading and not self._scheduled and self._sock.pending():
            self._scheduled = True
            self._loop.call_soon(self._on_scheduled)

    def _on_scheduled(self) -> None:
        self._scheduled = False
        if self.reading:
            self._owner.on_readable()


async def _wait(add: Callable[..., Any], remove: Callable[..., Any], file: int) -> None:
    """Wait until a file is readable or writable, by the loop's `add` and `remove`."""
    future = asyncio.get_running_loop().create_future()
    add(file, _resolve, future)
    try:
        await future
    finally:
        remove(file)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _shm_handshake(loop: asyncio.AbstractEventLoop, sock: ShmSocket) -> None:
    for _ in sock.handshake_steps():
        await _wait(loop.add_reader, loop.remove_reader, sock.fileno())


async def _tls_handshake(loop: asyncio.AbstractEventLoop, sock: ssl.SSLSocket) -> None:
    while True:
        try:
            sock.do_handshake()
            return
        except ssl.SSLWantReadError:
            ways = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            ways = loop.add_writer, loop.remove_writer
        except ssl.SSLEOFError as error:
            reason = "closed by the peer during the TLS handshake"
            raise ConnectionResetError(errno.ECONNRESET, reason) from error
        await _wait(*ways, sock.fileno())


async def within(seconds: float | None, work: Awaitable[_T], late: str = "timed out") -> _T:
    """Await up to `seconds`, or raise a TimeoutError that says what is `late`."""
    # Before Python 3.12, asyncio.wait_for ignores a cancellation that comes with the result.
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if task.cancel():
            await asyncio.wait({task})
    if task.cancelled():
        raise TimeoutError(late)
    return task.result()


async def open_stream(
    owner: Any,
    sock: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    shm: bool = False,
    handshake_timeout: float | None = None,
) -> None:
    """Open the stream of a connected, non-blocking socket, which is closed on errors."""
    loop = asyncio.get_running_loop()
    try:
        loop.remove_reader(sock.fileno())
    except NotImplementedError:
        raise NotImplementedError(
            f"{type(loop).__name__} has no add_reader, which rlwire's connections need; "
            "use a selector event loop or uvloop, on a POSIX system"
        ) from None
    if tls is None and not shm:
        SocketStream(loop, sock, owner)
        return
    made: Any
    stream: type[SocketStream]
    if shm:
        made = ShmSocket(sock, server_side=server_hostname is None)
        stream, what, handshake = ShmStream, "shared memory", _shm_handshake(loop, made)
    else:
        assert tls is not None
        made = tls.wrap_socket(
            sock,
            server_side=server_hostname is None,
            do_handshake_on_connect=False,
            server_hostname=server_hostname or None,
        )
        stream, what, handshake = TLSStream, "TLS", _tls_handshake(loop, made)
    with on_error(made.close), on_error(owner.core.abort):
        late = f"no {what} handshake within connect={handshake_timeout} s"
        await within(handshake_timeout, handshake, late)
        stream(loop, made, owner)
