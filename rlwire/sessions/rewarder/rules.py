"""What both sides of a rewarder connection know by heart: who says what, ids, settings.

The tables are read by `rlwire.sessions.rewarder.server` and `rlwire.sessions.rewarder.client`, and
`Side` is what their sessions have in common; `Push` is a message to many of them.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rlwire.codecs.rewarder import (
    AgentAction,
    ConnectionClose,
    ControlPing,
    EnvDescribe,
    EnvObservation,
    EnvReset,
    EnvReward,
    EnvText,
    Message,
    ReplyControlPing,
    ReplyEnvReset,
    ReplyError,
    UnknownMessage,
    decode,
    encode,
)
from rlwire.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, quoted
from rlwire.limits import DEFAULT, Limits

FROM_SERVER: Final = (
    EnvDescribe,
    EnvReward,
    EnvText,
    EnvObservation,
    ConnectionClose,
    ReplyError,
    ReplyEnvReset,
    ReplyControlPing,
)
FROM_CLIENT: Final = (AgentAction, EnvReset, ControlPing)


# --- the server's side


class Who(enum.Enum):
    """What a client is to a server."""

    NEWCOMER = "has not said anything yet, and may become the active client"
    ACTIVE = "the one client that controls the environment"
    OBSERVER = "looks on, as it said when it connected"


SERVER_HEARS: Final[dict[tuple[Who, type], str]] = {
    (Who.ACTIVE, AgentAction): "act",
    (Who.ACTIVE, EnvReset): "reset",
    (Who.OBSERVER, AgentAction): "only_watches",
    (Who.OBSERVER, EnvReset): "join",
    # As in the original: a client that connects and then times out shall not block the others, so
    # the first to speak is the active one, whatever it says.
    **{(Who.NEWCOMER, kind): "claim" for kind in (*FROM_CLIENT, *FROM_SERVER, UnknownMessage)},
    **{(who, ControlPing): "pong" for who in (Who.ACTIVE, Who.OBSERVER)},
    **{(who, UnknownMessage): "unknown" for who in (Who.ACTIVE, Who.OBSERVER)},
    **{(who, kind): "wrong_way" for who in (Who.ACTIVE, Who.OBSERVER) for kind in FROM_SERVER},
}
"""What a server does with a message.

``act`` and ``reset`` become events; ``pong`` is answered at once, and so is ``join``, with the
episode that goes on; ``only_watches``, ``unknown`` and ``wrong_way`` are answered with
``v0.reply.error``, and the connection goes on; after a ``claim`` the client is the active one, and
the message is looked up again, or there is one already, and the newcomer gets
``v0.connection.close``.
"""

SERVER_SAYS: Final[dict[type, str]] = {
    **{kind: "push" for kind in (EnvDescribe, EnvReward, EnvText, EnvObservation, UnknownMessage)},
    ReplyEnvReset: "answer",
    ReplyError: "answer",
    ConnectionClose: "close",
}
"""What a server's user may send, and how; pings are answered without asking the user."""


# --- the client's side


class Phase(enum.Enum):
    """Where a client stands with the server's episodes."""

    IDLE = "no episode was asked for: what comes is dropped"
    RESETTING = "a reset was asked for: what is not of a newer episode is dropped"
    CONFIRMING = "env.describe told of a newer episode, the reply is still to come"
    PLAYING = "an episode is open"
    CLOSED = "the server said connection.close, or broke a rule"


_OPEN = (Phase.IDLE, Phase.RESETTING, Phase.CONFIRMING, Phase.PLAYING)

