"""Two connected ends in one process, for tests and for an agent beside its environment.

The bytes take the same way as over TCP (a session's frames through a `FrameReader`), without
sockets. Ends may be used by one thread in turns, or by one thread each.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from types import TracebackType
from typing import Any, Literal, cast

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.transports.framing import FrameReader
from rlwire.transports.interface import StreamSession, TalkingSession

__all__ = ["MemoryConnection", "pair"]

Feed = Literal["whole", "bytes"]


class MemoryConnection:
    """One end; made by `pair`. The methods are those of a blocking connection.

    Attributes:
        session: the session that speaks over it.
        peer: the other end's name, for logs.
    """

    def __init__(self, session: StreamSession, peer: str, feed: Feed, idle: float | None) -> None:
        self.session = session
        self.peer = peer
        self._feed = feed
        self._idle = idle
        self._reader = FrameReader(session)
        self._events: deque[Any] = deque()
        self._incoming: deque[memoryview] = deque()
        self._changed = threading.Condition()
        self._other: MemoryConnection = self
        self._closed = False
        # The session again, if it also speaks by itself.
        self._talker = cast(TalkingSession, session) if hasattr(session, "outgoing") else None

    def __enter__(self) -> MemoryConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._closed

    def send(self, event: Any) -> None:
        """Send one event; it is copied, so the caller may change its arrays.

        Raises:
            LocalProtocolError, EncodeError, LimitExceeded: nothing was sent.
            ConnectionClosed: either end was closed.
        """
        self._check_open()
        self._put(b"".join(self.session.send(event)))

    def receive(self) -> Any:
        """Return the next event.

        Raises:
            DecodeError, LimitExceeded, RemoteProtocolError: as over TCP.
            DeadlineExceeded: none came within the idle time.
            ConnectionClosed: either end was closed.
        """
        until = None if self._idle is None else monotonic() + self._idle
        while not self._events:
            if not self._step():
                self._fill(until)
        return self._events.popleft()

    def _step(self) -> bool:
        """Hand the session one message, if there is one; returns whether there was."""
        message = None
        try:
            message = self._reader.frame()
            if message is not None:
                events = self.session.receive(message)
                self._events.extend(event for event in events if event is not None)
                self._talk()
        except RlwireError as error:
            self._talk()
            if self.session.closed or not isinstance(error, RemoteProtocolError):
                self._incoming.clear()
            if self.session.closed:
                self.close()
            raise
        return message is not None

    def _talk(self) -> None:
        """Send what a session that speaks by itself has to say."""
        if self._talker is not None:
            data = b"".join(self._talker.outgoing())
            if data:
                self._put(data)
            if self._talker.leaving:
                self.close()

    def _open(self) -> None:
        """Take in a handshake as far as it has come."""
        while self._talker is not None and not self._talker.opened:
            if not self._step():
                if not self._incoming:
                    return
                self._fill(0.0)

    def refuse(self, error: RlwireError) -> None:
        """Tell the peer what went wrong, if the protocol has words for that."""
        data = b"".join(self.session.refuse(error))
        if data and not self._closed:
            self._put(data)
        if self.session.closed:
            self.close()

    def close(self) -> None:
        """Close this end; the other may still read what is under way to it."""
        if self._talker is not None and not self._closed:
            data = b"".join(self._talker.farewell())
            if data:
                self._put(data)
        for end in (self, self._other):
            with end._changed:
                self._closed = True
                end._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed or self._other._closed:
            side = "on this side" if self._closed else "by the peer"
            raise ConnectionClosed(f"the connection to {self.peer} is closed {side}")

    def _put(self, data: bytes) -> None:
        other = self._other
        with other._changed:
            other._incoming.append(memoryview(data))
            other._changed.notify()

    def _fill(self, until: float | None) -> None:
        """Move bytes from the other end to the reader: one, or as many as fit."""
        with self._changed:
            while not self._incoming:
                self._check_open()
                left = None if until is None else until - monotonic()
                if left is not None and left <= 0:
                    have, want = self._reader.partial
                    raise DeadlineExceeded(
                        f"{self.peer}: no message within idle={self._idle} s"
                        + (f", only {have} of {want or '?'} bytes of one" if have else "")
                    )
                self._changed.wait(left)
            data = self._incoming.popleft()
            space = self._reader.writable()
            count = 1 if self._feed == "bytes" else min(len(data), len(space))
            space[:count] = data[:count]
            self._reader.advance(count)
            if count < len(data):
                self._incoming.appendleft(data[count:])


def pair(
    one: StreamSession, two: StreamSession, *, feed: Feed = "whole", idle: float | None = 0.0
) -> tuple[MemoryConnection, MemoryConnection]:
    """Return two connected ends.

    Args:
        one: the first end's session.
        two: the second end's.
        feed: ``"bytes"`` delivers each byte by itself, to test that borders do not matter.
        idle: seconds to wait for a message; by default `receive` does not wait, which suits one
            thread that uses both ends.
    """
    if one is two:
        raise LocalProtocolError("each end needs a session of its own")
    first = MemoryConnection(one, "memory:two", feed, idle)
    second = MemoryConnection(two, "memory:one", feed, idle)
    first._other, second._other = second, first
    for end in (first, second):
        end._talk()
    for end in (first, second, first):  # a question and its answer, whoever asks
        end._open()
    return first, second
