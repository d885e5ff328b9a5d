"""The rewarder's client: requests and their replies, pings, and episodes added up to steps.

The inner session of a WebSocket's client, for one connection and one thread. No I/O and no clock:
`clock` only goes forward (`time.monotonic`), `wall` tells the date (`time.time`), which messages
carry. What the document leaves open: docs/protocols/rewarder.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from rlwire.codecs.rewarder import (
    AgentAction,
    ClientMessage,
    ConnectionClose,
    ControlPing,
    EnvDescribe,
    EnvObservation,
    EnvReset,
    EnvReward,
    EnvText,
    ReplyControlPing,
    ReplyEnvReset,
    ReplyError,
    RewarderMessage,
    UnknownMessage,
)
from rlwire.codecs.rewarder.infos import BEGUN
from rlwire.codecs.websocket.handshake import basic_header
from rlwire.errors import LocalProtocolError, RemoteProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.rewarder.rules import (
    Buffer,
    Clock,
    EpisodeKey,
    RewarderSession,
    episode_key,
    name_of,
    plain_id,
)
from rlwire.sessions.rewarder.steps import ClockEstimate, ClockOffset, EpisodeTracker, RewarderStep

PENDING: Final = 64
"""Requests that may wait for replies."""

NEVER: Final = math.inf
_REMEMBERED: Final = 256  # requests answered or given up

PUSHES: Final = frozenset((EnvObservation, EnvReward, EnvText))
"""Events that are in what `RewarderClientSession.take` gives already."""


@dataclass(frozen=True)
class RequestDone:
    """A request was answered, refused or given up.

    Attributes:
        request: the message id of the request, None if the server's error does not say.
        what: ``"reset"``, ``"ping"`` or ``"message"``, which is anything else.
        seconds: since the request was sent; 0 for a message.
        error: the server's words, if it refused the request.
        timed_out: whether no reply came in time; one that still comes is dropped.
    """

    request: int | None
    what: str
    seconds: float = 0.0
    error: str | None = None
    timed_out: bool = False


Event: TypeAlias = RewarderMessage | RequestDone


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


class PendingRequest(NamedTuple):
    """A request that waits for its reply."""

    number: int
    what: str
    sent: float
    due: float


class PendingRequests:
    """Requests that wait for their replies, and the last ones that do not any more."""

    def __init__(self) -> None:
        self.waiting: dict[int, PendingRequest] = {}  # by message id
        self._gone: dict[int, bool] = {}  # given up: True; answered: False
        self.due = NEVER  # when the next one is given up
        self.late = 0  # replies to requests that were given up

    def add(self, number: int, what: str, now: float, timeout: float) -> None:
        """Wait for a reply."""
        self.waiting[number] = PendingRequest(number, what, now, now + timeout)
        self.due = min(self.due, now + timeout)

    def expire(self, now: float) -> list[PendingRequest]:
        """Give up the requests whose time is over, and return them."""
        if now < self.due:
            return []
        over = [request for request in self.waiting.values() if now >= request.due]
        for request in over:
            self.forget(request.number, given_up=True)
        return over

    def forget(self, number: int, *, given_up: bool) -> PendingRequest | None:
        """Wait for this one no more; return it if it waited."""
        request = self.waiting.pop(number, None)
        if request is not None:
            self._gone[number] = given_up
            if len(self._gone) > _REMEMBERED:
                del self._gone[next(iter(self._gone))]
            if request.due <= self.due:
                self.due = min((one.due for one in self.waiting.values()), default=NEVER)
        return request

    def clear(self) -> None:
        """Wait for none."""
        self.waiting.clear()
        self.due = NEVER

    def answered(self, reply: RewarderMessage, what: str) -> PendingRequest | None:
        """Return the request that a reply is to; None, and it is counted, if that was given up."""
        parent, request = self._find(reply)
        if request is None:
            self._count_late(reply, parent)
        elif request.what != what:
            raise RemoteProtocolError(f"{reply.method} to message {parent}, a {request.what}")
        return request

    def failed(self, reply: ReplyError, last: int, now: float) -> RequestDone | None:
        """Return what an error is about, the last message id being `last`; None as `answered`."""
        parent, request = self._find(reply)
        if request is not None:
            seconds = now - request.sent
            return RequestDone(request.number, request.what, seconds, reply.message)
        if parent is None:
            return RequestDone(None, "message", error=reply.message)
        if isinstance(parent, int) and parent not in self._gone and parent <= last:
            return RequestDone(parent, "message", error=reply.message)
        self._count_late(reply, parent)
        return None

    def _find(self, reply: RewarderMessage) -> tuple[int | str | None, PendingRequest | None]:
        parent = plain_id(reply.parent_message_id, "parent_message_id")
        return parent, self.forget(parent, given_up=False) if isinstance(parent, int) else None

    def _count_late(self, reply: RewarderMessage, parent: int | str | None) -> None:
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


def handshake_headers(password: str = "openai", observer: bool = False) -> list[tuple[str, str]]:
    """Return the header lines that a client's WebSocket handshake has for a rewarder.

    Args:
        password: travels as the user name of Basic credentials, so it has no colon.
        observer: whether the client only looks on.

    Raises:
        EncodeError: the password cannot be sent.
    """
    return [
        ("Authorization", basic_header(password, "")),
        ("openai-observer", "true" if observer else "false"),
    ]


class RewarderClientSession(RewarderSession):
    """An agent's side of one rewarder connection.

    `closed` is whether the server said ``v0.connection.close`` or broke a rule.

    Args:
        clock: seconds of a clock that only goes forward; `tick` is given the same.
        wall: seconds since 1970.
        observer: whether the handshake said so: no reset and no action can be sent.
        attach: whether to join the episode that is described first, without a reset. None: as
            `observer`.
        settings: times and bounds.
        limits: maxima for what is read and written.

    Attributes:
        episodes: what came, and was not taken.
        env_id, env_state, fps: what the server last described, None before.
        about: what else it said of the environment, by names that the protocol does not have.
        stale: pushes of an episode that is over, or of none that was asked for.
        unknown: messages of methods that are not known.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        wall: Clock,
        observer: bool = False,
        attach: bool | None = None,
        settings: ClientSettings | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(clock, wall, DEFAULT if limits is None else limits)
        self._observer = observer
        self._attach = observer if attach is None else attach
        self._settings = ClientSettings() if settings is None else settings
        self._requests = PendingRequests()
        self._reset: int | None = None  # the last one, while it waits for its reply
        self._pings_left = self._settings.first_pings
        self._ping_due = NEVER
        self._events: list[Event] = []  # of `tick`, for the next `receive`
        self.episodes = EpisodeTracker()
        self._newest: tuple[EpisodeKey, str] | None = None
        self._known: tuple[EpisodeKey, str] | None = None  # the last one that `_episode_of` read
        self._described: EpisodeKey | None = None  # the episode of what follows
        self.env_id: str | None = None
        self.env_state: str | None = None
        self.fps: float | None = None
        self.about: Mapping[str, Any] = {}
        self._offset = ClockOffset()
        self._shift: float | None = None  # the estimate after the last pong
        self.stale = self.unknown = 0

    @property
    def episode_id(self) -> str | None:
        """The episode that the next `take` is of; None while none is open, and between two."""
        current = self.episodes.current
        return None if current is None else current.step.episode_id

    @property
    def resetting(self) -> bool:
        """Whether a reset was asked for, and neither replied to nor given up."""
        return self._reset is not None

    @property
    def asking(self) -> bool:
        """Whether a reply is waited for."""
        return self._requests.due < NEVER

    @property
    def news(self) -> bool:
        """Whether `take` has something to give."""
        current = self.episodes.current
        return current is not None and current.news

    def clock_offset(self) -> ClockEstimate | None:
        """Return how the server's clock differs from `wall`; None before the first ping's reply."""
        return self._offset.estimate(self._clock())

    def send(self, event: ClientMessage | UnknownMessage) -> list[Buffer]:
        """Return the bytes of a message, to which its id, `last_id`, and its time are added.

        A reset also gets the newest episode's id, if it has none, and from now on what is not newer
        is dropped.

        Raises:
            LocalProtocolError: the connection is over; it is not for an observer to send; or too
                many requests wait for replies. Nothing was sent.
            EncodeError, LimitExceeded: it cannot be written; nothing was sent.
        """
        kind = type(event)
        if kind not in _FROM_CLIENT and kind is not UnknownMessage:
            raise LocalProtocolError(f"a client cannot send {name_of(event)}")
        if self._over:
            self._check_open()
        if kind is ControlPing:
            return self._ask(event, "ping", self._settings.ping_timeout)
        if self._observer and kind is not UnknownMessage:
            raise LocalProtocolError(f"an observer cannot send {name_of(event)}")
        if kind is not EnvReset:
            return self._write(event)
        if event.episode_id is None:
            # As the original's first reset: 0 is older than whatever the server is about to begin.
            newest = "0" if self._newest is None else self._newest[1]
            event = event.with_headers(episode_id=newest)
        buffers = self._ask(event, "reset", self._settings.reset_timeout)
        self._attach = False
        self._reset = self.last_id
        self.episodes.expect(None if self._newest is None else self._newest[0])
        return buffers

    def _ask(self, request: RewarderMessage, what: str, timeout: float) -> list[Buffer]:
        waiting = len(self._requests.waiting)
        if waiting >= PENDING:
            raise LocalProtocolError(f"{waiting} requests wait for replies, as many as may")
        buffers = self._write(request)
        self._requests.add(self.last_id, what, self._clock(), timeout)
        return buffers

    def cancel(self, number: int) -> None:
        """Give up the request with this message id; a reply that still comes is dropped."""
        if self._requests.forget(number, given_up=True) is not None:
            self._fail_reset(number)

    def _fail_reset(self, number: int | None) -> None:
        """End the last reset, if that is what has failed."""
        if number is not None and number == self._reset:
            self._reset = None
            # An episode that the server has begun by itself meanwhile stays open.
            if not self.episodes.is_open:
                self.episodes.close()

    def outgoing(self) -> list[list[Buffer]]:
        """Return the messages that the session sends by itself, pings, and forget them."""
        if self._opening:
            self._opening = False
            now = self._clock()
            if self._pings_left:
                self._ping(now)
            elif self._settings.ping_interval is not None:
                self._ping_due = now + self._settings.ping_interval
        return self._flush()

    def _ping(self, now: float) -> None:
        if self._pings_left:
            self._pings_left -= 1
        interval = self._settings.ping_interval
        self._ping_due = NEVER if interval is None else now + interval
        if len(self._requests.waiting) < PENDING:
            self._enqueue(self._ask(ControlPing(), "ping", self._settings.ping_timeout))

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do; None if never."""
        due = min(self._requests.due, self._ping_due)
        return None if due == NEVER or self._over else due

    def tick(self, now: float) -> None:
        """Let time pass; what happens is among the events of the next `receive`."""
        if self._over:
            return
        for request in self._requests.expire(now):
            seconds = request.due - request.sent
            self._events.append(RequestDone(request.number, request.what, seconds, timed_out=True))
            self._fail_reset(request.number)
        del self._events[: -2 * PENDING]
        if now >= self._ping_due:
            self._ping(now)

    def receive(self, message: Buffer) -> list[Event]:
        """Return the events of one message.

        A push that counts (`EnvReward`, `EnvText`, `EnvObservation`) is its own event, and already
        in what `take` will give; one that does not gives none. `EnvDescribe`, `ConnectionClose` and
        `UnknownMessage` are events too, and so is `RequestDone`.

        Raises:
            DecodeError, LimitExceeded: it is no message; the session is closed.
            RemoteProtocolError: it is not allowed; the session is closed.
        """
        if self._over:
            return []
        try:
            told = self._decode(message)
            events = _HANDLERS[type(told)](self, told)
        except RlwireError:
            self._end()
            raise
        if self._events:
            events = self._events + events
            self._events = []
        return events

    def _on_describe(self, told: EnvDescribe) -> list[Event]:
        key, episode_id = self._episode_of(told)
        if self._newest is not None and key < self._newest[0]:
            self.stale += 1
            return []
        self.env_id, self.env_state, self.fps = told.env_id, told.env_state, told.fps
        self.about = told.extra_body
        self._described = key
        episodes = self.episodes
        if (self._attach and not episodes.is_open) or (
            self._reset is not None and episodes.newer(key)
        ):
            episodes.open(key, episode_id)
        episode = episodes.place(key, episode_id)
        if episode is not None:
            episode.describe(told.env_state, told.extra_body.get(BEGUN))
        return [told]

    def _on_push(self, told: Any) -> list[Event]:
        episode = self.episodes.current
        if episode is None or told.episode_id != episode.step.episode_id:
            episode = self.episodes.place(*self._episode_of(told))
            if episode is None:
                self.stale += 1
                return []
        if type(told) is EnvReward:
            episode.add_reward(told.reward, told.done, told.info)
        elif type(told) is EnvText:
            episode.add_text(told.text)
        else:
            episode.add_observation(told.observation)
        if told.sent_at is not None:
            episode.step.sent_at = told.sent_at
        return [told]

    def _on_close(self, told: ConnectionClose) -> list[Event]:
        self.closing = told.message
        self._end()
        return [told]

    def _on_error(self, told: ReplyError) -> list[Event]:
        done = self._requests.failed(told, self.last_id, self._clock())
        if done is None:
            return []
        self._fail_reset(done.request)
        return [done]

    def _on_reset_done(self, told: ReplyEnvReset) -> list[Event]:
        request = self._requests.answered(told, "reset")
        if request is None:
            return []
        key, episode_id = self._episode_of(told)
        if request.number == self._reset:
            self._reset = None
            self.episodes.open(key, episode_id)
            episode = self.episodes.place(key, episode_id)
            if episode is not None and key == self._described:
                episode.describe(self.env_state)
        return [RequestDone(request.number, "reset", self._clock() - request.sent)]

    def _on_pong(self, told: ReplyControlPing) -> list[Event]:
        now, date = self._clock(), self._wall()
        request = self._requests.answered(told, "ping")
        if request is None:
            return []
        elapsed = now - request.sent
        if told.sent_at is not None:
            self._offset.add(
                now=now,
                received=date,
                elapsed=elapsed,
                replied=told.sent_at,
                runtime=told.parent_runtime,
            )
            estimate = self._offset.estimate(now)
            self._shift = None if estimate is None else estimate.offset
        if self._pings_left:
            self._ping(now)
        return [RequestDone(request.number, "ping", elapsed)]

    def _on_unknown(self, told: UnknownMessage) -> list[Event]:
        self.unknown += 1
        return [told]

    def _on_wrong_way(self, told: RewarderMessage) -> list[Event]:
        raise RemoteProtocolError(f"{told.method} is for clients to send")

    def _episode_of(self, told: RewarderMessage) -> tuple[EpisodeKey, str]:
        """Return a message's episode, as it is compared and as it is written."""
        known, episode_id = self._known, told.episode_id
        # Nearly all messages are of the same episode as the one before.
        if known is None or episode_id is None or episode_id != known[1]:
            key = episode_key(episode_id, told.method)
            assert episode_id is not None
            self._known = known = key, episode_id
        if self._newest is None or known[0] > self._newest[0]:
            self._newest = known
        return known

    def _end(self) -> None:
        self._over = self.closed = self.owes = True
        self._requests.clear()
        self._out.clear()
        self._ping_due = NEVER
        self._reset = None

    def refuse(self, error: RlwireError) -> list[Buffer]:
        """End the session; there are no words for it: the WebSocket's close code tells."""
        self._end()
        return []

    def _server_time(self) -> float | None:
        """Return the server's time; None if that is not known."""
        return None if self._shift is None else self._wall() + self._shift

    def take(self) -> RewarderStep:
        """Return what the server has pushed since the last call, of one episode.

        Also after the end of the connection, for what came before it.
        """
        return self.episodes.take(self._server_time())

    def peek(self) -> RewarderStep:
        """Return what `take` would give, and leave it there."""
        return self.episodes.peek(self._server_time())

    def take_texts(self) -> tuple[str, ...]:
        """Return the texts of the current episode that have come, and forget them alone."""
        current = self.episodes.current
        return () if current is None else current.take_texts()

    def statistics(self) -> dict[str, int]:
        """Return the counters by name."""
        return {
            "stale": self.stale,
            "late": self._requests.late,
            "unknown": self.unknown,
            "skipped": self.episodes.skipped,
        }


_FROM_CLIENT: Final = frozenset((AgentAction, EnvReset, ControlPing))

_HANDLERS: Final[dict[type, Callable[[RewarderClientSession, Any], list[Event]]]] = {
    EnvDescribe: RewarderClientSession._on_describe,
    **dict.fromkeys(PUSHES, RewarderClientSession._on_push),
    ConnectionClose: RewarderClientSession._on_close,
    ReplyError: RewarderClientSession._on_error,
    ReplyEnvReset: RewarderClientSession._on_reset_done,
    ReplyControlPing: RewarderClientSession._on_pong,
    UnknownMessage: RewarderClientSession._on_unknown,
    **dict.fromkeys(_FROM_CLIENT, RewarderClientSession._on_wrong_way),
}