TRANSITIONS: Final[dict[tuple[Phase, str], Phase]] = {
    # A reset while another one is under way counts instead of it.
    **{(phase, "reset"): Phase.RESETTING for phase in _OPEN},
    (Phase.IDLE, "attach"): Phase.PLAYING,
    (Phase.RESETTING, "newer"): Phase.CONFIRMING,
    # The server may have begun an episode by itself before it saw our reset.
    (Phase.CONFIRMING, "newer"): Phase.CONFIRMING,
    (Phase.PLAYING, "newer"): Phase.PLAYING,
    (Phase.RESETTING, "reply"): Phase.PLAYING,
    (Phase.CONFIRMING, "reply"): Phase.PLAYING,
    # reply.error, or none in time: the episode that the server began by itself stays open.
    (Phase.RESETTING, "failed"): Phase.IDLE,
    (Phase.CONFIRMING, "failed"): Phase.PLAYING,
    **{(phase, "close"): Phase.CLOSED for phase in Phase},
}
"""What may happen in which phase, and the phase after it.

``reset``: the user asks. ``reply``: to the last reset. ``newer``: an ``env.describe`` of a newer
episode than all before. ``attach``: an ``env.describe`` where the user wants to join whatever
runs. Any other pair changes nothing.
"""

CLIENT_HEARS: Final[dict[type, str]] = {
    EnvDescribe: "describe",
    **{kind: "push" for kind in (EnvReward, EnvText, EnvObservation)},
    ConnectionClose: "close",
    ReplyError: "error",
    ReplyEnvReset: "reset_done",
    ReplyControlPing: "pong",
    UnknownMessage: "unknown",
    **{kind: "wrong_way" for kind in FROM_CLIENT},
}
"""What a client does with a message; ``unknown`` ones go to the user, and change nothing."""

CLIENT_SAYS: Final[dict[type, str]] = {
    EnvReset: "reset",
    AgentAction: "act",
    ControlPing: "ping",
    UnknownMessage: "other",
}
"""What a client's user may send; an observer no reset and no action."""


# --- ids

EpisodeKey: TypeAlias = tuple[int, ...]
"""What episode ids are compared by."""

_EPISODE = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15}){0,7}")
_MOST = 10**15 - 1
_DECIMAL = re.compile(r"[0-9]{1,18}")
_NAME = 64  # characters of an id that is no number


