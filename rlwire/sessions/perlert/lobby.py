"""One instance: its lobby, then a run, then a new lobby.

The lobby decides what a request does; which requests are allowed when is
`rlwire.sessions.perlert.server`'s. A lobby's information always fits into one datagram: each slot
has room for the longer of what it says when it is open and when a client with its tag holds it.

A datagram's source address may be forged, so an answer may go to a victim. What is sent to whom is
therefore paid from token buckets: `StrangersBudget` for peers without a slot, one for each client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rlwire.codecs import perlert
from rlwire.errors import LimitExceeded, LocalProtocolError
from rlwire.limits import Limits
from rlwire.sessions.perlert.rollout import RESENDS, Action, Agent, Frame, Rollout

if TYPE_CHECKING:
    from rlwire.sessions.perlert.server import PerlertServerSession

START_MESSAGE: Final = "Simulation will start..."  # before ``start``, as in Figure 1
START_RESEND: Final = 5.0  # seconds; section 6: "keep the SERVER_LOBBY_PORT open for five seconds"
DONE_RESEND: Final = 10.0  # seconds; section 6: "keep the SERVER_ROLLOUT_PORT open for ten seconds"

# The first change of a lobby is told to all at once, those within so many seconds together at the
# end: a person does not feel it, and it is 20 datagrams a second to a client at most.
GATHER: Final = 0.05

# A client in the lobby that says nothing for so many seconds loses its slot. A person may think for
# minutes, but a slot taken from a forged address does not stay blocked.
IDLE: Final = 300.0

# Lobby requests of one client, a second and at once: each may cause a datagram to all clients. A
# client that repeats lost requests stays below.
REQUESTS_RATE: Final = 5.0
REQUESTS_BURST: Final = 20.0

# Bytes to the peers without a slot of one host, a second and at once: a forged address gets what a
# telephone line would carry, and a thousand clients of one host may register at the same time.
STRANGER_RATE: Final = 4 * 1024.0
STRANGER_BURST: Final = 64 * 1024.0
STRANGERS_RATE: Final = 128 * 1024.0  # lobby information to all hosts together
STRANGERS_BURST: Final = 256 * 1024.0
HOSTS: Final = 4096  # that have a bucket, about a megabyte; the longest silent one is forgotten

_RUNS_KEPT = 4  # whose last steps are repeated to their clients; older ones are forgotten

Datagram = tuple[bytes, Hashable]

_CLOSED = len("=close,,,not_ready")
_OPEN = len("=open,,,ready")


@dataclass(frozen=True)
class Slot:
    """A place for one agent; `tag` is what it shows while the server plays it."""

    key: str
    kind: str = "agent"
    tag: str = "cpu"


@dataclass(slots=True, eq=False)
class Client:
    """Who holds a slot."""

    peer: Hashable
    key: str
    heard: float  # when it last spoke to the lobby port
    requests: TokenBucket
    starts: TokenBucket
    tag: str = ""
    ready: bool = False


class _Seat:
    """A slot with what it says now, and the bytes set aside for it."""

    __slots__ = ("bare", "client", "open", "registered", "reserved", "slot", "value")

    def __init__(self, slot: Slot, registered: bytes) -> None:
        self.slot = slot
        self.open = perlert.AgentSlot(slot.key, True, slot.kind, slot.tag, True)
        self.value = self.open
        self.client: Client | None = None
        self.registered = registered
        self.bare = self.reserved = self.needs("")

    def needs(self, tag: str) -> int:
        """Return the bytes that the slot may come to take while a client with `tag` holds it."""
        both = _size(self.slot.key) + _size(self.slot.kind)
        return both + max(_CLOSED + _size(tag), _OPEN + _size(self.slot.tag))


class Lobby:
    """The slots of one instance and who holds them, until a run is over.

    `players` clients start the run; the slots that stay open are the server's to play. `send` is
    called with each (datagram, peer), `wake` with the time when `flush` should be called.
    """

    def __init__(
        self,
        name: str,
        number: int,
        slots: Iterable[Slot | str],
        *,
        players: int | None = None,
        limits: Limits,
        send: Callable[[Datagram], object],
        wake: Callable[[tuple[float, Lobby]], object],
    ) -> None:
        self._name = name
        self._number = number
        self._limits = limits
        self._send = send
        self._wake = wake
        self.seats: dict[str, _Seat] = {}
        for slot in slots:
            slot = Slot(slot) if isinstance(slot, str) else slot
            if slot.key in self.seats:
                raise ValueError(f"two slots have the key {slot.key!r}")
            registered = perlert.encode(perlert.Registered(name, number, slot.key), limits=limits)
            self.seats[slot.key] = _Seat(slot, registered)
        if not self.seats:
            raise ValueError("an instance needs at least one slot")
        self.players = len(self.seats) if players is None else players
        if not 1 <= self.players <= len(self.seats):
            raise ValueError(f"players must be 1 to {len(self.seats)}, not {players!r}")
        self._room = self._measure()
        self.clients: dict[Hashable, Client] = {}  # who holds a slot, by peer
        self._ready = 0
        self._encoded: bytes | None = None
        self._changed = False
        self._quiet_until = float("-inf")
        self._start = b""
        self.started: float | None = None
        # What cannot be sent shows here, and not when a client causes it to be.
        self.information()
        self._start_message = self._message(START_MESSAGE)

    def _measure(self) -> int:
        """Return the bytes of a datagram that are left with all slots held and all tags empty."""
        header = _size(f"{self._name}:{self._number}")
        size = header + sum(seat.bare + 1 for seat in self.seats.values())
        limit = self._limits.datagram
        if size > limit:
            raise LimitExceeded(
                "datagram",
                limit,
                size,
                path=f"the lobby information of {self._name}:{self._number} with empty tags",
                advice="use fewer slots or shorter keys, kinds and tags",
            )
        return limit - size

    @property
    def not_ready(self) -> list[str]:
        """The slots held by clients that are not ready."""
        return [client.key for client in self.clients.values() if not client.ready]

    @property
    def may_start(self) -> bool:
        """Whether there are enough clients and all of them are ready."""
        return len(self.clients) >= self.players and self._ready == len(self.clients)

    # --- what clients ask for ---

    def refusal(self, peer: Hashable, key: str, tag: str) -> str | None:
        """Return the reason for which a registration would be dropped; None if it would not."""
        seat = self.seats.get(key)
        if seat is None:
            return "unknown_slot"
        if seat.client is not None and seat.client.peer != peer:
            return "slot_taken"
        room = self._room + seat.reserved - seat.needs(tag)
        holder = self.clients.get(peer)
        if holder is not None and holder.key != key:
            left = self.seats[holder.key]
            room += left.reserved - left.bare
        return "tag_too_long" if room < 0 else None

    def register(self, peer: Hashable, key: str, tag: str, now: float) -> str | None:
        """Put a client into a slot that `refusal` has nothing against, and say so.

        Returns the slot that it held before: the same one, or one that is open now; None for none.
        """
        client = self.clients.get(peer)
        seat = self.seats[key]
        before = seat.value
        if client is None:
            requests = TokenBucket(REQUESTS_RATE, REQUESTS_BURST, now)
            client = Client(peer, key, now, requests, TokenBucket(RESENDS, 1, now))
            self.clients[peer] = client
            previous = None
        else:
            previous = client.key
            self._ready -= client.ready
            if previous != key:
                self._vacate(self.seats[previous])
        client.key, client.tag, client.ready = key, tag, False
        seat.client = client
        self._reserve(seat, seat.needs(tag))
        # "Servers MUST register clients with a default not_ready status": also those already in.
        seat.value = perlert.AgentSlot(key, False, seat.slot.kind, tag, False)
        self._send((seat.registered, peer))
        if seat.value == before:
            self.inform(peer)
        else:
            self._change(now)
        return previous

    def set_ready(self, client: Client, ready: bool, now: float) -> bool:
        """Note what a client said of itself; return whether that changed anything.

        If not, it is told the lobby's information, since it may have missed it.
        """
        if client.ready == ready:
            self.inform(client.peer)
            return False
        client.ready = ready
        self._ready += 1 if ready else -1
        seat = self.seats[client.key]
        seat.value = perlert.AgentSlot(client.key, False, seat.slot.kind, client.tag, ready)
        self._change(now)
        return True

    def inform(self, peer: Hashable) -> None:
        """Send the lobby's information to one peer."""
        self._send((self.information(), peer))

    # --- what the server does ---

    def message(self, text: str) -> None:
        """Send a message to all clients."""
        self._send_all(self._message(text))

    def tell(self, peer: Hashable, text: str) -> None:
        """Send a message to one client."""
        self._send((self._message(text), peer))

    def start(self, port: int, now: float) -> None:
        """Tell all clients that the run starts; the last changes of the lobby before it."""
        start = perlert.Start(self._name, self._number, port)
        self._start = perlert.encode(start, limits=self._limits)
        self.started = now
        if self._changed:
            self._broadcast(now)
        self._send_all(self._start_message)
        self._send_all(self._start)

    def start_again(self, peer: Hashable, now: float) -> bool:
        """Repeat ``start`` to a client; return whether it is not too late for it."""
        if self.started is None or now >= self.started + START_RESEND:
            return False
        if self.clients[peer].starts.take(1, now):
            self._send((self._start, peer))
        return True

    def drop_idle(self, now: float) -> list[Client]:
        """Free the slots of the clients that were silent for too long and return these."""
        idle = [client for client in self.clients.values() if client.heard <= now - IDLE]
        for client in idle:
            self._ready -= client.ready
            del self.clients[client.peer]
            self._vacate(self.seats[client.key])
        if idle:
            self._change(now)
        return idle

    def flush(self, now: float) -> None:
        """Tell the changes that were gathered, if it is time."""
        if self._changed and now >= self._quiet_until:
            self._broadcast(now)

    # --- below ---

    def _message(self, text: str) -> bytes:
        message = perlert.LobbyMessage(self._name, self._number, text)
        return perlert.encode(message, limits=self._limits)

    def _vacate(self, seat: _Seat) -> None:
        seat.client = None
        seat.value = seat.open
        self._reserve(seat, seat.bare)

    def _reserve(self, seat: _Seat, size: int) -> None:
        self._room += seat.reserved - size
        seat.reserved = size

    def _change(self, now: float) -> None:
        self._encoded = None
        self._changed = True
        self.flush(now)

    def _broadcast(self, now: float) -> None:
        self._changed = False
        self._quiet_until = now + GATHER
        # Always, not only when something is to be told: so the times of all lobbies come in order.
        self._wake((self._quiet_until, self))
        self._send_all(self.information())

    def _send_all(self, datagram: bytes) -> None:
        for peer in self.clients:
            self._send((datagram, peer))

    def information(self) -> bytes:
        """Return the datagram of the lobby's information."""
        if self._encoded is None:
            slots = tuple(seat.value for seat in self.seats.values())
            information = perlert.LobbyInformation(self._name, self._number, slots)
            self._encoded = perlert.encode(information, limits=self._limits)
        return self._encoded


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))  # the codec refuses these, and says where


