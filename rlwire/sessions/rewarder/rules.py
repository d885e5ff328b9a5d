"""The rules of both ends of a rewarder connection: ids, a session's base, and pushes to many."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from rlwire.codecs._json import bounded
from rlwire.codecs.rewarder import EnvObservation, RewarderMessage, decode, encode_binary
from rlwire.codecs.rewarder.messages import MessageCodec
from rlwire.codecs.rewarder.texts import with_id
from rlwire.codecs.websocket.frames import Binary
from rlwire.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, quoted
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, Layer

Clock: TypeAlias = Callable[[], float]

_ID: Final = b'"message_id":'
_LONGEST: Final = 19  # digits of an id
_RUNS: Final = 64  # of ids that are remembered
_UNCHECKED: Final = 1 << 20  # bytes of a push that is within the default limits
_PLACE: Final = 2**63 - 1  # takes 8 bytes in MessagePack, as an id's place
_BEFORE: Final = 3  # bytes before them: the list's head, an index and the type
_JOINED: Final = 1024  # bytes of the longest text that is copied, not sent as two buffers

EpisodeKey: TypeAlias = tuple[int, ...]
"""An episode id's numbers, for comparison."""

_EPISODE = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15}){0,7}")
_MOST = 10**15 - 1
_DECIMAL = re.compile(r"[0-9]{1,18}")
_NAME = 64  # characters of an id that is not a number


