"""`Layer`: the contract between transports and sessions, and between a session and one inside it.

A connection is a stack of layers: RLX over TCP, or dm_env_rpc in a gRPC call over TCP. A layer does
no I/O, and has no clock and no thread. It encodes events, decodes messages, and knows which message
is allowed now. The transport moves the bytes and passes in the time.

A protocol is a subclass with `frame_size`, `receive` and `send`. Everything else has a default.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from rlwire.errors import RlwireError
    from rlwire.sessions.passwords import PasswordCheck

__all__ = ["Buffer", "DatagramLayer", "Layer", "LayerPhase", "Peer"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of a message; a memoryview has one dimension and format ``B``."""

Peer: TypeAlias = Hashable
"""The address of a datagram's sender or receiver; over UDP the socket module's."""


class LayerPhase(Enum):
    """Where a layer is between its handshake and its end; it never goes back."""

    OPENING = "opening"
    """The handshake is not finished: no events are sent or received."""
    OPEN = "open"
    CLOSING = "closing"
    """The layer has ended by itself. The transport sends `Layer.output`, then `close_message`."""
    CLOSED = "closed"
    """Nothing more is sent or received."""


class Layer:
    """One end of a protocol over a stream, or inside another layer.

    An active layer also sends by itself: a handshake, pongs, a close message. The transport then
    calls `output` when the connection is made, after a `receive` that does not return exactly one
    event, after a `send` without buffers, after each `tick` and error, and when the last buffers of
    `output` are sent. A None among the events of `receive` makes it call `output` too.

    Attributes:
        phase: the `LayerPhase`, which the layer sets. It is `OPEN` from the start unless the layer
            has a handshake.
        active: whether the layer is active. `output`, `tick`, `close_message` and `stream_ended`
            are called for active layers only.
        keeps_blocks: whether `receive_whole` accepts a `Block`, which then belongs to the layer.
        closes_first: whether this side closes the stream first, after both close messages.
        ends_by_reset: whether a reset between two messages is a normal end: the layer sends
            unrequested messages, and its protocol has no close message.
        unread: whether `receive_rest` returns more events of the last message.
        password_check: delays the comparison of the handshake's password; None for no delay.
        admitted: whether the peer's credentials were right, for the layer around this one.
        close_code, close_reason: why this layer is closed, for the close message of the layer
            around it (a WebSocket's close frame).
    """

    phase: LayerPhase
    unread: bool
    password_check: PasswordCheck | None
    active = False
    keeps_blocks = False
    closes_first = False
    ends_by_reset = False
    admitted = True
    close_code = 1000
    close_reason = ""

    def __cinit__(self) -> None:
        self.phase = _OPEN

    @property
    def closed(self) -> bool:
        """Whether nothing more may be sent or received; the transport then closes."""
        return self.phase is _CLOSED

    @property
    def opened(self) -> bool:
        """Whether the handshake is finished."""
        return self.phase is not _OPENING

    @property
    def message_number(self) -> int:
        """Inside a message of several frames, that message's number; else 0."""
        return 0

    @property
    def pending(self) -> int:
        """The number of messages without a reply."""
        return 0

    @property
    def has_output(self) -> bool:
        """Whether `output` has messages or the layer is closed, for the layer around this one."""
        return True

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the frame that begins at ``start``; 0 if more bytes are needed.

        Not called for a layer inside another one, which receives that one's messages.

        Raises:
            DecodeError: no frame begins with these bytes.
            LimitExceeded: the frame is longer than the layer accepts.
        """
        raise NotImplementedError

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the offset from ``start`` of a frame's array, to align it; 0 if unknown."""
        return 0

    def payload_part(self, buffer: Buffer, start: int, end: int) -> bytes:
        """Return what has arrived of a frame's payload, for the inner layer's `data_offset`."""
        return b""

    def receive(self, message: Any) -> list[Any]:
        """Decode one whole message (a frame) into its events, usually one.

        Arrays may be views of the buffer. The layer may keep and change it.

        Raises:
            DecodeError, LimitExceeded: the bytes are invalid.
            RemoteProtocolError: the message is not allowed now; the layer may stay open.
        """
        raise NotImplementedError

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Receive ``buffer[:size]`` if it is exactly one frame, else return None without effect.

        The transport reuses the buffer: events must not refer to it. If this layer `keeps_blocks`,
        it may be a `Block` instead of a bytearray, to which events may refer.
        """
        return None

    def receive_rest(self) -> list[Any]:
        """Return further events of the last message, while `unread`; it bounds those of one call.

        A list of events that leaves `unread` true ends with None.
        """
        return []

    def send(self, event: Any) -> Any:
        """Return the buffers of one whole message, large arrays by reference.

        An active layer may return none, and the buffers from `output`. A layer in a WebSocket may
        return a str instead, for a text message.

        Raises:
            LocalProtocolError: the event is not allowed now.
            EncodeError, LimitExceeded: the event cannot be encoded.
        """
        raise NotImplementedError

    def queue(self, message: Any) -> None:
        """Send a message of the layer inside with the next `output`."""
        raise NotImplementedError

    def fail(self, error: RlwireError, now: bool = False) -> None:
        """Give the close message the code and reason of an error of the layer inside.

        A client sends it with the next `output`, a server only `now`: its transport rejects the
        message first.
        """
        raise NotImplementedError

    def output(self) -> Sequence[Any]:
        """Return and forget the buffers that the layer sends by itself.

        Inside another layer: the messages. The transport reads `phase` afterwards.
        """
        return []

    def tick(self, now: float) -> None:
        """Process what is due; called at `next_deadline` or soon after; raises DeadlineExceeded."""

    def next_deadline(self) -> float | None:
        """Return when `tick` is needed, in `time.monotonic` seconds; None for never."""
        return None

    def reject(self, error: RlwireError) -> Any:
        """Return the buffers of an error message, empty if the protocol has none.

        It closes the layer after a transport error, or if the next message cannot be found.
        """
        self.phase = _CLOSED
        return []

    def close_message(self, stopping: bool = False) -> Sequence[Buffer]:
        """Return the close message; `stopping`: the whole client or server stops.

        `receive` is still called until the layer is closed, for up to a second; its events are
        dropped.
        """
        self.phase = _CLOSED
        return []

    def stream_ended(self) -> str:
        """Record the end of the stream; return why that is an error, or an empty string."""
        self.phase = _CLOSED
        return ""

    def drain(self) -> bool:
        """Ask the peer to start nothing new; return whether the layer then ends by itself.

        If not, the transport stops receiving between two messages.
        """
        return False

    def request_drain(self) -> bool:
        """`drain` with the next message, from any thread; return False if idle."""
        return False

    def redact(self, data: Buffer, sent: bool) -> Buffer:
        """Return a message without its secrets, for recordings."""
        return data


class DatagramLayer:
    """State of a protocol over datagrams, which may be lost. No I/O, clock or threads.

    ``now`` is in seconds of a monotonic clock. A layer has one port and one or more peers. After a
    call, or several calls of `receive`, the driver calls `datagrams`, then `next_deadline`.
    """

    def receive(self, datagram: Buffer, peer: Peer, now: float) -> list[Any]:
        """Return the events of one datagram, often none; invalid ones are dropped and counted."""
        raise NotImplementedError

    def advance(self, now: float) -> list[Any]:
        """Process what is due at ``now`` and return its events; an early call does nothing."""
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        """Return when to call `advance` next; None for never."""
        raise NotImplementedError

    def datagrams(self) -> list[tuple[bytes, Peer]]:
        """Return and forget the datagrams to send now, in order."""
        raise NotImplementedError


_OPENING, _OPEN, _, _CLOSED = LayerPhase
