"""TLS below an asyncio connection: two buffers of OpenSSL's, and the connection's own socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from typing import Any

from rlwire.streams import StreamCore
from rlwire.transports.interface import Buffer
from rlwire.transports.socket_asyncio import SocketStream, StreamOwner
from rlwire.transports.socket_calls import PlainCalls, SocketCalls

_RECORD = 16384  # bytes, the longest record of TLS
_AT_ONCE = 4 * _RECORD  # bytes that are encrypted or received before the other is done
_GOODBYE = 1.0  # seconds for the peer to say goodbye too


class TLSPipe:
    """TLS between two buffers, for a socket that others read and write."""

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
        self._ciphered = b""  # what is to be sent
        self._encrypted = 0  # bytes that were encrypted, and `sendmsg` has not told of
        self._ringing = self._over = self._draining = False
        self._patience: asyncio.TimerHandle | None = None
        super().__init__(loop, sock, owner)

    def listen(self, wanted: bool) -> None:
        """See `SocketStream.listen`."""
        super().listen(wanted)
        self._ring_again()

    def sendmsg(self, buffers: list[Buffer]) -> int:
        """Send, as a socket's: bytes count as taken once all that they became has been."""
        while self._send_ciphered():
            sent, self._encrypted = self._encrypted, 0
            if sent:
                return sent
            # Small parts share a record; TLS copies what it encrypts in any case.
            small = sum(map(len, buffers)) <= _RECORD
            data = b"".join(buffers) if small else next(filter(len, buffers))
            self._encrypted = self._tls.write(memoryview(data)[:_AT_ONCE])
        raise BlockingIOError

    def shutdown(self) -> None:
        """Do nothing: in TLS there is only a goodbye."""

    def close(self) -> None:
        """See `SocketStream.close`: with TLS's goodbye, and a moment for the peer's.

        Closing over bytes that were not read would reset the connection, last words and all.
        """
        if self._closing:
            return
        with contextlib.suppress(ssl.SSLError):  # it would read the peer's goodbye too
            self._tls.unwrap()
        self.listen(False)
        self._closing = True
        self._patience = self._loop.call_later(_GOODBYE, self._stop)
        self._part()

    def abort(self) -> None:
        """See `SocketStream.abort`; if it was TLS that failed, the peer is told."""
        if not self._closing:
            with contextlib.suppress(OSError):
                self._send_ciphered()
        self._stop()

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return PlainCalls(core, self, blocking=False)

    def recv_into(self, buffer: Buffer) -> int:
        """Receive and decrypt, as a socket's."""
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
        """Have `on_readable` called although the socket may have nothing: TLS has."""
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
        """Send what is encrypted; returns whether that was all."""
        if self._outgoing.pending:
            self._ciphered += self._outgoing.read()
        if self._ciphered:
            try:
                self._ciphered = self._ciphered[self._sock.send(self._ciphered) :]
            except BlockingIOError:
                return False
        return not self._ciphered

    def _part(self) -> None:
        """Send the goodbye, and then wait for the peer's."""
        try:
            sent = self._send_ciphered()
        except OSError:
            self._stop()
            return
        self._call_when_writable(None if sent else self._part)
        if not sent:
            return
        if self._over:
            self._stop()
            return
        super().shutdown()
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
        self._stop()

    def _stop(self) -> None:
        if self._draining and not self._gone:
            self._loop.remove_reader(self._file)
        if self._patience is not None:
            self._patience.cancel()
        super()._stop()
