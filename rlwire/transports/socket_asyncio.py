"""The bytes below an asyncio connection: what it asks of them, and a socket that has them.

A `SocketStream` asks the loop only when its socket can be read or written, and calls the socket
itself: asyncio's transports put five Python calls between the loop and what they feed. Not here:
encryption (`rlwire.transports.tls_asyncio`), loops without readers
(`rlwire.transports.stream_asyncio`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Protocol

from rlwire.transports.interface import Buffer

__all__ = ["SocketStream", "Stream", "StreamOwner"]


class StreamOwner(Protocol):
    """What a stream tells, and to whom."""

    def on_stream(self, stream: Stream) -> None:
        """Take the stream, which has just begun, and does not listen yet."""

    def on_readable(self) -> None:
        """Call `recv_into`: there are bytes, or the end, or nothing after all."""

    def on_writable(self) -> None:
        """Go on: `send` may take more now."""

    def on_lost(self, error: Exception | None) -> None:
        """Take note that the stream is gone; None if it was closed on this side or by the peer."""


class Stream(Protocol):
    """What a connection asks of the bytes below it.

    Attributes:
        half_closes: whether the peer may still be written to when it sends no more.
    """

    half_closes: bool

    @property
    def recv_into(self) -> Callable[[Buffer], int]:
        """Return what receives: 0 when nothing more comes, and OSError as a socket's."""

    def send(self, buffers: list[Buffer]) -> int:
        """Send from some buffers, at most IOV_MAX, and return how many bytes the system has taken.

        Raises:
            BlockingIOError: none; ask again, with the same bytes, when it is writable.
            OSError: the connection is gone.
        """

    def listen(self, wanted: bool) -> None:
        """Have `on_readable` called when there is something, or no longer."""

    def await_writable(self, wanted: bool) -> None:
        """Have `on_writable` called when more can be written, or no longer."""

    def shutdown(self) -> None:
        """Tell the peer that nothing more comes, if it `half_closes`."""

    def close(self) -> None:
        """Close, all that was sent having been taken by the system; `on_lost` follows, later."""

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
        self.recv_into: Callable[[Buffer], int] = self._receiving()
        # Windows has no sendmsg.
        self._sendmsg: Callable[[list[Any]], int] | None = getattr(sock, "sendmsg", None)
        self._listening = self._has_writer = self._closing = self._gone = False
        loop.remove_reader(self._file)  # is there such a thing?
        owner.on_stream(self)

    def _receiving(self) -> Callable[[Any], int]:
        return self._sock.recv_into

    def fileno(self) -> int:
        """Return the socket's number, for who calls the system by itself."""
        return self._file

    def send(self, buffers: list[Buffer]) -> int:
        """See `Stream.send`."""
        if len(buffers) == 1 or self._sendmsg is None:
            return self._sock.send(buffers[0])
        return self._sendmsg(buffers)

    def listen(self, wanted: bool) -> None:
        """See `Stream.listen`."""
        if wanted == self._listening or self._closing:
            return
        self._listening = wanted
        if wanted:
            self._loop.add_reader(self._file, self._owner.on_readable)
        else:
            self._loop.remove_reader(self._file)

    def await_writable(self, wanted: bool) -> None:
        """See `Stream.await_writable`."""
        if wanted != self._has_writer and not self._gone:
            self._call_when_writable(self._owner.on_writable if wanted else None)

    def shutdown(self) -> None:
        """See `Stream.shutdown`."""
        with contextlib.suppress(OSError):  # the peer was faster
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """See `Stream.close`."""
        self._stop()

    def abort(self) -> None:
        """See `Stream.abort`."""
        self._stop()

    def disown(self) -> None:
        """See `Stream.disown`."""
        self._closing = self._gone = True
        self._sock.close()

    def _call_when_writable(self, call: Callable[[], None] | None) -> None:
        if call is not None:
            self._loop.add_writer(self._file, call)
        elif self._has_writer:
            self._loop.remove_writer(self._file)
        self._has_writer = call is not None

    def _stop(self) -> None:
        if self._gone:
            return
        self.listen(False)
        self._closing = self._gone = True
        self._call_when_writable(None)
        self._sock.close()
        # Not now: whoever called is in the middle of something.
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        owner = self._owner
        # Stream and owner point at each other; only so are they freed as soon as nobody needs them.
        del self._owner, self.recv_into
        owner.on_lost(None)
