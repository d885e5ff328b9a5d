"""The bytes below an asyncio connection: a socket of our own, or one of asyncio's transports.

A `SocketStream` asks the loop only when its socket can be read or written, and calls the socket
itself: asyncio's transports put five Python calls between the loop and what they feed. A
`TLSStream` is one that encrypts, without the 256 KiB that asyncio's TLS takes for each connection,
even for handshakes that never end. A loop without readers (Windows' proactors) needs asyncio's
transports all the same; a `TransportStream` makes one look like such a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from rlwire.transports.interface import Buffer
from rlwire.transports.turn import try_turns

__all__ = [
    "SocketStream",
    "Stream",
    "StreamOwner",
    "TLSStream",
    "TransportStream",
    "behind",
    "open_stream",
]

_RECORD = 16384  # bytes, the longest record of TLS
_AT_ONCE = 4 * _RECORD  # bytes that are encrypted or received before the other is done
_GOODBYE = 1.0  # seconds for the peer to say goodbye too
_IOV_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16


class StreamOwner(Protocol):
    """What a stream tells, and to whom."""

    def on_stream(self, stream: Stream) -> None:
        """Take the stream, which has just begun."""

    def on_readable(self) -> None:
        """What is called unless the owner sets the stream's `readable`."""

    def on_writable(self) -> None:
        """Go on: what `write` left may go now."""

    def on_eof(self) -> bool:
        """Take note that the peer sends no more; returns whether to go on writing."""

    def on_lost(self, error: Exception | None) -> None:
        """Take note that the stream is gone; None if it was closed on this side or by the peer."""

    def room(self) -> bytearray | memoryview:
        """Return where the next bytes belong: what `recv_into` will be called with."""