def episode_key(episode_id: str | None, method: str) -> EpisodeKey:
    """Return what an episode id is compared by: its numbers, 0 where one has fewer."""
    if episode_id is None:
        raise RemoteProtocolError(f"{method} without an episode_id")
    if len(episode_id) > 127 or _EPISODE.fullmatch(episode_id) is None:
        raise RemoteProtocolError(
            f"{method} with an episode_id that is not up to 8 numbers of up to 15 digits with dots "
            f"between them: {quoted(episode_id)}"
        )
    numbers = [int(number) for number in episode_id.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def following_episode(episode_id: str, past: str | None = None) -> str:
    """Return an episode id that is newer than both: the newer one's, its last number one higher."""
    newest, key = episode_id, episode_key(episode_id, "v0.env.describe")
    if past is not None and episode_key(past, "v0.env.reset") > key:
        newest = past
    head, dot, last = newest.rpartition(".")
    if int(last) >= _MOST:
        raise RemoteProtocolError(f"there is no episode_id after {quoted(newest)}")
    return f"{head}{dot}{int(last) + 1}"


def plain_id(value: Any, name: str) -> int | str | None:
    """Return a message id as it is compared: 26 and "26" are the same."""
    if type(value) is int:
        if 0 <= value < 2**63:
            return value
        raise RemoteProtocolError(f"{name} must be from 0 to 2**63 - 1")
    if value is None:
        return None
    if len(value) > _NAME:
        raise RemoteProtocolError(f"{name} has {len(value)} characters, more than {_NAME}")
    return int(value) if _DECIMAL.fullmatch(value) else str(value)


# --- what both sides do

Buffer: TypeAlias = bytes | bytearray | memoryview
Clock: TypeAlias = Callable[[], float]

_ID: Final = b'"message_id":'
_LONGEST: Final = 19  # digits of an id
_JOINED: Final = 1024  # bytes that are rather copied than sent as a buffer of their own


def called(event: Any) -> str:
    """Return what an event is called in an error."""
    return event.method if isinstance(event, Message) else f"a {type(event).__name__}"


class Side:
    """One end of a connection: it counts what it says, and sees that what it hears counts up.

    Attributes:
        last_id: the message id of the last message that was sent, -1 before the first.
        closing: what ``v0.connection.close`` said, None before; for the close frame's reason too.
        closed: whether nothing more is sent or taken, but what was handed over before.
        owes: whether `outgoing` has something, or the session is closed.
    """

    __slots__ = (
        "_clock",
        "_heard",
        "_limits",
        "_opening",
        "_out",
        "_over",
        "_wall",
        "closed",
        "closing",
        "last_id",
        "owes",
    )

    def __init__(self, clock: Clock, wall: Clock, limits: Limits) -> None:
        self._clock = clock
        self._wall = wall
        self._limits = limits
        self._out: list[list[Buffer]] = []
        self._opening = True  # `outgoing` was never asked
        self._heard = -1  # the last message id
        self._over = False  # nothing more is taken, or sent but last words
        self.last_id = -1
        self.closing: str | None = None
        self.closed = False
        self.owes = True

    def _write(self, message: Message) -> list[Buffer]:
        number = self.last_id + 1
        data = encode(message, sent_at=self._wall(), message_id=number, limits=self._limits)
        self.last_id = number
        return [data]

    def _say(self, message: list[Buffer]) -> None:
        """Have `outgoing` return a message."""
        self._out.append(message)
        self.owes = True

    def _said(self) -> list[list[Buffer]]:
        out, self._out = self._out, []
        self.owes = self.closed
        return out

    def _hear(self, message: Buffer) -> Any:
        """Return what came."""
        told = decode(message, limits=self._limits)
        number = told.message_id
        # The common case first: `plain_id` gives an int that is in order as it is.
        if type(number) is not int or not self._heard < number < 2**63:
            number = plain_id(number, "message_id")
            if not isinstance(number, int):
                self._check_name(told, number)
                return told
            if number <= self._heard:
                raise RemoteProtocolError(
                    f"{told.method} with message_id {number} after {self._heard}: they must go up"
                )
        self._heard = number
        return told

    def _check_name(self, told: Message, name: str | None) -> None:
        """Look at a message id that is no number."""

    def _check_open(self) -> None:
        """Raise LocalProtocolError if nothing more can be sent."""
        if self._over:
            why = "" if self.closing is None else f": {self.closing}"
            raise LocalProtocolError(f"the rewarder's connection is closed{why}")


class Push:
    """What a server pushes to many connections, written once.

    Each connection counts its messages, so the bytes have a gap for the message id.

    Attributes:
        episode_id: that it is of.
        size: its bytes, with a message id of one digit.
    """

    __slots__ = ("_head", "_tail", "episode_id", "size")

    def __init__(self, message: Message, sent_at: float, limits: Limits = DEFAULT) -> None:
        self.episode_id = message.episode_id
        data = encode(message, sent_at=sent_at, message_id=0, limits=limits)
        self.size = size = len(data)
        if size - 1 + _LONGEST > limits.message:
            raise LimitExceeded("message", limits.message, size - 1 + _LONGEST)
        # The first one is the header's: before it are the method, in which a quotation mark would
        # have a backslash before it, and `sent_at`, a number.
        gap = data.index(_ID) + len(_ID)
        self._head = data[:gap]
        self._tail = data[gap + 1 :]

    def numbered(self, number: int) -> list[Buffer]:
        """Return the message with this id, long ones in two buffers: the second is shared."""
        tail = self._tail
        if len(tail) <= _JOINED:
            return [b"%b%d%b" % (self._head, number, tail)]
        return [b"%b%d" % (self._head, number), tail]


# --- a client's requests, and which reply is to which

NEVER: Final = math.inf
_REMEMBERED: Final = 256  # requests answered or given up


@dataclass(slots=True)
class Request:
    """One that waits for its reply.

    Attributes:
        number: its message id.
        what: ``"reset"`` or ``"ping"``.
        sent: when.
        due: when it is given up.
    """

    number: int
    what: str
    sent: float
    due: float


class Requests:
    """Those that wait, and the last ones that do not any more.

    Attributes:
        due: when the next one is given up, `NEVER` if none waits.
        late: replies to requests that were given up.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, Request] = {}
        self._gone: dict[int, bool] = {}  # given up: True; answered: False
        self.due = NEVER
        self.late = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, number: int, what: str, now: float, timeout: float) -> None:
        """Wait for a reply."""
        self._waiting[number] = Request(number, what, now, now + timeout)
        self.due = min(self.due, now + timeout)

    def give_up(self, now: float) -> list[Request]:
        """Return those whose time is over, and wait for them no more."""
        if now < self.due:
            return []
        over = [request for request in self._waiting.values() if now >= request.due]
        for request in over:
            self._forget(request, given_up=True)
        return over

    def forgo(self, number: int) -> bool:
        """Wait for this one no more; returns whether it waited."""
        request = self._waiting.get(number)
        if request is not None:
            self._forget(request, given_up=True)
        return request is not None

    def clear(self) -> None:
        """Wait for none."""
        self._waiting.clear()
        self.due = NEVER

    def answered(self, reply: Message, what: str) -> Request | None:
        """Return the request that a reply is to; None, and it is counted, if that was given up."""
        parent, request = self._find(reply)
        if request is None:
            self._late(reply, parent)
        elif request.what != what:
            raise RemoteProtocolError(f"{reply.method} to message {parent}, a {request.what}")
        return request

    def failed(self, reply: Message, last: int) -> tuple[int | None, str] | None:
        """Return the id of what an error is about, and what that was."""
        parent, request = self._find(reply)
        if request is not None:
            return request.number, request.what
        if parent is None:
            return None, "message"
        if isinstance(parent, int) and parent not in self._gone and parent <= last:
            return parent, "message"
        self._late(reply, parent)
        return None

    def _find(self, reply: Message) -> tuple[int | str | None, Request | None]:
        parent = plain_id(reply.parent_message_id, "parent_message_id")
        request = self._waiting.get(parent) if isinstance(parent, int) else None
        if request is not None:
            self._forget(request, given_up=False)
        return parent, request

    def _late(self, reply: Message, parent: int | str | None) -> None:
        if parent is None:
            raise RemoteProtocolError(f"{reply.method} without a parent_message_id")
        given_up = self._gone.get(parent) if isinstance(parent, int) else None
        if given_up is None:
            raise RemoteProtocolError(
                f"{reply.method} to {parent!r}, no message that it can answer"
            )
        if not given_up:
            raise RemoteProtocolError(f"{reply.method} is a second reply to message {parent}")
        assert isinstance(parent, int)
        self._gone[parent] = False
        self.late += 1

    def _forget(self, request: Request, *, given_up: bool) -> None:
        del self._waiting[request.number]
        self._gone[request.number] = given_up
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        if request.due <= self.due:
            self.due = min((one.due for one in self._waiting.values()), default=NEVER)


# --- settings


@dataclass(frozen=True)
class ClientSettings:
    """Numbers of a client.

    Attributes:
        first_pings: pings at the beginning, one after another, so that the clocks are compared
            soon. 8; the original makes 10.
        ping_interval: seconds between pings after those; None for none. 30: in that time two clocks
            drift apart by a millisecond or so.
        ping_timeout: seconds in which a ping must be answered.
        reset_timeout: the same for a reset. 120: a game in a browser loads for minutes.
    """

    first_pings: int = 8
    ping_interval: float | None = 30.0
    ping_timeout: float = 30.0
    reset_timeout: float = 120.0

    def __post_init__(self) -> None:
        if type(self.first_pings) is not int or self.first_pings < 0:
            raise ValueError(f"first_pings must be an int from 0 on, not {self.first_pings!r}")
        for name in ("ping_interval", "ping_timeout", "reset_timeout"):
            value = getattr(self, name)
            if value is None and name == "ping_interval":
                continue
            if value is None or not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a number over 0, not {value!r}")
