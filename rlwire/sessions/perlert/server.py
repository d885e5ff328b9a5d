"""PERLERT's server: instances, each with a lobby and its rollouts, behind two ports.

All instances share one lobby port and one rollout port; a datagram's header names its instance.
No datagram raises an error, and memory for peers is bounded. docs/protocols/perlert.md has the
choices that the draft leaves open.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

from rlwire.codecs import perlert
from rlwire.codecs.perlert import Action, Register, decode_client_message
from rlwire.errors import LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import DatagramLayer
from rlwire.sessions.perlert.lobby import IDLE, LEAVE, RESENDS, Lobby, SlotLease, StrangersBudget

_log = logging.getLogger(__name__)

DONE_RESEND: Final = 10.0  # seconds; section 6: "keep the SERVER_ROLLOUT_PORT open for ten seconds"
LOG_INTERVAL: Final = 60.0  # seconds between two log lines for one of `REASONS`

FRAMES: Final = 30.0  # section 3.3: the RECOMMENDED maximum of "rollout step" packets a second

# A client with a forged address never sends anything after the start. After `UNHEARD` seconds it
# gets `UNHEARD_RATE` steps a second. The draft requires no datagram of a client in a rollout.
UNHEARD: Final = 60.0
UNHEARD_RATE: Final = 1.0

AgentStep: TypeAlias = tuple[Any, Any, bool, Any]
"""An agent's observation, reward, done and extra (or None)."""

_ROLLOUTS_KEPT = 4  # whose last steps are resent to their clients
_WARNED = frozenset(("malformed", "unknown_instance", "stranger", "over_budget", "tag_too_long"))

REASONS: Final[dict[str, str]] = {
    "malformed": "not a client's message, or over a limit",
    "unknown_instance": "for an instance that does not exist",
    "stranger": "to the rollout port, from an address without a rollout of the instance",
    "over_budget": "over the rate limit of a client or of peers without a slot",
    "wrong_port": "a lobby message to the rollout port, or an action to the lobby port",
    "running": "a lobby message while the instance runs",
    "not_started": "to the rollout port, before the sender's rollout",
    "not_registered": "ready, from an address without a slot",
    "unknown_slot": "for a slot that does not exist",
    "slot_taken": "for a slot that another client holds",
    "not_your_slot": "ready, for a slot that the sender does not hold",
    "tag_too_long": "with this tag lobby information might not fit into a datagram",
    "too_late": "from a client whose last step is no longer resent",
    "invalid_action": "an action that the environment rejected",
}
"""Why datagrams are dropped."""


@dataclass(frozen=True)
class SlotLeased:
    """A client has registered for a slot; `previous` is its old slot, or None."""

    instance: Instance
    key: str
    peer: Hashable
    tag: str
    previous: str | None


@dataclass(frozen=True)
class LeaseExpired:
    instance: Instance
    key: str
    peer: Hashable


@dataclass(frozen=True)
class RolloutStarted:
    """All clients of an instance are ready, and its rollout starts."""

    instance: Instance


