"""What a gRPC server asks of the code that moves its bytes, and that code of the server.

There are two kinds of it, `rlwire.transports.grpc_server_direct` and
`rlwire.transports.grpc_server_public`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from rlwire.transports.interface import StreamStatus

__all__ = ["SOON", "STOPPING", "Admit", "Listener", "Refused", "ServerStream", "Serving"]

STOPPING = StreamStatus("UNAVAILABLE", "the server is stopping")
SOON = 0.005
"""Seconds in which gRPC says that a stream broke off, after it said that no message follows.

It says the latter first, also for a client that left or whose message was too long.
"""


class Refused(Exception):
    """A stream ends before it began, or now; the status says why."""

    def __init__(self, status: StreamStatus) -> None:
        super().__init__(str(status))
        self.status = status


class ServerStream(Protocol):
    """What the code that answers may do with a stream, in the stream's own thread.

    Attributes:
        peer: the client's name.
        metadata: what it sent ahead of its first message.
    """

    peer: str
    metadata: tuple[tuple[str, str | bytes], ...]

    def receive(self) -> bytes | None:
        """Return the next message; None when the client has ended its side in order.

        What was yielded before is sent with it.

        Raises:
            DeadlineExceeded: none came within the idle time, or the client did not take a reply.
            ConnectionClosed: the client cancelled, or was lost.
            Refused: the server is stopping.
        """

    def flush(self) -> None:
        """Send what was yielded now, since something that may take time comes before `receive`."""

    def wait(self, future: Future[Any]) -> None:
        """Wait until the future is done.

        Raises:
            ConnectionClosed: the client has gone meanwhile; the future is cancelled.
        """


Serving: TypeAlias = Generator[bytes, None, StreamStatus]
"""Yields one reply after another and returns how the stream ends. It has begun, and is closed in
any case."""
Admit: TypeAlias = Callable[[ServerStream], Serving]
"""Called for each new stream; raises `Refused` to turn it away."""


class Listener(Protocol):
    """What a server does with one of the two."""

    def bind(self, address: str, credentials: Any) -> int:
        """Listen there and return the port, 0 if that failed. Once, and before `start`."""

    def start(self) -> None:
        """Begin to accept."""

    def stop(self, grace: float) -> None:
        """Accept no more, end idle streams, let answers be sent; cancel the rest in the end."""
