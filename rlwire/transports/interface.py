"""Interfaces between transports and sessions. Sessions implement them without inheriting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from rlwire.errors import RlwireError
from rlwire.streams import NOTHING

__all__ = ["NOTHING", "Buffer", "DatagramSession", "Handler", "Peer", "Session", "StreamSession"]
__all__ += ["TalkingSession"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of a message; a memoryview has one dimension and format ``B``."""

Peer: TypeAlias = Hashable
"""The address of a datagram's sender or receiver; over UDP the socket module's."""


class ConnectionTap(Protocol):
    """Records one connection, for its thread; see `rlwire.recording.recorder`."""

    def recorded(self, session: StreamSession) -> Any:
        """Return a session for the `StreamCore` that records the messages of `session`."""

    def record(self, sent: bool, parts: Sequence[Buffer]) -> None: ...
    def end(self, reason: str) -> None: ...


class DatagramTap(Protocol):
    """Records the datagrams of a socket."""

    def record(self, sent: bool, datagram: bytes, peer: Peer) -> None: ...
    def close(self) -> None: ...


class Recording(Protocol):
    """In an `Address`: where its connections are recorded."""

    def tap(self, side: str, peer: str) -> ConnectionTap | None:
        """Begin to record a connection; None, which is logged, if that is impossible."""

    def of_datagrams(self, remote: Peer) -> DatagramTap:
        """Begin to record a datagram socket; `remote` is a client's server, or None."""


class Cipher(Protocol):
    """Encrypts datagrams, for example `rlwire.perlert.DatagramCipher`.

    Attributes:
        role: this end.
        dropped: how many datagrams were dropped, by reason.
        overhead: bytes that a sealed datagram is longer than its message.
    """

    role: Literal["client", "server"]
    dropped: Counter[str]

    @property
    def overhead(self) -> int: ...
    def seal(self, data: Buffer) -> bytes: ...
    def open(self, data: Buffer) -> bytes | None: ...


class Session(Protocol):
    """One end of a protocol: encodes events and decodes messages. No I/O, clock or threads.

    If its messages have secrets, ``blank(data, sent)`` returns one without them, for recordings.
    """

    @property
    def closed(self) -> bool:
        """Whether nothing more may be sent or received; the transport then closes."""

    def receive(self, message: Buffer) -> list[Any]:
        """Decode one whole message (a frame, a datagram) into its events, usually one.

        Arrays may be views of the buffer.

        Raises:
            DecodeError, LimitExceeded: the bytes are invalid.
            RemoteProtocolError: the message is not allowed now; the session may stay open.
        """

    def send(self, event: Any) -> Sequence[Buffer]:
        """Return the buffers of one whole message, large arrays by reference.

        Raises:
            LocalProtocolError: the event is not allowed now.
            EncodeError, LimitExceeded: the event cannot be encoded.
        """

    def refuse(self, error: RlwireError) -> Sequence[Buffer]:
        """Return the buffers of an error message, empty if the protocol has none.

        It closes the session after a transport error, or if the next message cannot be found.
        """

    def next_deadline(self) -> float | None:
        """Return when a `TalkingSession` needs `tick`, in `time.monotonic` seconds, or None."""


class StreamSession(Session, Protocol):
    """A session that finds its messages in a byte stream."""

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the frame that begins at ``start``; 0 if more bytes are needed.

        Raises:
            DecodeError: no frame begins with these bytes.
            LimitExceeded: the frame is longer than the session accepts.
        """

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Receive ``buffer[:size]`` if it is exactly one frame, else return None without effect.

        The transport reuses the buffer: events must not refer to it.
        """

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the offset from ``start`` of a frame's array, to align it; 0 if unknown."""


class DatagramSession(Protocol):
    """State of a protocol over datagrams that may be lost. No I/O, clock or threads.

    ``now`` is in seconds of a monotonic clock. A session has one port and one or more peers. After
    a call, or several calls of `receive`, the driver calls `datagrams`, then `next_deadline`.
    """

    @property
    def closed(self) -> bool:
        """Whether the session receives nothing more, and sends nothing after `datagrams`."""

    def receive(self, datagram: Buffer, peer: Peer, now: float) -> list[Any]:
        """Return the events of one datagram, often none; invalid ones are dropped and counted."""

    def advance(self, now: float) -> list[Any]:
        """Process what is due at ``now`` and return its events; an early call does nothing."""

    def next_deadline(self) -> float | None:
        """Return when to call `advance` next; None for never."""

    def datagrams(self) -> list[tuple[bytes, Peer]]:
        """Return and forget the datagrams to send now, in order."""


class TalkingSession(StreamSession, Protocol):
    """A stream session that also sends by itself: a handshake, pongs, a close message.

    A None among the events of `receive` makes the transport call `outgoing`. If `send` returns no
    buffers, `outgoing` returns them.

    Optional members:

    - ``drain()``: ask the peer to start nothing new. Any thread may set ``parting``, which calls it
      with the next message. ``busy``: whether something is in progress.
    - ``inside``: 0 between messages; inside a message of several frames, that message's number.
    - ``unread``: whether `receive_rest()` returns more events of the last message; this bounds the
      events of one call. A list of events that leaves it true ends with None.
    - ``guess``: if its handshake compares a password, see `rlwire.sessions.passwords`.
    - ``pushes``: whether it sends unrequested messages, in a protocol without a close message; a
      reset between two messages is then a normal end.

    Attributes:
        hangs_up: whether this side closes the stream first, after both close messages.
    """

    hangs_up: bool

    @property
    def opened(self) -> bool:
        """Whether the handshake is over, and events may be sent and received."""

    @property
    def leaving(self) -> bool:
        """Whether the transport must close once `outgoing` is sent and all events are received."""

    def outgoing(self) -> Sequence[Buffer]:
        """Return and forget what the session sends by itself.

        Called when the connection is made, after a `receive` that does not return exactly one
        event, after a `send` without buffers, after each `tick` and error, and when its last
        buffers are sent.
        """

    def tick(self, now: float) -> None:
        """Process what is due; called at `next_deadline` or soon after; raises DeadlineExceeded."""

    def farewell(self, ending: bool = False) -> Sequence[Buffer]:
        """Return the close message; `ending`: the whole client or server stops.

        `receive` is still called until `closed`, for up to a second; its events are dropped.
        """

    def lost(self) -> str:
        """Record the end of the stream; return why that is an error, or an empty string."""


class Handler(Protocol):
    """Answers one connection's events, one after another."""

    def answer(self, event: Any) -> Any:
        """Return the reply, or `NOTHING`. An error is logged and closes the connection.

        To reply later, return a `rlwire.transports.deferred.DeferredReply`; it is cancelled if the
        connection ends first. Until it is set, an event loop receives at most the peer's next
        message, and a thread waits.
        """

    def failure(self, event: Any, error: Exception) -> Any:
        """Return what to send instead of a reply to `event` that cannot be encoded."""

    def close(self) -> None:
        """Free the handler's resources after the connection has ended."""
