"""Interfaces of the transports to the rooms above them: handlers, recordings, ciphers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from rlwire.sessions.layer import Buffer, Layer, Peer
from rlwire.streams import NOTHING

__all__ = ["NOTHING", "Cipher", "ConnectionTap", "DatagramTap", "Handler", "Recording"]


class ConnectionTap(Protocol):
    """Records one connection, for its thread; see `rlwire.recording.recorder`."""

    def recorded(self, layer: Layer) -> Layer:
        """Return a layer for the `StreamCore` that records the messages of `layer`."""

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