class Instance:
    """One environment of a server: a lobby, and a rollout while it runs.

    `former` is the lobby of the rollout before; `past` has clients whose last step may be resent.
    """

    def __init__(
        self,
        session: PerlertServerSession,
        name: str,
        number: int,
        slots: Mapping[str, str],
        players: int | None,
        decimals: int | None,
    ) -> None:
        self.name = name
        self.number = number
        self.session = session
        self._new_lobby = partial(
            Lobby,
            name,
            number,
            slots,
            players=players,
            limits=session.limits,
            send=session.lobby.out.append,
            at=session.lobby.at,
        )
        self.lobby = self._new_lobby()
        self.writer = perlert.StepWriter(name, number, decimals=decimals, limits=session.limits)
        self.rollout: Rollout | None = None
        self.former: Lobby | None = None
        self.past: dict[Hashable, RolloutClient] = {}
        self._timestamp = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.number}"

    @property
    def clients(self) -> dict[str, Hashable]:
        """The peer of each slot, without open slots."""
        return {lease.key: peer for peer, lease in self.lobby.leases.items()}

    def start(self, now: float) -> None:
        self._in_lobby("start")
        lobby, session = self.lobby, self.session
        if not lobby.leases:
            raise LocalProtocolError(f"{self} cannot start: no client is registered")
        if waiting := [lease.key for lease in lobby.leases.values() if not lease.ready]:
            raise LocalProtocolError(f"{self} cannot start: not ready are {', '.join(waiting)}")
        if session.rollout_port is None:
            raise LocalProtocolError(f"{self} cannot start: rollout_port is not set")
        lobby.start(session.rollout_port, now)
        self.rollout = Rollout(self, now, self._timestamp)

    def message(self, text: str) -> None:
        self._in_lobby("send a message")
        self.lobby.message(text)

    def actions(self) -> dict[str, str]:
        """Return the last action of each client that has sent one."""
        return self._running().actions.copy()

    def publish(
        self, steps: Mapping[str, AgentStep], step: int, timestamp: int, now: float
    ) -> None:
        rollout = self._running()
        finished = rollout.publish(steps, step, timestamp, now)
        if finished or not rollout.playing:  # all clients may have left
            self._finished(rollout, finished, now)

    def finish(
        self,
        now: float,
        timestamp: int | None = None,
        clients: Iterable[RolloutClient] | None = None,
    ) -> None:
        """End the rollout: `clients`, or all, get their last observation again, with ``done``."""
        rollout = self._running()
        steps: dict[str, AgentStep] = {}
        for client in rollout.clients.values() if clients is None else clients:
            if client.done:
                continue
            observation, extra = "", None
            if client.last is not None:
                last: Any = perlert.decode_server_message(client.last, limits=self.session.limits)
                observation, extra = last.observation, last.extra
            steps[client.key] = (observation, 0, True, extra)
        timestamp = rollout.timestamp + 1 if timestamp is None else timestamp
        self.publish(steps, rollout.step + 1, timestamp, now)

    def drop_silent(self, now: float) -> list[str]:
        """End the rollout for clients that were silent for `idle_timeout`; return their keys."""
        rollout = self._running()
        before = now - self.session.idle_timeout
        silent = [
            client
            for client in rollout.clients.values()
            if not client.done and client.last_received <= before
        ]
        if silent:
            self.finish(now, clients=silent)
        return [client.key for client in silent]

    def leave(self, peer: Hashable, now: float) -> None:
        """Free the slot of a client that says goodbye; a rollout of others continues."""
        rollout, lobby = self.rollout, self.lobby
        if rollout is None and peer in lobby.leases:
            lobby.leave(lobby.leases[peer], now)
        elif rollout is not None and peer in rollout.by_peer:
            rollout.end(rollout.by_peer[peer])
        self.confirm(peer)

    def confirm(self, peer: Hashable, timestamp: str | None = None) -> None:
        """Note that a client has its ``done``, or the one with `timestamp`.

        It is still resent: a client may use it to tell the rollout from the next one.
        """
        running = None if self.rollout is None else self.rollout.by_peer.get(peer)
        for client in (running, self.past.get(peer)):
            if client is not None and timestamp in (None, str(client.timestamp)):
                self.session.unconfirmed.discard(client)

    def _running(self) -> Rollout:
        if self.rollout is None:
            raise LocalProtocolError(f"{self} has no rollout now")
        return self.rollout

    def _in_lobby(self, what: str) -> None:
        if self.rollout is not None:
            raise LocalProtocolError(f"{self} cannot {what}: it runs")

    def _finished(self, rollout: Rollout, finished: list[RolloutClient], now: float) -> None:
        for client in finished:
            self.session.unconfirmed.add(client)
            self.session.rollout.at(now + DONE_RESEND, partial(self._forget, client))
        if rollout.playing:
            return
        for client in rollout.clients.values():
            if client.last is not None:
                self.past.pop(client.peer, None)  # keeps the order by age
                self.past[client.peer] = client
        while len(self.past) > _ROLLOUTS_KEPT * len(self.lobby.slots):
            del self.past[next(iter(self.past))]
        self._timestamp = rollout.timestamp + 1
        self.rollout = None
        self.former = self.lobby
        self.lobby = self._new_lobby()

    def _forget(self, client: RolloutClient, now: float) -> None:
        """Resend the last step of a client no more."""
        client.last = None
        self.session.unconfirmed.discard(client)
        if self.past.get(client.peer) is client:
            del self.past[client.peer]


