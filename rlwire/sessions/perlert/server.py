"""PERLERT's server: instances, each with a lobby and its runs, behind two ports.

All instances of a server share one lobby port and one rollout port; a datagram's header says which
instance it is for. What a datagram does, and why one is dropped, is in the tables of
`LOBBY_RULES` and `ROLLOUT_RULES`. Nothing that a peer sends raises, and what is remembered of
peers is bounded. How the draft is read where it leaves room is in docs/protocols/perlert.md.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rlwire.codecs.perlert import (
    Action,
    LobbyRequest,
    Ready,
    Register,
    decode_client_message,
)
from rlwire.errors import LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert import lobby as lobbies
from rlwire.sessions.perlert.lobby import Instance, Lobby, Slot, StrangersBudget, host_of
from rlwire.sessions.perlert.rollout import FRAMES, Agent, Rollout

_log = logging.getLogger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview
Header: TypeAlias = tuple[str, int]

LOG_INTERVAL: Final = 60.0  # seconds between two lines of the log for one of `REASONS`

_COUNTED = ("actions", "frames", "frames_dropped", "resends")
_WARNED = frozenset(("malformed", "unknown_instance", "stranger", "over_budget", "tag_too_long"))


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


# ---- the ports


class _Port:
    """What both ports have of `rlwire.transports.interface.DatagramSession`."""

    queues: tuple[deque[Any], ...]  # what falls due: each in order of time, which comes first

    def __init__(self, session: PerlertServerSession) -> None:
        self.closed = False
        self.out: list[tuple[bytes, Hashable]] = []
        self.received = 0
        self.sent = 0
        self._session = session
        self._limits = session.limits
        self._instances = session.instances

    def _read(self, datagram: Buffer, peer: Hashable, now: float) -> tuple[Any, Instance] | None:
        if self.closed:
            return None
        self.received += 1
        try:
            message = decode_client_message(datagram, limits=self._limits)
        except RlwireError:
            self._session.drop("malformed", peer, now)
            return None
        instance = self._instances.get((message.name, message.number))
        if instance is None:
            self._session.drop("unknown_instance", peer, now)
            return None
        return message, instance

    def next_deadline(self) -> float | None:
        """Return when `advance` should be called next, or None."""
        return min((queue[0][0] for queue in self.queues if queue), default=None)

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        """Return what is to be sent now, in order, and forget it."""
        out = self.out.copy()
        if out:
            self.out.clear()
            self.sent += len(out)
        return out

    def close(self) -> None:
        """Do nothing more."""
        self.closed = True
        for queue in self.queues:
            queue.clear()


class _LobbyPort(_Port):
    """The lobby port of all instances."""

    def __init__(self, session: PerlertServerSession) -> None:
        super().__init__(session)
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
            paid = self._session.budget.take(host_of(peer), len(lobby.information()), now)
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
            size = len(lobby.seats[key].registered)
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
            reason = "not_your_slot" if key in lobby.seats else "unknown_slot"
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
        if self._session.rollout_port and instance.lobby.may_start:
            instance.start(now)
            self._events.append(Started(instance))

    def _check_later(self, instance: Instance, now: float) -> None:
        self._checks.append((now + lobbies.IDLE / 10, instance))

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


class _RolloutPort(_Port):
    """The rollout port of all instances."""

    def __init__(self, session: PerlertServerSession) -> None:
        super().__init__(session)
        self.expiries: deque[tuple[float, Instance, Agent]] = deque()
        self.queues = (self.expiries,)

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Any]:
        """Take one datagram. There are no events: actions are asked for at each tick."""
        found = self._read(datagram, peer, now)
        if found is None:
            return []
        message, instance = found
        rollout = instance.rollout
        agent = None if rollout is None else rollout.by_peer.get(peer)
        if rollout is None or agent is None or agent.done or type(message) is not Action:
            self._judge(message, instance, agent, peer, now)
        else:
            rollout.act(agent, message.action, now)
        return []

    def _judge(
        self, message: Any, instance: Instance, agent: Agent | None, peer: Hashable, now: float
    ) -> None:
        """Take what is not an action of one who plays; `agent` is the sender's in the run."""
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
            elif getattr(self, f"_{step}")(rollout, agent, now):
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
        """Return when `advance` should be called next, or None; asked after each datagram."""
        return self.expiries[0][0] if self.expiries else None

    # --- the words of ROLLOUT_RULES, as `_word`; True where no other one follows ---

    def _hear(self, rollout: Rollout, agent: Agent, now: float) -> bool:
        rollout.hear(agent, now)
        return False

    def _done_again(self, rollout: Rollout, agent: Agent, now: float) -> bool:
        return rollout.done_again(agent, now)


class PerlertServerSession:
    """All instances of one server.

    Args:
        limits: `datagram` is for both directions.
        rollout_port: what clients are told in ``start``; it may be set later, before which
            nothing starts.
        frames: rollout steps to one client, a second, at most.

    Attributes:
        lobby: the lobby port, a `DatagramSession` of `rlwire.transports.interface`.
        rollout: the rollout port, another one.
        instances: by name and number; to be looked at.
        dropped: how many datagrams were dropped, for each of `REASONS`.
    """

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT,
        rollout_port: int | None = None,
        frames: float = FRAMES,
    ) -> None:
        if not frames > 0:
            raise ValueError(f"frames must be over 0, not {frames!r}")
        self.limits = limits
        self.rollout_port = rollout_port
        self.frames = frames
        self.instances: dict[Header, Instance] = {}
        self.dropped: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.budget = StrangersBudget()
        self.lobby = _LobbyPort(self)
        self.rollout = _RolloutPort(self)
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
        """
        if (name, number) in self.instances:
            raise LocalProtocolError(f"there is an instance {name}:{number} already")
        instance = Instance(self, name, number, slots, players, decimals)
        self.instances[name, number] = instance
        return instance

    def close(self) -> None:
        """Take and send nothing more, after what `datagrams` still gives."""
        self.lobby.close()
        self.rollout.close()

    def statistics(self) -> dict[str, Any]:
        """Return counts since the beginning, and of runs and clients now."""
        instances = self.instances.values()
        return {
            "running": sum(one.rollout is not None for one in instances),
            "clients": sum(len(one.lobby.clients) for one in instances),
            "received": self.lobby.received + self.rollout.received,
            "sent": self.lobby.sent + self.rollout.sent,
            **{name: self.counts[name] for name in _COUNTED},
            "dropped": dict(self.dropped),
        }

    def drop(self, reason: str, peer: Hashable, now: float) -> None:
        """Count a datagram that is dropped, and say so in the log once in a while."""
        self.dropped[reason] += 1
        if now >= self._log_at.get(reason, now):
            self._log_at[reason] = now + LOG_INTERVAL
            _log.log(
                logging.WARNING if reason in _WARNED else logging.INFO,
                "datagrams dropped so far because %s (%s): %d, the last one from %s",
                reason,
                REASONS[reason],
                self.dropped[reason],
                peer,
            )