# ---- how much


class TokenBucket:
    """Fills with `rate` units a second up to `burst`.

    What is larger than the bucket may be taken from a full one, which then owes the rest: the
    rate holds, and nothing is impossible for ever.
    """

    __slots__ = ("_burst", "_filled", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._filled = now

    def take(self, amount: float, now: float) -> bool:
        """Take `amount` if there is enough; return whether it was taken."""
        if not self.holds(amount, now):
            return False
        self._level -= amount
        return True

    def holds(self, amount: float, now: float) -> bool:
        """Return whether `amount` could be taken now."""
        if now > self._filled:
            self._level = min(self._burst, self._level + (now - self._filled) * self._rate)
            self._filled = now
        return self._level >= min(amount, self._burst)


class StrangersBudget:
    """What peers without a slot are sent: a bucket for each host, and one for all.

    A new host finds a full bucket, so forgetting the longest silent host costs nothing if its
    bucket is full again, and otherwise no more than the bucket for all lets through.
    """

    def __init__(self) -> None:
        self._all: TokenBucket | None = None
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, host: Hashable, size: int, now: float) -> bool:
        """Pay for `size` bytes to `host` out of both buckets, or out of neither."""
        if self._all is None:
            self._all = TokenBucket(STRANGERS_RATE, STRANGERS_BURST, now)
        if not self._all.holds(size, now) or not self.take_own(host, size, now):
            return False
        return self._all.take(size, now)

    def take_own(self, host: Hashable, size: int, now: float) -> bool:
        """Pay out of the host's own bucket only, for what the number of slots bounds already."""
        bucket = self._buckets.get(host)
        if bucket is None:
            if len(self._buckets) >= HOSTS:
                self._buckets.popitem(last=False)
            bucket = self._buckets[host] = TokenBucket(STRANGER_RATE, STRANGER_BURST, now)
        else:
            self._buckets.move_to_end(host)
        return bucket.take(size, now)


