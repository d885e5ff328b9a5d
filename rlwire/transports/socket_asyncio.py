"""The socket below an asyncio connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Protocol

from rlwire.streams import StreamCore
from rlwire.transports.socket_calls import SocketCalls


class StreamOwner(Protocol):
    """What a stream tells, and to whom.

    Attributes:
        core: whose bytes it moves.
    """

    core: StreamCore

    def on_stream(self, stream: SocketStream) -> None:
        """Take the stream, which has just begun, and does not listen yet."""

    def on_readable(self) -> None:
        """Have `SocketStream.calls` read: there are bytes, or the end, or nothing after all."""

    def on_writable(self) -> None:
        """Have `SocketStream.calls` write, which may get further now."""

    def on_lost(self, error: Exception | None) -> None:
        """Take note that the stream is gone; None if it was closed on this side or by the peer."""


class SocketStream:
    """A non-blocking socket and the loop's readers and writers.

    Attributes:
        half_closes: whether the peer may still be written to when it sends no more.
        listening: whether `on_readable` is called.
        calls: what reads and writes.
    """

    half_closes = True

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: StreamOwner
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._sock = sock
        # Given the socket, asyncio makes a text of it, in two system calls, for an exception that
        # nobody sees, whenever it has no reader or writer of it yet. The number is ours until
        # `_stop`; then it may be another's.
        self._file = sock.fileno()
        self.listening = self._has_writer = self._closing = self._gone = False
        self.calls = self._make_calls(owner.core)
        owner.on_stream(self)

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return SocketCalls(core, self._file, blocking=False)

    def listen(self, wanted: bool) -> None:
        """Have `on_readable` called when there is something, or no longer."""
        if wanted == self.listening or self._closing:
            return
        self.listening = wanted
        if wanted:
            self._loop.add_reader(self._file, self._owner.on_readable)
        else:
            self._loop.remove_reader(self._file)

    def await_writable(self, wanted: bool) -> None:
        """Have `on_writable` called when more can be written, or no longer."""
        if wanted != self._has_writer and not self._gone:
            self._call_when_writable(self._owner.on_writable if wanted else None)

    def shutdown(self) -> None:
        """Tell the peer that nothing more comes, if it `half_closes`."""
        with contextlib.suppress(OSError):  # the peer was faster
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close, all that was sent having been taken by the system; `on_lost` follows, later."""
        self._stop()

    def abort(self) -> None:
        """Close at once; `on_lost` follows, later."""
        self._stop()

    def close_inherited(self) -> None:
        """Close this process's descriptor only, and tell neither the loop nor the owner."""
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

    def _stop(self) -> None:
        if self._gone:
            return
        self.listen(False)
        self._closing = self._gone = True
        self._call_when_writable(None)
        self.calls.forget()
        self._sock.close()
        # Not now: whoever called is in the middle of something.
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        owner = self._owner
        # These point at the stream; only so are they freed as soon as nobody needs them.
        del self._owner, self.calls
        owner.on_lost(None)
