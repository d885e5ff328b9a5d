"""The streams below asyncio connections: a plain socket, TLS, or rings in shared memory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any

from rlwire.streams import StreamCore
from rlwire.transports.interface import Buffer
from rlwire.transports.shm import ShmSocket
from rlwire.transports.socket_calls import PlainCalls, SocketCalls

_RECORD = 16384  # bytes, the longest record of TLS
_AT_ONCE = 4 * _RECORD  # bytes that are encrypted or received before the other is done
_GOODBYE = 1.0  # seconds for the peer's close_notify


class SocketStream:
    """A non-blocking socket, and the loop's callbacks for it.

    It calls its owner's `on_stream` once it is open, `on_readable`, `on_writable`, and `on_lost`
    after it was closed or aborted.

    Attributes:
        listening: whether `on_readable` is called.
        calls: what reads and writes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: Any) -> None:
        self._owner = owner
        self._loop = loop
        self._sock = sock
        # Given the socket, asyncio formats it, in two system calls, for an exception that is never
        # shown, whenever it has no reader or writer of it yet. The number is ours until `abort`.
        self._file = sock.fileno()
        self.listening = self._has_writer = self._closing = self._gone = False
        self.calls = self._make_calls(owner.core)
        owner.on_stream(self)

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return SocketCalls(core, self._file, blocking=False)

    def listen(self, wanted: bool) -> None:
        """Start or stop calling `on_readable`."""
        if wanted == self.listening or self._closing:
            return
        self.listening = wanted
        if wanted:
            self._loop.add_reader(self._file, self._owner.on_readable)
        else:
            self._loop.remove_reader(self._file)

    def await_writable(self, wanted: bool) -> None:
        """Start or stop calling `on_writable`."""
        if wanted != self._has_writer and not self._gone:
            self._call_when_writable(self._owner.on_writable if wanted else None)

    def shutdown(self) -> bool:
        """Send the end of the stream; return whether the peer can still be read from."""
        with contextlib.suppress(OSError):  # the peer was faster
            self._sock.shutdown(socket.SHUT_WR)
        return True

    def close(self) -> None:
        """Close after everything was written."""
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._gone:
            return
        self.listen(False)
        self._closing = self._gone = True
        self._call_when_writable(None)
        self.calls.forget()
        self._sock.close()
        # Later: the caller may be in the middle of something.
        self._loop.call_soon(self._end)

    def close_inherited(self) -> None:
        """Close this process's descriptor only, without telling the loop or the owner."""
        if not self._gone:
            self.calls.forget()
        self._closing = self._gone = True
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
    """Two rings, and a socket that wakes the loop up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: ShmSocket, owner: Any) -> None:
        self._rings = sock.rings
        self._watched = self._ringing = False
        super().__init__(loop, sock, owner)

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return SocketCalls(core, self._file, blocking=False, rings=self._rings)

    def listen(self, wanted: bool) -> None:
        """See `SocketStream.listen`."""
        if wanted != self.listening and not self._closing:
            self.listening = wanted
            self._watch()

    def shutdown(self) -> bool:
        """See `SocketStream.shutdown`."""
        self._rings.end()
        return True

    def close_inherited(self) -> None:
        """See `SocketStream.close_inherited`."""
        self._rings.forget()
        super().close_inherited()

    def _call_when_writable(self, call: Callable[[], None] | None) -> None:
        self._has_writer = call is not None
        self._watch()

    def _watch(self) -> None:
        """Have the loop watch the socket while anything is waited for."""
        wanted = self.listening or self._has_writer
        if wanted != self._watched:
            self._watched = wanted
            if wanted:
                self._loop.add_reader(self._file, self._react)
            else:
                self._loop.remove_reader(self._file)
        if wanted:
            self._poll()

    def _poll(self) -> None:
        """Ask the peer for wake-ups; bytes that are there already do not cause one."""
        readable, writable = self._rings.poll_in(), self._has_writer and self._rings.poll_out()
        if ((readable and self.listening) or writable) and not self._ringing:
            self._ringing = True
            self._loop.call_soon(self._react)

    def _react(self) -> None:
        """Have the owner read and write what is possible."""
        self._ringing = False
        if self._has_writer:
            self._owner.on_writable()
        if self.listening:
            self._owner.on_readable()
        if self._watched:
            self._poll()


class TLSPipe:
    """TLS between two buffers of OpenSSL's."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        if server_hostname == "" and context.check_hostname:  # of a unix socket; `wrap_bio` is mute
            raise ValueError("check_hostname requires server_hostname")
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming,
            self.outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname or None,
        )

    async def shake_hands(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        """Run TLS's handshake."""
        while True:
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the alert
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
    """A socket with TLS, whose handshake is over."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: Any, pipe: TLSPipe
    ) -> None:
        self._tls, self._incoming, self._outgoing = pipe.tls, pipe.incoming, pipe.outgoing
        self._ciphered = b""  # what is to be sent
        self._encrypted = 0  # bytes that are encrypted, and not yet returned by `sendmsg`
        self._ringing = self._over = self._draining = False
        self._goodbye: asyncio.TimerHandle | None = None
        super().__init__(loop, sock, owner)

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return PlainCalls(core, self, blocking=False)

    def listen(self, wanted: bool) -> None:
        """See `SocketStream.listen`."""
        super().listen(wanted)
        self._ring_again()

    def sendmsg(self, buffers: list[Buffer]) -> int:
        """Send; bytes count as sent once all their ciphertext is."""
        while self._send_ciphered():
            sent, self._encrypted = self._encrypted, 0
            if sent:
                return sent
            # Small parts share a record; TLS copies what it encrypts in any case.
            small = sum(map(len, buffers)) <= _RECORD
            data = b"".join(buffers) if small else next(filter(len, buffers))
            self._encrypted = self._tls.write(memoryview(data)[:_AT_ONCE])
        raise BlockingIOError

    def recv_into(self, buffer: Buffer) -> int:
        """Receive and decrypt."""
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
                    self._over = True
                    return 0  # without close_notify, as is common
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

    def shutdown(self) -> bool:
        """Close: TLS has no half-close."""
        self.close()
        return False

    def close(self) -> None:
        """Send close_notify, and wait a moment for the peer's.

        Closing over unread bytes would reset the connection, and lose the last messages.
        """
        if self._closing:
            return
        with contextlib.suppress(ssl.SSLError):  # it would read the peer's close_notify too
            self._tls.unwrap()
        self.listen(False)
        self._closing = True
        self._goodbye = self._loop.call_later(_GOODBYE, self.abort)
        self._part()

    def abort(self) -> None:
        """Close at once, after an alert if TLS failed."""
        if not self._closing:
            with contextlib.suppress(OSError):
                self._send_ciphered()
        if self._draining and not self._gone:
            self._loop.remove_reader(self._file)
        if self._goodbye is not None:
            self._goodbye.cancel()
        super().abort()

    def _ring_again(self) -> None:
        """Have `on_readable` called for bytes that TLS has received already."""
        if self._ringing or not self.listening:
            return
        if self._over or self._incoming.pending or self._tls.pending():
            self._ringing = True
            self._loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._ringing = False
        if self.listening:
            self._owner.on_readable()

    def _send_ciphered(self) -> bool:
        """Send ciphertext; return whether that was all."""
        if self._outgoing.pending:
            self._ciphered += self._outgoing.read()
        if self._ciphered:
            try:
                self._ciphered = self._ciphered[self._sock.send(self._ciphered) :]
            except BlockingIOError:
                return False
        return not self._ciphered

    def _part(self) -> None:
        """Send close_notify, and then wait for the peer's."""
        try:
            sent = self._send_ciphered()
        except OSError:
            self.abort()
            return
        self._call_when_writable(None if sent else self._part)
        if not sent:
            return
        if self._over:
            self.abort()
            return
        super().shutdown()
        self._draining = True
        self._loop.add_reader(self._file, self._drain)

    def _drain(self) -> None:
        """Read and drop bytes until the peer closes."""
        try:
            if self._sock.recv(_AT_ONCE):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass
        self.abort()


async def open_stream(
    owner: Any,
    sock: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    shm: bool = False,
    handshake_timeout: float | None = None,
) -> None:
    """Open the stream of a connected, non-blocking socket, and give it to its owner.

    The socket stays the caller's if this raises. `server_hostname` is None on a server.
    """
    loop = asyncio.get_running_loop()
    try:
        loop.remove_reader(sock.fileno())
    except NotImplementedError:
        raise NotImplementedError(
            f"{type(loop).__name__} has no add_reader, which rlwire's connections need; "
            "use a selector event loop or uvloop, on a POSIX system"
        ) from None
    try:
        if shm:
            shared = ShmSocket(sock, server_side=server_hostname is None)
            try:
                await asyncio.wait_for(shared.handshake_on(loop), handshake_timeout)
                ShmStream(loop, shared, owner)
            except BaseException:
                shared.close()
                raise
        elif tls is None:
            SocketStream(loop, sock, owner)
        else:
            pipe = TLSPipe(tls, server_hostname)
            await asyncio.wait_for(pipe.shake_hands(loop, sock), handshake_timeout)
            TLSStream(loop, sock, owner, pipe)
    except asyncio.TimeoutError as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the network's own
        what = "shared memory" if shm else "TLS"
        raise TimeoutError(f"no {what} handshake within connect={handshake_timeout} s") from None
