"""PERLERT's client: from the lobby through a rollout to its ``done``, over a lossy network.

Each lobby request is repeated with back-off until it is answered. Lobby information has no sequence
number, and may arrive late. So if it contradicts the session (the slot is open, or another client
holds it), the session acts only when a new request confirms it. Only ``registered=`` proves a
registration: a slot with the session's tag may belong to another client with the same tag.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from rlwire.codecs import perlert
from rlwire.codecs.perlert import Action, AgentSlot, decode_server_message, decode_step, encode
from rlwire.errors import LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, DatagramLayer
from rlwire.sessions.perlert.lobby import LEAVE

Address: TypeAlias = tuple[Any, ...]
"""A numeric address of the socket module."""

# Seconds. The wait for a reply in the lobby doubles from `FIRST_WAIT` to `LONGEST_WAIT`. If half of
# all datagrams are lost in each direction, the 30 requests of a timeout fail once in 10,000 times.
# Unexpected lobby information needs a confirmation at least `FIRST_WAIT` later.
FIRST_WAIT: Final = 0.25
LONGEST_WAIT: Final = 1.0
TIMEOUT: Final = 30.0  # for any reply, and for a step of a rollout; then `RequestFailed`

# Between lobby requests while a slot is held: servers free the slots of silent clients, and resend
# a lost ``start`` for 5 s (section 6), but only in reply to a datagram.
KEEP_ALIVE: Final = 2.0

# After `REPEAT` the last action is resent: it may be lost, and a NAT may drop its mapping. After
# `SILENCE` without a step the client requests a lost ``done`` every `FIRST_WAIT`, without back-off:
# 4 small datagrams per second are few beside 30 steps.
REPEAT: Final = 0.5
SILENCE: Final = 1.0

# After `LOST` without a step, lobby information may end the rollout: section 6 requires a server to
# resend ``done`` for 10 s. Datagrams of an old rollout may arrive for `STALE` after its end, since
# ``start`` is resent for 5 s more.
LOST: Final = 10.0
STALE: Final = 15.0

LEAVE_COPIES: Final = 3  # copies, since nothing confirms them

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
"""The states in which the session holds a slot of the lobby."""
RUNNING: Final = (PerlertState.STARTING, PerlertState.ROLLOUT)
"""The states of a rollout."""


@dataclass(frozen=True)
class LobbyChanged:
    slots: tuple[AgentSlot, ...]


@dataclass(frozen=True)
class SlotGranted:
    """The server has registered the session for this slot, possibly again after freeing it."""

    key: str


@dataclass(frozen=True)
class SlotTaken:
    """Another client holds the slot; the session is IDLE, or still REGISTERED for its old slot."""

    key: str
    tag: str


@dataclass(frozen=True)
class EpisodeStarted:
    """The rollout of slot `key` has started: call `PerlertClientSession.act`."""

    key: str
    port: int


class Frame(NamedTuple):
    """A rollout step that is newer than all before.

    `skipped` is the number of missing steps since the frame before, `received` the `now` of its
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
class RequestFailed:
    """No reply arrived in time: to ``lobby``, ``register``, ``ready`` or in a ``rollout``."""

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
    """The current rollout of an agent, and the end of the one before."""

    def __init__(self, address: Address) -> None:
        self.address = address  # of the rollout port
        self.horizon = -1  # steps of the rollout before have timestamps up to this one
        self.ended = -_NEVER  # when that rollout ended
        self.last_step_at = 0.0  # when the newest step arrived, or the rollout started
        self.step = self.timestamp = -1  # of the newest step
        self.frames = self.skipped = self.duplicates = self.late = 0
        self.forget()

    def begin(self, address: Address, now: float) -> None:
        self.on = True
        self.address = address
        self.last_step_at = self.send_due = now  # send at once, to show the server that we are here
        self.step = self.timestamp = -1
        if now >= self.ended + STALE:
            self.horizon = -1  # else all steps are dropped if the server's clock was set back

    def leave(self, now: float) -> None:
        """Record the end of a rollout, or of one that may have run without the session's notice."""
        self.ended = now
        self.horizon = max(self.horizon, self.timestamp)

    def forget(self) -> None:
        self.on = False  # whether the state is one of `RUNNING`
        self.fast_peer: Hashable = _NO_PEER  # `address` after the first step of this rollout
        self.action = b""  # the datagram of the current action
        self.pending = b""  # the same until it is sent
        self.send_due = _NEVER  # when to send to the rollout port

    def accept(self, fields: tuple[Any, ...], now: float) -> Frame | None:
        _, _, timestamp, step, observation, reward, done, extra = fields
        # Within a rollout the order is (STEP_NUMBER, TIMESTAMP): the number may always be 0, as in
        # the draft's own example.
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
        self.last_step_at = now
        self.frames += 1
        # Frame() without the call of a Python function.
        return tuple.__new__(Frame, (step, timestamp, observation, reward, done, extra, gap, now))


