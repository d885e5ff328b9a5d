"""The rewarder's client: requests and their replies, pings, and episodes as steps.

The layer in a WebSocket's client, for one connection and one thread. `clock` is monotonic
(`time.monotonic`), `wall` is the date (`time.time`) for `sent_at`. docs/protocols/rewarder.md has
the choices that the protocol's document leaves open.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from rlwire.codecs.rewarder import (
    AgentAction,
    ConnectionClose,
    ControlPing,
    EnvDescribe,
    EnvObservation,
    EnvReset,
    EnvReward,
    EnvStep,
    EnvText,
    ReplyControlPing,
    ReplyEnvReset,
    ReplyError,
    RewarderMessage,
    UnknownMessage,
    encode_binary,
    is_binary,
)
from rlwire.codecs.rewarder.infos import BEGUN
from rlwire.codecs.websocket.frames import Binary
from rlwire.codecs.websocket.handshake import basic_header
from rlwire.errors import LocalProtocolError, RemoteProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, LayerPhase
from rlwire.sessions.rewarder.rules import (
    Clock,
    EpisodeKey,
    RewarderSession,
    episode_key,
    name_of,
    plain_id,
)
from rlwire.sessions.rewarder.steps import ClockEstimate, ClockOffset, EpisodeTracker, RewarderStep

PENDING: Final = 64  # requests that may be pending
FIRST_PINGS: Final = 8  # one after another, to compare the clocks; the original sends 10
PING_INTERVAL: Final = 30.0  # seconds; clocks drift apart by about a millisecond in that time
PING_TIMEOUT: Final = 30.0  # seconds
RESET_TIMEOUT: Final = 120.0  # seconds: a browser game may take minutes to load
NEVER: Final = math.inf
_REMEMBERED: Final = 256  # cancelled requests
_EXACT: Final = 2.0**53  # integers below it are floats without a loss

PUSHES: Final = frozenset((EnvObservation, EnvReward, EnvStep, EnvText))
"""Events that are also part of the next `RewarderClientSession.pop_step`."""


class RequestDone(Struct, frozen=True):
    """A request was answered, was refused (`error`) or timed out.

    `request` is its message id, None if the server's error has none. `what` is ``"reset"``,
    ``"ping"``, or ``"message"`` for others.
    """

    request: int | None
    what: str
    seconds: float = 0.0
    error: str | None = None
    timed_out: bool = False


Event: TypeAlias = RewarderMessage | RequestDone | list[Any]


class _Request(Struct):
    number: int | None
    what: str
    sent: float
    due: float


def handshake_headers(password: str = "openai", observer: bool = False) -> list[tuple[str, str]]:
    """Return the headers of a client's WebSocket handshake.

    The password is the user name of Basic credentials; EncodeError if it has a colon.
    """
    return [
        ("Authorization", basic_header(password, "")),
        ("openai-observer", "true" if observer else "false"),
    ]


class RewarderClientSession(RewarderSession):
    """An agent's side of one rewarder connection.

    `closed` is True after ``v0.connection.close`` and after a protocol error.

    Args:
        observer: whether the client is an observer, which cannot send resets and actions.
        attach: whether to join the first episode without a reset; by default for observers.
        first_pings, ping_interval, ping_timeout: number of pings at the start, and seconds; an
            interval of None sends no further pings.

    Attributes:
        episodes: pushes that `pop_step` has not returned yet.
        env_id, env_state, fps: of the server's last description, None before.
        about: the description's unknown members.
        stale: dropped pushes, whose episode is over or was not requested by a reset.
        late: replies to cancelled requests.
        takes_step: whether to keep the next step for `taken_step`, if it is the only news; the
            event is then a list.
        unknown: messages with unknown methods.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        wall: Clock,
        observer: bool = False,
        attach: bool | None = None,
        first_pings: int = FIRST_PINGS,
        ping_interval: float | None = PING_INTERVAL,
        ping_timeout: float = PING_TIMEOUT,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(clock, wall, DEFAULT if limits is None else limits)
        self._observer = observer
        self._binary = False  # whether the server has sent a binary message, so reads them
        self._attach = observer if attach is None else attach
        self._pings_left, self._ping_interval = first_pings, ping_interval
        self._ping_timeout = ping_timeout
        self._ping_due = NEVER
        self._waiting: dict[int, _Request] = {}
        self._given_up: deque[int] = deque(maxlen=_REMEMBERED)
        self._due = NEVER  # when the next request times out
        self._reset: int | None = None  # the last one, while it is pending
        self._events: list[Event] = []  # of `tick`, for the next `receive`
        self.episodes = EpisodeTracker()
        self._newest: tuple[EpisodeKey, str] | None = None
        self._known: tuple[EpisodeKey, str] | None = None  # the last one that `_episode_of` parsed
        self._described: EpisodeKey | None = None  # the episode of the following attributes
        self.env_id: str | None = None
        self.env_state: str | None = None
        self.fps: float | None = None
        self.about: Mapping[str, Any] = {}
        self.takes_step = False
        self._taken: list[Any] | None = None
        self._offset = ClockOffset()
        self._shift: float | None = None  # the estimate after the last pong
        self.stale = self.late = self.unknown = 0

    @property
    def episode_id(self) -> str | None:
        """The episode of the next `pop_step`; None while no episode is open, and between two."""
        current = self.episodes.current
        return None if current is None else current.step.episode_id

    @property
    def has_requests(self) -> bool:
        """Whether a request is pending."""
        return self._due < NEVER

    @property
    def has_news(self) -> bool:
        """Whether `pop_step` has pushes to return."""
        current = self.episodes.current
        return current is not None and current.has_news

    def clock_offset(self) -> ClockEstimate | None:
        """Return the server's clock minus `wall`; None before the first reply to a ping."""
        return self._offset.estimate(self._clock())

    def send(self, event: Any) -> Sequence[Buffer]:
        """Return the bytes of a message, with the next id, `last_id`, and the time.

        A tuple is an action: its events, which must begin with their names.
        A reset without an episode id gets the newest episode's. From then on, pushes of that
        episode and of older ones are dropped.
        """
        if type(event) is tuple:
            if not (self._ended or self._observer):
                number = self.last_id + 1
                if self._binary:
                    parts = self._codec.encode(2, number, self._wall(), None, event)
                    if parts is not None:
                        self.last_id = number
                        return Binary(parts)
                data = self._codec.write_plain(2, number, self._wall(), None, (event,))
                if data is not None:
                    self.last_id = number
                    return [data]
            event = AgentAction(event)
        kind = type(event)
        if kind not in _FROM_CLIENT and kind is not UnknownMessage:
            raise LocalProtocolError(f"a client cannot send {name_of(event)}")
        if self._ended:
            self._check_open()
        if kind is ControlPing:
            return self._ask(event, "ping", self._ping_timeout)
        if self._observer and kind is not UnknownMessage:
            raise LocalProtocolError(f"an observer cannot send {name_of(event)}")
        if self._binary and isinstance(event, AgentAction):
            parts = encode_binary(event, self._wall(), self.last_id + 1, self._limits)
            if parts is not None:
                self.last_id += 1
                return Binary(parts)
        if kind is not EnvReset:
            return self._write(event)
        if event.episode_id is None:
            # Like the original's first reset: 0 is older than any episode of the server.
            newest = "0" if self._newest is None else self._newest[1]
            event = event.with_headers(episode_id=newest)
        buffers = self._ask(event, "reset", RESET_TIMEOUT)
        self._attach = False
        self._reset = self.last_id
        self.episodes.expect(None if self._newest is None else self._newest[0])
        return buffers

    def _ask(self, request: RewarderMessage, what: str, timeout: float) -> list[Buffer]:
        if len(self._waiting) >= PENDING:
            raise LocalProtocolError(f"{PENDING} requests are pending, which is the limit")
        buffers = self._write(request)
        now = self._clock()
        self._waiting[self.last_id] = _Request(self.last_id, what, now, now + timeout)
        self._due = min(self._due, now + timeout)
        return buffers

    def _forget(self, number: int) -> _Request | None:
        """Return the pending request with this message id, and forget it; None if there is none."""
        request = self._waiting.pop(number, None)
        if request is not None and request.due <= self._due:
            self._due = min((each.due for each in self._waiting.values()), default=NEVER)
        return request

    def cancel(self, number: int) -> None:
        """Cancel the request with this message id; a late reply is dropped."""
        if self._forget(number) is not None:
            self._given_up.append(number)
            self._fail_reset(number)

    def _fail_reset(self, number: int | None) -> None:
        """End the last reset if it failed; an episode that the server began itself stays open."""
        if number is not None and number == self._reset:
            self._reset = None
            if not self.episodes.is_open:
                self.episodes.close()

    def _answered(self, reply: RewarderMessage, what: str | None = None) -> _Request | None:
        """Return the request of a reply, and forget it; None if it was cancelled."""
        parent = plain_id(reply.parent_message_id, "parent_message_id")
        request = self._forget(parent) if isinstance(parent, int) else None
        if request is not None:
            if what not in (None, request.what):
                raise RemoteProtocolError(f"{reply.method} to message {parent}, a {request.what}")
            return request
        if isinstance(parent, int) and parent in self._given_up:
            self._given_up.remove(parent)
            self.late += 1
            return None
        if what is None and (
            parent is None or (isinstance(parent, int) and parent <= self.last_id)
        ):
            now = self._clock()
            return _Request(parent, "message", now, now)
        raise RemoteProtocolError(
            f"{reply.method} with parent_message_id {parent!r}, which is no pending request"
        )

    def output(self) -> list[list[Buffer]]:
        """Return and forget the pings that the session sends by itself."""
        if self._opening:
            self._opening = False
            now = self._clock()
            if self._pings_left:
                self._ping(now)
            elif self._ping_interval is not None:
                self._ping_due = now + self._ping_interval
        return self._flush()

    def _ping(self, now: float) -> None:
        if self._pings_left:
            self._pings_left -= 1
        interval = self._ping_interval
        self._ping_due = NEVER if interval is None else now + interval
        if len(self._waiting) < PENDING:
            self._enqueue(self._ask(ControlPing(), "ping", self._ping_timeout))

    def next_deadline(self) -> float | None:
        due = min(self._due, self._ping_due)
        return None if due == NEVER or self._ended else due

    def tick(self, now: float) -> None:
        """Process what is due; the next `receive` returns its events."""
        if self._ended:
            return
        for number, request in [*self._waiting.items()] if now >= self._due else ():
            if now >= request.due:
                took = request.due - request.sent
                self._events.append(RequestDone(number, request.what, took, timed_out=True))
                self.cancel(number)
        del self._events[: -2 * PENDING]
        if now >= self._ping_due:
            self._ping(now)

    def receive(self, message: Buffer) -> list[Event]:
        """Return the events of one message.

        A push that is not stale (one of `PUSHES`) is an event, and also part of the next
        `pop_step`. Other events are `EnvDescribe`, `ConnectionClose`, `UnknownMessage` and
        `RequestDone`. An error closes the session.
        """
        if self._ended:
            return []
        try:
            if self._taken is not None:  # it came first
                self._add(self.episodes.current, self._codec.decode(self._taken))
                self._taken = None
            if is_binary(message):
                self._binary = True
                values = self._codec.values(message)
                if self.takes_step and self._take(values):
                    return [values]
                decoded = self._numbered(self._codec.decode(values))
            else:
                decoded = self._numbered(self._codec.read_text(message))
            events = _HANDLERS[type(decoded)](self, decoded)
        except RlwireError:
            self._end()
            raise
        if self._events:
            events = self._events + events
            self._events = []
        return events

    def _on_describe(self, message: EnvDescribe) -> list[Event]:
        key, episode_id = self._episode_of(message)
        if self._newest is not None and key < self._newest[0]:
            self.stale += 1
            return []
        self.env_id, self.env_state, self.fps = message.env_id, message.env_state, message.fps
        self.about = message.extra_body
        self._described = key
        episodes = self.episodes
        if (self._attach and not episodes.is_open) or (
            self._reset is not None and episodes.newer(key)
        ):
            episodes.open(key, episode_id)
        episode = episodes.buffer_of(key, episode_id)
        if episode is not None:
            episode.describe(message.env_state, message.extra_body.get(BEGUN))
        return [message]

    def _on_push(self, message: Any) -> list[Event]:
        episode = self.episodes.current
        if episode is None or message.episode_id != episode.step.episode_id:
            key, episode_id = self._episode_of(message)
            episode = self.episodes.buffer_of(key, episode_id)
            if episode is None:
                self.stale += 1
                return []
        self._add(episode, message)
        return [message]

    def _take(self, values: list[Any]) -> bool:
        """Keep a binary message for `taken_step` if it is the only news."""
        episode = self.episodes.current
        if (episode is None or episode.has_news or self._events) or not (
            len(values) == 8 and values[0] == 0 and self._is_next(values)
        ):
            return False
        reward, done, info, shown = values[4], values[5], values[6], values[7]
        if (
            values[3] != episode.step.episode_id
            or done is not False
            or not (type(info) is dict and not info)
            or not ((type(reward) is float or type(reward) is int) and abs(reward) < _EXACT)
            or shown is None
            or type(shown) is list
        ):
            return False
        self._received = values[1]
        self.takes_step = False
        episode.step.observation = shown
        self._taken = values
        return True

    def taken_step(self) -> tuple[float, Any] | None:
        """Return reward and observation of the step since `takes_step`, if it is the only news.

        It has no info, and does not end its episode. Others are part of the next `pop_step`.
        """
        taken, self._taken, self.takes_step = self._taken, None, False
        if taken is None:
            return None
        return 0.0 + taken[4], taken[7]

    def _add(self, episode: Any, message: Any) -> None:
        """Make a push part of the episode's next step."""
        kind = type(message)
        if kind is EnvText:
            episode.add_text(message.text)
        if kind is EnvObservation or kind is EnvStep:
            episode.step.observation, episode.has_news = message.observation, True
        if kind is EnvReward or kind is EnvStep:
            episode.add_reward(message.reward, message.done, message.info)
        if message.sent_at is not None:
            episode.step.sent_at = message.sent_at

    def _on_close(self, message: ConnectionClose) -> list[Event]:
        self.close_reason = message.message
        self._end()
        return [message]

    def _on_error(self, message: ReplyError) -> list[Event]:
        request = self._answered(message)
        if request is None:
            return []
        self._fail_reset(request.number)
        took = self._clock() - request.sent
        return [RequestDone(request.number, request.what, took, message.message)]

    def _on_reset_done(self, message: ReplyEnvReset) -> list[Event]:
        request = self._answered(message, "reset")
        if request is None:
            return []
        key, episode_id = self._episode_of(message)
        if request.number == self._reset:
            self._reset = None
            self.episodes.open(key, episode_id)
            episode = self.episodes.buffer_of(key, episode_id)
            if episode is not None and key == self._described:
                episode.describe(self.env_state)
        return [RequestDone(request.number, "reset", self._clock() - request.sent)]

    def _on_pong(self, message: ReplyControlPing) -> list[Event]:
        now, date = self._clock(), self._wall()
        request = self._answered(message, "ping")
        if request is None:
            return []
        elapsed = now - request.sent
        if message.sent_at is not None:
            self._offset.add(
                now=now,
                received=date,
                elapsed=elapsed,
                replied=message.sent_at,
                runtime=message.parent_runtime,
            )
            estimate = self._offset.estimate(now)
            self._shift = None if estimate is None else estimate.offset
        if self._pings_left:
            self._ping(now)
        return [RequestDone(request.number, "ping", elapsed)]

    def _on_unknown(self, message: UnknownMessage) -> list[Event]:
        self.unknown += 1
        return [message]

    def _on_wrong_way(self, message: RewarderMessage) -> list[Event]:
        raise RemoteProtocolError(f"the server sent {message.method}, a client's message")

    def _episode_of(self, message: RewarderMessage) -> tuple[EpisodeKey, str]:
        """Return a message's episode, for comparison and as text."""
        known, episode_id = self._known, message.episode_id
        # Nearly all messages have the same episode as the message before.
        if known is None or episode_id is None or episode_id != known[1]:
            key = episode_key(episode_id, message.method)
            assert episode_id is not None
            self._known = known = key, episode_id
        if self._newest is None or known[0] > self._newest[0]:
            self._newest = known
        return known

    def _end(self) -> None:
        self._ended = self._has_output = True
        self.phase = LayerPhase.CLOSED
        self._waiting.clear()
        self._out.clear()
        self._due = self._ping_due = NEVER
        self._reset = None

    def reject(self, error: RlwireError) -> list[Buffer]:
        """End the session without a message: the WebSocket's close code gives the reason."""
        self._end()
        return []

    def _server_time(self) -> float | None:
        return None if self._shift is None else self._wall() + self._shift

    def pop_step(self) -> RewarderStep:
        """Return the pushes since the last call, of one episode; also after `closed`."""
        return self.episodes.pop_step(self._server_time())

    def peek(self) -> RewarderStep:
        """Return what `pop_step` would return, and keep it."""
        return self.episodes.peek(self._server_time())

    def statistics(self) -> dict[str, int]:
        """Return the counters by name."""
        counted = {name: getattr(self, name) for name in ("stale", "late", "unknown")}
        return {**counted, "skipped": self.episodes.skipped}


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