class Stream(Protocol):
    """What a connection asks of the bytes below it.

    Attributes:
        readable: what is called, from the next `listen` on, when `recv_into` has something: bytes,
            or the end, or nothing after all.
        recv_into: receives into a buffer; 0 when nothing more comes, and OSError, `BlockingIOError`
            among them, as a socket's.
        send: a non-blocking socket's; None if only `write` is to be used.
        closing: whether `close` or `abort` was called, or the stream is gone.
        half_closes: whether the peer may still be written to when it sends no more.
    """

    readable: Callable[[], None]
    half_closes: bool

    @property
    def recv_into(self) -> Callable[[bytearray | memoryview], int]:
        """Return what receives."""

    @property
    def send(self) -> Callable[[Buffer], int] | None:
        """Return what sends, if there is such."""

    @property
    def closing(self) -> bool:
        """Whether it is closed, or will be."""

    def listen(self, wanted: bool) -> None:
        """Have `readable` called when there is something, or no longer."""

    def end_of_input(self) -> None:
        """Take note that `recv_into` returned 0."""

    def fail(self, error: OSError) -> None:
        """Take note that a call raised `error`: the stream is gone."""

    def write(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Write what the system takes at once and return the rest; `rewrite` goes on.

        Raises:
            OSError: the connection is gone.
        """

    def rewrite(self, rest: list[Buffer]) -> list[Buffer]:
        """Go on with what `write` or `rewrite` returned, after `on_writable`."""

    def await_writable(self, wanted: bool) -> None:
        """Have `on_writable` called when more can be written, or no longer."""

    def write_last(self, data: bytes) -> None:
        """Write last words; `close` and `write_eof` wait for them. Nothing follows but these."""

    def write_eof(self) -> bool:
        """Tell the peer that nothing more comes; returns False if that is not possible."""

    def close(self) -> None:
        """Close after what `write_last` was given; `on_lost` follows, later."""

    def abort(self) -> None:
        """Close at once; `on_lost` follows, later."""

    def disown(self) -> None:
        """Close the socket's number of this process only, and tell neither the loop nor the owner.

        The loop, down to what it polls with, is the parent process's too.
        """


class SocketStream:
    """A non-blocking socket and the loop's readers and writers.

    Raises:
        NotImplementedError: the loop has none.
    """

    half_closes = True

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: StreamOwner
    ) -> None:
        self._loop = loop
        self._sock = sock
        # Given the socket, asyncio makes a text of it, in two system calls, for an exception that
        # nobody sees, whenever it has no reader or writer of it yet. The number is ours until
        # `_stop`; then it may be another's.
        self._file = sock.fileno()
        self._owner = owner
        self.readable = owner.on_readable
        self.recv_into: Callable[[bytearray | memoryview], int]
        self.send: Callable[[Buffer], int] | None
        self.recv_into, self.send = self._calls()
        self._send = sock.send
        # Windows has no sendmsg.
        self._sendmsg = getattr(sock, "sendmsg", None)
        self._last = b""  # words that are still to be sent
        self._listening = self._eof = self._closing = self._gone = False
        self._eof_due = self._has_writer = False
        self.listen(True)
        owner.on_stream(self)

    def _calls(
        self,
    ) -> tuple[Callable[[bytearray | memoryview], int], Callable[[Buffer], int] | None]:
        return self._sock.recv_into, self._sock.send

    @property
    def closing(self) -> bool:
        """Whether it is closed, or will be."""
        return self._closing

    def listen(self, wanted: bool) -> None:
        """See `Stream.listen`."""
        if wanted == self._listening or self._eof or self._closing:
            return
        self._listening = wanted
        if wanted:
            self._loop.add_reader(self._file, self.readable)
        else:
            self._loop.remove_reader(self._file)

    def end_of_input(self) -> None:
        """See `Stream.end_of_input`."""
        self.listen(False)
        self._eof = True
        if not self._owner.on_eof():
            self.close()

    def fail(self, error: OSError) -> None:
        """See `Stream.fail`."""
        self._stop(error)

    def write(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """See `Stream.write`."""
        try:
            if len(buffers) == 1 or self._sendmsg is None:
                sent = self._send(buffers[0])
                if sent == len(buffers[0]) and len(buffers) == 1:
                    return []
            else:
                sent = self._sendmsg(buffers[:_IOV_MAX])
        except BlockingIOError:
            return list(buffers)
        return behind(buffers, sent)

    rewrite = write

    def await_writable(self, wanted: bool) -> None:
        """See `Stream.await_writable`."""
        if not self._gone:
            self._call_when_writable(self._owner.on_writable if wanted else None)

    def write_last(self, data: bytes) -> None:
        """See `Stream.write_last`."""
        if self._closing:
            return
        self._last += data
        self._go_on()

    def write_eof(self) -> bool:
        """See `Stream.write_eof`."""
        if self._gone:  # last words found nobody
            return False
        self._eof_due = True
        if not self._last:
            self._go_on()
        return True

    def close(self) -> None:
        """See `Stream.close`."""
        if self._closing:
            return
        self.listen(False)
        self._closing = True
        if not self._last:
            self._stop(None)

    def abort(self) -> None:
        """See `Stream.abort`."""
        self._stop(None)

    def disown(self) -> None:
        """See `Stream.disown`."""
        self._closing = self._gone = True
        self._last = b""
        self._sock.close()

    def _go_on(self) -> None:
        """Send more of the last words; then do what waits for them."""
        try:
            if self._last:
                self._last = self._last[self._send(self._last) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._stop(error)
            return
        if self._last:
            self._call_when_writable(self._go_on)
            return
        self._call_when_writable(None)
        if self._eof_due:
            self._eof_due = False
            with contextlib.suppress(OSError):  # the peer was faster
                self._sock.shutdown(socket.SHUT_WR)
        if self._closing:
            self._finish()

    def _finish(self) -> None:
        """End what was closed, now that the last words are gone."""
        self._stop(None)

    def _call_when_writable(self, call: Callable[[], None] | None) -> None:
        if call is not None:
            self._loop.add_writer(self._file, call)
        elif self._has_writer:
            self._loop.remove_writer(self._file)
        self._has_writer = call is not None

    def _stop(self, error: OSError | None) -> None:
        if self._gone:
            return
        self.listen(False)
        self._closing = self._gone = True
        self._last = b""
        self._call_when_writable(None)
        self._sock.close()
        # Not now: whoever called is in the middle of something.
        self._loop.call_soon(self._end, error)

    def _end(self, error: OSError | None) -> None:
        owner = self._owner
        # Stream and owner point at each other; only so are they freed as soon as nobody needs them.
        del self._owner, self.readable, self.recv_into
        owner.on_lost(error)


class TLSPipe:
    """TLS between two buffers, for a socket that others read and write."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming,
            self.outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname or None,
        )

    async def shake_hands(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        """Run TLS's handshake.

        Raises:
            OSError: it failed; `ssl.SSLError` is one.
        """
        while True:
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the peer is told why
                    await loop.sock_sendall(sock, self.outgoing.read())
                raise
            if self.outgoing.pending:
                await loop.sock_sendall(sock, self.outgoing.read())
            if done:
                return
            data = await loop.sock_recv(sock, _RECORD)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed inside TLS's handshake")
            self.incoming.write(data)


class TLSStream(SocketStream):
    """A socket that encrypts; its handshake is over."""

    half_closes = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        owner: StreamOwner,
        pipe: TLSPipe,
    ) -> None:
        self._tls, self._incoming, self._outgoing = pipe.tls, pipe.incoming, pipe.outgoing
        self._ciphered = b""  # what is to be sent, before any last words
        self._ringing = self._over = self._draining = False
        self._patience: asyncio.TimerHandle | None = None
        super().__init__(loop, sock, owner)

    def listen(self, wanted: bool) -> None:
        """See `Stream.listen`."""
        super().listen(wanted)
        self._ring_again()

    def end_of_input(self) -> None:
        """See `Stream.end_of_input`; who has said goodbye takes no more either."""
        self.listen(False)
        self._eof = True
        self._owner.on_eof()
        self.close()

    def fail(self, error: OSError) -> None:
        """See `Stream.fail`; the peer is told if it was TLS that failed."""
        with contextlib.suppress(OSError):
            self._send_ciphered()
        self._stop(error)

    def write(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """See `Stream.write`; while all is encrypted, but not sent, an empty buffer is left."""
        # Small parts share a record; TLS copies what it encrypts in any case.
        rest: list[Buffer]
        rest = list(buffers) if sum(map(len, buffers)) > _RECORD else [b"".join(buffers)]
        while self._send_ciphered():
            rest = behind(rest, 0)
            if not rest:
                return []
            rest = behind(rest, self._tls.write(memoryview(rest[0])[:_AT_ONCE]))
        empty: list[Buffer] = [b""]
        return rest or empty

    rewrite = write

    def write_last(self, data: bytes) -> None:
        """See `Stream.write_last`."""
        if self._closing:
            return
        while data:
            data = data[self._tls.write(data) :]
        ciphered, self._ciphered = self._ciphered + self._outgoing.read(), b""
        super().write_last(ciphered)

    def write_eof(self) -> bool:
        """Do nothing: in TLS there is only a goodbye."""
        return False

    def close(self) -> None:
        """See `Stream.close`: with TLS's goodbye, and a moment for the peer's.

        Closing over bytes that were not read would reset the connection, last words and all.
        """
        if self._closing:
            return
        with contextlib.suppress(ssl.SSLError):  # it would read the peer's goodbye too
            self._tls.unwrap()
        self.write_last(b"")
        if self._gone:
            return
        self.listen(False)
        self._closing = True
        self._eof_due = not self._eof
        self._patience = self._loop.call_later(_GOODBYE, self.abort)
        if not self._last:
            self._go_on()

    def _calls(self) -> tuple[Callable[[bytearray | memoryview], int], None]:
        return self._decrypt_into, None

    def _decrypt_into(self, buffer: bytearray | memoryview) -> int:
        tls, space, have = self._tls, memoryview(buffer), 0
        got: Any  # the number of bytes, whatever type checkers are told
        while have < len(space):
            try:
                got = tls.read(len(space) - have, space[have:])
            except ssl.SSLWantReadError:
                if self._outgoing.pending:  # such as an answer to new keys
                    self._send_ciphered()
                if have:
                    break
                data = self._sock.recv(_AT_ONCE)
                if not data:
                    return 0  # without a goodbye, as many leave
                self._incoming.write(data)
                continue
            except ssl.SSLZeroReturnError:
                got = 0
            if not got:
                self._over = True
                break
            have += got
        self._ring_again()
        return have

    def _ring_again(self) -> None:
        """Have `readable` called although the socket may have nothing: TLS has."""
        if self._ringing or not self._listening:
            return
        if self._over or self._incoming.pending or self._tls.pending():
            self._ringing = True
            self._loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._ringing = False
        if self._listening:
            self.readable()

    def _send_ciphered(self) -> bool:
        """Send what is encrypted; returns whether that was all."""
        if self._outgoing.pending:
            self._ciphered += self._outgoing.read()
        if self._ciphered:
            try:
                self._ciphered = self._ciphered[self._send(self._ciphered) :]
            except BlockingIOError:
                return False
        return not self._ciphered

    def _finish(self) -> None:
        if self._eof:
            self._stop(None)
        elif not self._draining:
            self._draining = True
            self._loop.add_reader(self._file, self._drain)

    def _drain(self) -> None:
        """Read what nobody looks at any more, until the peer hangs up."""
        try:
            if self._sock.recv(_AT_ONCE):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass
        self._stop(None)

    def _stop(self, error: OSError | None) -> None:
        if self._draining and not self._gone:
            self._loop.remove_reader(self._file)
        if self._patience is not None:
            self._patience.cancel()
        super()._stop(error)


class TransportStream(asyncio.BufferedProtocol):
    """A transport of asyncio's, which receives into the owner's buffers and may encrypt."""

    send: None = None

    def __init__(self, owner: StreamOwner, sock: socket.socket, *, half_closes: bool) -> None:
        self._owner = owner
        self._sock = sock  # the transport's
        self.readable = owner.on_readable
        self._transport: asyncio.Transport
        self._count = 0
        self._full = False
        self._listening = True
        self.half_closes = half_closes

    @property
    def closing(self) -> bool:
        """Whether it is closed, or will be."""
        return self._transport.is_closing()

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Return how many bytes the loop has put into the owner's `room`."""
        count, self._count = self._count, 0
        if not count:
            raise BlockingIOError
        return count

    def listen(self, wanted: bool) -> None:
        """See `Stream.listen`."""
        if wanted == self._listening or self._transport.is_closing():
            return
        self._listening = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def end_of_input(self) -> None:
        """Do nothing: the transport says so by itself."""

    def fail(self, error: OSError) -> None:
        """Close at once."""
        self._transport.abort()

    def write(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Give all to the transport; what is returned is only waited for."""
        if self.half_closes:
            # Some Pythons' socket transports forget flow control in `writelines`; proactors' join.
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)
        return self.rewrite(list(buffers))

    def rewrite(self, rest: list[Buffer]) -> list[Buffer]:
        """Return `rest` while the transport holds some of it."""
        return rest if self._full else []

    def await_writable(self, wanted: bool) -> None:
        """Do nothing: the transport says so by itself."""

    def write_last(self, data: bytes) -> None:
        """See `Stream.write_last`."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def write_eof(self) -> bool:
        """See `Stream.write_eof`."""
        if not self._transport.can_write_eof():
            return False
        self._transport.write_eof()
        return True

    def close(self) -> None:
        """See `Stream.close`."""
        self._transport.close()

    def abort(self) -> None:
        """See `Stream.abort`."""
        self._transport.abort()

    def disown(self) -> None:
        """See `Stream.disown`; the transport is left as it is."""
        self._sock.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        # No isinstance: uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        # Writing then ends only when the loop no longer holds a view of the caller's array. Not
        # 0: asyncio's TLS pauses from `high` bytes on, so it would pause for nothing.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._owner.on_stream(self)

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:  # noqa: D102
        return self._owner.room()

    def buffer_updated(self, nbytes: int) -> None:  # noqa: D102
        self._count = nbytes
        self.readable()

    def eof_received(self) -> bool:  # noqa: D102
        return self._owner.on_eof() and self.half_closes

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102
        owner = self._owner
        del self._owner, self.readable  # as in `SocketStream`
        self._transport.close()  # TLS's of Python 3.10 warns if nobody has
        owner.on_lost(error)

    def pause_writing(self) -> None:  # noqa: D102
        self._full = True

    def resume_writing(self) -> None:  # noqa: D102
        self._full = False
        self._owner.on_writable()


async def open_stream(
    owner: StreamOwner,
    sock: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    handshake_timeout: float | None = None,
) -> None:
    """Make the stream of a connected, non-blocking socket, and give it to its owner.

    Args:
        owner: whom it feeds.
        sock: belongs to the stream from now on, unless an error is raised.
        tls: what to encrypt with; None for no encryption.
        server_hostname: the name to find in the server's certificate; None on a server.
        handshake_timeout: seconds for TLS's handshake, None for no limit.

    Raises:
        OSError: TLS failed; `ssl.SSLError` is one.
    """
    loop = asyncio.get_running_loop()
    await try_turns()
    with contextlib.suppress(NotImplementedError):
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


def behind(buffers: Sequence[Buffer], sent: int) -> list[Buffer]:
    """Return what is left of the buffers when `sent` bytes are gone."""
    first = 0
    while first < len(buffers) and sent >= len(buffers[first]):
        sent -= len(buffers[first])
        first += 1
    rest = list(buffers[first:])
    if sent:
        rest[0] = memoryview(rest[0])[sent:]
    return rest
