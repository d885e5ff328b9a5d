"""openpi's policy protocol: a `Server` with a policy, a `Client` with observations.

They are the sessions inside a WebSocket's (`rlwire.sessions.websocket`). The server speaks first,
with what it says about itself; from then on each observation is answered by an action. All three
are binary messages in msgpack with arrays. A text instead of an action says what went wrong, and
ends the conversation.

Not here: bytes (`rlwire.codecs.msgpack`), what is done with an observation
(`rlwire.openpi`).

Source: openpi-client 0.1.2, and the policy server of the openpi repository.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from rlwire.codecs import msgpack
from rlwire.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
)
from rlwire.limits import DEFAULT, Limits

__all__ = ["Dialect", "Failure", "OpenPIClientSession", "OpenPIServerSession", "Undecoded"]

Buffer: TypeAlias = bytes | bytearray | memoryview
Dialect: TypeAlias = Literal["openpi", "msgpack_numpy"]


class Failure(NamedTuple):
    """What is said instead of an action.

    Attributes:
        text: what went wrong.
    """

    text: str


class Undecoded:
    """An observation whose message is large, for who decodes it in another thread."""

    __slots__ = ("_decode", "_message")

    def __init__(self, message: Buffer, decode: Callable[[Buffer], dict[str, Any]]) -> None:
        self._message = message
        self._decode = decode

    def decode(self) -> dict[str, Any]:
        """Return the observation."""
        return self._decode(self._message)


class _Session:
    """What both sides share."""

    def __init__(self, arrays: Dialect, limits: Limits | None) -> None:
        limits = DEFAULT if limits is None else limits
        # Both dialects are read, whichever is written; only bytes mark an array, as openpi has it.
        # None: views of the message where numbers are aligned there; of bytes, which are small
        # messages, nobody could write to these.
        self._views = msgpack.Decoder(arrays="bytes", copy=None, limits=limits)
        self._copies = msgpack.Decoder(arrays="bytes", limits=limits)
        self._encoder = msgpack.Encoder(arrays=arrays, limits=limits)
        self.closed = False

    def next_deadline(self) -> float | None:
        """Return None: no rule is timed."""
        return None

    def _map(self, message: Buffer, what: str) -> dict[str, Any]:
        """Return the map in a message."""
        if type(message) is bytes:
            value = self._copies.decode(message)
        else:
            value = self._views.decode(message)
        if type(value) is not dict:
            self._break(f"{what} is a map of names to values, not a {type(value).__name__}")
        return value

    def _break(self, reason: str) -> NoReturn:
        self.closed = True
        raise RemoteProtocolError(reason)


class OpenPIServerSession(_Session):
    """The side that has the policy.

    The first event that is sent is what it says about itself. Events that are received are
    observations; each is answered by an action, or by a `Failure`.

    Attributes:
        closed: whether the conversation is over; it is after a `Failure`.
        pending: observations that have no answer yet.
    """

    def __init__(
        self,
        *,
        arrays: Dialect = "openpi",
        limits: Limits | None = None,
        large: int | None = None,
    ) -> None:
        _Session.__init__(self, arrays, limits)
        self._large = sys.maxsize if large is None else large
        self._greeted = False
        self.pending = 0
        # As openpi's server closes after an error (RFC 6455, 7.4.1).
        self.closing, self.closing_code = "", 1000

    def receive(self, message: Buffer | str) -> list[dict[str, Any] | Undecoded]:
        """Return the observation in a message."""
        if isinstance(message, str):
            self._break("an observation is a binary message, this is a text")
        observation: Any
        if len(message) >= self._large:
            observation = Undecoded(message, self._observation)
        else:
            observation = self._observation(message)
        self.pending += 1
        return [observation]

    def _observation(self, message: Buffer) -> dict[str, Any]:
        return self._map(message, "an observation")

    def send(self, event: Mapping[str, Any] | Failure) -> list[Any] | str:
        """Return the message: what the policy says about itself, an action or a failure."""
        if type(event) is Failure:
            self.pending = max(0, self.pending - 1)
            self.closed = True
            self.closing = "the policy failed, the text before says how"
            self.closing_code = 1011
            return event.text.encode("utf-8", "backslashreplace").decode()
        if self._greeted and not self.pending:
            raise LocalProtocolError("there is no observation that this could answer")
        parts = self._encoder.encode_parts(event)
        if self._greeted:
            self.pending -= 1
        self._greeted = True
        return parts

    def refuse(self, error: RlwireError) -> str:
        """Return the text that tells the client what was wrong, and be closed."""
        self.closed = True
        return f"{type(error).__name__}: {for_peer(error, 'the server')}"


class OpenPIClientSession(_Session):
    """The side that has observations.

    Events that are sent are observations, one after another. The first event that is received is
    what the server says about its policy; the others are actions, or a `Failure`.

    Attributes:
        closed: whether the conversation is over.
        greeted: whether the server has said what its policy is.
        asked: whether an observation was sent that has no answer yet.
    """

    def __init__(self, *, arrays: Dialect = "openpi", limits: Limits | None = None) -> None:
        _Session.__init__(self, arrays, limits)
        self.greeted = False
        self.asked = False

    def send(self, event: Any) -> list[Any]:
        """Return the message of an observation."""
        if not self.greeted:
            raise LocalProtocolError("the server has not said yet what its policy is")
        if self.asked:
            raise LocalProtocolError("the last observation has no answer yet")
        parts = self._encoder.encode_parts(event)
        self.asked = True
        return parts

    def receive(self, message: Buffer | str) -> list[Any]:
        """Return what the server says: of its policy, an action or a failure."""
        if self.greeted and not self.asked:
            self._break("an action without an observation")
        if isinstance(message, str):
            self.asked = False
            return [Failure(message)]
        event = self._map(message, "an action" if self.greeted else "what a server first says")
        self.greeted = True
        self.asked = False
        return [event]

    def refuse(self, error: RlwireError) -> list[Buffer]:
        """Return nothing: the reason in the close frame says it."""
        self.closed = True
        return []
