"""PERLERT, an agent's side: from the lobby through a run to its ``done``, whatever gets lost.

`ClientSession` is what transports and users see. Behind it are two things: a `Registration`
(`rlwire.sessions.perlert.registration`, which has the states and their table too), and a `Run`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from rlwire.codecs import perlert
from rlwire.codecs.perlert import Action, encode
from rlwire.errors import RlwireError
from rlwire.limits import Limits
from rlwire.sessions.perlert.registration import (
    FIRST_WAIT,
    HOLDING,
    TIMEOUT,
    Address,
    LobbyChanged,
    RegisteredAs,
    Registration,
    SlotTaken,
    State,
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
_NOBODY: Final[Any] = object()  # equal to no peer


@dataclass(frozen=True)
class Message:
    """The server's words to those in the lobby."""

    text: str


@dataclass(frozen=True)
class Started:
    """The run has begun: `ClientSession.act` from now on, for the slot `key`."""

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
class Finished:
    """The run is over for this agent; the `Frame` before this event was the last."""

    key: str


@dataclass(frozen=True)
class GaveUp:
    """An answer did not come in time: to ``lobby``, ``register``, ``ready`` or ``rollout``.

    After ``lobby`` in a run, before a registration or after the run, the state stays as it was;
    else it is IDLE, and `ClientSession.register` may try anew.
    """

    what: str
    reason: str


Event: TypeAlias = (
    LobbyChanged | RegisteredAs | SlotTaken | Message | Started | Frame | Finished | GaveUp
)


class Run:
    """What an agent knows of the run that it is in, and of the one before."""

    def __init__(self, address: Address) -> None:
        self.address = address  # the rollout port's
        self.horizon = -1  # the steps of the run before are not newer than this timestamp
        self.ended = -_NEVER  # when that run ended
        self.heard = 0.0  # when the newest step came, or the run began
        self.step = self.timestamp = -1  # of the newest step
        self.frames = self.skipped = self.duplicates = self.late = 0
        self.forget()

    def begin(self, address: Address, now: float, known_until: float) -> None:
        """Begin a run; what is known of the one before may be forgotten after `known_until`."""
        self.on = True
        self.address = address
        self.heard = self.speak_due = now  # speak at once: the server learns that we are there
        self.step = self.timestamp = -1
        if now >= known_until:
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


