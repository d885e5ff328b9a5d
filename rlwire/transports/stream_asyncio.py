"""The stream below an asyncio connection, made of a connected socket as the loop allows.

It is a socket of our own (`rlwire.transports.socket_asyncio`), maybe with TLS
(`rlwire.transports.tls_asyncio`). A loop without readers (Windows' proactors) needs asyncio's
transports; a `TransportStream` makes one look like such a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from typing import cast

from rlwire.transports.interface import Buffer
from rlwire.transports.shm import ShmSocket
from rlwire.transports.shm_asyncio import ShmStream
from rlwire.transports.socket_asyncio import SocketStream, Stream, StreamOwner
from rlwire.transports.socket_calls import PlainCalls
from rlwire.transports.tls_asyncio import TLSPipe, TLSStream
from rlwire.transports.turn import try_turns

__all__ = ["TransportStream", "open_stream"]


class TransportStream(Stream, asyncio.Protocol):
    """A transport of asyncio's, which may encrypt; what it brings unasked is kept."""

    def __init__(self, owner: StreamOwner, sock: socket.socket, *, half_closes: bool) -> None:
        super().__init__(owner)
        self._sock = sock  # the transport's
        self._transport: asyncio.Transport
        self._came = bytearray()
        self._given = 0  # bytes that the transport was given, and `sendmsg` has not told of
        self._full = self._over = self._gone = self._told = False
        self._lost: Exception | None = None
        self.listening = True
        self.half_closes = half_closes
        self.calls = PlainCalls(owner.core, self, blocking=False)

    def recv_into(self, buffer: Buffer) -> int:
        """Give of what came, as a socket's."""
        if not self._came and not self._over:
            raise BlockingIOError
        if not self._came and self._gone:
            self._end_soon()
        data = self._came[: len(buffer)]
        memoryview(buffer)[: len(data)] = data
        del self._came[: len(data)]
        return len(data)

    def sendmsg(self, buffers: list[Buffer]) -> int:
        """Give the transport what it holds then, as a socket's."""
        if self._gone:
            raise ConnectionResetError(errno.ECONNRESET, "the transport is gone")
        if not self._given:
            # Some Pythons' transports forget flow control in `writelines`.
            self._transport.write(b"".join(buffers))
            self._given = sum(map(len, buffers))
        if self._full:
            raise BlockingIOError
        sent, self._given = self._given, 0
        return sent

    def listen(self, wanted: bool) -> None:
        """See `Stream.listen`."""
        if wanted != self.listening and not self._transport.is_closing():
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        self.listening = wanted
        if wanted and (self._came or self._over):
            asyncio.get_running_loop().call_soon(self._ring)

    def _ring(self) -> None:
        while self.listening and not self._told and (self._came or self._over):
            have = len(self._came)
            self._owner.on_readable()
            if not have or len(self._came) == have:
                break

    def await_writable(self, wanted: bool) -> None:
        """Do nothing: the transport says so by itself."""

    def shutdown(self) -> None:
        """See `Stream.shutdown`."""
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """See `Stream.close`."""
        self._transport.close()
        self._end_soon()

    def abort(self) -> None:
        """See `Stream.abort`."""
        self._transport.abort()
        self._end_soon()

    def disown(self) -> None:
        """See `Stream.disown`; the transport is left as it is."""
        self._sock.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        # No isinstance: uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        # Writing then ends only when the loop no longer holds what it was given. Not 0: asyncio's
        # TLS pauses from `high` bytes on, so it would pause for nothing.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._owner.on_stream(self)

    def data_received(self, data: bytes) -> None:  # noqa: D102
        self._came += data
        self._ring()

    def eof_received(self) -> bool:  # noqa: D102
        self._over = True
        self._ring()
        return self.half_closes

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102
        self._gone = self._over = True
        self._lost = error
        self._transport.close()  # TLS's of Python 3.10 warns if nobody has
        # What came before is still to be had.
        if error is not None or not self._came:
            self._end()

    def _end_soon(self) -> None:
        if self._gone:
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        if not self._told:
            self._told = True
            owner = self._owner
            del self._owner, self.calls  # as in `SocketStream`
            owner.on_lost(self._lost)

    def pause_writing(self) -> None:  # noqa: D102
        self._full = True

    def resume_writing(self) -> None:  # noqa: D102
        self._full = False
        self._owner.on_writable()


async def _share(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    owner: StreamOwner,
    server_side: bool,
    seconds: float | None,
) -> None:
    shared = ShmSocket(sock, server_side=server_side)
    try:
        await asyncio.wait_for(shared.handshake_on(loop), seconds)
        ShmStream(loop, shared, owner)
    except BaseException as error:
        shared.close()
        if isinstance(error, asyncio.TimeoutError):
            raise TimeoutError(f"no word on shared memory within connect={seconds} s") from None
        raise


async def open_stream(
    owner: StreamOwner,
    sock: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    shm: bool = False,
    handshake_timeout: float | None = None,
) -> None:
    """Make the stream of a connected, non-blocking socket, and give it to its owner.

    Args:
        owner: whom it feeds.
        sock: belongs to the stream from now on, unless an error is raised.
        tls: what to encrypt with; None for no encryption.
        server_hostname: the name to find in the server's certificate; None on a server.
        shm: whether the socket is only where the two meet who share memory.
        handshake_timeout: seconds for a handshake of TLS or shared memory, None for no limit.

    Raises:
        OSError: TLS failed, of which `ssl.SSLError` is one, or memory cannot be shared.
    """
    loop = asyncio.get_running_loop()
    await try_turns()
    with contextlib.suppress(NotImplementedError):
        if shm:
            await _share(loop, sock, owner, server_hostname is None, handshake_timeout)
            return
        if tls is None:
            SocketStream(loop, sock, owner)
            return
        loop.remove_reader(sock.fileno())  # before the handshake: is there such a thing?
        pipe = TLSPipe(tls, server_hostname)
        try:
            await asyncio.wait_for(pipe.shake_hands(loop, sock), handshake_timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no TLS handshake within connect={handshake_timeout} s") from None
        TLSStream(loop, sock, owner, pipe)
        return

    def make() -> TransportStream:
        return TransportStream(owner, sock, half_closes=tls is None)

    if tls is None or server_hostname is None:
        await loop.connect_accepted_socket(
            make, sock, ssl=tls, ssl_handshake_timeout=handshake_timeout if tls else None
        )
    elif sock.family == getattr(socket, "AF_UNIX", None):
        await loop.create_unix_connection(make, sock=sock, ssl=tls, server_hostname=server_hostname)
    else:
        await loop.create_connection(make, sock=sock, ssl=tls, server_hostname=server_hostname)
