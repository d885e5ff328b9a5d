"""PERLERT, an agent's side: from the lobby through a rollout to its ``done``, despite losses.

Each lobby request is repeated with back-off until it is answered. Lobby information carries no
number, so an old one may arrive late: what contradicts us (our slot is free again, or another's) is
believed when it is seen a second time, in answer to a new request. Only ``registered=`` proves a
registration: a slot that shows our tag may be another client's with the same tag.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from rlwire.codecs import perlert
from rlwire.codecs.perlert import Action, AgentSlot, LobbyMessage, encode
from rlwire.errors import LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits

Buffer: TypeAlias = bytes | bytearray | memoryview

Address: TypeAlias = tuple[Any, ...]
"""A socket address, as the socket module gives it: numbers, not names."""

# Seconds. The wait for an answer in the lobby doubles from the first to the longest; with half of
# all datagrams lost each way, the 30 requests of a timeout fail once in 10,000 times. Two sightings
# of something unexpected lie as far apart as the first wait.
FIRST_WAIT: Final = 0.25
LONGEST_WAIT: Final = 1.0
TIMEOUT: Final = 30.0  # for any answer, and for a step in a run; then `GaveUp`

# Between lobby requests while a slot is held. A server frees the slots of silent clients, and sends
# a lost ``start`` again for 5 s (section 6) to clients that speak.
KEEP_ALIVE: Final = 2.0

# After `REPEAT` the last action is sent again: against its loss, and for the mapping of a NAT.
# After `SILENCE` without a step the client requests a lost ``done`` every `FIRST_WAIT`, without
# back-off: 4 small datagrams a second are little beside the 30 steps that should come.
REPEAT: Final = 0.5
SILENCE: Final = 1.0

# After `LOST` without a step, lobby information is believed that the run is over: section 6 has a
# server resend ``done`` for 10 s. Datagrams of an old run may arrive for `STALE` after its end,
# since ``start`` is resent for 5 s besides.
LOST: Final = 10.0
STALE: Final = 15.0

_NEVER: Final = float("inf")
_DROPPED: Final = ("stale", "foreign", "malformed")
_NO_PEER: Final[Any] = object()  # equal to no peer


class PerlertState(enum.Enum):
    IDLE = "idle"
    REGISTERING = "registering"
    REGISTERED = "registered"
    READY = "ready"
    STARTING = "starting"
    ROLLOUT = "rollout"
    DONE = "done"
    CLOSED = "closed"


HOLDING: Final = (PerlertState.REGISTERED, PerlertState.READY)
"""The states in which a slot of the lobby is held."""
RUNNING: Final = (PerlertState.STARTING, PerlertState.ROLLOUT)
"""The states of a rollout."""

ALLOWED: Final[dict[str, tuple[PerlertState, ...]]] = {
    "request_lobby": tuple(state for state in PerlertState if state is not PerlertState.CLOSED),
    "register": (PerlertState.IDLE, PerlertState.REGISTERING, *HOLDING, PerlertState.DONE),
    "set_ready": HOLDING,
    "act": RUNNING,
}
"""The states in which the agent may call a method."""


@dataclass(frozen=True)
class LobbyChanged:
    slots: tuple[AgentSlot, ...]


@dataclass(frozen=True)
class SlotGranted:
    """The server gave us this slot; again, if it had freed the slot meanwhile."""

    key: str


@dataclass(frozen=True)
class SlotTaken:
    """Another client holds the slot; the session is IDLE, or still REGISTERED for another one."""

    key: str
    tag: str


@dataclass(frozen=True)
class EpisodeStarted:
    """The rollout of slot `key` has begun; `PerlertClientSession.act` from now on."""

    key: str
    port: int


class Frame(NamedTuple):
    """One rollout step, newer than all before.

    `skipped` counts the step numbers missing since the frame before. `received` is the `now` of its
    datagram.
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
    """An answer did not come in time: to ``lobby``, ``register``, ``ready`` or ``rollout``."""

    what: str
    reason: str


