"""What a transport asks of a session: the whole of what this folder knows about protocols.

The sessions themselves live in `rlwire.sessions`; they do not inherit from these classes, they
only have these methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from rlwire.errors import RlwireError

__all__ = ["Buffer", "Session", "StreamSession"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What goes over a wire: ``len()`` of it is its size in bytes (a memoryview has one dimension
and format ``B``)."""


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

        None when it has none. Datagram transports ask; the byte stream transports do not, since
        no protocol over a stream has timed rules.
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