class RolloutClient:
    def __init__(self, key: str, peer: Hashable, due: float, now: float) -> None:
        self.key, self.peer = key, peer
        self.due = due  # when the next step may be sent
        self.last_received = now  # when it last sent anything, or the start
        self.heard = False  # whether it has sent anything since the start
        self.done = False
        self.last: bytes | None = None  # the last step sent, while it may be resent
        self.timestamp = -1  # of the last step sent

    def mark_received(self, now: float) -> None:
        if not self.heard:
            self.heard = True
            self.due = min(self.due, now)
        self.last_received = now


class Rollout:
    """One rollout of an instance, from ``start`` until all clients are done."""

    def __init__(self, instance: Instance, now: float, timestamp: int) -> None:
        session = instance.session
        self._out = session.rollout.out
        self._counts = session.counts
        self._write = instance.writer.write
        self._interval = 1.0 / session.frames  # between two steps of a client
        self._unheard_until = now + session.unheard_timeout
        # One step may be sent an interval early, so that a late tick does not drop the next one.
        due = now - self._interval
        self.clients = {
            key: RolloutClient(key, peer, due, now) for key, peer in instance.clients.items()
        }
        self.by_peer = {client.peer: client for client in self.clients.values()}
        self.playing = len(self.clients)  # the number of clients that are not done
        self.actions: dict[str, str] = {}
        self.step = -1  # the newest published
        self.timestamp = timestamp

    def act(self, client: RolloutClient, text: str, now: float) -> None:
        client.mark_received(now)
        self._counts["actions"] += 1
        self.actions[client.key] = text

    def publish(
        self, steps: Mapping[str, AgentStep], step: int, timestamp: int, now: float
    ) -> list[RolloutClient]:
        """Send each client its agent's step, up to its rate; ``done`` is always sent.

        If one step cannot be encoded, none is sent. Returns the clients that are now done.
        """
        if step < self.step:
            raise LocalProtocolError(f"step {step} after step {self.step}: numbers must ascend")
        # Clients distinguish the steps of two rollouts by timestamps, so these never decrease.
        timestamp = max(timestamp, self.timestamp)
        clients, write = self.clients, self._write
        ready: list[tuple[RolloutClient, bytes, bool]] = []
        dropped = 0
        for key, (observation, reward, done, extra) in steps.items():
            found = clients.get(key)
            if found is None or found.done:
                continue
            if done or now >= found.due:
                text = write(timestamp, step, observation, reward, done, extra)
                ready.append((found, text, done))
            else:
                dropped += 1
        self.step = step
        self.timestamp = timestamp
        self._counts["frames"] += len(ready)
        self._counts["frames_dropped"] += dropped
        finished = []
        for client, text, done in ready:
            self._out.append((text, client.peer))
            client.last = text
            client.timestamp = timestamp
            if client.heard or now < self._unheard_until:
                due = client.due + self._interval
                client.due = due if due > now else now
            else:
                client.due = now + 1.0 / UNHEARD_RATE
            if done:
                self.end(client)
                finished.append(client)
        return finished

    def end(self, client: RolloutClient) -> None:
        if not client.done:
            client.done = True
            self.actions.pop(client.key, None)
            self.playing -= 1


class _ServerPort(DatagramLayer):
    def __init__(self, session: PerlertServerSession) -> None:
        self.out: list[tuple[bytes, Hashable]] = []
        self._session = session
        self._due: list[tuple[float, int, Callable[[float], list[Any] | None]]] = []
        self._order = count()  # of equal times

    def at(self, when: float, call: Callable[[float], list[Any] | None]) -> None:
        """Call ``call(now)``, which may return events, in `advance` at the time `when`."""
        heapq.heappush(self._due, (when, next(self._order), call))

    def advance(self, now: float) -> list[Any]:
        due = self._due
        events: list[Any] = []
        while due and due[0][0] <= now:
            call = heapq.heappop(due)[2]
            try:
                events += call(now) or []
            except Exception:  # the other instances must continue
                _log.exception("a call at a deadline failed")
        return events

    def next_deadline(self) -> float | None:
        return self._due[0][0] if self._due else None

    def receive(self, datagram: Any, peer: Hashable, now: float) -> list[Any]:
        """Process one datagram and return its events; only the lobby port has events."""
        session = self._session
        try:
            message = decode_client_message(datagram, limits=session.limits)
        except RlwireError:
            session.drop("malformed", peer, now)
            return []
        instance = session.instances.get((message.name, message.number))
        if instance is None:
            session.drop("unknown_instance", peer, now)
            return []
        return self._answer(instance, message, peer, now)

    def _answer(self, instance: Instance, message: Any, peer: Hashable, now: float) -> list[Any]:
        raise NotImplementedError

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        out = self.out.copy()
        self.out.clear()
        return out


