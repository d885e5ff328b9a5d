"""PERLERT, an agent's side: from the lobby through a run to its ``done``, whatever gets lost.

`TRANSITIONS` is all that may be called and may happen, and what follows. Everything that is asked
is asked again until it is answered, with back-off in the lobby. Time is passed in; who drives the
session sends what `ClientSession.datagrams` gives and calls `ClientSession.advance` at
`ClientSession.next_deadline`.

Lobby information is the truth, but it carries no number, so an old one may arrive late. What
contradicts us (our slot is free again, or another's) is therefore believed when it is seen a second
time, a while after the first and in answer to a new request. What is merely missing (our ready) is
sent again at once, since that can do no harm.

What proves a registration is ``registered=`` alone: a slot that shows our tag may be another
client's with the same tag. As a server answers every repetition, a lost one is only asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

from rlwire.codecs import perlert
from rlwire.errors import LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert_client_states import (
    ADVICE,
    HOLDING,
    RUNNING,
    TRANSITIONS,
    ClientSettings,
    Event,
    Finished,
    Frame,
    GaveUp,
    LobbyChanged,
    Message,
    RegisteredAs,
    SlotTaken,
    Started,
    State,
)

__all__ = [
    "RUNNING",
    "TRANSITIONS",
    "Address",
    "ClientSession",
    "ClientSettings",
    "Event",
    "Finished",
    "Frame",
    "GaveUp",
    "LobbyChanged",
    "Message",
    "RegisteredAs",
    "SlotTaken",
    "Started",
    "State",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
Address: TypeAlias = tuple[Any, ...]
"""Host, port and whatever follows, as the socket module gives it: numbers, not names."""


_NEVER: Final = float("inf")
_NOBODY: Final[Any] = object()  # equal to no peer


class _Request:
    """A datagram that is sent again and again, at longer and longer intervals, until answered."""

    __slots__ = ("datagram", "due", "expires", "wait", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.datagram = b""
        self.due = self.expires = _NEVER
        self.wait = 0.0

    def begin(self, at: float, settings: ClientSettings) -> None:
        self.due = at
        self.expires = at + settings.timeout
        self.wait = settings.first_wait

    def end(self) -> None:
        self.due = self.expires = _NEVER


class ClientSession:
    """One agent of one server instance; a `rlwire.transports.interface.DatagramSession`.

    All its datagrams must leave from one port. One thread. Give each client a tag of its own, or
    they cannot tell from lobby information who is who.

    Args:
        name, number: the instance's header.
        server: the lobby's address, as the transport reports it for what comes from there.
        settings: times.
        limits: maxima for what is read and written.
        jitter: returns numbers from 0 to 1, for instance `random.random`; back-off is then longer
            or shorter by up to a quarter, so that the clients of a server that stood still do
            not all speak at once.

    Attributes:
        slots: the lobby as last heard of.
        key: the slot that is asked for, held or played; None before and after.
        frames: new steps.
        skipped: sum of the frames' `Frame.skipped`.
        duplicates: steps equal to the newest one.
        late: steps older than the newest one of the run.
        stale: steps and starts of an older run, or of one that we are not in.
        foreign: datagrams from another address than the server's, or for another instance.
        malformed: datagrams that could not be read.
    """

    def __init__(
        self,
        name: str,
        number: int,
        server: Address,
        *,
        settings: ClientSettings | None = None,
        limits: Limits | None = None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self._name = name
        self._number = number
        self._server = server
        self._settings = ClientSettings() if settings is None else settings
        self._limits = DEFAULT if limits is None else limits
        self._jitter = jitter
        self._read = perlert.StepReader(name, number, limits=self._limits).read
        self._state = State.IDLE
        self._out: list[tuple[bytes, Hashable]] = []
        # The lobby. `_looking` asks for information, the others for what their names say.
        self._looking, self._asking, self._readying = map(_Request, ("lobby", "register", "ready"))
        self._looking.datagram = self._encode(perlert.LobbyRequest(name, number))
        self._asked = False  # the agent waits for lobby information, changed or not
        self.slots: tuple[perlert.AgentSlot, ...] = ()
        self.key: str | None = None
        self._tag = ""
        self._held: tuple[str, str] | None = None  # key and tag of the last registration confirmed
        self._want_ready: bool | None = None  # None: never said
        self._ready_as: tuple[str, str] | None = None  # what we called ready: a start is for it
        self._doubt: tuple[str, float] | None = None  # an unexpected sight, and when it was first
        self._sightings = 0
        self._repeated = False  # the registration, since the last sighting
        self._informed = -_NEVER  # when lobby information came last
        # The run.
        self._rollout: Address = server
        self._hot: Hashable = _NOBODY  # `_rollout` once its steps are known to be ours
        self._action = b""
        self._pending = b""
        self._heard = 0.0
        self._speak_due = _NEVER
        self._step = self._newest = -1  # STEP_NUMBER and TIMESTAMP of the newest frame
        # The run before: its steps are not newer than `_horizon`.
        self._horizon = -1
        self._ended = -_NEVER
        self._played: tuple[str, str] | None = None
        self.frames = self.skipped = self.duplicates = self.late = 0
        self.stale = self.foreign = self.malformed = 0

    @property
    def state(self) -> State:
        """Where the agent stands."""
        return self._state

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._state is State.CLOSED

    def statistics(self) -> dict[str, int]:
        """Return the counters by name."""
        names = ("frames", "skipped", "duplicates", "late", "stale", "foreign", "malformed")
        return {name: getattr(self, name) for name in names}

    # -- what the agent calls --------------------------------------------------------------------

    def request_lobby(self, now: float) -> None:
        """Ask for the lobby's slots: `LobbyChanged` follows, or `GaveUp`.

        Raises:
            LocalProtocolError: the session is closed.
        """
        self._follow("request_lobby")
        self._asked = True
        self._looking.begin(now, self._settings)
        self._ask(self._looking, now)

    def register(self, key: str, tag: str, now: float) -> None:
        """Ask for a slot, or to move to it: `RegisteredAs` follows, `SlotTaken` or `GaveUp`.

        After a run it is for the next one, which a server opens when all agents of this one are
        done; while lobby information shows our old slot as it was, this waits.

        Raises:
            EncodeError, LimitExceeded: the key or the tag cannot be sent; nothing changed.
            LocalProtocolError: a run goes on.
        """
        self._allowed("register")
        datagram = self._encode(perlert.Register(self._name, self._number, key, tag))
        self._follow("register")
        self.key, self._tag = key, tag
        self._want_ready = None if self._want_ready is None else False
        self._doubt, self._sightings = None, 0
        self._settle()
        self._asking.datagram = datagram
        self._asking.begin(now, self._settings)
        self._ask(self._asking, now)

    def set_ready(self, ready: bool, now: float) -> None:
        """Tell the server whether we are ready; `Started` follows when all are.

        It is repeated until lobby information shows it. A run may start before a False arrives.

        Raises:
            LocalProtocolError: no slot is held.
        """
        self._follow(f"set_ready({ready})")
        self._say_ready(ready, now)
        self._ask(self._readying, now)

    def act(self, action: str | bytes, now: float) -> None:
        """Choose the action that is in force from now on; one that was not sent yet is forgotten.

        Raises:
            EncodeError, LimitExceeded: it cannot be sent; the one before stays.
            LocalProtocolError: no run has begun, or it is over.
        """
        if self._state not in RUNNING:
            self._allowed("act")
        self._action = self._pending = self._encode(
            perlert.Action(self._name, self._number, action)
        )
        if now - self._heard < self._settings.silence:
            self._speak_due = now + self._settings.repeat

    def close(self) -> None:
        """Fall silent; the server frees the slot after a while, as PERLERT has no good-bye."""
        self._follow("close")
        self._asked = False
        self._forget()
        self._out.clear()

    # -- what the transport calls ----------------------------------------------------------------

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Event]:
        """Take one datagram and return what it tells; wrong ones are counted and dropped.

        The state is the one after all events of the list: a lost start may bring three at once.
        """
        if peer != self._hot:
            return self._receive(datagram, peer, now)
        try:
            fields = self._read(datagram)
        except RlwireError:
            self.malformed += 1
            return []
        if fields is None:  # a server may have both phases on one port
            return self._receive(datagram, peer, now)
        timestamp, step, observation, reward, done, extra = fields
        if timestamp <= self._horizon:
            self.stale += 1
            return []
        # Within a run the order is (STEP_NUMBER, TIMESTAMP): servers may leave the number at 0,
        # as the draft's own example does.
        gap = step - self._step - 1
        if gap:
            if gap > 0:
                self.skipped += gap
            elif gap < -1 or timestamp < self._newest:
                self.late += 1
                return []
            elif timestamp == self._newest:
                self.duplicates += 1
                return []
            else:
                gap = 0
        self._step = step
        self._newest = timestamp
        self._heard = now
        self.frames += 1
        # What Frame() does, without the call of a Python function.
        frame = tuple.__new__(Frame, (step, timestamp, observation, reward, done, extra, gap, now))
        return self._finish(frame, now) if done else [frame]

    def advance(self, now: float) -> list[Event]:
        """Do what fell due: ask again, keep alive, give up."""
        if self._state in RUNNING:
            if now >= self._heard + self._settings.timeout:
                return self._give_up("rollout", self._no_step(), now)
            if now >= self._speak_due:
                self._speak(now)
        for request in (self._asking, self._readying, self._looking):
            if now >= request.expires:
                return self._give_up(request.what, self._no_answer(request), now)
            if now >= request.due:
                self._ask(request, now)
                if request is not self._looking:
                    # Its answer shows what became of a request that has no refusal, and of one
                    # that was answered when the answer got lost.
                    self._post(self._looking.datagram)
        return []

    def next_deadline(self) -> float | None:
        """Return when `advance` has something to do, None for never."""
        if self._state in RUNNING:  # nothing else is asked for then
            return min(self._speak_due, self._looking.due, self._heard + self._settings.timeout)
        due = min(self._asking.due, self._readying.due, self._looking.due)
        return None if due == _NEVER else due

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        """Take what is to be sent now, in order."""
        taken = self._out
        if taken:
            self._out = []
        else:
            taken = []
        if self._pending:
            taken.append((self._pending, self._rollout))
            self._pending = b""
        return taken

    # -- the table -------------------------------------------------------------------------------

    def _allowed(self, what: str) -> State:
        following = TRANSITIONS.get((self._state, what))
        if following is None:
            raise LocalProtocolError(
                f"{what} is not possible in the state {self._state.name}: {ADVICE[self._state]}"
            )
        return following

    def _follow(self, what: str) -> None:
        self._state = self._allowed(what)

    # -- sending ---------------------------------------------------------------------------------

    def _encode(self, message: Any) -> bytes:
        return perlert.encode(message, limits=self._limits)

    def _post(self, datagram: bytes) -> None:
        self._out.append((datagram, self._server))

    def _ask(self, request: _Request, now: float) -> None:
        self._post(request.datagram)
        self._repeated |= request is self._asking
        wait = request.wait
        if self._jitter is not None:
            wait *= 0.75 + 0.5 * self._jitter()
        request.due = min(now + wait, request.expires)
        request.wait = min(2.0 * request.wait, self._settings.longest_wait)

    def _say_ready(self, ready: bool, now: float) -> None:
        assert self.key is not None
        self._want_ready = ready
        if ready:
            self._ready_as = self.key, self._tag
        self._readying.datagram = self._encode(
            perlert.Ready(self._name, self._number, self.key, ready)
        )
        self._readying.begin(now, self._settings)

    def _speak(self, now: float) -> None:
        """Say something to the rollout port: any client message asks for a lost ``done``."""
        settings = self._settings
        if not self._pending:
            # An action that nobody chose could be a valid one, so none is made up.
            self._out.append((self._action or self._looking.datagram, self._rollout))
        silent = now - self._heard
        waiting = silent >= settings.silence or self._state is State.STARTING
        self._speak_due = now + (settings.first_wait if waiting else settings.repeat)
        if silent >= settings.lost:
            self._post(self._looking.datagram)

    # -- receiving in the lobby ------------------------------------------------------------------

    def _receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Event]:
        """Take a datagram that is not a step of the run that goes on."""
        if self._state is State.CLOSED:
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
            return self._on_registered(message.key, now)
        if isinstance(message, perlert.Start):
            return self._on_start(message.port, now)
        if isinstance(message, perlert.LobbyMessage):
            return [Message(message.text)]
        self.malformed += 1  # of no known kind; a step would have been read before
        return []

    def _on_lobby(self, slots: tuple[perlert.AgentSlot, ...], now: float) -> list[Event]:
        events: list[Event] = []
        if self._asked or slots != self.slots:
            events.append(LobbyChanged(slots))
        self._asked = False
        self._informed = now
        self.slots = slots
        self._looking.end()
        if self._state in HOLDING:
            self._looking.begin(now + self._settings.keep_alive, self._settings)
        slot = next((slot for slot in slots if slot.key == self.key), None)
        ours = slot is not None and not slot.open and slot.tag == self._tag
        if self._state is State.REGISTERING:
            events += self._see_registering(slot, ours, now)
        elif self._state in HOLDING:
            events += self._see_registered(slot, ours, now)
        elif self._state in RUNNING and now - self._heard >= self._settings.lost:
            over = not ours or slot is None or not slot.ready
            if self._sure("over" if over else "", now):
                events += self._give_up(
                    "rollout",
                    "the run is over, or the server began anew; its last frame is lost",
                    now,
                )
        return events

    def _see_registering(
        self, slot: perlert.AgentSlot | None, ours: bool, now: float
    ) -> list[Event]:
        """Judge lobby information while ``registered=`` is awaited."""
        if slot is None:
            return self._missing(now) if self._sure("missing", now) else []
        if not ours:
            taken = self._sure("" if slot.open else "taken", now)
            return self._taken(slot.tag, now) if taken else []
        self._sure("", now)
        if slot.ready and (self.key, self._tag) == self._played:
            # We never said ready for the next run: this is still the one before, in which others
            # play on. While the server says so there is no hurry, and no end of patience.
            self._asking.expires = now + self._settings.timeout
            return []
        self._sightings += self._repeated
        self._repeated = False
        if self._sightings >= self._settings.unconfirmed:
            return self._taken(slot.tag, now)
        self._hurry(now)
        return []

    def _see_registered(
        self, slot: perlert.AgentSlot | None, ours: bool, now: float
    ) -> list[Event]:
        """Judge lobby information while a slot is held."""
        if slot is None:
            return self._missing(now) if self._sure("missing", now) else []
        if not ours:
            if not self._sure("open" if slot.open else "taken", now):
                return []
            if not slot.open:
                return self._taken(slot.tag, now)
            # Freed for our silence, or by a server that began anew: have it again.
            self._follow("freed")
            self._held = self._ready_as = None
            self._sightings = 0
            self._settle()
            self._asking.begin(now, self._settings)
            return []
        self._sure("", now)
        if slot.ready == self._want_ready:
            self._readying.end()
        elif self._want_ready is not None and self._readying.due == _NEVER:
            self._say_ready(self._want_ready, now)
        return []

    def _sure(self, sight: str, now: float) -> bool:
        """Return whether this was seen before, long enough ago; "" is what was expected."""
        if not sight:
            self._doubt = None
            return False
        if self._doubt is None or self._doubt[0] != sight:
            self._doubt = sight, now
        elif now - self._doubt[1] >= self._settings.first_wait:
            self._doubt = None
            return True
        self._hurry(now)
        return False

    def _hurry(self, now: float) -> None:
        """Have lobby information again soon."""
        settings = self._settings
        if self._state is State.REGISTERING:  # what is under way brings it
            self._asking.wait = settings.first_wait
            self._asking.due = min(self._asking.due, now + settings.first_wait)
        elif self._state in HOLDING:  # in a run, `_speak` asks at this pace anyway
            self._looking.begin(now + settings.first_wait, settings)

    def _on_registered(self, key: str, now: float) -> list[Event]:
        if self._state in HOLDING:
            # A late repetition of a request was answered. If it was for another slot, the server
            # may have moved us back there; and every registration makes a slot not ready.
            if key != self.key:
                self._hurry(now)
            elif self._want_ready:
                self._say_ready(True, now)
        if self._state is not State.REGISTERING:
            return []
        self._held = key, self._tag
        if key != self.key:  # the request before the last one; the last one is still under way
            return []
        self._follow("registered")
        self._asking.end()
        self._doubt = self._ready_as = None
        if not self._asked:
            self._looking.begin(now + self._settings.keep_alive, self._settings)
        if self._want_ready:  # said before the slot was freed
            self._follow("set_ready(True)")
            self._say_ready(True, now)
        return [RegisteredAs(key)]

    def _taken(self, tag: str, now: float) -> list[Event]:
        key = self.key
        assert key is not None
        if self._state is State.REGISTERING and self._held is not None and self._held[0] != key:
            # Refused, so we are where we were; if we had said ready there, that is taken back.
            self._follow("taken, another held")
            self._asking.end()
            self.key, self._tag = self._held
            self._looking.begin(now, self._settings)
        else:
            self._follow("taken")
            self._forget()
        return [SlotTaken(key, tag)]

    def _missing(self, now: float) -> list[Event]:
        keys = ", ".join(slot.key for slot in self.slots)
        return self._give_up("register", f"there is no slot {self.key!r}, only {keys}", now)

    # -- receiving in a run ----------------------------------------------------------------------

    def _on_start(self, port: int, now: float) -> list[Event]:
        if self._state in RUNNING:
            return []  # resent
        if self._ready_as is None:
            self.stale += 1
            return []
        rollout = (self._server[0], port, *self._server[2:])
        if now >= self._ended + self._settings.stale:
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
        timestamp, step, observation, reward, done, extra = fields
        if self._state is State.ROLLOUT:
            self.foreign += 1
            return []
        if timestamp <= self._horizon and now < self._ended + self._settings.stale:
            if self._state is State.DONE and (step, timestamp) == (self._step, self._newest):
                self.duplicates += 1
            else:
                self.stale += 1
            return []
        events: list[Event] = []
        if self._state is not State.STARTING:
            if self._ready_as is None:
                # A run goes on without us being ready for one: it is one that we left.
                self.stale += 1
                self._horizon, self._ended = timestamp, now
                return []
            self._follow("step")
            events = self._begin(peer, now)
        else:
            self._follow("step")
            self._rollout = peer
        self._hot = peer
        self._step, self._newest, self._heard = step, timestamp, now
        self.frames += 1
        frame = Frame(step, timestamp, observation, reward, done, extra, 0, now)
        return events + (self._finish(frame, now) if done else [frame])

    def _begin(self, rollout: Address, now: float) -> list[Event]:
        assert self._ready_as is not None
        self.key, self._tag = self._ready_as
        self._settle()
        self._doubt = None
        self._rollout = rollout
        self._heard = self._speak_due = now  # speak at once: the server learns that we are there
        self._step = self._newest = -1
        if now >= self._ended + self._settings.stale:
            self._horizon = -1  # or a server's clock that was set back would never be heard
        return [Started(self.key, rollout[1])]

    def _finish(self, frame: Frame, now: float) -> list[Event]:
        assert self.key is not None
        self._follow("done")
        finished = Finished(self.key)
        self._played = self.key, self._tag
        self._leave(now)
        self._forget()
        return [frame, finished]

    def _leave(self, now: float) -> None:
        """Remember where a run ended that we were in, or may have been without knowing."""
        self._ended = now
        self._horizon = max(self._horizon, self._newest)

    def _forget(self) -> None:
        """Hold nothing, and expect nothing but what the agent asked for."""
        self._settle()
        self.key = self._held = self._want_ready = self._ready_as = self._doubt = None
        self._hot = _NOBODY
        self._action = self._pending = b""
        self._speak_due = _NEVER

    def _settle(self) -> None:
        """Ask for nothing more but lobby information, if the agent wants it."""
        self._asking.end()
        self._readying.end()
        if not self._asked:
            self._looking.end()

    # -- giving up -------------------------------------------------------------------------------

    def _give_up(self, what: str, reason: str, now: float) -> list[Event]:
        self._asked = False
        if what == "lobby" and self._state not in HOLDING:
            self._looking.end()
        else:
            self._follow("no answer")
            if self._ready_as is not None:
                self._leave(now)
            self._forget()
        return [GaveUp(what, reason)]

    def _no_answer(self, request: _Request) -> str:
        within = f"within {self._settings.timeout:g} s"
        if self._informed < request.expires - self._settings.timeout or request is self._looking:
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

    def _no_step(self) -> str:
        what = "step at all" if self._state is State.STARTING else "further step"
        return f"no {what} from {self._rollout} in {self._settings.timeout:g} s{self._oddities()}"

    def _oddities(self) -> str:
        names = ("stale", "foreign", "malformed")
        seen = [f"{getattr(self, name)} {name}" for name in names if getattr(self, name)]
        return f" (dropped so far: {', '.join(seen)})" if seen else ""
