"""Interfaces between transports and sessions, which have these methods without inheriting."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeAlias

from rlwire.errors import RlwireError
from rlwire.streams import NOTHING

__all__ = ["NOTHING", "Buffer", "DatagramSession", "Handler", "Peer", "Session", "StreamSession"]
__all__ += ["TalkingSession"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of a message; a memoryview has one dimension and format ``B``."""

Peer: TypeAlias = Hashable
"""The address of a datagram's sender or receiver; over UDP the socket module's."""


class Session(Protocol):
    """One end of a protocol: values in, buffers out, and back. No I/O, clock or threads."""

    @property
    def closed(self) -> bool:
        """Whether nothing more may be sent or received; the transport then closes."""

    def receive(self, message: Buffer) -> list[Any]:
        """Return the events of one whole message (a frame, a datagram), often one.

        Arrays may be views of the buffer.

        Raises:
            DecodeError, LimitExceeded: the bytes are invalid.
            RemoteProtocolError: the message is not allowed now; the session may go on.
        """

    def send(self, event: Any) -> Sequence[Buffer]:
        """Return the buffers of one whole message, large arrays by reference.

        Raises:
            LocalProtocolError: the event is not allowed now.
            EncodeError, LimitExceeded: the event cannot be encoded.
        """

    def refuse(self, error: RlwireError) -> Sequence[Buffer]:
        """Return the buffers of an error message, empty if the protocol has none.

        It closes the session after an error that loses the message borders, or of the transport.
        """

    def next_deadline(self) -> float | None:
        """Return when the next timed rule of a `TalkingSession` is due, by `time.monotonic`."""


class StreamSession(Session, Protocol):
    """A session whose messages have borders in a byte stream."""

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the frame that begins at ``start``, 0 if that needs more bytes.

        Raises:
            DecodeError: no frame can begin so.
            LimitExceeded: the frame is longer than the session accepts.
        """

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Receive the one frame that fills ``buffer[:size]``; None, with no effect, for others.

        The transport reuses the buffer: nothing may refer to it afterwards.
        """

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return where, from ``start``, a frame's array begins, to align it; 0 if unknown."""


class DatagramSession(Protocol):
    """State of a protocol over datagrams that may be lost. No I/O, clock or threads.

    ``now`` is in seconds of a monotonic clock. A session has one port, and one or many peers. After
    each call, or several calls of `receive`, its driver calls `datagrams`, then `next_deadline`.
    """

    @property
    def closed(self) -> bool:
        """Whether nothing more is received, or sent after `datagrams`."""

    def receive(self, datagram: Buffer, peer: Peer, now: float) -> list[Any]:
        """Return the events of one datagram, often none; invalid ones are dropped and counted."""

    def advance(self, now: float) -> list[Any]:
        """Do what was due by ``now`` and return its events. Early calls do nothing."""

    def next_deadline(self) -> float | None:
        """Return when to call `advance` next; None for never."""

    def datagrams(self) -> list[tuple[bytes, Peer]]:
        """Return, once, the datagrams to send now, in order."""


class TalkingSession(StreamSession, Protocol):
    """A stream session that also sends by itself: a handshake, pongs, a close message.

    `receive` may return None among its events: `outgoing` has something although there is one
    event. `send` may return no buffers: `outgoing` has them.

    Optional members:

    - ``drain()``: announce that nothing new may begin; ``parting``, set by any thread, calls it
      with the next message; ``busy``: whether something is in progress.
    - ``inside``: 0 between messages; a number of its own inside a message of several frames.
    - ``unread``: whether `receive_rest()` has more events of the last message, so that few bytes
      are not many events at once. A list that leaves it true ends with None.
    - ``guess``: if its handshake compares a password, see `rlwire.sessions.guesses`.
    - ``pushes``: whether it sends unasked, in a protocol without a close message; a reset between
      two messages is then a normal end.

    Attributes:
        hangs_up: whether this side closes the stream first, after both close messages.
    """

    hangs_up: bool

    @property
    def opened(self) -> bool:
        """Whether the handshake is over, and events may be sent and received."""

    @property
    def leaving(self) -> bool:
        """Whether the transport is to close after `outgoing`, when its events are received."""

    def outgoing(self) -> Sequence[Buffer]:
        """Return, once, what the session sends by itself now.

        Called when the connection is made, after each `receive` that returned not exactly one
        event, each `send` that returned nothing, each `tick` and error, and when its last buffers
        are sent.
        """

    def tick(self, now: float) -> None:
        """Let time pass; called at `next_deadline` or soon after; raises DeadlineExceeded."""

    def farewell(self, ending: bool = False) -> Sequence[Buffer]:
        """Return the close message; `ending` says that this whole side stops.

        `receive` is still called until `closed` or for a moment; its events are dropped.
        """

    def lost(self) -> str:
        """Note that the stream has ended; return what is wrong with that, or nothing."""


class Handler(Protocol):
    """Answers one connection's events, one after another."""

    def answer(self, event: Any) -> Any:
        """Return the event to send back. An error is logged and closes the connection.

        `NOTHING` sends nothing now. A `rlwire.transports.deferred.DeferredReply` is cancelled if
        the connection ends before it is set; meanwhile an event loop receives up to the peer's next
        message, and a thread waits.
        """

    def failure(self, event: Any, error: Exception) -> Any:
        """Return what to send instead of a reply to `event` that cannot be encoded."""

    def close(self) -> None:
        """Free the connection's resources after its end; possibly without any event before."""
