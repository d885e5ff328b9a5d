"""What a transport asks of a session and of what answers, and what a message stream offers both.

`Session`, `DatagramSession` and `Handler` are the whole of what this folder knows about
protocols. The sessions themselves live in `rlwire.sessions`; they do not inherit from these
classes, they only have these methods.
"""

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
        """Take ONE whole message (a frame, a datagram) and return its events, often one.

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

        A transport calls it with what `receive` or `frame_size` raised, and for reasons of its
        own (too many connections, idle for too long). After an error that loses the message
        borders, or one that is the transport's own, the session is closed.
        """

    def next_deadline(self) -> float | None:
        """Return when the protocol's next timed rule falls due, in `time.monotonic` seconds.

        None when it has none. Of stream sessions only a `TalkingSession` is asked; those over
        datagrams are, see `DatagramSession`.
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

        Raises:
            DecodeError, LimitExceeded, RemoteProtocolError: as `receive`.
        """

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return where, from ``start``, the frame's first large array begins; 0 if unknown.

        The transport puts that byte on a 64-byte border, so that the array can be used in place.
        """


class DatagramSession(Protocol):
    """Who may say what when, and say again when, over datagrams that may be lost.

    Values in, datagrams out. No I/O and no clock: ``now`` is in seconds of any clock that never
    goes backward, always the same one, and never less than in the call before. One thread.

    A session has one port: it may have many peers there, or one. Whoever drives it asks, after
    each call of `receive` or `advance` and of the session's own methods, for `datagrams` and
    then for `next_deadline`; several received datagrams may share one such round.
    """

    @property
    def closed(self) -> bool:
        """Whether nothing more will be sent, nor anything received be of use.

        What `datagrams` still gives is sent.
        """

    def receive(self, datagram: Buffer, peer: Peer, now: float) -> list[Any]:
        """Take one datagram and return its events, often none.

        Nothing that a peer sends may raise: what is wrong is dropped, and counted. The buffer is
        the session's to keep.
        """

    def advance(self, now: float) -> list[Any]:
        """Do what fell due by ``now`` and return its events. Early calls do nothing."""

    def next_deadline(self) -> float | None:
        """Return when `advance` should be called next, on ``now``'s clock; None for never."""

    def datagrams(self) -> list[tuple[bytes, Peer]]:
        """Return what is to be sent now, in order, and forget it."""


class TalkingSession(StreamSession, Protocol):
    """A stream session that also speaks by itself: a handshake, answers to pings, a farewell.

    The stream transports look for ``outgoing``; a session without it costs nothing more. With it
    `receive` may return None among its events: no event, but a sign that `outgoing` has something
    although there is one event. `send` may return no buffers: `outgoing` has them, and whether the
    session is then `leaving` is looked at.

    A protocol that has words for that nothing new shall begin has three more: `drain()`, which
    says them, the attribute `parting`, which any thread sets to have that called when something is
    said next, and the property `busy`, whether there is something under way that they are for.
    When it has ended, the session is `leaving`.

    A session whose messages may come in several frames may have the attribute `inside`: 0 between
    them, else a number that each message has of its own. So `Timeouts.read` is for all of it.

    A session of which one message may bring any number of events has the attribute `unread`: while
    it is true, `receive_rest()` returns some more, and a list of `receive`'s that leaves it true
    ends with None. So a peer's few bytes are not many events at once.

    A session that compares a password in its handshake may have a `guess`, whose `caller` the
    transport sets to the peer's address. While the password has to wait, `frame_size` returns 0 for
    a frame that is there, and the peer is not heard; when `guess.due` has come it is asked again.

    A session that tells the peer things unasked, in a protocol that has no farewell, has the
    attribute `pushes`, true: a reset between two messages is then how a peer leaves.

    Attributes:
        hangs_up: whether this side closes the stream first, once both sides have said farewell.
    """

    hangs_up: bool

    @property
    def opened(self) -> bool:
        """Whether events may be sent and received; before, a handshake is under way."""

    @property
    def leaving(self) -> bool:
        """Whether the session is at its end: the transport closes, after what `outgoing` has.

        Looked at whenever `outgoing` was asked for. Events that were received stay to be had.
        """

    def outgoing(self) -> Sequence[Buffer]:
        """Return what the session has to say by itself now, and forget it.

        Asked for when the connection is made, and after each `receive` that gave not exactly one
        event, each `send` that gave nothing, each `tick`, and each error that `receive` or
        `frame_size` raised; and again when what it gave last has gone. So a session with flow
        control gives what may go now, and more as the peer takes it.
        """

    def tick(self, now: float) -> None:
        """Let time pass; called when nothing else happens, at `next_deadline` or soon after.

        Args:
            now: seconds of a clock that only goes forward, always the same one.

        Raises:
            DeadlineExceeded: the peer is too late.
        """

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
