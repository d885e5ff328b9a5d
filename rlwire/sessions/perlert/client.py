"""PERLERT, an agent's side: from the lobby through a rollout to its ``done``, despite losses."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from rlwire.codecs import perlert
from rlwire.codecs.perlert import Action, LobbyMessage, encode
from rlwire.errors import RlwireError
from rlwire.limits import Limits
from rlwire.sessions.perlert.registration import (
    FIRST_WAIT,
    HOLDING,
    TIMEOUT,
    Address,
    LobbyChanged,
    PerlertState,
    SlotGranted,
    SlotRegistration,
    SlotTaken,
)

Buffer: TypeAlias = bytes | bytearray | memoryview
# Seconds. After `REPEAT` the last action is sent again, so that the loss of an action lasts no
# longer, nor a NAT's memory runs out. Without a step, after `SILENCE` the rollout port is asked for
# a lost ``done`` every `FIRST_WAIT`, without back-off: 4 small datagrams a second are little beside
# the 30 steps that should come.
REPEAT: Final = 0.5
SILENCE: Final = 1.0

# Without a step for so long, lobby information is believed that the run is over: section 6 has a
# server resend ``done`` for 10 s. An old run may be heard of for `STALE` after its end, since
# ``start`` is resent for 5 s besides.
LOST: Final = 10.0
STALE: Final = 15.0

_NEVER: Final = float("inf")
_DROPPED: Final = ("stale", "foreign", "malformed")
_NOBODY: Final[Any] = object()  # equal to no peer


@dataclass(frozen=True)
class EpisodeStarted:
    """The rollout has begun: `PerlertClientSession.act` from now on, for the slot `key`."""

    key: str
    port: int


class Frame(NamedTuple):
    """One rollout step, newer than all before.

    `skipped` are the step numbers missing since the frame before: the network lost them, or the
    server left them out, as it does when it steps faster than it sends. `received` is the `now` of
    its datagram.
    """

    step: int
    timestamp: int
    observation: str
    reward: float | str
    done: bool
    extra: str | None
    skipped: int
    received: float


@dataclass(frozen=True)
class EpisodeFinished:
    """The rollout is over for this agent; the `Frame` before this event was the last."""

    key: str


@dataclass(frozen=True)
class GaveUp:
    """An answer did not come in time: to ``lobby``, ``register``, ``ready`` or ``rollout``.

    After ``lobby`` without a slot the state stays as it was. Otherwise it is IDLE, and
    `PerlertClientSession.register` may try anew.
    """

    what: str
    reason: str


Event: TypeAlias = (
    LobbyChanged
    | SlotGranted
    | SlotTaken
    | LobbyMessage
    | EpisodeStarted
    | Frame
    | EpisodeFinished
    | GaveUp
)


class _Episode:
    """What an agent knows of the rollout that it is in, and of the one before."""

    def __init__(self, address: Address) -> None:
        self.address = address  # the rollout port's
        self.horizon = -1  # the steps of the run before are not newer than this timestamp
        self.ended = -_NEVER  # when that run ended
        self.heard = 0.0  # when the newest step came, or the run began
        self.step = self.timestamp = -1  # of the newest step
        self.frames = self.skipped = self.duplicates = self.late = 0
        self.forget()

    def begin(self, address: Address, now: float) -> None:
        """Begin a rollout."""
        self.on = True
        self.address = address
        self.heard = self.speak_due = now  # speak at once: the server learns that we are there
        self.step = self.timestamp = -1
        if now >= self.ended + STALE:
            self.horizon = -1  # or a server's clock that was set back would never be heard

    def leave(self, now: float) -> None:
        """Remember where a run ended that we were in, or may have been without knowing."""
        self.ended = now
        self.horizon = max(self.horizon, self.timestamp)

    def forget(self) -> None:
        """Be in no run."""
        self.on = False  # whether the state is one of `RUNNING`
        self.hot: Hashable = _NOBODY  # `address` once its steps are known to be ours
        self.action = b""  # the datagram of the action in force
        self.pending = b""  # the same until it is sent
        self.speak_due = _NEVER  # when the rollout port is to be told something

    def take(self, fields: tuple[Any, ...], now: float) -> Frame | None:
        """Return a step as a frame; None, counted, if it is not newer than all before."""
        timestamp, step, observation, reward, done, extra = fields
        # Within a run the order is (STEP_NUMBER, TIMESTAMP): servers may leave the number at 0,
        # as the draft's own example does.
        gap = step - self.step - 1
        if gap:
            if self.step < 0:
                gap = 0
            elif gap > 0:
                self.skipped += gap
            elif gap < -1 or timestamp < self.timestamp:
                self.late += 1
                return None
            elif timestamp == self.timestamp:
                self.duplicates += 1
                return None
            else:
                gap = 0
        self.step = step
        self.timestamp = timestamp
        self.heard = now
        self.frames += 1
        # What Frame() does, without the call of a Python function.
        return tuple.__new__(Frame, (step, timestamp, observation, reward, done, extra, gap, now))


class PerlertClientSession(SlotRegistration):
    """One agent of one server instance; a `rlwire.transports.interface.DatagramSession`.

    All its datagrams must leave from one port. One thread. Give each client a tag of its own, or
    they cannot tell from lobby information who is who.

    `server` is the lobby's address as the transport reports it. `jitter` returns numbers from 0 to
    1: back-off is then longer or shorter by up to a quarter, so that the clients of a server that
    stood still do not all speak at once.
    """

    def __init__(
        self,
        name: str,
        number: int,
        server: Address,
        *,
        limits: Limits | None = None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(name, number, server, limits, jitter)
        self._read = perlert.StepReader(name, number, limits=self._limits).read
        self._episode = _Episode(server)
        self.stale = 0  # steps and starts of an older run, or of one that we are not in
        self.foreign = 0  # from another address than the server's, or for another instance
        self.malformed = 0

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.state is PerlertState.CLOSED

    def statistics(self) -> dict[str, int]:
        """Return counts by name: this object's ``stale``, ``foreign`` and ``malformed``, and more.

        ``frames``: new steps; ``skipped``: the sum of their `Frame.skipped`; ``duplicates``: steps
        equal to the newest one; ``late``: those older than the newest one of the run.
        """
        names = ("frames", "skipped", "duplicates", "late")
        counts = {name: getattr(self._episode, name) for name in names}
        return {**counts, **{name: getattr(self, name) for name in _DROPPED}}

    def act(self, action: str, now: float) -> None:
        """Choose the action that is in force from now on; one that was not sent yet is forgotten.

        If it cannot be sent, the one before stays.
        """
        episode = self._episode
        if not episode.on:
            self._require("act")
        # What Action() does, without the call of a Python function.
        message = tuple.__new__(Action, (self._name, self._number, action))
        episode.action = episode.pending = encode(message, limits=self._limits)
        if now - episode.heard < SILENCE:
            episode.speak_due = now + REPEAT

    def close(self) -> None:
        """Fall silent; the server frees the slot after a while, as PERLERT has no good-bye."""
        self.state = PerlertState.CLOSED
        self._forget()
        self._wanted = False
        self._looking.end()
        self._out.clear()

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Event]:
        """Take one datagram and return what it tells; wrong ones are counted and dropped.

        The state is the one after all events of the list: a lost start may bring three at once.
        """
        episode = self._episode
        if peer is not episode.hot and peer != episode.hot:
            return self._receive(datagram, peer, now)
        try:
            fields = self._read(datagram)
        except RlwireError:
            self.malformed += 1
            return []
        if fields is None:  # a server may have both phases on one port
            return self._receive(datagram, peer, now)
        if fields[0] <= episode.horizon:
            self.stale += 1
            return []
        frame = episode.take(fields, now)
        if frame is None:
            return []
        return self._finish(frame, now) if fields[4] else [frame]

    def advance(self, now: float) -> list[Event]:
        """Do what fell due: ask again, keep alive, give up."""
        episode = self._episode
        if episode.on:
            if now >= episode.heard + TIMEOUT:
                what = "step at all" if self.state is PerlertState.STARTING else "further step"
                reason = f"no {what} from {episode.address} in {TIMEOUT:g} s{self._oddities()}"
                return self._give_up("rollout", reason, now)
            if now >= episode.speak_due:
                self._speak(now)
        expired = self._ask_again(now)
        if expired is not None:
            return self._give_up(expired.what, self._no_answer(expired), now)
        return []

    def next_deadline(self) -> float | None:
        """Return when `advance` has something to do, None for never."""
        episode = self._episode
        if episode.on:  # only information is asked for then
            due = episode.heard + TIMEOUT
            if episode.speak_due < due:
                due = episode.speak_due
            looking = self._looking.due
            return looking if looking < due else due
        due = min(self._asking.due, self._readying.due, self._looking.due)
        return None if due == _NEVER else due

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        """Take what is to be sent now, in order."""
        taken: list[tuple[bytes, Hashable]] = []
        if self._out:
            taken, self._out = self._out, taken
        episode = self._episode
        if episode.pending:
            taken.append((episode.pending, episode.address))
            episode.pending = b""
        return taken

    def _speak(self, now: float) -> None:
        """Say something to the rollout port: any client message asks for a lost ``done``."""
        episode = self._episode
        information = self._looking.datagram
        if not episode.pending:
            # An action that nobody chose could be a valid one, so none is made up.
            self._out.append((episode.action or information, episode.address))
        silent = now - episode.heard
        waiting = silent >= SILENCE or self.state is PerlertState.STARTING
        episode.speak_due = now + (FIRST_WAIT if waiting else REPEAT)
        if silent >= LOST:
            self._send(information)

    def _receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Event]:
        """Take a datagram that is not a step of the run that goes on."""
        if self.closed:
            return []
        if not isinstance(peer, tuple) or peer[:1] != self._server[:1]:
            self.foreign += 1
            return []
        try:
            fields = self._read(datagram)
            if fields is not None:
                return self._first_step(fields, peer, now)
            message = perlert.decode_server_message(datagram, limits=self._limits)
        except RlwireError:
            self.malformed += 1
            return []
        # Only steps may come from another port than the lobby's.
        if (message.name, message.number) != (self._name, self._number) or peer != self._server:
            self.foreign += 1
            return []
        if isinstance(message, perlert.LobbyInformation):
            return self._on_lobby(message.slots, now)
        if isinstance(message, perlert.Registered):
            return [*self._confirm(message.key, now)]
        if isinstance(message, perlert.Start):
            return self._on_start(message.port, now)
        if isinstance(message, LobbyMessage):
            return [message]
        self.malformed += 1  # of no known kind; a step would have been read before
        return []

    def _on_lobby(self, slots: tuple[perlert.AgentSlot, ...], now: float) -> list[Event]:
        events: list[Event] = self._see(slots, now)
        if not self._episode.on or now - self._episode.heard < LOST:
            return events
        slot, ours = self._slot()
        if slot is not None and ours and slot.ready:  # we still play
            self._doubt = None
        elif self._sure("over", now):
            reason = "the run is over, or the server began anew; its last frame is lost"
            events += self._give_up("rollout", reason, now)
        return events

    def _on_start(self, port: int, now: float) -> list[Event]:
        if self._episode.on:
            return []  # resent
        if self._ready_as is None:
            self.stale += 1
            return []
        rollout = (self._server[0], port, *self._server[2:])
        if now >= self._episode.ended + STALE:
            return self._begin(rollout, PerlertState.STARTING, now)
        # It may be the last run's, sent again. The rollout port knows: its answer is a step of a
        # new run or a stale one. If no answer comes, lobby information soon brings a start again.
        self._out.append((self._looking.datagram, rollout))
        self._hurry(now)
        return []

    def _first_step(self, fields: tuple[Any, ...], peer: Address, now: float) -> list[Event]:
        """Take a step outside of a run, or of one whose rollout port is not known for sure.

        If it is new and we are ready, it stands for a lost start, and its source for the port.
        """
        episode, state = self._episode, self.state
        timestamp, step = fields[:2]
        if state is PerlertState.ROLLOUT:
            self.foreign += 1
            return []
        if timestamp <= episode.horizon and now < episode.ended + STALE:
            newest = episode.step, episode.timestamp
            if state is PerlertState.DONE and (step, timestamp) == newest:
                episode.duplicates += 1
            else:
                self.stale += 1
            return []
        events: list[Event] = []
        if state is PerlertState.STARTING:
            self.state = PerlertState.ROLLOUT
            episode.address = peer
        elif self._ready_as is None:
            # A run goes on without us being ready for one: it is one that we left.
            self.stale += 1
            episode.horizon, episode.ended = timestamp, now
            return []
        else:
            events = self._begin(peer, PerlertState.ROLLOUT, now)
        episode.hot = peer
        frame = episode.take(fields, now)
        assert frame is not None  # the first one is newer than none
        return events + (self._finish(frame, now) if frame.done else [frame])

    def _begin(self, rollout: Address, state: PerlertState, now: float) -> list[Event]:
        self.state = state
        self._episode.begin(rollout, now)
        return [EpisodeStarted(self._start(), rollout[1])]

    def _finish(self, frame: Frame, now: float) -> list[Event]:
        assert self.key is not None
        self.state = PerlertState.DONE
        self._played = self.key, self._tag
        finished = EpisodeFinished(self.key)
        self._episode.leave(now)
        self._forget()
        return [frame, finished]

    def _forget(self) -> None:
        self._forget_slot()
        self._episode.forget()

    def _give_up(self, what: str, reason: str, now: float) -> list[Event]:
        if what != "lobby" or self.state in HOLDING:
            self.state = PerlertState.IDLE
            if self._ready_as is not None:
                self._episode.leave(now)
            self._forget()
        self._wanted = False
        self._looking.end()
        return [GaveUp(what, reason)]

    def _no_answer(self, request: Any) -> str:
        within = f"within {TIMEOUT:g} s"
        if request is self._looking or self._informed < request.expires - TIMEOUT:
            instance = f"{self._name}:{self._number}"
            where = f"is a server there, with an instance {instance}?"
            return f"nothing from {self._server} {within}: {where}{self._oddities()}"
        if request is self._asking:
            why = "though lobby information comes: it may be that a run goes on"
            return f"no answer to the registration for {self.key!r} {within}, {why}"
        return f"lobby information does not show {self.key!r} as we said {within}"

    def _oddities(self) -> str:
        seen = [f"{getattr(self, name)} {name}" for name in _DROPPED if getattr(self, name)]
        return f" (dropped so far: {', '.join(seen)})" if seen else ""