@dataclass(slots=True, eq=False)
class _Request:
    what: str
    datagram: bytes = b""
    due: float = _NEVER
    expires: float = _NEVER
    wait: float = 0.0

    def begin(self, at: float) -> None:
        self.due = at
        self.expires = at + TIMEOUT
        self.wait = FIRST_WAIT

    def end(self) -> None:
        self.due = self.expires = _NEVER


class _Episode:
    """The rollout that an agent is in, and the one before."""

    def __init__(self, address: Address) -> None:
        self.address = address  # the rollout port's
        self.horizon = -1  # the steps of the run before are not newer than this timestamp
        self.ended = -_NEVER  # when that run ended
        self.heard = 0.0  # when the newest step came, or the run began
        self.step = self.timestamp = -1  # of the newest step
        self.frames = self.skipped = self.duplicates = self.late = 0
        self.forget()

    def begin(self, address: Address, now: float) -> None:
        self.on = True
        self.address = address
        self.heard = self.speak_due = now  # speak at once: the server learns that we are there
        self.step = self.timestamp = -1
        if now >= self.ended + STALE:
            self.horizon = -1  # or a server whose clock was set back would never be heard

    def leave(self, now: float) -> None:
        """Remember the end of a run that we were in, or may have been in without knowing."""
        self.ended = now
        self.horizon = max(self.horizon, self.timestamp)

    def forget(self) -> None:
        self.on = False  # whether the state is one of `RUNNING`
        self.hot: Hashable = _NO_PEER  # `address` once its steps are known to be ours
        self.action = b""  # the datagram of the action in force
        self.pending = b""  # the same until it is sent
        self.speak_due = _NEVER  # when to send to the rollout port

    def accept(self, fields: tuple[Any, ...], now: float) -> Frame | None:
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