class PerlertClientSession(Registration):
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
        self._run = Run(server)
        self.stale = 0  # steps and starts of an older run, or of one that we are not in
        self.foreign = 0  # from another address than the server's, or for another instance
        self.malformed = 0

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.state is State.CLOSED

    def statistics(self) -> dict[str, int]:
        """Return counts by name: this object's ``stale``, ``foreign`` and ``malformed``, and more.

        ``frames``: new steps; ``skipped``: the sum of their `Frame.skipped`; ``duplicates``: steps
        equal to the newest one; ``late``: those older than the newest one of the run.
        """
        run = self._run
        return {
            **{name: getattr(run, name) for name in ("frames", "skipped", "duplicates", "late")},
            **{"stale": self.stale, "foreign": self.foreign, "malformed": self.malformed},
        }

    def act(self, action: str, now: float) -> None:
        """Choose the action that is in force from now on; one that was not sent yet is forgotten.

        If it cannot be sent, the one before stays.
        """
        run = self._run
        if not run.on:
            self._allowed("act")
        run.action = run.pending = encode(
            Action(self._name, self._number, action), limits=self._limits
        )
        if now - run.heard < SILENCE:
            run.speak_due = now + REPEAT

    def close(self) -> None:
        """Fall silent; the server frees the slot after a while, as PERLERT has no good-bye."""
        self._follow("close")
        self._forget()
        self._stop_looking()
        self._out.clear()

    # -- what the transport calls ----------------------------------------------------------------

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Event]:
        """Take one datagram and return what it tells; wrong ones are counted and dropped.

        The state is the one after all events of the list: a lost start may bring three at once.
        """
        run = self._run
        if peer is not run.hot and peer != run.hot:
            return self._receive(datagram, peer, now)
        try:
            fields = self._read(datagram)
        except RlwireError:
            self.malformed += 1
            return []
        if fields is None:  # a server may have both phases on one port
            return self._receive(datagram, peer, now)
        if fields[0] <= run.horizon:
            self.stale += 1
            return []
        frame = run.take(fields, now)
        if frame is None:
            return []
        return self._finish(frame, now) if fields[4] else [frame]

    def advance(self, now: float) -> list[Event]:
        """Do what fell due: ask again, keep alive, give up."""
        if self._run.on:
            if now >= self._run.heard + TIMEOUT:
                what = "step at all" if self.state is State.STARTING else "further step"
                within = f"in {TIMEOUT:g} s{self._oddities()}"
                return self._give_up("rollout", f"no {what} from {self._run.address} {within}", now)
            if now >= self._run.speak_due:
                self._speak(now)
        expired = self._ask_again(now)
        if expired is not None:
            return self._give_up(expired.what, self._no_answer(expired), now)
        return []

    def next_deadline(self) -> float | None:
        """Return when `advance` has something to do, None for never."""
        run = self._run
        if run.on:  # only information is asked for then
            due = run.heard + TIMEOUT
            if run.speak_due < due:
                due = run.speak_due
            looking = self._looking.due
            return looking if looking < due else due
        due = self._next_request()
        return None if due == _NEVER else due

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        """Take what is to be sent now, in order."""
        taken: list[tuple[bytes, Hashable]] = []
        if self._out:
            taken, self._out = self._out, taken
        run = self._run
        if run.pending:
            taken.append((run.pending, run.address))
            run.pending = b""
        return taken

    # -- sending ---------------------------------------------------------------------------------

    def _speak(self, now: float) -> None:
        """Say something to the rollout port: any client message asks for a lost ``done``."""
        run = self._run
        information = self._looking.datagram
        if not run.pending:
            # An action that nobody chose could be a valid one, so none is made up.
            self._out.append((run.action or information, run.address))
        silent = now - run.heard
        waiting = silent >= SILENCE or self.state is State.STARTING
        run.speak_due = now + (FIRST_WAIT if waiting else REPEAT)
        if silent >= LOST:
            self._send(information)

    # -- receiving -------------------------------------------------------------------------------

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
        if isinstance(message, perlert.LobbyMessage):
            return [Message(message.text)]
        self.malformed += 1  # of no known kind; a step would have been read before
        return []

    def _on_lobby(self, slots: tuple[perlert.AgentSlot, ...], now: float) -> list[Event]:
        events: list[Event] = self._see(slots, now)
        silent = now - self._run.heard >= LOST
        if self._run.on and silent and self._sees_no_run(now):
            reason = "the run is over, or the server began anew; its last frame is lost"
            events += self._give_up("rollout", reason, now)
        return events

    def _on_start(self, port: int, now: float) -> list[Event]:
        if self._run.on:
            return []  # resent
        if self._ready_as is None:
            self.stale += 1
            return []
        rollout = (self._server[0], port, *self._server[2:])
        if now >= self._run.ended + STALE:
            self._follow("start")
            return self._begin(rollout, now)
        # It may be the last run's, sent again. The rollout port knows: its answer is a step of a
        # new run or a stale one. If no answer comes, lobby information soon brings a start again.
        self._out.append((self._looking.datagram, rollout))
        self._hurry(now)
        return []

    def _first_step(self, fields: tuple[Any, ...], peer: Address, now: float) -> list[Event]:
        """Take a step outside of a run, or of one whose rollout port is not known for sure.

        If it is new and we are ready, it stands for a lost start, and its source for the port.
        """
        run, state = self._run, self.state
        timestamp, step = fields[:2]
        if state is State.ROLLOUT:
            self.foreign += 1
            return []
        if timestamp <= run.horizon and now < run.ended + STALE:
            if state is State.DONE and (step, timestamp) == (run.step, run.timestamp):
                run.duplicates += 1
            else:
                self.stale += 1
            return []
        events: list[Event] = []
        if state is State.STARTING:
            self._follow("step")
            run.address = peer
        elif self._ready_as is None:
            # A run goes on without us being ready for one: it is one that we left.
            self.stale += 1
            run.horizon, run.ended = timestamp, now
            return []
        else:
            self._follow("step")
            events = self._begin(peer, now)
        run.hot = peer
        frame = run.take(fields, now)
        assert frame is not None  # the first one is newer than none
        return events + (self._finish(frame, now) if frame.done else [frame])

    def _begin(self, rollout: Address, now: float) -> list[Event]:
        self._run.begin(rollout, now, self._run.ended + STALE)
        return [Started(self._start(), rollout[1])]

    def _finish(self, frame: Frame, now: float) -> list[Event]:
        assert self.key is not None
        self._follow("done")
        self._played = self.key, self._tag
        finished = Finished(self.key)
        self._run.leave(now)
        self._forget()
        return [frame, finished]

    def _forget(self) -> None:
        self._forget_slot()
        self._run.forget()

    # -- giving up -------------------------------------------------------------------------------

    def _give_up(self, what: str, reason: str, now: float) -> list[Event]:
        if what != "lobby" or self.state in HOLDING:
            self._follow("no answer")
            if self._ready_as is not None:
                self._run.leave(now)
            self._forget()
        self._stop_looking()
        return [GaveUp(what, reason)]

    def _no_answer(self, request: Any) -> str:
        within = f"within {TIMEOUT:g} s"
        unheard = self._informed < request.expires - TIMEOUT
        if unheard or request is self._looking:
            return (
                f"nothing from {self._server} {within}: is a server there, with an instance "
                f"{self._name}:{self._number}?{self._oddities()}"
            )
        if request is self._asking:
            return (
                f"no answer to the registration for {self.key!r} {within}, though lobby "
                "information comes: it may be that a run goes on"
            )
        return f"lobby information does not show {self.key!r} as we said {within}"

    def _oddities(self) -> str:
        names = ("stale", "foreign", "malformed")
        seen = [f"{getattr(self, name)} {name}" for name in names if getattr(self, name)]
        return f" (dropped so far: {', '.join(seen)})" if seen else ""