def host_of(peer: Hashable) -> Hashable:
    """Return the host of a socket address; whatever else a peer may be is its own host."""
    return peer[0] if isinstance(peer, tuple) and peer else peer


# ---- the instance


class Instance:
    """One environment's room on a server: a lobby, and while it runs a rollout.

    Made by `ServerSession.add_instance`. During a run `lobby` has those of the run; `former` is the
    lobby of the run before; `past` has who was told that it is done, and still may be again.
    """

    def __init__(
        self,
        session: PerlertServerSession,
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

        The slots that are open are the server's.
        """
        self._in_lobby("start")
        lobby = self.lobby
        if not lobby.clients:
            raise LocalProtocolError(f"{self!r} cannot start: nobody is registered")
        if lobby.not_ready:
            raise LocalProtocolError(
                f"{self!r} cannot start: not ready are {', '.join(lobby.not_ready)}"
            )
        session = self._session
        if session.rollout_port is None:
            raise LocalProtocolError(f"{self!r} cannot start: rollout_port is not set")
        lobby.start(session.rollout_port, now)
        self.rollout = Rollout(
            self.name,
            self.number,
            self.clients,
            now=now,
            out=session.rollout.out,
            over=self._is_over,
            counts=session.counts,
            limits=session.limits,
            frames=session.frames,
            decimals=self._decimals,
            timestamp=self._timestamp,
        )

    def message(self, text: str) -> None:
        """Send a message to all registered clients; the draft has these in the lobby phase only."""
        self._in_lobby("send a message")
        self.lobby.message(text)

    def actions(self) -> dict[str, Action]:
        """Return what `Rollout.actions` does."""
        return (self.rollout or self._running()).actions()

    def reject(self, key: str, serial: int) -> None:
        """Do what `Rollout.reject` does, and count it."""
        if self._running().reject(key, serial):
            self._session.dropped["invalid_action"] += 1

    def publish(self, frames: Mapping[str, Frame], step: int, timestamp: int, now: float) -> None:
        """Do what `Rollout.publish` does; once all clients are done there is a new lobby."""
        rollout = self.rollout or self._running()
        rollout.publish(frames, step, timestamp, now)
        if not rollout.playing:
            self._renew(rollout)

    def finish(self, now: float, timestamp: int | None = None) -> None:
        """Do what `Rollout.finish` does, then open a new lobby."""
        rollout = self._running()
        rollout.finish(now, timestamp)
        self._renew(rollout)

    def _running(self) -> Rollout:
        if self.rollout is None:
            raise LocalProtocolError(f"{self!r} has no run now")
        return self.rollout

    def _in_lobby(self, what: str) -> None:
        if self.rollout is not None:
            raise LocalProtocolError(f"{self!r} cannot {what}: it runs")

    def _is_over(self, agent: Agent, now: float) -> None:
        self._session.rollout.expiries.append((now + DONE_RESEND, self, agent))

    def _renew(self, rollout: Rollout) -> None:
        for agent in rollout.agents.values():
            if agent.last is not None:
                self.past.pop(agent.peer, None)  # so that the newest are the last ones
                self.past[agent.peer] = (rollout, agent)
        while len(self.past) > _RUNS_KEPT * len(self.lobby.seats):
            del self.past[next(iter(self.past))]
        self._timestamp = rollout.timestamp + 1
        self.rollout = None
        self.former = self.lobby
        self.lobby = self._new_lobby()
