"""PERLERT's server: instances, each with a lobby and its runs, behind two ports.

All instances of a server share one lobby port and one rollout port; a datagram's header says which
instance it is for. What a datagram does, and why one is dropped, is in the tables of
`LOBBY_RULES` and `ROLLOUT_RULES`. Nothing that a peer sends raises. What is remembered of peers is
bounded by the number of slots and by `ServerSettings.hosts`, whatever they send.

How the draft is read where it leaves room:

- A peer without a slot is answered only when it asks for lobby information (the draft's MUST)
  and when its registration succeeds, at a limited rate (the draft's SHOULD NOT). "All clients" are
  the registered ones.
- The last registration wins among those of one client; a slot that another client holds stays
  that one's.
- One client has one slot in an instance. The header tells the steps of several instances apart, so
  the same client may be registered in each of them.
- A run's registrations end with the run, when all its clients are done: then there is a new lobby
  with all slots open. While it runs nobody can register.
- A client that registers does not prove that it receives what it is sent, since nothing in the
  draft lets it. `ServerSettings.unheard` bounds what a forged address can be sent.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from rlwire.codecs.perlert import Action, LobbyRequest, Ready, Register
from rlwire.errors import LocalProtocolError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert.lobby import Instance, Lobby, Slot, StrangersBudget, host_of
from rlwire.sessions.perlert.rollout import ActionsPort, Agent, Port, Rollout

__all__ = [
    "DEFAULT_SETTINGS",
    "LOBBY_RULES",
    "REASONS",
    "ROLLOUT_RULES",
    "Instance",
    "Left",
    "ReadyChanged",
    "Registered",
    "ServerSession",
    "ServerSettings",
    "Slot",
    "Started",
    "Who",
]

_log = logging.getLogger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview
Header: TypeAlias = tuple[str, int]
ClientMessage: TypeAlias = LobbyRequest | Register | Ready | Action


_COUNTED = ("starts", "actions", "frames", "frames_dropped", "resends")
_WARNED = frozenset(("malformed", "unknown_instance", "stranger", "over_budget", "tag_too_long"))


@dataclass(frozen=True)
class ServerSettings:
    """Times in seconds, sizes in bytes.

    Attributes:
        auto_start: start as soon as all registered clients are ready and there are enough of
            them. Off: the server starts by `Instance.start` only.
        start_message: sent to the clients before ``start``, as in the draft's Figure 1. None for
            no message.
        start_resend: how long after the start a client that speaks to the lobby port is sent
            ``start`` again. 5, the draft's section 6.
        done_resend: how long after its ``done`` a client that speaks to the rollout port is sent
            that step again. 10, the draft's section 6.
        resends_per_second: ``start`` and ``done`` sent again to one client. 30, the rate of the
            stream that the client has just been sent, so no flood gains anything by them.
        gather: a change of the lobby is told to all at once, those that follow within this time
            together at its end. 0.05: not felt by a person, and at most 20 datagrams a second
            to a client however many others come and go.
        idle: a client in the lobby that says nothing for so long loses its slot. 300: a client
            that repeats its requests is heard every few seconds, a person may think for minutes,
            and a slot taken from a false address does not stay blocked for ever. It is
            checked every tenth of it.
        requests_burst: lobby requests that one client may make at once. 20: more than
            registering, moving and getting ready with each request repeated several times.
        requests_per_second: and those that follow. 5: a client that repeats a lost request
            every quarter of a second stays below it. More are dropped; each could cause a
            datagram to all clients of the instance.
        frames_per_second: rollout steps to one client. 30, RECOMMENDED by the draft. A frame may
            come one interval early, so that a late tick does not cost the one after it.
        unheard: how long a client that has not spoken to the rollout port gets the full rate. 2:
            a client's first action is there within a round trip, and may be lost a few times.
        unheard_rate: frames a second after that, until it speaks. 1: whoever registers with
            another's address sends that one next to nothing, and a client that only looks on
            still sees the run. Its ``done`` is always sent.
        stranger_rate: bytes a second that peers without a slot are answered, for each host.
            4 KiB: a few clients behind one address may ask each second, and a host whose
            address is forged gets no more than a telephone line would carry.
        stranger_burst: the same at once. 64 KiB: fifty answers of the largest default size; a
            thousand clients of one host that register at the same time.
        strangers_rate: lobby information, bytes a second, for all hosts together. 128 KiB:
            a hundred answers of the largest default size, or a thousand common ones; and one
            megabit is all that an attacker with many forged addresses makes the server send.
        strangers_burst: the same at once. 256 KiB.
        hosts: hosts whose bytes are counted. 4,096, about a megabyte of memory; beyond it the one
            not heard for the longest time is forgotten, and `strangers_rate` still holds.
        log_interval: one line of the log for each reason for which datagrams are dropped. 60.
    """

    auto_start: bool = True
    start_message: str | None = "Simulation will start..."
    start_resend: float = 5.0
    done_resend: float = 10.0
    resends_per_second: float = 30.0
    gather: float = 0.05
    idle: float = 300.0
    requests_burst: float = 20.0
    requests_per_second: float = 5.0
    frames_per_second: float = 30.0
    unheard: float = 2.0
    unheard_rate: float = 1.0
    stranger_rate: float = 4 * 1024
    stranger_burst: float = 64 * 1024
    strangers_rate: float = 128 * 1024
    strangers_burst: float = 256 * 1024
    hosts: int = 4096
    log_interval: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("auto_start", "start_message"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, not {value!r}")
            if name in ("gather", "start_resend", "done_resend", "unheard"):
                if not value >= 0:
                    raise ValueError(f"{name} must be 0 or more, not {value!r}")
            elif not value > 0:
                raise ValueError(f"{name} must be over 0, not {value!r}")


DEFAULT_SETTINGS = ServerSettings()
"""The settings in force where none are given."""


# ---- what a message does


class Who(enum.Enum):
    """What a peer is to the instance that its datagram is for."""

    REGISTERED = "holds a slot in the lobby"
    PLAYING = "has a slot in the run"
    FORMER = "was in the run before (lobby port), or is done (rollout port)"
    STRANGER = "anyone else"


_MESSAGES = (LobbyRequest, Register, Ready, Action)

LOBBY_RULES: Final[dict[tuple[Who, type], tuple[str, ...]]] = {
    (Who.REGISTERED, LobbyRequest): ("inform",),
    (Who.REGISTERED, Register): ("register",),
    (Who.REGISTERED, Ready): ("ready",),
    (Who.REGISTERED, Action): ("wrong_port",),
    # Section 6: "resend the lobby start message to any client communicating to such port".
    (Who.PLAYING, LobbyRequest): ("inform", "start_again"),
    (Who.PLAYING, Register): ("start_again", "running"),
    (Who.PLAYING, Ready): ("start_again", "running"),
    (Who.PLAYING, Action): ("start_again", "wrong_port"),
    (Who.FORMER, LobbyRequest): ("inform", "start_again"),
    (Who.FORMER, Register): ("register",),
    (Who.FORMER, Ready): ("start_again", "not_registered"),
    (Who.FORMER, Action): ("start_again", "wrong_port"),
    (Who.STRANGER, LobbyRequest): ("inform",),
    (Who.STRANGER, Register): ("register",),
    (Who.STRANGER, Ready): ("not_registered",),
    (Who.STRANGER, Action): ("wrong_port",),
}
"""What the lobby port does with a message: one thing after another, where ``start_again`` is the
last one if it is not too late for it; a name in `REASONS` means that the message is dropped."""

ROLLOUT_RULES: Final[dict[tuple[Who, type], tuple[str, ...]]] = {
    (Who.PLAYING, Action): ("act",),
    (Who.PLAYING, LobbyRequest): ("hear",),
    (Who.PLAYING, Register): ("hear", "wrong_port"),
    (Who.PLAYING, Ready): ("hear", "wrong_port"),
    # Section 6: "resend the appropriate rollout step datagram upon receiving a client message".
    **{(Who.FORMER, message): ("done_again", "too_late") for message in _MESSAGES},
    **{(Who.REGISTERED, message): ("not_started",) for message in _MESSAGES},
    **{(Who.STRANGER, message): ("stranger",) for message in _MESSAGES},
}
"""The same for the rollout port, where ``done_again`` is the last one if it is not too late."""

REASONS: Final[dict[str, str]] = {
    "malformed": "not a client's message, or over a limit",
    "unknown_instance": "for an instance that is not here",
    "stranger": "to the rollout port, from an address that is in no run of the instance",
    "over_budget": "allowed, but too often, or its answers too much",
    "wrong_port": "a lobby's message to the rollout port, or an action to the lobby's",
    "running": "a lobby's message while the instance runs",
    "not_started": "to the rollout port, before the run of its sender",
    "not_registered": "ready, from an address that holds no slot",
    "unknown_slot": "for a slot that the instance has not",
    "slot_taken": "for a slot that another client holds",
    "not_your_slot": "ready, for a slot that its sender does not hold",
    "tag_too_long": "with this tag the lobby's information might not fit into a datagram",
    "too_late": "from a client that is done, after its last step is no longer repeated",
    "invalid_action": "an action that the environment rejected",
}
"""Why datagrams are dropped."""


# ---- what happened


@dataclass(frozen=True)
class Registered:
    """A client has a slot; `previous` is the one that it held before, maybe the same, or None."""

    instance: Instance
    key: str
    peer: Hashable
    tag: str
    previous: str | None


@dataclass(frozen=True)
class ReadyChanged:
    """A client is ready, or no longer."""

    instance: Instance
    key: str
    ready: bool


@dataclass(frozen=True)
class Left:
    """A client was silent for too long; its slot is open."""

    instance: Instance
    key: str
    peer: Hashable


@dataclass(frozen=True)
class Started:
    """The run of an instance starts, since its clients are ready."""

    instance: Instance


class _LobbyPort(Port):
    """The lobby port of all instances."""

    def __init__(self, session: ServerSession, instances: Mapping[Header, Instance]) -> None:
        super().__init__(session, instances)
        # Both in order of time: what is appended is always the same time after now.
        self.wakes: deque[tuple[float, Lobby]] = deque()
        self._checks: deque[tuple[float, Instance]] = deque()
        self._checked: set[Instance] = set()
        self.queues = self.wakes, self._checks
        self._events: list[Any] = []

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Any]:
        """Take one datagram; return `Registered`, `ReadyChanged` and `Started`."""
        found = self._read(datagram, peer, now)
        if found is None:
            return []
        message, instance = found
        for step in LOBBY_RULES[self._who(instance, peer, now), type(message)]:
            if step in REASONS:
                self._session.drop(step, peer, now)
            elif getattr(self, f"_{step}")(instance, message, peer, now):
                break
        return self._take_events()

    def advance(self, now: float) -> list[Any]:
        """Tell what was gathered; return `Left`, and `Started` where only those were missing."""
        wakes, checks = self.wakes, self._checks
        while wakes and wakes[0][0] <= now:
            wakes.popleft()[1].flush(now)
        while checks and checks[0][0] <= now:
            self._check(checks.popleft()[1], now)
        return self._take_events()

    def next_deadline(self) -> float | None:
        """Return when `advance` should be called next, or None."""
        return min((queue[0][0] for queue in self.queues if queue), default=None)

    def _take_events(self) -> list[Any]:
        events, self._events = self._events, []
        return events

    def _who(self, instance: Instance, peer: Hashable, now: float) -> Who:
        client = instance.lobby.clients.get(peer)
        if client is not None:
            client.heard = now
            return Who.REGISTERED if instance.rollout is None else Who.PLAYING
        former = instance.former
        return Who.FORMER if former is not None and peer in former.clients else Who.STRANGER

    # --- the words of LOBBY_RULES, as `_word`; True where no other one follows ---

    def _inform(self, instance: Instance, message: Any, peer: Hashable, now: float) -> bool:
        lobby = instance.lobby
        client = lobby.clients.get(peer)
        if client is not None:
            paid = client.requests.take(1, now)
        else:
            paid = self._session.budget.take(host_of(peer), lobby.information_size, now)
        if paid:
            lobby.inform(peer)
        else:
            self._session.drop("over_budget", peer, now)
        return False

    def _register(self, instance: Instance, message: Register, peer: Hashable, now: float) -> bool:
        lobby, key, tag = instance.lobby, message.key, message.tag
        client = lobby.clients.get(peer)
        if instance.rollout is not None:
            reason: str | None = "running"
        elif client is not None and not client.requests.take(1, now):
            reason = "over_budget"
        else:
            reason = lobby.refusal(peer, key, tag)
        if reason is None and client is None:
            # Not out of the bucket for all: successes are bounded by the slots, and a flood of
            # forged requests for information shall not keep clients from joining.
            size = lobby.registered_size(key)
            if not self._session.budget.take_own(host_of(peer), size, now):
                reason = "over_budget"
        if reason is not None:
            self._session.drop(reason, peer, now)
            return True
        previous = lobby.register(peer, key, tag, now)
        self._events.append(Registered(instance, key, peer, tag, previous))
        if instance not in self._checked:
            self._checked.add(instance)
            self._check_later(instance, now)
        return True

    def _ready(self, instance: Instance, message: Ready, peer: Hashable, now: float) -> bool:
        lobby, key = instance.lobby, message.key
        client = lobby.clients[peer]
        if not client.requests.take(1, now):
            self._session.drop("over_budget", peer, now)
        elif client.key != key:
            reason = "not_your_slot" if key in lobby.slots else "unknown_slot"
            self._session.drop(reason, peer, now)
        elif lobby.set_ready(client, message.ready, now):
            self._events.append(ReadyChanged(instance, key, message.ready))
            self._start_if_ready(instance, now)
        return True

    def _start_again(self, instance: Instance, message: Any, peer: Hashable, now: float) -> bool:
        lobby = instance.lobby
        if peer not in lobby.clients and instance.former is not None:
            lobby = instance.former
        before = len(self.out)
        again = lobby.start_again(peer, now)
        self._session.counts["resends"] += len(self.out) - before
        return again

    # --- what happens of itself ---

    def _start_if_ready(self, instance: Instance, now: float) -> None:
        session = self._session
        if session.settings.auto_start and session.rollout_port and instance.lobby.may_start:
            instance.start(now)
            self._events.append(Started(instance))

    def _check_later(self, instance: Instance, now: float) -> None:
        self._checks.append((now + self._session.settings.idle / 10, instance))

    def _check(self, instance: Instance, now: float) -> None:
        """Free the slots of silent clients, once in a while for each lobby that has clients."""
        if instance.rollout is None:
            for client in instance.lobby.drop_idle(now):
                self._events.append(Left(instance, client.key, client.peer))
            self._start_if_ready(instance, now)
        if instance.lobby.clients:
            self._check_later(instance, now)
        else:
            self._checked.discard(instance)


class _RolloutPort(ActionsPort):
    """The rollout port of all instances."""

    def __init__(self, session: ServerSession, instances: Mapping[Header, Instance]) -> None:
        super().__init__(session, instances)
        # In order of time, as the lobby port's.
        self.expiries: deque[tuple[float, Instance, Agent]] = deque()
        self.queues = (self.expiries,)

    def _judge(
        self, message: Any, instance: Instance, agent: Agent | None, peer: Hashable, now: float
    ) -> None:
        rollout = instance.rollout
        if agent is None:
            rollout, agent = instance.past.get(peer, (None, None))
        if agent is None:
            who = Who.REGISTERED if peer in instance.lobby.clients else Who.STRANGER
        else:
            who = Who.FORMER if agent.done else Who.PLAYING
        for step in ROLLOUT_RULES[who, type(message)]:
            if step in REASONS:
                self._session.drop(step, peer, now)
            elif getattr(self, f"_{step}")(rollout, agent, message, now):
                break

    def advance(self, now: float) -> list[Any]:
        """Forget the last steps that have been repeated for long enough."""
        expiries = self.expiries
        while expiries and expiries[0][0] <= now:
            _until, instance, agent = expiries.popleft()
            agent.last = None
            if instance.past.get(agent.peer, (None, None))[1] is agent:
                del instance.past[agent.peer]
        return []

    def next_deadline(self) -> float | None:
        """Return when `advance` should be called next, or None."""
        return self.expiries[0][0] if self.expiries else None

    # --- the words of ROLLOUT_RULES, as `_word`; True where no other one follows ---

    def _act(self, rollout: Rollout, agent: Agent, message: Action, now: float) -> bool:
        rollout.act(agent, message.action, now)
        return True

    def _hear(self, rollout: Rollout, agent: Agent, message: Any, now: float) -> bool:
        rollout.hear(agent, now)
        return False

    def _done_again(self, rollout: Rollout, agent: Agent, message: Any, now: float) -> bool:
        before = len(self.out)
        again = rollout.done_again(agent, now)
        self._session.counts["resends"] += len(self.out) - before
        return again


class ServerSession:
    """All instances of one server.

    Args:
        settings: times and rates.
        limits: `datagram` is for both directions.
        rollout_port: what clients are told in ``start``; it may be set later, before which
            nothing starts.

    Attributes:
        lobby: the lobby port, a `DatagramSession` of `rlwire.transports.interface`.
        rollout: the rollout port, another one.
        instances: by name and number; to be looked at.
        dropped: how many datagrams were dropped, for each of `REASONS`.
    """

    def __init__(
        self,
        *,
        settings: ServerSettings = DEFAULT_SETTINGS,
        limits: Limits = DEFAULT,
        rollout_port: int | None = None,
    ) -> None:
        self.settings = settings
        self.limits = limits
        self.rollout_port = rollout_port
        instances: dict[Header, Instance] = {}
        self._instances = instances
        self.instances: Mapping[Header, Instance] = MappingProxyType(instances)
        self.dropped: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.budget = StrangersBudget(settings)
        self.lobby = _LobbyPort(self, instances)
        self.rollout = _RolloutPort(self, instances)
        self._log_at: dict[str, float] = {}

    def add_instance(
        self,
        name: str,
        number: int,
        slots: Iterable[Slot | str],
        *,
        players: int | None = None,
        decimals: int | None = None,
    ) -> Instance:
        """Open an instance's first lobby.

        Args:
            name: SERVER_INSTANCE_NAME.
            number: SERVER_INSTANCE_NUMBER, from 0.
            slots: the places for agents; a str is short for ``Slot(key)``.
            players: how many clients start the run when all are ready; None for all slots.
            decimals: to which numbers in frames are rounded; None for all that they have.

        Raises:
            EncodeError: a name, key, kind or tag cannot be sent.
            LimitExceeded: the lobby's information would not fit into a datagram even with empty
                tags.
            ValueError: no slots, two of the same key, or `players` is not 1 up to the slots.
            LocalProtocolError: there is an instance of this name and number.
        """
        if (name, number) in self._instances:
            raise LocalProtocolError(f"there is an instance {name}:{number} already")
        instance = Instance(self, name, number, slots, players, decimals)
        self._instances[name, number] = instance
        return instance

    def close(self) -> None:
        """Take and send nothing more, after what `datagrams` still gives."""
        self.lobby.close()
        self.rollout.close()

    def statistics(self) -> dict[str, Any]:
        """Return counts since the beginning, and of instances, runs and clients now."""
        total = self.counts.copy()
        running = 0
        for instance in self._instances.values():
            if instance.rollout is not None:
                running += 1
                self.add_up(instance.rollout, total)
        return {
            "instances": len(self._instances),
            "running": running,
            "clients": sum(len(one.lobby.clients) for one in self._instances.values()),
            "received": self.lobby.received + self.rollout.received,
            "sent": self.lobby.sent + self.rollout.sent,
            **{name: total[name] for name in _COUNTED},
            "dropped": dict(self.dropped),
        }

    def add_up(self, rollout: Rollout, total: Counter[str] | None = None) -> None:
        """Add the counts of a run, by default to those that are kept when it is over."""
        total = self.counts if total is None else total
        total["actions"] += rollout.received
        total["frames"] += rollout.sent
        total["frames_dropped"] += rollout.dropped

    def drop(self, reason: str, peer: Hashable, now: float) -> None:
        """Count a datagram that is dropped, and say so in the log once in a while."""
        self.dropped[reason] += 1
        if now >= self._log_at.get(reason, now):
            self._log_at[reason] = now + self.settings.log_interval
            _log.log(
                logging.WARNING if reason in _WARNED else logging.INFO,
                "datagrams dropped so far because %s (%s): %d, the last one from %s",
                reason,
                REASONS[reason],
                self.dropped[reason],
                peer,
            )
