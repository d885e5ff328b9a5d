"""Two connected ends in one process, over the stream core, without sockets.

One thread may use both ends, or one thread each.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import Any, Literal, NamedTuple

from rlwire.errors import ConnectionClosed, LocalProtocolError, RlwireError
from rlwire.streams import NOTHING, StreamCore
from rlwire.transports.interface import StreamSession

__all__ = ["MemoryConnection", "pair"]

Feed = Literal["whole", "bytes"]


class _Times(NamedTuple):
    read: float | None
    idle: float | None
    write: float | None = None
    first_message: float | None = None


class MemoryConnection:
    """One end, made by `pair`; the methods are those of a blocking connection."""

    def __init__(self, session: StreamSession, peer: str, feed: Feed, idle: float | None) -> None:
        self.session = session
        self.peer = peer
        self._feed = feed
        self._core = StreamCore(session, peer, _Times(idle, idle))
        self._incoming: deque[memoryview] = deque()
        self._changed = threading.Condition()
        self._other: MemoryConnection = self

    def __enter__(self) -> MemoryConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._core.closed

    def send(self, event: Any) -> None:
        """Send one event; its arrays are copied."""
        if self._other.closed and not self.closed:
            raise ConnectionClosed(f"the connection to {self.peer} is closed by the peer")
        self._core.put(event)
        self._flush()

    def receive(self) -> Any:
        """Return the next event."""
        event = self._step(self._core.next)
        while event is NOTHING:
            event = self._step(self._core.next if self._core.more else self._fill)
        return event

    def exchange(self, event: Any) -> Any:
        """Send one event and return the next."""
        self.send(event)
        return self.receive()

    def refuse(self, error: RlwireError) -> None:
        """Send an error to the peer, if the protocol has one."""
        self._core.refuse(error)
        self._flush()

    def close(self) -> None:
        """Close this end; the other can still receive what was sent."""
        self._core.close()
        self._flush()

    def _step(self, get: Any) -> Any:
        """Return the result of `get`, and send the session's output."""
        try:
            event = get()
        finally:
            self._flush()
        if self._core.closed and event is NOTHING:
            raise self._core.end()
        return event

    def _flush(self) -> None:
        """Move output to the other end."""
        core, other = self._core, self._other
        with other._changed:
            while core.sending:
                data = b"".join(core.output())
                other._incoming.append(memoryview(data))
                core.wrote(len(data))
            if core.over:
                core.close()
            other._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _fill(self) -> Any:
        """Move input to the core: one byte, or as many as fit."""
        core = self._core
        with self._changed:
            while not self._incoming:
                if self._other.closed:
                    return core.take(0)
                if core.closed:
                    return NOTHING
                now = monotonic()
                core.check(now)
                until = core.next_deadline(now)
                self._changed.wait(None if until is None else until - now)
            data = self._incoming.popleft()
            space = core.room()
            count = 1 if self._feed == "bytes" else min(len(data), len(space))
            space[:count] = data[:count]
            if count < len(data):
                self._incoming.appendleft(data[count:])
        return core.take(count)

    def _open(self) -> bool:
        """Receive a handshake as far as it has arrived; return whether anything had."""
        came = False
        while not self._core.opened and self._incoming:
            self._step(self._fill)
            came = True
        return came


def pair(
    one: StreamSession, two: StreamSession, *, feed: Feed = "whole", idle: float | None = 0.0
) -> tuple[MemoryConnection, MemoryConnection]:
    """Return two connected ends.

    Args:
        one: the first end's session.
        two: the second end's.
        feed: ``"bytes"`` delivers one byte at a time.
        idle: seconds to wait for a message; 0 suits one thread that uses both ends.
    """
    if one is two:
        raise LocalProtocolError("each end needs a session of its own")
    first = MemoryConnection(one, "memory:two", feed, idle)
    second = MemoryConnection(two, "memory:one", feed, idle)
    first._other, second._other = second, first
    for end in (first, second):
        end._core.begin(idle)
        end._flush()
    while first._open() or second._open():
        pass
    return first, second
