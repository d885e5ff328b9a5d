"""The rewarder's client: requests and their replies, pings, and episodes added up to steps.

The inner session of a WebSocket's client (`rlwire.transports.interface.TalkingSession` has the
methods), for one connection and one thread. No I/O and no clock: two clocks are handed in, one that
only goes forward (`time.monotonic`) and one that tells the date (`time.time`), since a message
carries when it was sent. `tick` is given the time of the first of them.

`TRANSITIONS` and `CLIENT_HEARS` of `rlwire.sessions.rewarder.rules` are what may happen.

What the document leaves open: docs/protocols/rewarder.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from rlwire.codecs.rewarder import (
    ClientMessage,
    ConnectionClose,
    ControlPing,
    EnvDescribe,
    EnvObservation,
    EnvReward,
    EnvText,
    Message,
    ReplyControlPing,
    ReplyEnvReset,
    ReplyError,
    UnknownMessage,
)
from rlwire.codecs.rewarder.infos import BEGUN
from rlwire.codecs.websocket.handshake import basic_header
from rlwire.errors import LocalProtocolError, RemoteProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.rewarder.rules import (
    CLIENT_HEARS,
    CLIENT_SAYS,
    NEVER,
    TRANSITIONS,
    Buffer,
    ClientSettings,
    Clock,
    EpisodeKey,
    Phase,
    Requests,
    Side,
    called,
    episode_key,
)
from rlwire.sessions.rewarder.steps import (
    ClockEstimate,
    ClockOffset,
    Episodes,
    Step,
)

__all__ = [
    "PUSHES",
    "Answered",
    "Began",
    "ClientSettings",
    "Event",
    "Failed",
    "Phase",
    "RewarderClientSession",
    "Step",
    "TimedOut",
    "handshake_headers",
]

PENDING: Final = 64
"""Requests that may wait for replies."""

# --- what the agent is told besides messages; `ClientSession.receive` returns it


@dataclass(frozen=True)
class Began:
    """An episode is open from now on: `ClientSession.take` gives what comes of it.

    Also when the server begins one by itself, and the one before has been taken to its end.
    """

    episode_id: str


@dataclass(frozen=True)
class Answered:
    """A reply came.

    Attributes:
        request: the message id of what it answers.
        what: ``"reset"`` or ``"ping"``.
        seconds: since the request was sent.
    """

    request: int
    what: str
    seconds: float


@dataclass(frozen=True)
class Failed:
    """``v0.reply.error``.

    Attributes:
        request: the message id of what it answers, None if it does not say.
        what: ``"reset"``, ``"ping"`` or ``"message"``, which is anything else.
        message: the server's words.
    """

    request: int | None
    what: str
    message: str


@dataclass(frozen=True)
class TimedOut:
    """No reply came in time; one that still comes is dropped.

    Attributes:
        request: the message id.
        what: ``"reset"`` or ``"ping"``.
        seconds: how long was waited.
    """

    request: int
    what: str
    seconds: float


Event: TypeAlias = (
    Message | Began | Answered | Failed | TimedOut
)  # messages: those that `ClientSession.receive` names


PUSHES: Final = frozenset((EnvObservation, EnvReward, EnvText))
"""Events that are in what `ClientSession.take` gives already."""


# --- the session


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


class RewarderClientSession(Side):
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
        self._phase = Phase.IDLE
        # What we say.
        self._requests = Requests()
        self._reset: int | None = None  # the last one, while it waits for its reply
        self._pings_left = self._settings.first_pings
        self._ping_due = NEVER
        # What we hear.
        self._events: list[Event] = []  # of `tick`, for the next `receive`
        self.episodes = Episodes()
        self._newest: tuple[EpisodeKey, str] | None = None
        self._known: tuple[EpisodeKey, str] | None = None  # the last one that `_named` read
        self._told: str | None = None  # the episode of the last `Began`
        self._described: EpisodeKey | None = None  # the episode of what follows
        self.env_id: str | None = None
        self.env_state: str | None = None
        self.fps: float | None = None
        self.about: Mapping[str, Any] = {}
        # What we measure.
        self._offset = ClockOffset()
        self._shift: float | None = None  # the estimate after the last pong
        self.stale = self.unknown = 0

    @property
    def phase(self) -> Phase:
        """Where the client stands with the server's episodes."""
        return self._phase

    @property
    def episode_id(self) -> str | None:
        """The episode that the next `take` is of; None while none is open, and between two."""
        current = self.episodes.current
        return None if current is None else current.episode_id

    @property
    def resetting(self) -> bool:
        """Whether a reset was asked for, and neither replied to nor given up."""
        return self._reset is not None

    @property
    def asking(self) -> bool:
        """Whether a reply is waited for."""
        return self._requests.due < NEVER

    @property
    def late(self) -> int:
        """Replies to requests that were given up."""
        return self._requests.late

    @property
    def skipped(self) -> int:
        """Episodes that a newer one replaced before `take` came to them."""
        return self.episodes.skipped

    @property
    def news(self) -> bool:
        """Whether `take` has something to give."""
        current = self.episodes.current
        return current is not None and current.news

    def clock_offset(self) -> ClockEstimate | None:
        """Return how the server's clock differs from `wall`; None before the first ping's reply."""
        return self._offset.estimate(self._clock())

    # -- what the agent says ---------------------------------------------------------------------

    def send(self, event: ClientMessage | UnknownMessage) -> list[Buffer]:
        """Return the bytes of a message, to which its id and its time are added.

        `last_id` tells the id. A reset also gets the newest episode's id, if it has none, and from
        now on what is not newer is dropped.

        Raises:
            LocalProtocolError: the connection is over; it is not for an observer to send; or too
                many requests wait for replies. Nothing was sent.
            EncodeError, LimitExceeded: it cannot be written; nothing was sent.
        """
        rule = CLIENT_SAYS.get(type(event))
        if rule is None:
            raise LocalProtocolError(f"a client cannot send {called(event)}")
        if self._over:
            self._check_open()
        if rule == "other":
            return self._write(event)
        if rule == "ping":
            return self._ask(event, "ping", self._settings.ping_timeout)
        if self._observer:
            raise LocalProtocolError(f"an observer cannot send {called(event)}")
        if rule == "act":
            return self._write(event)
        if event.episode_id is None:
            # As the original's first reset: 0 is older than whatever the server is about to begin.
            newest = "0" if self._newest is None else self._newest[1]
            event = event.with_headers(episode_id=newest)
        buffers = self._ask(event, "reset", self._settings.reset_timeout)
        self._attach = False
        self._reset = self.last_id
        self._follow("reset")
        self.episodes.expect(None if self._newest is None else self._newest[0])
        self._told = None
        return buffers

    def _ask(self, request: Message, what: str, timeout: float) -> list[Buffer]:
        if len(self._requests) >= PENDING:
            raise LocalProtocolError(
                f"{len(self._requests)} requests wait for replies, as many as may"
            )
        buffers = self._write(request)
        self._requests.add(self.last_id, what, self._clock(), timeout)
        return buffers

    def give_up(self, number: int) -> None:
        """Wait no more for the reply to a request; one that still comes is counted and dropped.

        Args:
            number: the request's message id, as `last_id` told it.
        """
        if self._requests.forgo(number) and number == self._reset:
            self._fail_reset()

    def outgoing(self) -> list[list[Buffer]]:
        """Return the messages that the session sends by itself, pings, and forget them."""
        if self._opening:
            self._opening = False
            now = self._clock()
            if self._pings_left:
                self._ping(now)
            elif self._settings.ping_interval is not None:
                self._ping_due = now + self._settings.ping_interval
        return self._said()

    def _ping(self, now: float) -> None:
        if self._pings_left:
            self._pings_left -= 1
        interval = self._settings.ping_interval
        self._ping_due = NEVER if interval is None else now + interval
        if len(self._requests) < PENDING:
            self._say(self._ask(ControlPing(), "ping", self._settings.ping_timeout))

    # -- time ------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `tick` or `advance` has something to do; None if never."""
        due = min(self._requests.due, self._ping_due)
        return None if due == NEVER or self._over else due

    def tick(self, now: float) -> None:
        """Let time pass; what happens is among the events of the next `receive`."""
        if now >= self._requests.due or now >= self._ping_due:
            self._events += self.advance(now)
            # Each is of a request, and no more requests wait than may.
            del self._events[: -2 * PENDING]

    def advance(self, now: float) -> list[Event]:
        """Let time pass, and return what happens: requests that are not answered in time."""
        if self._over:
            return []
        events: list[Event] = []
        for request in self._requests.give_up(now):
            events.append(TimedOut(request.number, request.what, request.due - request.sent))
            if request.number == self._reset:
                self._fail_reset()
        if now >= self._ping_due:
            self._ping(now)
        return events

    # -- what the server says --------------------------------------------------------------------

    def receive(self, message: Buffer) -> list[Event]:
        """Take one message and return its events.

        A push that counts (`EnvReward`, `EnvText`, `EnvObservation`) is its own event, and already
        in what `take` will give; one that does not gives none. So are `EnvDescribe`,
        `ConnectionClose`, and `UnknownMessage`. `Began` comes before the message that shows it.

        Raises:
            DecodeError, LimitExceeded: it is no message; the session is closed.
            RemoteProtocolError: it is not allowed; the session is closed.
        """
        if self._over:
            return []
        try:
            told = self._hear(message)
            events = _HANDLERS[type(told)](self, told)
        except RlwireError:
            self._end()
            raise
        if self._events:
            events = self._events + events
            self._events = []
        return events

    # One method for each rule of CLIENT_HEARS.

    def _on_describe(self, told: EnvDescribe) -> list[Event]:
        key, episode_id = self._named(told)
        if self._newest is not None and key < self._newest[0]:
            self.stale += 1
            return []
        self.env_id, self.env_state, self.fps = told.env_id, told.env_state, told.fps
        self.about = told.extra_body
        self._described = key
        episodes = self.episodes
        if self._attach and self._phase is Phase.IDLE:
            self._follow("attach")
            episodes.open(key, episode_id)
        elif episodes.newer(key):
            if self._phase is not Phase.PLAYING:
                episodes.open(key, episode_id)
            self._follow("newer")
        episode = episodes.place(key, episode_id)
        if episode is not None:
            episode.describe(told.env_state, told.extra_body.get(BEGUN))
        return self._with_began(told)

    def _on_push(self, told: Any) -> list[Event]:
        """Take a push, unless it is of an episode that does not count."""
        episode = self.episodes.current
        if episode is None or told.episode_id != episode.episode_id:
            key, episode_id = self._named(told)
            episode = self.episodes.place(key, episode_id)
            if episode is None:
                self.stale += 1
                return []
        if type(told) is EnvReward:
            episode.add_reward(told.reward, told.done, told.info)
        elif type(told) is EnvText:
            episode.add_text(told.text)
        else:
            episode.add_observation(told.observation)
        sent_at = told.sent_at
        if sent_at is not None:
            episode.sent_at = sent_at
        return [told] if episode.episode_id == self._told else self._with_began(told)

    def _on_close(self, told: ConnectionClose) -> list[Event]:
        self.closing = told.message
        self._end()
        return [told]

    def _on_error(self, told: ReplyError) -> list[Event]:
        about = self._requests.failed(told, self.last_id)
        if about is None:
            return []
        number, what = about
        if number is not None and number == self._reset:
            self._fail_reset()
        return [Failed(number, what, told.message)]

    def _on_reset_done(self, told: ReplyEnvReset) -> list[Event]:
        request = self._requests.answered(told, "reset")
        if request is None:
            return []
        key, episode_id = self._named(told)
        seconds = self._clock() - request.sent
        if request.number == self._reset:
            self._reset = None
            self._follow("reply")
            self.episodes.open(key, episode_id)
            episode = self.episodes.place(key, episode_id)
            if episode is not None and key == self._described:
                episode.describe(self.env_state)
        return self._with_began(Answered(request.number, "reset", seconds))

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
        return [Answered(request.number, "ping", elapsed)]

    def _on_unknown(self, told: UnknownMessage) -> list[Event]:
        self.unknown += 1
        return [told]

    def _on_wrong_way(self, told: Message) -> NoReturn:
        raise RemoteProtocolError(f"{told.method} is for clients to send")

    # What they share.

    def _named(self, told: Message) -> tuple[EpisodeKey, str]:
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

    def _with_began(self, event: Event) -> list[Event]:
        current = self.episodes.current
        if current is None or current.episode_id == self._told:
            return [event]
        self._told = current.episode_id
        return [Began(current.episode_id), event]

    def _fail_reset(self) -> None:
        self._reset = None
        if self._phase is Phase.RESETTING:
            self.episodes.close()
        self._follow("failed")

    def _follow(self, event: str) -> None:
        self._phase = TRANSITIONS.get((self._phase, event), self._phase)

    def _end(self) -> None:
        self._over = self.closed = self.owes = True
        self._follow("close")
        self._requests.clear()
        self._out.clear()
        self._ping_due = NEVER
        self._reset = None

    def refuse(self, error: RlwireError) -> list[Buffer]:
        """End the session; there are no words for it: the WebSocket's close code tells."""
        self._end()
        return []

    # -- what the agent takes --------------------------------------------------------------------

    def _date(self) -> float | None:
        """Return the server's time; None if that is not known."""
        return None if self._shift is None else self._wall() + self._shift

    def take(self) -> Step:
        """Return what the server has pushed since the last call, of one episode.

        Also after the end of the connection, for what came before it.
        """
        return self.episodes.take(self._date())

    def peek(self) -> Step:
        """Return what `take` would give, and leave it there."""
        return self.episodes.peek(self._date())

    def take_texts(self) -> tuple[str, ...]:
        """Return the texts of the current episode that have come, and forget them alone."""
        current = self.episodes.current
        return () if current is None else current.take_texts()

    def statistics(self) -> dict[str, int]:
        """Return the counters by name."""
        names = ("stale", "late", "unknown", "skipped")
        return {name: getattr(self, name) for name in names}


_HANDLERS: Final[dict[type, Callable[[RewarderClientSession, Any], list[Event]]]] = {
    kind: getattr(RewarderClientSession, f"_on_{rule}") for kind, rule in CLIENT_HEARS.items()
}