def episode_key(episode_id: str | None, method: str) -> EpisodeKey:
    """Return an episode id's numbers without trailing zeros."""
    if episode_id is None:
        raise RemoteProtocolError(f"{method} without an episode_id")
    if len(episode_id) > 127 or _EPISODE.fullmatch(episode_id) is None:
        raise RemoteProtocolError(
            f"{method}: episode_id must be up to 8 numbers of up to 15 digits with dots between "
            f"them, not {quoted(episode_id)}"
        )
    numbers = [int(number) for number in episode_id.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def following_episode(episode_id: str, past: str | None = None) -> str:
    """Return the next episode id after both."""
    newest, key = episode_id, episode_key(episode_id, "v0.env.describe")
    if past is not None and episode_key(past, "v0.env.reset") > key:
        newest = past
    head, dot, last = newest.rpartition(".")
    if int(last) >= _MOST:
        raise RemoteProtocolError(f"there is no episode_id after {quoted(newest)}")
    return f"{head}{dot}{int(last) + 1}"


def plain_id(value: Any, name: str) -> int | str | None:
    """Return a message id for comparison: 26 and "26" are equal."""
    if type(value) is int:
        if 0 <= value < 2**63:
            return value
        raise RemoteProtocolError(f"{name} must be from 0 to 2**63 - 1, not {quoted(value)}")
    if value is None:
        return None
    if len(value) > _NAME:
        raise RemoteProtocolError(f"{name} has {len(value)} characters, limit is {_NAME}")
    return int(value) if _DECIMAL.fullmatch(value) else str(value)


def name_of(event: Any) -> str:
    """Return an event's name, for errors."""
    return event.method if isinstance(event, RewarderMessage) else f"a {type(event).__name__}"


class RewarderSession(Layer):
    """One end of a connection: numbers sent messages, and checks that received ids are unique.

    Attributes:
        last_id: the last sent message id, -1 before the first.
        close_reason: the message of ``v0.connection.close``.
    """

    active = True

    def __init__(self, clock: Clock, wall: Clock, limits: Limits) -> None:
        self._clock = clock
        self._wall = wall
        self._limits = limits
        self._codec = MessageCodec.of(limits)
        self._out: list[list[Buffer]] = []
        self._opening = True  # until the first `output`
        self._received = -1  # the last message id
        self._runs = [[0, -1]]  # first and last of ids without a gap; the last run goes on
        self._next_run = 2**63  # the next id that is in a run
        self._has_output = True
        self._ended = False  # nothing more is received, and only the last message is sent
        self.last_id = -1
        self.close_reason: str | None = None  # type: ignore[assignment]

    @property
    def has_output(self) -> bool:
        return self._has_output

    def _write(self, message: RewarderMessage) -> list[Buffer]:
        number = self.last_id + 1
        data = self._codec.write(message, self._wall(), number)
        self.last_id = number
        return [data]

    def _enqueue(self, message: list[Buffer]) -> None:
        self._out.append(message)
        self._has_output = True

    def _flush(self) -> list[list[Buffer]]:
        out, self._out = self._out, []
        self._has_output = self.closed
        return out

    def _is_next(self, values: list[Any]) -> bool:
        """Return whether the id of a binary message follows the last one, and is new."""
        return values[1] == self._received + 1 and values[1] < self._next_run

    def _numbered(self, message: Any) -> Any:
        """Return a message after checking its id."""
        number = message.message_id
        # The common case first.
        if type(number) is not int or number != self._received + 1 or number >= self._next_run:
            number = plain_id(number, "message_id")
            if not isinstance(number, int):
                self._check_text_id(message, number)
                return message
            self._check_new_id(number, message.method)
        self._received = number
        return message

    def _was_received(self, number: int) -> bool:
        """Return whether a message had this id; the last 64 runs of ids are remembered."""
        self._runs[-1][1] = self._received
        return any(first <= number <= last for first, last in self._runs)

    def _check_new_id(self, number: int, method: str) -> None:
        """Check a message id that does not follow the last one; the document wants it unique."""
        if self._was_received(number):
            raise RemoteProtocolError(f"{method}: message_id {number} was used before")
        if number != self._received + 1:
            self._runs.append([number, number])
            del self._runs[:-_RUNS]
            later = (first for first, _ in self._runs if first > number)
            self._next_run = min(later, default=2**63)

    def _check_text_id(self, message: RewarderMessage, name: str | None) -> None:
        """Check a message id that is not a number."""

    def _check_open(self) -> None:
        """Raise LocalProtocolError if nothing more can be sent."""
        if self._ended:
            why = "" if self.close_reason is None else f": {self.close_reason}"
            raise LocalProtocolError(f"the rewarder's connection is closed{why}")


class Push:
    """A message to many connections, encoded once, with a gap for each connection's message id.

    `size` is in bytes, with a message id of one digit. With `arrays`, a binary message is prepared,
    too; without `text`, JSON is written when a client needs it.
    """

    def __init__(
        self,
        message: Any,  # or a tuple of an episode id and JSON, whose message id is 0
        sent_at: float,
        limits: Limits = DEFAULT,
        *,
        arrays: bool = False,
        text: bool = True,
    ) -> None:
        self.episode_id = message[0] if type(message) is tuple else message.episode_id
        self._text = self._tail = b""
        self._binary: bytes | None = None
        if arrays and isinstance(message, EnvObservation):
            parts = encode_binary(message, sent_at, _PLACE, limits)
            self._binary = None if parts is None else b"".join(parts)
        if self._binary is None:
            self._write(message, sent_at, limits)
            return
        self.size = len(self._binary)
        copied = message if text else decode(self._binary, limits=limits)
        self._write_text = partial(self._write, copied, sent_at, limits)
        if text:
            self._write_text()

    def _write(self, message: Any, sent_at: float, limits: Limits) -> None:
        codec = MessageCodec.of(limits)
        text = message[1] if type(message) is tuple else codec.write(message, sent_at, 0)
        self.size = size = len(text)
        if size - 1 + _LONGEST > limits.message:
            raise LimitExceeded("message", limits.message, size - 1 + _LONGEST)
        if size > _UNCHECKED:
            bounded(text, limits)  # as clients with these limits do
        self._text = text
        if size > _JOINED:
            end = text.index(_ID) + len(_ID) + 1  # of the id
            self._text, self._tail = text[:end], text[end:]

    def numbered(self, number: int, arrays: bool = False) -> Sequence[Buffer]:
        """Return the message with this id; a long one as two buffers, the second shared."""
        if arrays and self._binary is not None:
            head, rest = self._binary[:_BEFORE], memoryview(self._binary)[_BEFORE + 8 :]
            return Binary((head + number.to_bytes(8, "big"), rest))
        if not self._text:
            self._write_text()
        text = with_id(self._text, number)
        return [text, self._tail] if self._tail else [text]