class PerlertClientSession:
    """One agent of one server instance; a `rlwire.transports.interface.DatagramSession`.

    All its datagrams must leave from one port. Lobby information tells clients apart by `tag` only.
    `jitter` returns numbers from 0 to 1, which vary back-off by up to a quarter. `slots` are the
    lobby's as last heard of; `key` is the slot that is requested, held or played.
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
        self.state = PerlertState.IDLE
        self.slots: tuple[AgentSlot, ...] = ()
        self.key: str | None = None
        self.stale = self.foreign = self.malformed = 0
        self._tag = ""
        self._name = name
        self._number = number
        self._server = server
        self._limits = DEFAULT if limits is None else limits
        self._jitter = jitter
        self._out: list[tuple[bytes, Hashable]] = []
        self._looking = _Request("lobby", self._encode(perlert.LobbyRequest(name, number)))
        self._asking = _Request("register")
        self._readying = _Request("ready")
        self._informed = -_NEVER  # when lobby information came last
        # Key and tag: that we called ready, which a start is for; and of the last run.
        self._ready_as: tuple[str, str] | None = None
        self._played: tuple[str, str] | None = None
        self._wanted = False  # the agent waits for lobby information, changed or not
        self._held: tuple[str, str] | None = None  # key and tag of the last registration confirmed
        self._want_ready: bool | None = None  # None: never said
        self._doubt: tuple[str, float] | None = None  # an unexpected sight, and when it was first
        self._read = perlert.StepReader(name, number, limits=self._limits).read
        self._episode = _Episode(server)

    # ---- calls of the agent ----

    @property
    def closed(self) -> bool:
        return self.state is PerlertState.CLOSED

    def statistics(self) -> dict[str, int]:
        """Return counts of steps: new ``frames``, ``skipped``, ``duplicates`` and ``late`` ones.

        And of dropped datagrams: ``stale`` (of another run), ``foreign`` (of another address or
        instance) and ``malformed`` ones.
        """
        names = ("frames", "skipped", "duplicates", "late")
        counts = {name: getattr(self._episode, name) for name in names}
        return {**counts, **{name: getattr(self, name) for name in _DROPPED}}

    def request_lobby(self, now: float) -> None:
        """Request the lobby's slots: `LobbyChanged` follows, or `GaveUp`."""
        self._require("request_lobby")
        self._wanted = True
        self._looking.begin(now)
        self._ask(self._looking, now)

    def register(self, key: str, tag: str, now: float) -> None:
        """Request a slot, or to move to it: `SlotGranted` follows, `SlotTaken` or `GaveUp`."""
        self._require("register")
        datagram = self._encode(perlert.Register(self._name, self._number, key, tag))
        self.state = PerlertState.REGISTERING
        self.key, self._tag = key, tag
        self._want_ready = None if self._want_ready is None else False
        self._doubt = None
        self._settle()
        self._asking.datagram = datagram
        self._asking.begin(now)
        self._ask(self._asking, now)

    def set_ready(self, ready: bool, now: float) -> None:
        """Send whether we are ready, until lobby information shows it; `EpisodeStarted` follows."""
        self._require("set_ready")
        self._say_ready(ready, now)
        self._ask(self._readying, now)

    def act(self, action: str, now: float) -> None:
        """Choose the action in force from now on; if it cannot be encoded, the one before stays."""
        episode = self._episode
        if not episode.on:
            self._require("act")
        # What Action() does, without the call of a Python function.
        message = tuple.__new__(Action, (self._name, self._number, action))
        episode.action = episode.pending = encode(message, limits=self._limits)
        if now - episode.heard < SILENCE:
            episode.speak_due = now + REPEAT

    def close(self) -> None:
        """Send no more; the server frees the slot after a while, as PERLERT has no good-bye."""
        self.state = PerlertState.CLOSED
        self._forget()
        self._wanted = False
        self._looking.end()
        self._out.clear()

    # ---- calls of the transport ----

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Any]:
        """Accept one datagram and return its events; wrong ones are counted and dropped."""
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
        frame = episode.accept(fields, now)
        if frame is None:
            return []
        return self._finish(frame, now) if fields[4] else [frame]

    def advance(self, now: float) -> list[Any]:
        episode = self._episode
        if episode.on:
            if now >= episode.heard + TIMEOUT:
                what = "step at all" if self.state is PerlertState.STARTING else "further step"
                reason = f"no {what} from {episode.address} in {TIMEOUT:g} s{self._oddities()}"
                return self._give_up("rollout", reason, now)
            if now >= episode.speak_due:
                self._speak(now)
        for request in (self._asking, self._readying, self._looking):
            if now >= request.expires:
                return self._give_up(request.what, self._no_answer(request), now)
            if now >= request.due:
                self._ask(request, now)
                if request is not self._looking:
                    # Shows the outcome of a request that is refused silently, or whose answer was
                    # lost.
                    self._send(self._looking.datagram)
        return []

    def next_deadline(self) -> float | None:
        episode = self._episode
        if episode.on:  # only information is requested then
            return min(episode.heard + TIMEOUT, episode.speak_due, self._looking.due)
        due = min(self._asking.due, self._readying.due, self._looking.due)
        return None if due == _NEVER else due

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        taken: list[tuple[bytes, Hashable]] = []
        if self._out:
            taken, self._out = self._out, taken
        episode = self._episode
        if episode.pending:
            taken.append((episode.pending, episode.address))
            episode.pending = b""
        return taken

    # ---- datagrams other than the steps of the run ----

    def _receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Any]:
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
        match message:
            case perlert.LobbyInformation():
                return self._on_lobby(message.slots, now)
            case perlert.Registered():
                return self._on_registered(message.key, now)
            case perlert.Start():
                return self._on_start(message.port, now)
        assert isinstance(message, LobbyMessage)  # a step was read before
        return [message]

    def _on_lobby(self, slots: tuple[AgentSlot, ...], now: float) -> list[Any]:
        events: list[Any] = []
        if self._wanted or slots != self.slots:
            events.append(LobbyChanged(slots))
        self._wanted, self._informed, self.slots = False, now, slots
        self._looking.end()
        holding = self.state in HOLDING
        if holding:
            self._looking.begin(now + KEEP_ALIVE)
        slot = next((slot for slot in slots if slot.key == self.key), None)
        ours = slot is not None and not slot.open and slot.tag == self._tag
        if self._episode.on and now - self._episode.heard >= LOST:
            if ours and slot is not None and slot.ready:  # we still play
                self._doubt = None
            elif self._sure("over", now):
                reason = "the run is over, or the server began anew; its last frame is lost"
                events += self._give_up("rollout", reason, now)
        if not holding and self.state is not PerlertState.REGISTERING:
            return events
        if slot is None:
            if self._sure("missing", now):
                keys = ", ".join(each.key for each in slots)
                reason = f"there is no slot {self.key!r}, only {keys}"
                events += self._give_up("register", reason, now)
        elif ours:
            self._doubt = None
            if not holding:
                if slot.ready and (self.key, self._tag) == self._played:
                    # We never said ready for the next rollout: this is still the one before, in
                    # which others play on. While the server says so, this waits.
                    self._asking.expires = now + TIMEOUT
                else:
                    self._hurry(now)
            elif slot.ready == self._want_ready:
                self._readying.end()
            elif self._want_ready is not None and self._readying.due == _NEVER:
                self._say_ready(self._want_ready, now)
        elif not slot.open:
            if self._sure("taken", now):
                events.append(self._taken(slot.tag, now))
        elif not holding:
            self._doubt = None
        elif self._sure("open", now):
            # Freed for our silence, or by a server that began anew: register again.
            self.state = PerlertState.REGISTERING
            self._held = self._ready_as = None
            self._settle()
            self._asking.begin(now)
        return events

    def _on_registered(self, key: str, now: float) -> list[Any]:
        if self.state in HOLDING:
            # A late repetition of a request was answered. If it was for another slot, the server
            # may have moved us back there; and every registration makes a slot not ready.
            if key != self.key:
                self._hurry(now)
            elif self._want_ready:
                self._say_ready(True, now)
        if self.state is not PerlertState.REGISTERING:
            return []
        self._held = key, self._tag
        if key != self.key:  # the request before the last one; the last one is still under way
            return []
        self.state = PerlertState.REGISTERED
        self._asking.end()
        self._doubt = self._ready_as = None
        if not self._wanted:
            self._looking.begin(now + KEEP_ALIVE)
        if self._want_ready:  # said before the slot was freed
            self._say_ready(True, now)
        return [SlotGranted(key)]

    def _on_start(self, port: int, now: float) -> list[Any]:
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

    def _first_step(self, fields: tuple[Any, ...], peer: Address, now: float) -> list[Any]:
        """Accept a step outside of a run: it stands for a lost start, its source for the port."""
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
        events: list[Any] = []
        if state is PerlertState.STARTING:
            self.state = PerlertState.ROLLOUT
            episode.address = peer
        elif self._ready_as is None:
            # A run that we left goes on without us.
            self.stale += 1
            episode.horizon, episode.ended = timestamp, now
            return []
        else:
            events = self._begin(peer, PerlertState.ROLLOUT, now)
        episode.hot = peer
        frame = episode.accept(fields, now)
        assert frame is not None  # the first one is newer than none
        return events + (self._finish(frame, now) if frame.done else [frame])

    # ---- changes of the state ----

    def _require(self, call: str) -> None:
        if self.state not in ALLOWED[call]:
            allowed = ", ".join(state.name for state in ALLOWED[call])
            raise LocalProtocolError(
                f"{call} is not possible in the state {self.state.name}, only in {allowed}"
            )

    def _begin(self, rollout: Address, state: PerlertState, now: float) -> list[Any]:
        assert self._ready_as is not None
        self.key, self._tag = self._ready_as
        self._settle()
        self._doubt = None
        self.state = state
        self._episode.begin(rollout, now)
        return [EpisodeStarted(self.key, rollout[1])]

    def _finish(self, frame: Frame, now: float) -> list[Any]:
        assert self.key is not None
        self.state = PerlertState.DONE
        self._played = self.key, self._tag
        finished = EpisodeFinished(self.key)
        self._episode.leave(now)
        self._forget()
        return [frame, finished]

    def _taken(self, tag: str, now: float) -> SlotTaken:
        key = self.key
        assert key is not None
        registering = self.state is PerlertState.REGISTERING
        if registering and self._held is not None and self._held[0] != key:
            # Refused, so we keep our slot; if we had said ready there, that is taken back.
            self.state = PerlertState.REGISTERED
            self._asking.end()
            self.key, self._tag = self._held
            self._looking.begin(now)
        else:
            self.state = PerlertState.IDLE
            self._forget()
        return SlotTaken(key, tag)

    def _give_up(self, what: str, reason: str, now: float) -> list[Any]:
        if what != "lobby" or self.state in HOLDING:
            self.state = PerlertState.IDLE
            if self._ready_as is not None:
                self._episode.leave(now)
            self._forget()
        self._wanted = False
        self._looking.end()
        return [GaveUp(what, reason)]

    def _forget(self) -> None:
        """Hold no slot, be in no run, and expect only the information that the agent requested."""
        self._settle()
        self.key = self._ready_as = None
        self._held = self._want_ready = self._doubt = None
        self._episode.forget()

    def _settle(self) -> None:
        """End all requests but that of the agent for lobby information."""
        self._asking.end()
        self._readying.end()
        if not self._wanted:
            self._looking.end()

    def _sure(self, sight: str, now: float) -> bool:
        """Return whether something unexpected was seen before, long enough ago."""
        if self._doubt is None or self._doubt[0] != sight:
            self._doubt = sight, now
        elif now - self._doubt[1] >= FIRST_WAIT:
            self._doubt = None
            return True
        self._hurry(now)
        return False

    # ---- sending ----

    def _encode(self, message: Any) -> bytes:
        return encode(message, limits=self._limits)

    def _send(self, datagram: bytes) -> None:
        self._out.append((datagram, self._server))

    def _ask(self, request: _Request, now: float) -> None:
        self._send(request.datagram)
        wait = request.wait
        if self._jitter is not None:
            wait *= 0.75 + 0.5 * self._jitter()
        request.due = min(now + wait, request.expires)
        request.wait = min(2.0 * request.wait, LONGEST_WAIT)

    def _hurry(self, now: float) -> None:
        if self.state is PerlertState.REGISTERING:  # its requests bring it
            self._asking.wait = FIRST_WAIT
            self._asking.due = min(self._asking.due, now + FIRST_WAIT)
        elif self.state in HOLDING:  # in a run, `_speak` requests it at this pace anyway
            self._looking.begin(now + FIRST_WAIT)

    def _say_ready(self, ready: bool, now: float) -> None:
        assert self.key is not None
        self.state = PerlertState.READY if ready else PerlertState.REGISTERED
        self._want_ready = ready
        if ready:
            self._ready_as = self.key, self._tag
        message = perlert.Ready(self._name, self._number, self.key, ready)
        self._readying.datagram = self._encode(message)
        self._readying.begin(now)

    def _speak(self, now: float) -> None:
        """Send to the rollout port: any client message requests a lost ``done``."""
        episode = self._episode
        information = self._looking.datagram
        if not episode.pending:
            # Without a chosen action none is made up: it could be a valid one.
            self._out.append((episode.action or information, episode.address))
        silent = now - episode.heard
        waiting = silent >= SILENCE or self.state is PerlertState.STARTING
        episode.speak_due = now + (FIRST_WAIT if waiting else REPEAT)
        if silent >= LOST:
            self._send(information)

    # ---- reasons ----

    def _no_answer(self, request: _Request) -> str:
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
