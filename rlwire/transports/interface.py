"""What transports ask of sessions, which have these methods without inheriting, and of handlers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeAlias

from rlwire.errors import RlwireError
from rlwire.streams import NOTHING

__all__ = [
    "NOTHING",
    "Buffer",
    "DatagramSession",
    "Handler",
    "Peer",
    "Session",
    "StreamSession",
    "TalkingSession",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What goes over a wire: ``len()`` of it is its size in bytes (a memoryview has one dimension
and format ``B``)."""

Peer: TypeAlias = Hashable
"""Whom a datagram comes from or goes to; over UDP the socket module's address. The same peer is
equal in both directions, so sessions keep what they know of it in a dictionary."""


class Session(Protocol):
    """Who may say what when: values in, buffers out, and back. No I/O, no clock, one thread."""

    @property
    def closed(self) -> bool:
        """Whether nothing more may be sent or received; the transport then closes."""

    def receive(self, message: Buffer) -> list[Any]:
        """Return the events, often one, of one whole message (a frame, a datagram).

        The buffer is the session's to keep: arrays may be views of it.

        Raises:
            DecodeError, LimitExceeded: the bytes are wrong.
            RemoteProtocolError: the message is not allowed now. If ``closed`` is still false the
                session can go on.
        """

    def send(self, event: Any) -> Sequence[Buffer]:
        """Return the buffers of one whole message, large arrays by reference.

        Raises:
            LocalProtocolError: the event is not allowed now.
            EncodeError, LimitExceeded: the event cannot be written.
        """

    def refuse(self, error: RlwireError) -> Sequence[Buffer]:
        """Return the buffers that tell the peer what went wrong, empty if the protocol cannot.

        After an error that loses the message borders, or one that is the transport's own, the
        session is closed.
        """

    def next_deadline(self) -> float | None:
        """Return when the next timed rule falls due, in `time.monotonic` seconds; None for never.

        Of stream sessions only a `TalkingSession` is asked.
        """


class StreamSession(Session, Protocol):
    """A session whose messages have borders in a byte stream."""

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the frame that begins at ``start``, 0 if more bytes must tell.

        Raises:
            DecodeError: no frame can begin so.
            LimitExceeded: the frame says that it is longer than the session accepts.
        """

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Take the one frame that fills ``buffer[:size]``, as `receive` would, or return None.

        None, and nothing has happened, when these bytes are more or less than one frame or begin
        with none. The buffer stays the transport's: nothing may refer to it afterwards.
        """

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return where, from ``start``, the frame's first large array begins; 0 if unknown.

        The transport puts that byte on a 64-byte border, so that the array can be used in place.
        """


class DatagramSession(Protocol):
    """Who may say what when, and say again when, over datagrams that may be lost.

    No I/O and no clock: ``now`` is in seconds of one clock that never goes backward. One thread.
    A session has one port, and one peer there or many. Its driver asks, after each call of
    `receive` or `advance` and of the session's own methods, for `datagrams` and then for
    `next_deadline`; several received datagrams may share one such round.
    """

    @property
    def closed(self) -> bool:
        """Whether nothing more will be sent but what `datagrams` still gives, or received."""

    def receive(self, datagram: Buffer, peer: Peer, now: float) -> list[Any]:
        """Return the events of one datagram, often none; what is wrong is dropped, and counted."""

    def advance(self, now: float) -> list[Any]:
        """Do what fell due by ``now`` and return its events. Early calls do nothing."""

    def next_deadline(self) -> float | None:
        """Return when `advance` should be called next, on ``now``'s clock; None for never."""

    def datagrams(self) -> list[tuple[bytes, Peer]]:
        """Return what is to be sent now, in order, and forget it."""


class TalkingSession(StreamSession, Protocol):
    """A stream session that also speaks by itself: a handshake, answers to pings, a farewell.

    `receive` may return None among its events: no event, but a sign that `outgoing` has something
    although there is one event. `send` may return no buffers: `outgoing` has them.

    It may have more:

    - ``drain()``, to say that nothing new shall begin; ``parting``, which any thread sets to have
      that called when something is said next; ``busy``: whether something is under way.
    - ``inside``: 0 between messages, inside one that comes in several frames a number of its own.
    - ``unread``: whether `receive_rest()` has more events of the last message, so that a peer's few
      bytes are not many events at once. A list that leaves it true ends with None.
    - ``guess``, if it compares a password in its handshake: see `rlwire.sessions.guesses`.
    - ``pushes``: whether it tells the peer things unasked, in a protocol without a farewell; a
      reset between two messages is then how a peer leaves.

    Attributes:
        hangs_up: whether this side closes the stream first, once both sides have said farewell.
    """

    hangs_up: bool

    @property
    def opened(self) -> bool:
        """Whether events may be sent and received; before, a handshake is under way."""

    @property
    def leaving(self) -> bool:
        """Whether the transport is to close, after what `outgoing` has.

        Looked at whenever `outgoing` was asked for. Events that were received stay to be had.
        """

    def outgoing(self) -> Sequence[Buffer]:
        """Return what the session has to say by itself now, and forget it.

        Asked for when the connection is made, after each `receive` that gave not exactly one event,
        each `send` that gave nothing, each `tick`, each error, and when what it gave last has gone.
        """

    def tick(self, now: float) -> None:
        """Let time pass; called at `next_deadline` or soon after; raises DeadlineExceeded."""

    def farewell(self, ending: bool = False) -> Sequence[Buffer]:
        """Return the session's last words, before the transport closes the stream.

        What still comes goes to `receive`, its events to nobody, until `closed` or for a moment.

        Args:
            ending: whether the connection ends because this whole side does.
        """

    def lost(self) -> str:
        """Take note that the stream has ended; returns what is wrong with that, or nothing."""


class Handler(Protocol):
    """Answers one connection's events, one after another."""

    def answer(self, event: Any) -> Any:
        """Return the event to send back. What it raises is logged and closes the connection.

        It may be a `rlwire.transports.deferred.DeferredReply`, which is cancelled if the connection
        ends before it is set; meanwhile an event loop listens to the peer up to its next message,
        and a thread waits. It may also be `NOTHING`: nothing is sent now.
        """

    def failure(self, event: Any, error: Exception) -> Any:
        """Return what to send instead of an answer to `event` that cannot be encoded."""

    def close(self) -> None:
        """Free what the connection had; it has ended. It may not have been asked anything."""
