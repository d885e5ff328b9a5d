"""How a PERLERT client gets a slot, keeps it, and says that it is ready.

Each request is repeated with back-off until it is answered. Lobby information carries no number,
so an old one may arrive late: what contradicts us (our slot is free again, or another's) is
believed when it is seen a second time, in answer to a new request. Only ``registered=`` proves a
registration: a slot that shows our tag may be another client's with the same tag.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rlwire.codecs import perlert
from rlwire.errors import LocalProtocolError
from rlwire.limits import DEFAULT, Limits

Address: TypeAlias = tuple[Any, ...]
"""Host, port and whatever follows, as the socket module gives it: numbers, not names."""

# Seconds. For an answer in the lobby before asking again, which doubles up to the longest; with
# half of all datagrams lost each way, the 30 requests of a timeout fail once in 10,000 times. Two
# sightings of something unexpected lie as far apart as the first.
FIRST_WAIT: Final = 0.25
LONGEST_WAIT: Final = 1.0
TIMEOUT: Final = 30.0  # for any answer, and for a step in a run; then `GaveUp`

# Between lobby requests while a slot is held. A server frees the slots of silent clients, and sends
# a lost ``start`` again for 5 s (section 6) to those who speak.
KEEP_ALIVE: Final = 2.0

_NEVER: Final = float("inf")


class PerlertState(enum.Enum):
    """Where an agent stands."""

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
    """The slots are not what they were, or the agent had asked for them."""

    slots: tuple[perlert.AgentSlot, ...]


@dataclass(frozen=True)
class SlotGranted:
    """The server gave us this slot; again, if it had freed the slot meanwhile."""

    key: str


@dataclass(frozen=True)
class SlotTaken:
    """The slot is another client's, who is called `tag`.

    The session is IDLE, or REGISTERED if it still has the slot from which it wanted to move.
    """

    key: str
    tag: str


@dataclass(slots=True, eq=False)
class _LobbyQuery:
    """A datagram that is sent again and again, at longer and longer intervals, until answered."""

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


class SlotRegistration:
    """The part of a `PerlertClientSession` that is about the lobby."""

    def __init__(
        self,
        name: str,
        number: int,
        server: Address,
        limits: Limits | None,
        jitter: Callable[[], float] | None,
    ) -> None:
        self.state = PerlertState.IDLE
        self.slots: tuple[perlert.AgentSlot, ...] = ()  # as last heard of
        self.key: str | None = None  # the slot that is asked for, held or played
        self._tag = ""
        self._name = name
        self._number = number
        self._server = server
        self._limits = DEFAULT if limits is None else limits
        self._jitter = jitter
        self._out: list[tuple[bytes, Hashable]] = []
        # For information, for a slot, and to say whether we are ready.
        self._looking = _LobbyQuery("lobby")
        self._asking = _LobbyQuery("register")
        self._readying = _LobbyQuery("ready")
        self._looking.datagram = self._encode(perlert.LobbyRequest(name, number))
        self._informed = -_NEVER  # when lobby information came last
        # Key and tag: that we called ready, which a start is for; and of the last run.
        self._ready_as: tuple[str, str] | None = None
        self._played: tuple[str, str] | None = None
        self._wanted = False  # the agent waits for lobby information, changed or not
        self._held: tuple[str, str] | None = None  # key and tag of the last registration confirmed
        self._want_ready: bool | None = None  # None: never said
        self._doubt: tuple[str, float] | None = None  # an unexpected sight, and when it was first

    def _require(self, call: str) -> None:
        """Raise if `call` is not allowed now."""
        if self.state not in ALLOWED[call]:
            allowed = ", ".join(state.name for state in ALLOWED[call])
            raise LocalProtocolError(
                f"{call} is not possible in the state {self.state.name}, only in {allowed}"
            )

    def _encode(self, message: Any) -> bytes:
        return perlert.encode(message, limits=self._limits)

    def _send(self, datagram: bytes) -> None:
        self._out.append((datagram, self._server))

    def _give_up(self, what: str, reason: str, now: float) -> list[Any]:
        raise NotImplementedError

    def request_lobby(self, now: float) -> None:
        """Ask for the lobby's slots: `LobbyChanged` follows, or `GaveUp`."""
        self._require("request_lobby")
        self._wanted = True
        self._looking.begin(now)
        self._ask(self._looking, now)

    def register(self, key: str, tag: str, now: float) -> None:
        """Ask for a slot, or to move to it: `SlotGranted` follows, `SlotTaken` or `GaveUp`.

        After a run it is for the next one, which a server opens when all agents of this one are
        done; while lobby information shows our old slot as it was, this waits.
        """
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
        """Tell the server whether we are ready; `EpisodeStarted` follows when all are.

        It is repeated until lobby information shows it. A run may start before a False arrives.
        """
        self._require("set_ready")
        self._say_ready(ready, now)
        self._ask(self._readying, now)

    def _forget_slot(self) -> None:
        """Hold nothing, and expect nothing but what the agent asked for."""
        self._settle()
        self.key = self._ready_as = None
        self._held = self._want_ready = self._doubt = None

    def _settle(self) -> None:
        """Ask for nothing more but lobby information, if the agent wants it."""
        self._asking.end()
        self._readying.end()
        if not self._wanted:
            self._looking.end()

    def _ask_again(self, now: float) -> _LobbyQuery | None:
        """Ask again for what fell due; return a request that was not answered in time."""
        for request in (self._asking, self._readying, self._looking):
            if now >= request.expires:
                return request
            if now >= request.due:
                self._ask(request, now)
                if request is not self._looking:
                    # Its answer shows what became of a request that has no refusal, and of one
                    # that was answered when the answer got lost.
                    self._send(self._looking.datagram)
        return None

    def _hurry(self, now: float) -> None:
        """Have lobby information again soon."""
        if self.state is PerlertState.REGISTERING:  # what is under way brings it
            self._asking.wait = FIRST_WAIT
            self._asking.due = min(self._asking.due, now + FIRST_WAIT)
        elif self.state in HOLDING:  # in a run, who plays asks at this pace anyway
            self._looking.begin(now + FIRST_WAIT)

    def _ask(self, request: _LobbyQuery, now: float) -> None:
        self._send(request.datagram)
        wait = request.wait
        if self._jitter is not None:
            wait *= 0.75 + 0.5 * self._jitter()
        request.due = min(now + wait, request.expires)
        request.wait = min(2.0 * request.wait, LONGEST_WAIT)

    def _say_ready(self, ready: bool, now: float) -> None:
        assert self.key is not None
        self.state = PerlertState.READY if ready else PerlertState.REGISTERED
        self._want_ready = ready
        if ready:
            self._ready_as = self.key, self._tag
        message = perlert.Ready(self._name, self._number, self.key, ready)
        self._readying.datagram = self._encode(message)
        self._readying.begin(now)

    def _see(self, slots: tuple[perlert.AgentSlot, ...], now: float) -> list[Any]:
        """Take lobby information, and return its events."""
        events: list[Any] = []
        if self._wanted or slots != self.slots:
            events.append(LobbyChanged(slots))
        self._wanted, self._informed, self.slots = False, now, slots
        self._looking.end()
        holding = self.state in HOLDING
        if holding:
            self._looking.begin(now + KEEP_ALIVE)
        elif self.state is not PerlertState.REGISTERING:
            return events
        slot, ours = self._slot()
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
            # Freed for our silence, or by a server that began anew: have it again.
            self.state = PerlertState.REGISTERING
            self._held = self._ready_as = None
            self._settle()
            self._asking.begin(now)
        return events

    def _slot(self) -> tuple[perlert.AgentSlot | None, bool]:
        """Return the slot that is asked for or held, and whether it shows our tag."""
        slot = next((slot for slot in self.slots if slot.key == self.key), None)
        return slot, slot is not None and not slot.open and slot.tag == self._tag

    def _sure(self, sight: str, now: float) -> bool:
        """Return whether something unexpected was seen before, long enough ago."""
        if self._doubt is None or self._doubt[0] != sight:
            self._doubt = sight, now
        elif now - self._doubt[1] >= FIRST_WAIT:
            self._doubt = None
            return True
        self._hurry(now)
        return False

    def _confirm(self, key: str, now: float) -> list[SlotGranted]:
        """Take ``registered=``."""
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

    def _start(self) -> str:
        """Go into the run that we called ready for, and return the slot."""
        assert self._ready_as is not None
        self.key, self._tag = self._ready_as
        self._settle()
        self._doubt = None
        return self.key

    def _taken(self, tag: str, now: float) -> SlotTaken:
        key = self.key
        assert key is not None
        registering = self.state is PerlertState.REGISTERING
        if registering and self._held is not None and self._held[0] != key:
            # Refused, so we are where we were; if we had said ready there, that is taken back.
            self.state = PerlertState.REGISTERED
            self._asking.end()
            self.key, self._tag = self._held
            self._looking.begin(now)
        else:
            self.state = PerlertState.IDLE
            self._forget_slot()
        return SlotTaken(key, tag)
