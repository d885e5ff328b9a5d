"""openpi's policy protocol, inside a WebSocket's session.

The server first sends metadata, then an action for each observation: binary messages in msgpack
with arrays. A text message instead of an action is an error, and ends the connection.

Source: openpi-client 0.1.2, and the policy server of the openpi repository.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from rlwire.codecs import msgpack
from rlwire.errors import LocalProtocolError, RemoteProtocolError, RlwireError, for_peer
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, Layer, LayerPhase

__all__ = ["Dialect", "Failure", "OpenPIClientSession", "OpenPIServerSession", "Undecoded"]

# The markers and sizes before 4 KiB or more of binary data. Chance matches only cost an alignment.
_LARGE = re.compile(rb"\xc5[\x10-\xff].|\xc6\x00[^\x00]..|\xc6[^\x00]...", re.DOTALL)

Dialect: TypeAlias = Literal["openpi", "msgpack_numpy"]


class Failure(NamedTuple):
    """An error message, sent as text instead of an action."""

    text: str


class Undecoded(partial[dict[str, Any]]):
    """A large observation: a function without arguments, to be called in another thread."""


class _Session(Layer):
    """Base of both sides."""

    def __init__(self, arrays: Dialect, limits: Limits | None) -> None:
        limits = DEFAULT if limits is None else limits
        # copy=None: arrays are views of the message if they are aligned. Small messages are bytes,
        # whose views would be read-only. Both decoders read both dialects.
        self._views = msgpack.Decoder(arrays="bytes", copy=None, limits=limits)
        self._copies = msgpack.Decoder(arrays="bytes", limits=limits)
        self._encoder = msgpack.Encoder(arrays=arrays, limits=limits)

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        found = _LARGE.search(buffer, start, end)
        return found.end() - start if found else 0

    def _map(self, message: Buffer, what: str) -> dict[str, Any]:
        if type(message) is bytes:
            value = self._copies.decode(message)
        else:
            value = self._views.decode(message)
        if type(value) is not dict:
            self._break(f"{what} must be a map of names to values, not a {type(value).__name__}")
        return value

    def _break(self, reason: str) -> NoReturn:
        self.phase = LayerPhase.CLOSED
        raise RemoteProtocolError(reason)


class OpenPIServerSession(_Session):
    """The policy's side: sends metadata, then an action or `Failure` for each observation."""

    def __init__(
        self, *, arrays: Dialect = "openpi", limits: Limits | None = None, large: int | None = None
    ) -> None:
        _Session.__init__(self, arrays, limits)
        self._large = sys.maxsize if large is None else large
        self._greeted = False
        self._pending = 0
        # Of the close frame (RFC 6455, 7.4.1); openpi's server sends 1011 after an error.
        self.close_reason, self.close_code = "", 1000

    @property
    def pending(self) -> int:
        return self._pending

    def receive(self, message: Buffer | str) -> list[dict[str, Any] | Undecoded]:
        """Return the observation in a message; `Undecoded` if it is large."""
        if isinstance(message, str):
            self._break("expected an observation as a binary message, got a text message")
        observation: Any
        if len(message) >= self._large:
            observation = Undecoded(self._observation, message)
        else:
            observation = self._observation(message)
        self._pending += 1
        return [observation]

    def _observation(self, message: Buffer) -> dict[str, Any]:
        return self._map(message, "an observation")

    def send(self, event: Mapping[str, Any] | Failure) -> list[Any] | str:
        if type(event) is Failure:
            self._pending = max(0, self._pending - 1)
            self.phase = LayerPhase.CLOSED
            self.close_reason = "the policy failed, see the text message before"
            self.close_code = 1011
            return event.text.encode("utf-8", "backslashreplace").decode()
        if self._greeted and not self._pending:
            raise LocalProtocolError("cannot send an action: no observation is pending")
        parts = self._encoder.encode_parts(event)
        if self._greeted:
            self._pending -= 1
        self._greeted = True
        return parts

    def reject(self, error: RlwireError) -> str:
        """Close the session; return the text for the client."""
        self.phase = LayerPhase.CLOSED
        return f"{type(error).__name__}: {for_peer(error, 'the server')}"


class OpenPIClientSession(_Session):
    """The robot's side: receives metadata, then an action or `Failure` for each observation."""

    def __init__(self, *, arrays: Dialect = "openpi", limits: Limits | None = None) -> None:
        _Session.__init__(self, arrays, limits)
        self.greeted = False  # whether the metadata has been received
        self.asked = False  # whether an observation has no reply yet

    def send(self, event: Any) -> list[Any]:
        if not self.greeted:
            raise LocalProtocolError("cannot send: the server has not sent its metadata yet")
        if self.asked:
            raise LocalProtocolError("cannot send: the last observation has no action yet")
        parts = self._encoder.encode_parts(event)
        self.asked = True
        return parts

    def receive(self, message: Buffer | str) -> list[Any]:
        if self.greeted and not self.asked:
            self._break("the server sent an action without an observation")
        if isinstance(message, str):
            self.asked = False
            return [Failure(message)]
        event = self._map(message, "an action" if self.greeted else "the metadata")
        self.greeted = True
        self.asked = False
        return [event]