class _LobbyPort(_ServerPort):
    def __init__(self, session: PerlertServerSession) -> None:
        super().__init__(session)
        self._checking = False  # whether `_drop_idle` is called soon

    def _answer(self, instance: Instance, message: Any, peer: Hashable, now: float) -> list[Any]:
        lobby, kind = instance.lobby, type(message)
        if kind is Register and message.key == LEAVE:
            instance.leave(peer, now)
            return self._start_if_ready(instance, now) if instance.rollout is None else []
        lease = lobby.leases.get(peer)
        started: Lobby | None = None  # the lobby of the sender's rollout, which may have ended
        if lease is not None:
            lease.last_received = now
            if instance.rollout is not None:
                started = lobby
                instance.rollout.by_peer[peer].mark_received(now)
        elif instance.former is not None and peer in instance.former.leases:
            started = instance.former
        if kind is perlert.LobbyRequest:
            self._inform(lobby, lease, peer, now)
        elif kind is Register and started is not lobby:
            return self._register(instance, lease, message, peer, now)
        # Section 6: "resend the lobby start message to any client communicating to such port".
        if started is not None and now < started.resends_until:
            if started.leases[peer].starts.consume(1, now):
                self.out.append((started.start_message, peer))
                self._session.counts["resends"] += 1
            return []
        if kind is Action:
            self._session.drop("wrong_port", peer, now)
        elif kind is perlert.Ready and lease is None:
            self._session.drop("not_registered", peer, now)
        elif kind is not perlert.LobbyRequest and started is not None:
            self._session.drop("running", peer, now)
        elif kind is perlert.Ready:
            assert lease is not None
            return self._set_ready(instance, lease, message, now)
        return []

    def _drop_idle(self, now: float) -> list[Any]:
        """Free the slots of silent clients; return expired leases and starting rollouts."""
        events: list[Any] = []
        session = self._session
        self._checking = False
        for instance in session.instances.values():
            lobby = instance.lobby
            if instance.rollout is None and lobby.leases:
                for lease in lobby.drop_idle(now, session.idle_timeout):
                    events.append(LeaseExpired(instance, lease.key, lease.peer))
                events += self._start_if_ready(instance, now)
            if lobby.leases:
                self._check_soon(now)
        return events

    def _check_soon(self, now: float) -> None:
        if not self._checking:
            self._checking = True
            self.at(now + self._session.idle_timeout / 10, self._drop_idle)

    def _inform(self, lobby: Lobby, lease: SlotLease | None, peer: Hashable, now: float) -> None:
        if lease is not None:
            paid = lease.requests.consume(1, now)
        else:
            paid = self._session.budget.consume(_host_of(peer), len(lobby.information()), now)
        if paid:
            lobby.inform(peer)
        else:
            self._session.drop("over_budget", peer, now)

    def _register(
        self, instance: Instance, lease: SlotLease | None, message: Register, peer: Hashable,
        now: float,
    ) -> list[Any]:  # fmt: skip
        lobby, key, tag = instance.lobby, message.key, message.tag
        reason: str | None
        if instance.rollout is not None:
            reason = "running"
        elif lease is not None and not lease.requests.consume(1, now):
            reason = "over_budget"
        else:
            reason = lobby.refusal(peer, key, tag)
        if reason is None and lease is None:
            # Not from the bucket for all: the slots limit the successes, and a flood of forged
            # requests for information must not prevent registrations.
            size = len(lobby.registered(key))
            if not self._session.budget.consume_own(_host_of(peer), size, now):
                reason = "over_budget"
        if reason is not None:
            self._session.drop(reason, peer, now)
            return []
        previous = lobby.register(peer, key, tag, now)
        self._check_soon(now)
        return [SlotLeased(instance, key, peer, tag, previous)]

    def _set_ready(
        self, instance: Instance, lease: SlotLease, message: perlert.Ready, now: float
    ) -> list[Any]:
        lobby, key = instance.lobby, message.key
        if not lease.requests.consume(1, now):
            self._session.drop("over_budget", lease.peer, now)
        elif lease.key != key:
            reason = "not_your_slot" if key in lobby.slots else "unknown_slot"
            self._session.drop(reason, lease.peer, now)
        else:
            lobby.set_ready(lease, message.ready, now)
            return self._start_if_ready(instance, now)
        return []

    def _start_if_ready(self, instance: Instance, now: float) -> list[Any]:
        if not self._session.rollout_port or not instance.lobby.may_start:
            return []
        instance.start(now)
        return [RolloutStarted(instance)]