class PerlertClientSession(DatagramLayer):
    """One agent of one server instance.

    All its datagrams must leave from one port. Lobby information distinguishes clients by `tag`
    only. `jitter` returns numbers from 0 to 1, which vary the back-off by up to a quarter. `slots`
    is the last lobby information; `key` is the slot that is requested, held or played.
    """

    def __init__(
        self,
        name: str,
        number: int,
        server: Address,
        *,
        limits: Limits = DEFAULT,
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
        self._limits = limits
        self._jitter = jitter
        self._out: list[tuple[bytes, Hashable]] = []
        self._lobby_request = _Request("lobby", self._encode(perlert.LobbyRequest(name, number)))
        self._register_request = _Request("register")
        self._ready_request = _Request("ready")
        self._last_information = -_NEVER  # when the last lobby information arrived
        # Key and tag that were reported ready, which a start refers to; and of the last rollout.
        self._ready_as: tuple[str, str] | None = None
        self._played: tuple[str, str] | None = None
        self._lobby_requested = False  # the agent waits for lobby information, changed or not
        self._held: tuple[str, str] | None = None  # key and tag of the last confirmed registration
        self._want_ready: bool | None = None  # None before `set_ready`
        self._unconfirmed: tuple[str, float] | None = None  # unexpected information, since when
        self._episode = _Episode(server)

    def statistics(self) -> dict[str, int]:
        """Return counts of steps: new ``frames``, ``skipped``, ``duplicates`` and ``late`` ones.

        Dropped datagrams are counted as ``stale`` (of another rollout), ``foreign`` (of another
        address or instance) or ``malformed``.
        """
        names = ("frames", "skipped", "duplicates", "late")
        counts = {name: getattr(self._episode, name) for name in names}
        return {**counts, **{name: getattr(self, name) for name in _DROPPED}}

    def request_lobby(self, now: float) -> None:
        """Request the lobby's slots: `LobbyChanged` follows, or `RequestFailed`."""
        self._lobby_requested = True
        self._lobby_request.begin(now)
        self._send_request(self._lobby_request, now)

    def register(self, key: str, tag: str, now: float) -> None:
        """Request a slot, or a move: `SlotGranted`, `SlotTaken` or `RequestFailed` follows."""
        self._require(
            "register", PerlertState.IDLE, PerlertState.REGISTERING, *HOLDING, PerlertState.DONE
        )
        datagram = self._encode(perlert.Register(self._name, self._number, key, tag))
        self.state = PerlertState.REGISTERING
        self.key, self._tag = key, tag
        self._want_ready = None if self._want_ready is None else False
        self._unconfirmed = None
        self._end_requests()
        self._register_request.datagram = datagram
        self._register_request.begin(now)
        self._send_request(self._register_request, now)

    def set_ready(self, ready: bool, now: float) -> None:
        """Send the ready status until lobby information shows it; `EpisodeStarted` follows."""
        self._require("set_ready", *HOLDING)
        self._send_ready(ready, now)
        self._send_request(self._ready_request, now)

    def act(self, action: str, now: float) -> None:
        """Set the current action; if it cannot be encoded, the action before stays."""
        episode = self._episode
        if not episode.on:
            self._require("act", *RUNNING)
        # Action() without the call of a Python function.
        message = tuple.__new__(Action, (self._name, self._number, action))
        episode.action = episode.pending = encode(message, limits=self._limits)
        if now - episode.last_step_at < SILENCE:
            episode.send_due = now + REPEAT

    def leave(self) -> None:
        """Say goodbye: an rlwire server frees the slot, another one sees that we are not ready."""
        if self.state is PerlertState.READY and self.key is not None:
            self._send(self._encode(perlert.Ready(self._name, self._number, self.key, False)))
        if self._tag:
            for _ in range(LEAVE_COPIES):
                self._send(self._leave_message(self._tag))

    def _leave_message(self, tag: str) -> bytes:
        return self._encode(perlert.Register(self._name, self._number, LEAVE, tag))

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Any]:
        """Process one datagram and return its events; invalid ones are counted and dropped."""
        episode = self._episode
        playing = peer is episode.fast_peer or peer == episode.fast_peer
        if not playing and not (isinstance(peer, tuple) and peer[:1] == self._server[:1]):
            self.foreign += 1
            return []
        try:
            step = decode_step(datagram, limits=self._limits)
            message = decode_server_message(datagram, limits=self._limits) if not step else None
        except RlwireError:
            self.malformed += 1
            return []
        if step is None:
            return self._on_lobby_message(message, peer, now)
        if step[0] != self._name or step[1] != self._number:
            self.foreign += 1
            return []
        if not playing:
            return self._on_step_outside(step, peer, now)
        if step[2] <= episode.horizon:
            self.stale += 1
            return []
        frame = episode.accept(step, now)
        if frame is None:
            return []
        return self._on_done(frame, now) if frame.done else [frame]

    def advance(self, now: float) -> list[Any]:
        episode = self._episode
        if episode.on:
            if now >= episode.last_step_at + TIMEOUT:
                what = "first step" if self.state is PerlertState.STARTING else "further step"
                reason = (
                    f"no {what} from {episode.address} within {TIMEOUT:g} s{self._dropped_so_far()}"
                )
                return self._fail("rollout", reason, now)
            if now >= episode.send_due:
                self._send_to_rollout(now)
        for request in (self._register_request, self._ready_request, self._lobby_request):
            if now >= request.expires:
                return self._fail(request.what, self._no_answer(request), now)
            if now >= request.due:
                self._send_request(request, now)
                if request is not self._lobby_request:
                    # Shows the outcome of a request that was rejected, or whose reply was lost.
                    self._send(self._lobby_request.datagram)
        return []

    def next_deadline(self) -> float | None:
        episode = self._episode
        if episode.on:  # only information is requested then
            return min(episode.last_step_at + TIMEOUT, episode.send_due, self._lobby_request.due)
        due = min(self._register_request.due, self._ready_request.due, self._lobby_request.due)
        return None if due == _NEVER else due

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        out: list[tuple[bytes, Hashable]] = []
        if self._out:
            out, self._out = self._out, out
        episode = self._episode
        if episode.pending:
            out.append((episode.pending, episode.address))
            episode.pending = b""
        return out

    def _on_lobby_message(self, message: Any, peer: Hashable, now: float) -> list[Any]:
        ours = message.name == self._name and message.number == self._number
        if not ours or peer != self._server:  # only steps come from other ports
            self.foreign += 1
            return []
        match message:
            case perlert.LobbyInformation():
                return self._on_lobby(message.slots, now)
            case perlert.Registered():
                return self._on_registered(message.key, now)
            case perlert.Start():
                return self._on_start(message.port, now)
        return [message]

    def _on_lobby(self, slots: tuple[AgentSlot, ...], now: float) -> list[Any]:
        events: list[Any] = []
        if self._lobby_requested or slots != self.slots:
            events.append(LobbyChanged(slots))
        self._lobby_requested, self._last_information, self.slots = False, now, slots
        self._lobby_request.end()
        holding = self.state in HOLDING
        if holding:
            self._lobby_request.begin(now + KEEP_ALIVE)
        slot = next((slot for slot in slots if slot.key == self.key), None)
        ours = slot is not None and not slot.open and slot.tag == self._tag
        if self._episode.on and now - self._episode.last_step_at >= LOST:
            if ours and slot is not None and slot.ready:  # the rollout still runs
                self._unconfirmed = None
            elif self._confirmed("over", now):
                reason = "the rollout has ended or the server has restarted; the last step is lost"
                events += self._fail("rollout", reason, now)
        if not holding and self.state is not PerlertState.REGISTERING:
            return events
        if slot is None:
            if self._confirmed("missing", now):
                keys = ", ".join(each.key for each in slots)
                reason = f"there is no slot {self.key!r}, only {keys}"
                events += self._fail("register", reason, now)
        elif ours:
            self._unconfirmed = None
            if not holding:
                if slot.ready and (self.key, self._tag) == self._played:
                    # Not ready for the next rollout yet, so this is the one before, in which other
                    # clients still play. Wait as long as the server reports that.
                    self._register_request.expires = now + TIMEOUT
                else:
                    self._recheck_soon(now)
            elif slot.ready == self._want_ready:
                self._ready_request.end()
            elif self._want_ready is not None and self._ready_request.due == _NEVER:
                self._send_ready(self._want_ready, now)
        elif not slot.open:
            if self._confirmed("taken", now):
                events.append(self._on_taken(slot.tag, now))
        elif not holding:
            self._unconfirmed = None
        elif self._confirmed("open", now):
            # The server has received nothing for too long, or has restarted: register again.
            self.state = PerlertState.REGISTERING
            self._held = self._ready_as = None
            self._end_requests()
            self._register_request.begin(now)
        return events

    def _on_registered(self, key: str, now: float) -> list[Any]:
        if self.state in HOLDING:
            # The reply to a late copy of a request. If that was for another slot, the server may
            # have moved us back there; and every registration makes a slot not ready.
            if key != self.key:
                self._recheck_soon(now)
            elif self._want_ready:
                self._send_ready(True, now)
        if self.state is not PerlertState.REGISTERING:
            return []
        self._held = key, self._tag
        if key != self.key:  # the reply to an earlier request; the last one is still pending
            return []
        self.state = PerlertState.REGISTERED
        self._register_request.end()
        self._unconfirmed = self._ready_as = None
        if not self._lobby_requested:
            self._lobby_request.begin(now + KEEP_ALIVE)
        if self._want_ready:  # set before the slot was freed
            self._send_ready(True, now)
        return [SlotGranted(key)]

    def _on_start(self, port: int, now: float) -> list[Any]:
        if self._episode.on:
            return []  # resent
        if self._ready_as is None:
            self.stale += 1
            return []
        rollout = (self._server[0], port, *self._server[2:])
        if now >= self._episode.ended + STALE:
            return self._start_rollout(rollout, PerlertState.STARTING, now)
        # It may be a copy of the last rollout's start. Ask the rollout port: it replies with a step
        # of a new rollout or with a stale one. Without a reply, lobby information causes a start.
        self._out.append((self._lobby_request.datagram, rollout))
        self._recheck_soon(now)
        return []

    def _on_step_outside(self, fields: tuple[Any, ...], peer: Any, now: float) -> list[Any]:
        """Process a step outside of a rollout: it replaces a lost start, and shows the port."""
        episode, state = self._episode, self.state
        timestamp, step = fields[2:4]
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
            # A rollout that the session has left still runs.
            self.stale += 1
            episode.horizon, episode.ended = timestamp, now
            return []
        else:
            events = self._start_rollout(peer, PerlertState.ROLLOUT, now)
        episode.fast_peer = peer
        frame = episode.accept(fields, now)
        assert frame is not None  # the first one is always newer
        return events + (self._on_done(frame, now) if frame.done else [frame])

    def _require(self, call: str, *states: PerlertState) -> None:
        if self.state not in states:
            allowed = ", ".join(state.name for state in states)
            raise LocalProtocolError(
                f"{call} is not allowed in the state {self.state.name}, only in {allowed}"
            )

    def _start_rollout(self, rollout: Address, state: PerlertState, now: float) -> list[Any]:
        assert self._ready_as is not None
        self.key, self._tag = self._ready_as
        self._end_requests()
        self._unconfirmed = None
        self.state = state
        self._episode.begin(rollout, now)
        return [EpisodeStarted(self.key, rollout[1])]

    def _on_done(self, frame: Frame, now: float) -> list[Any]:
        assert self.key is not None
        self.state = PerlertState.DONE
        self._played = self.key, self._tag
        confirmed = self._leave_message(str(frame.timestamp))
        self._out.append((confirmed, self._episode.address))
        self._episode.leave(now)
        self._clear()
        return [frame]

    def _on_taken(self, tag: str, now: float) -> SlotTaken:
        key = self.key
        assert key is not None
        registering = self.state is PerlertState.REGISTERING
        if registering and self._held is not None and self._held[0] != key:
            # Rejected, so the session keeps its old slot, but is no longer ready there.
            self.state = PerlertState.REGISTERED
            self._register_request.end()
            self.key, self._tag = self._held
            self._lobby_request.begin(now)
        else:
            self.state = PerlertState.IDLE
            self._clear()
        return SlotTaken(key, tag)

    def _fail(self, what: str, reason: str, now: float) -> list[Any]:
        if what != "lobby" or self.state in HOLDING:
            self.state = PerlertState.IDLE
            if self._ready_as is not None:
                self._episode.leave(now)
            self._clear()
        self._lobby_requested = False
        self._lobby_request.end()
        return [RequestFailed(what, reason)]

    def _clear(self) -> None:
        """Leave slot and rollout, and expect only lobby information that the agent requested."""
        self._end_requests()
        self.key = self._ready_as = None
        self._held = self._want_ready = self._unconfirmed = None
        self._episode.forget()

    def _end_requests(self) -> None:
        """End all requests, except the agent's request for lobby information."""
        self._register_request.end()
        self._ready_request.end()
        if not self._lobby_requested:
            self._lobby_request.end()

    def _confirmed(self, what: str, now: float) -> bool:
        """Return whether the same unexpected information already arrived `FIRST_WAIT` ago."""
        if self._unconfirmed is None or self._unconfirmed[0] != what:
            self._unconfirmed = what, now
        elif now - self._unconfirmed[1] >= FIRST_WAIT:
            self._unconfirmed = None
            return True
        self._recheck_soon(now)
        return False

    def _encode(self, message: Any) -> bytes:
        return encode(message, limits=self._limits)

    def _send(self, datagram: bytes) -> None:
        self._out.append((datagram, self._server))

    def _send_request(self, request: _Request, now: float) -> None:
        self._send(request.datagram)
        wait = request.wait
        if self._jitter is not None:
            wait *= 0.75 + 0.5 * self._jitter()
        request.due = min(now + wait, request.expires)
        request.wait = min(2.0 * request.wait, LONGEST_WAIT)

    def _recheck_soon(self, now: float) -> None:
        if self.state is PerlertState.REGISTERING:  # its requests also cause lobby information
            self._register_request.wait = FIRST_WAIT
            self._register_request.due = min(self._register_request.due, now + FIRST_WAIT)
        elif self.state in HOLDING:  # in a rollout, `advance` requests it at this rate
            self._lobby_request.begin(now + FIRST_WAIT)

    def _send_ready(self, ready: bool, now: float) -> None:
        assert self.key is not None
        self.state = PerlertState.READY if ready else PerlertState.REGISTERED
        self._want_ready = ready
        if ready:
            self._ready_as = self.key, self._tag
        message = perlert.Ready(self._name, self._number, self.key, ready)
        self._ready_request.datagram = self._encode(message)
        self._ready_request.begin(now)

    def _send_to_rollout(self, now: float) -> None:
        """Send to the rollout port, because any client message requests a lost ``done``."""
        episode = self._episode
        information = self._lobby_request.datagram
        if not episode.pending:
            # Before the first action, a lobby request: a made-up action could be valid.
            self._out.append((episode.action or information, episode.address))
        silent = now - episode.last_step_at
        waiting = silent >= SILENCE or self.state is PerlertState.STARTING
        episode.send_due = now + (FIRST_WAIT if waiting else REPEAT)
        if silent >= LOST:
            self._send(information)

    def _no_answer(self, request: _Request) -> str:
        within = f"within {TIMEOUT:g} s"
        if request is self._lobby_request or self._last_information < request.expires - TIMEOUT:
            instance = f"{self._name}:{self._number}"
            hint = f"check that a server with instance {instance} runs there"
            host, port = self._server[:2]
            server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            return f"no reply from {server} {within}: {hint}{self._dropped_so_far()}"
        if request is self._register_request:
            why = "but lobby information arrives: a rollout may be running"
            return f"no reply to the registration for {self.key!r} {within}, {why}"
        return f"lobby information did not show our ready status of {self.key!r} {within}"

    def _dropped_so_far(self) -> str:
        seen = [f"{getattr(self, name)} {name}" for name in _DROPPED if getattr(self, name)]
        return f" (dropped so far: {', '.join(seen)})" if seen else ""
