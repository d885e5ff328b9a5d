"""PERLERT's server: instances, each with a lobby and its runs, behind two ports.

All instances of a server share one lobby port and one rollout port; a datagram's header says which
instance it is for. What a datagram does, and why one is dropped, is in the tables of
`rlwire.sessions.perlert_rules`. Nothing that a peer sends raises. What is remembered of peers is
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

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from rlwire.codecs import perlert
from rlwire.codecs.perlert import LobbyRequest, Ready, Register
from rlwire.errors import LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert_budget import StrangersBudget, host_of
from rlwire.sessions.perlert_lobby import Lobby, Slot
from rlwire.sessions.perlert_rollout import Action, Agent, Frame, Rollout
from rlwire.sessions.perlert_rules import LOBBY_RULES, REASONS, ROLLOUT_RULES, Who
from rlwire.sessions.perlert_settings import DEFAULT_SETTINGS, ServerSettings

__all__ = [
    "Instance",
    "Left",
    "ReadyChanged",
    "Registered",
    "ServerSession",
    "ServerSettings",
    "Slot",
    "Started",
]

_log = logging.getLogger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview
Header: TypeAlias = tuple[str, int]
ClientMessage: TypeAlias = LobbyRequest | Register | Ready | perlert.Action


_WARNED = frozenset(("malformed", "unknown_instance", "stranger", "over_budget", "tag_too_long"))

# Runs whose last steps are repeated to their clients: a server whose runs are over sooner than
# that forgets the oldest.
_RUNS_KEPT = 4


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


class Instance:
    """One environment's room on a server: a lobby, and while it runs a rollout.

    Made by `ServerSession.add_instance`.

    Attributes:
        name: SERVER_INSTANCE_NAME.
        number: SERVER_INSTANCE_NUMBER.
        lobby: the slots and who holds them; during a run those of the run.
        rollout: the run, or None.
        former: the lobby of the run before, or None.
        past: who was told that it is done, in runs before this one, and still may be again.
    """

    def __init__(
        self,
        session: ServerSession,
        name: str,
        number: int,
        slots: Iterable[Slot | str],
        players: int | None,
        decimals: int | None,
    ) -> None:
        self.name = name
        self.number = number
        self._session = session
        self._decimals = decimals
        self._new_lobby = partial(
            Lobby,
            name,
            number,
            tuple(slots),
            players=players,
            settings=session.settings,
            limits=session.limits,
            send=session.lobby.out.append,
            wake=session.lobby.wakes.append,
        )
        self.lobby = self._new_lobby()
        self.rollout: Rollout | None = None
        self.former: Lobby | None = None
        self.past: dict[Hashable, tuple[Rollout, Agent]] = {}
        self._timestamp = 0

    def __repr__(self) -> str:
        doing = "lobby" if self.rollout is None else "rollout"
        return f"<Instance {self.name}:{self.number}, {doing}, {len(self.lobby.clients)} clients>"

    @property
    def clients(self) -> dict[str, Hashable]:
        """The peer that holds each slot; open slots are not in it."""
        return {client.key: peer for peer, client in self.lobby.clients.items()}

    def start(self, now: float) -> None:
        """Start the run: "the server can choose to start the simulation at any time".

        `players` is for the automatic start only; the slots that are open are the server's.

        Raises:
            LocalProtocolError: a client is not ready, there is none, a run is on, or the
                session's `rollout_port` is not set.
        """
        self._in_lobby("start")
        lobby = self.lobby
        if not lobby.clients:
            raise LocalProtocolError(f"{self!r} cannot start: nobody is registered")
        if lobby.not_ready:
            raise LocalProtocolError(
                f"{self!r} cannot start: not ready are {', '.join(lobby.not_ready)}"
            )
        port = self._session.rollout_port
        if port is None:
            raise LocalProtocolError(f"{self!r} cannot start: rollout_port is not set")
        lobby.start(port, now)
        self.rollout = Rollout(
            self.name,
            self.number,
            self.clients,
            now=now,
            out=self._session.rollout.out,
            over=self._is_over,
            settings=self._session.settings,
            limits=self._session.limits,
            decimals=self._decimals,
            timestamp=self._timestamp,
        )
        self._session.counts["starts"] += 1

    def message(self, text: str) -> None:
        """Send a message to all registered clients; the draft has these in the lobby phase only.

        Raises:
            LocalProtocolError: a run is on.
            EncodeError, LimitExceeded: it cannot be sent.
        """
        self._in_lobby("send a message")
        self.lobby.message(text)

    def actions(self) -> dict[str, Action]:
        """Return what `Rollout.actions` does.

        Raises:
            LocalProtocolError: no run is on.
        """
        return self._running().actions()

    def reject(self, key: str, serial: int | None = None) -> None:
        """Do what `Rollout.reject` does, and count it.

        Raises:
            LocalProtocolError: no run is on.
        """
        if self._running().reject(key, serial):
            self._session.dropped["invalid_action"] += 1

    def publish(self, frames: Mapping[str, Frame], step: int, timestamp: int, now: float) -> None:
        """Do what `Rollout.publish` does; once all clients are done there is a new lobby.

        Raises:
            LocalProtocolError: no run is on, or what `Rollout.publish` says.
            EncodeError, LimitExceeded: a frame cannot be sent; then none of them is.
        """
        rollout = self.rollout
        if rollout is None:
            rollout = self._running()
        rollout.publish(frames, step, timestamp, now)
        if rollout.finished:
            self._renew(rollout)

    def finish(self, now: float, timestamp: int | None = None) -> None:
        """Do what `Rollout.finish` does, after which there is a new lobby.

        Raises:
            LocalProtocolError: no run is on.
        """
        rollout = self._running()
        rollout.finish(now, timestamp)
        self._renew(rollout)

    def _running(self) -> Rollout:
        if self.rollout is None:
            raise LocalProtocolError(f"{self!r} has no run now")
        return self.rollout

    def _in_lobby(self, what: str) -> None:
        if self._session.instances.get((self.name, self.number)) is not self:
            raise LocalProtocolError(f"{self!r} cannot {what}: it was removed")
        if self.rollout is not None:
            raise LocalProtocolError(f"{self!r} cannot {what}: it runs")

    def _is_over(self, agent: Agent, now: float) -> None:
        until = now + self._session.settings.done_resend
        self._session.rollout.expiries.append((until, self, agent))

    def _renew(self, rollout: Rollout) -> None:
        for agent in rollout.agents.values():
            if agent.last is not None:
                self.past.pop(agent.peer, None)  # so that the newest are the last ones
                self.past[agent.peer] = (rollout, agent)
        while len(self.past) > _RUNS_KEPT * len(self.lobby.keys):
            del self.past[next(iter(self.past))]
        self._session.add_up(rollout)
        self._timestamp = rollout.timestamp + 1
        self.rollout = None
        self.former = self.lobby
        self.lobby = self._new_lobby()


class _Port:
    """What both ports have of `rlwire.transports.interface.DatagramSession`."""

    def __init__(self, session: ServerSession, instances: Mapping[Header, Instance]) -> None:
        self.closed = False
        self.out: list[tuple[bytes, Hashable]] = []
        self.received = 0
        self.sent = 0
        self._session = session
        self._instances = instances

    def _read(
        self, datagram: Buffer, peer: Hashable, now: float
    ) -> tuple[ClientMessage, Instance] | None:
        if self.closed:
            return None
        self.received += 1
        try:
            message = perlert.decode_client_message(datagram, limits=self._session.limits)
        except RlwireError:
            self._session.drop("malformed", peer, now)
            return None
        instance = self._instances.get((message.name, message.number))
        if instance is None:
            self._session.drop("unknown_instance", peer, now)
            return None
        return message, instance

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        """Return what is to be sent now, in order, and forget it."""
        out = self.out.copy()
        self.out.clear()
        self.sent += len(out)
        return out


class _LobbyPort(_Port):
    """The lobby port of all instances."""

    def __init__(self, session: ServerSession, instances: Mapping[Header, Instance]) -> None:
        super().__init__(session, instances)
        # Both in order of time: what is appended is always the same time after now.
        self.wakes: deque[tuple[float, Lobby]] = deque()
        self._checks: deque[tuple[float, Instance]] = deque()
        self._checked: set[Instance] = set()
        self._events: list[Any] = []
        self._steps: dict[str, Callable[[Instance, Any, Hashable, float], bool]] = {
            "inform": self._inform,
            "register": self._register,
            "ready": self._ready,
            "start_again": self._start_again,
        }

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Any]:
        """Take one datagram; return `Registered`, `ReadyChanged` and `Started`."""
        found = self._read(datagram, peer, now)
        if found is None:
            return []
        message, instance = found
        for step in LOBBY_RULES[self._who(instance, peer, now), type(message)]:
            if step in REASONS:
                self._session.drop(step, peer, now)
            elif self._steps[step](instance, message, peer, now):
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
        if not self.wakes:
            return self._checks[0][0] if self._checks else None
        wake = self.wakes[0][0]
        return min(wake, self._checks[0][0]) if self._checks else wake

    def close(self) -> None:
        """Do nothing more."""
        self.closed = True
        self.wakes.clear()
        self._checks.clear()

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

    # --- the steps of LOBBY_RULES; True where no other one follows ---

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
            reason = "not_your_slot" if key in lobby.keys else "unknown_slot"
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
        here = self._instances.get((instance.name, instance.number)) is instance
        if here and instance.rollout is None:
            for client in instance.lobby.drop_idle(now):
                self._events.append(Left(instance, client.key, client.peer))
            self._start_if_ready(instance, now)
        if here and instance.lobby.clients:
            self._check_later(instance, now)
        else:
            self._checked.discard(instance)


class _RolloutPort(_Port):
    """The rollout port of all instances."""

    def __init__(self, session: ServerSession, instances: Mapping[Header, Instance]) -> None:
        super().__init__(session, instances)
        # In order of time, as the lobby port's.
        self.expiries: deque[tuple[float, Instance, Agent]] = deque()
        self._steps: dict[str, Callable[[Any, Any, Any, float], bool]] = {
            "act": self._act,
            "hear": self._hear,
            "done_again": self._done_again,
        }

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Any]:
        """Take one datagram. There are no events: actions are asked for at each tick."""
        found = self._read(datagram, peer, now)
        if found is None:
            return []
        message, instance = found
        rollout = instance.rollout
        agent = None
        if rollout is not None:
            agent = rollout.by_peer.get(peer)
            # The hot path: the row of those who play, without the table.
            if agent is not None and not agent.done and type(message) is perlert.Action:
                rollout.act(agent, message.action, now)
                return []
        if agent is None:
            rollout, agent = instance.past.get(peer, (None, None))
        if agent is None:
            who = Who.REGISTERED if peer in instance.lobby.clients else Who.STRANGER
        else:
            who = Who.FORMER if agent.done else Who.PLAYING
        for step in ROLLOUT_RULES[who, type(message)]:
            if step in REASONS:
                self._session.drop(step, peer, now)
            elif self._steps[step](rollout, agent, message, now):
                break
        return []

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

    def close(self) -> None:
        """Do nothing more."""
        self.closed = True
        self.expiries.clear()

    # --- the steps of ROLLOUT_RULES; True where no other one follows ---

    def _act(self, rollout: Rollout, agent: Agent, message: perlert.Action, now: float) -> bool:
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
        self.budget = StrangersBudget(
            rate=settings.stranger_rate,
            burst=settings.stranger_burst,
            all_rate=settings.strangers_rate,
            all_burst=settings.strangers_burst,
            hosts=settings.hosts,
        )
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

    def remove_instance(self, instance: Instance) -> None:
        """Forget an instance at once; `Instance.finish` before it tells the clients of a run.

        Raises:
            LocalProtocolError: it is not here.
        """
        header = (instance.name, instance.number)
        if self._instances.get(header) is not instance:
            raise LocalProtocolError(f"{instance!r} is not here")
        del self._instances[header]
        if instance.rollout is not None:
            self.add_up(instance.rollout)
            instance.rollout = None
        instance.lobby.clients.clear()
        instance.past.clear()

    def start(self, instance: Instance, now: float) -> None:
        """Do what `Instance.start` does."""
        instance.start(now)

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
                _add(total, instance.rollout)
        return {
            "instances": len(self._instances),
            "running": running,
            "clients": sum(len(one.lobby.clients) for one in self._instances.values()),
            "received": self.lobby.received + self.rollout.received,
            "sent": self.lobby.sent + self.rollout.sent,
            **{name: total[name] for name in _COUNTED},
            "dropped": dict(self.dropped),
        }

    def add_up(self, rollout: Rollout) -> None:
        """Keep the counts of a run that is over."""
        _add(self.counts, rollout)

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


_COUNTED = ("starts", "actions", "frames", "frames_dropped", "resends")


def _add(total: Counter[str], rollout: Rollout) -> None:
    total["actions"] += rollout.received
    total["frames"] += rollout.sent
    total["frames_dropped"] += rollout.dropped