class _RolloutPort(_ServerPort):
    def _answer(self, instance: Instance, message: Any, peer: Hashable, now: float) -> list[Any]:
        if type(message) is Register and message.key == LEAVE:
            instance.confirm(peer, message.tag)
            return []
        rollout = instance.rollout
        client = None if rollout is None else rollout.by_peer.get(peer)
        if rollout is not None and client is not None and not client.done:
            if type(message) is Action:
                rollout.act(client, message.action, now)
                return []
            client.mark_received(now)
            if type(message) is not perlert.LobbyRequest:
                self._session.drop("wrong_port", peer, now)
            return []
        if client is None:
            client = instance.past.get(peer)
        if client is None:
            reason = "not_started" if peer in instance.lobby.leases else "stranger"
            self._session.drop(reason, peer, now)
        elif client.last is None:
            self._session.drop("too_late", peer, now)
        else:
            client.mark_received(now)
            # Section 6: "resend the appropriate rollout step upon receiving a client message".
            if now >= client.due:
                client.due = now + 1.0 / RESENDS
                self.out.append((client.last, peer))
                self._session.counts["resends"] += 1
        return []


class PerlertServerSession:
    """All instances of one server, by name and number; `lobby` and `rollout` are its ports.

    No rollout starts before `rollout_port`, the port in ``start``, is set. `frames` is the maximum
    of rollout steps per second and client; `dropped` counts datagrams for each of `REASONS`. A
    client that is silent for `idle_timeout` seconds is dropped; one that sends nothing for
    `unheard_timeout` seconds after the start then gets one step per second. None is never.
    """

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT,
        rollout_port: int | None = None,
        frames: float = FRAMES,
        idle_timeout: float | None = IDLE,
        unheard_timeout: float | None = UNHEARD,
    ) -> None:
        self.idle_timeout = float("inf") if idle_timeout is None else idle_timeout
        self.unheard_timeout = float("inf") if unheard_timeout is None else unheard_timeout
        self.limits = limits
        self.rollout_port = rollout_port
        self.frames = frames
        self.instances: dict[tuple[str, int], Instance] = {}
        self.dropped: Counter[str] = Counter()
        self.counts = Counter[str](actions=0, frames=0, frames_dropped=0, resends=0)
        self.budget = StrangersBudget()
        self.unconfirmed: set[RolloutClient] = set()  # may still ask for their last step
        self.lobby = _LobbyPort(self)
        self.rollout = _RolloutPort(self)
        self._log_at: dict[str, float] = {}

    def add_instance(
        self,
        name: str,
        number: int,
        slots: Mapping[str, str],
        *,
        players: int | None = None,
        decimals: int | None = None,
    ) -> Instance:
        """Open an instance's first lobby; `slots` are AGENT_KIND by AGENT_KEY."""
        if (name, number) in self.instances:
            raise LocalProtocolError(f"the instance {name}:{number} already exists")
        instance = Instance(self, name, number, slots, players, decimals)
        self.instances[name, number] = instance
        return instance

    def statistics(self) -> dict[str, Any]:
        instances = self.instances.values()
        return {
            "running": sum(one.rollout is not None for one in instances),
            "clients": sum(len(one.lobby.leases) for one in instances),
            **self.counts,
            "dropped": dict(self.dropped),
        }

    def drop(self, reason: str, peer: Hashable, now: float) -> None:
        """Count a dropped datagram, and log the count at most once per `LOG_INTERVAL`."""
        self.dropped[reason] += 1
        if now >= self._log_at.get(reason, now):
            self._log_at[reason] = now + LOG_INTERVAL
            _log.log(
                logging.WARNING if reason in _WARNED else logging.INFO,
                "%d datagrams dropped so far as %s (%s), the last one from %s",
                self.dropped[reason],
                reason,
                REASONS[reason],
                peer,
            )


def _host_of(peer: Hashable) -> Hashable:
    return peer[0] if isinstance(peer, tuple) and peer else peer
