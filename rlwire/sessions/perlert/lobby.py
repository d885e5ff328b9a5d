"""One lobby of an instance: its slots and the clients that hold them.

The information of a lobby always fits into one datagram: each slot has room for the longer of what
it says when it is open and when a client with its tag holds it.

A datagram's source address may be forged, so an answer may go to a victim. Answers are therefore
paid from token buckets: `StrangersBudget` for peers without a slot, one for each client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from rlwire.codecs import perlert
from rlwire.errors import LimitExceeded
from rlwire.limits import Limits
from rlwire.sessions.perlert.rollout import RESENDS

START_MESSAGE: Final = "Simulation will start..."  # before ``start``, as in Figure 1
START_RESEND: Final = 5.0  # seconds; section 6: "keep the SERVER_LOBBY_PORT open for five seconds"

# The first change of a lobby is sent to all at once, those within so many seconds together at the
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

_CLOSED = len("=close,,,not_ready")
_OPEN = len("=open,,,ready")


@dataclass(frozen=True)
class Slot:
    """A place for one agent; `tag` is what it shows while the server plays it."""

    key: str
    kind: str = "agent"
    tag: str = "cpu"


@dataclass(slots=True, eq=False)
class SlotLease:
    """A client that holds a slot."""

    peer: Hashable
    key: str
    heard: float  # when it last spoke to the lobby port
    requests: TokenBucket
    starts: TokenBucket
    tag: str = ""
    ready: bool = False


@dataclass(slots=True, eq=False)
class _LobbySlot:
    """A slot and who holds it."""

    slot: Slot
    registered: bytes  # the answer to a registration
    lease: SlotLease | None = None

    def value(self) -> perlert.AgentSlot:
        """Return what the slot says now."""
        slot, lease = self.slot, self.lease
        if lease is None:
            return perlert.AgentSlot(slot.key, True, slot.kind, slot.tag, True)
        return perlert.AgentSlot(slot.key, False, slot.kind, lease.tag, lease.ready)

    def needs(self, tag: str = "") -> int:
        """Return the bytes that the slot may come to take while a client with `tag` holds it."""
        both = _size(self.slot.key) + _size(self.slot.kind)
        return both + max(_CLOSED + _size(tag), _OPEN + _size(self.slot.tag))

    def extra(self, tag: str) -> int:
        """Return how many of these are because of the tag."""
        return self.needs(tag) - self.needs()


class Lobby:
    """The slots of one instance and who holds them, until a rollout is over.

    `players` clients start the rollout; the slots that stay open are the server's to play. `send`
    is called with each (datagram, peer), `wake` with the time when `flush` should be called.
    """

    def __init__(
        self,
        name: str,
        number: int,
        slots: Iterable[Slot | str],
        *,
        players: int | None = None,
        limits: Limits,
        send: Callable[[tuple[bytes, Hashable]], object],
        wake: Callable[[tuple[float, Lobby]], object],
    ) -> None:
        self._name = name
        self._number = number
        self._limits = limits
        self._send = send
        self._wake = wake
        self.slots: dict[str, _LobbySlot] = {}
        for slot in slots:
            slot = Slot(slot) if isinstance(slot, str) else slot
            if slot.key in self.slots:
                raise ValueError(f"two slots have the key {slot.key!r}")
            registered = perlert.encode(perlert.Registered(name, number, slot.key), limits=limits)
            self.slots[slot.key] = _LobbySlot(slot, registered)
        if not self.slots:
            raise ValueError("an instance needs at least one slot")
        self.players = len(self.slots) if players is None else players
        if not 1 <= self.players <= len(self.slots):
            raise ValueError(f"players must be 1 to {len(self.slots)}, not {players!r}")
        self._room = self._measure()
        self.leases: dict[Hashable, SlotLease] = {}  # by peer
        self._ready = 0
        self._encoded: bytes | None = None
        self._changed = False
        self._quiet_until = float("-inf")
        self._start = b""
        self.started: float | None = None
        # What cannot be encoded shows here, and not when a client causes it to be sent.
        self.information()
        self._start_message = self._message(START_MESSAGE)

    def _measure(self) -> int:
        """Return the bytes of a datagram that are left with all slots held and all tags empty."""
        header = _size(f"{self._name}:{self._number}")
        size = header + sum(slot.needs() + 1 for slot in self.slots.values())
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
        return [lease.key for lease in self.leases.values() if not lease.ready]

    @property
    def may_start(self) -> bool:
        """Whether there are enough clients and all of them are ready."""
        return len(self.leases) >= self.players and self._ready == len(self.leases)

    # --- requests of clients ---

    def refusal(self, peer: Hashable, key: str, tag: str) -> str | None:
        """Return the reason for which a registration would be dropped; None if it would not."""
        slot = self.slots.get(key)
        if slot is None:
            return "unknown_slot"
        if slot.lease is not None and slot.lease.peer != peer:
            return "slot_taken"
        room = self._room - slot.extra(tag)
        lease = self.leases.get(peer)
        if lease is not None:
            room += self.slots[lease.key].extra(lease.tag)
        return "tag_too_long" if room < 0 else None

    def register(self, peer: Hashable, key: str, tag: str, now: float) -> str | None:
        """Put a client into a slot that `refusal` has nothing against, and say so.

        Returns the slot that it held before: the same one, or one that is open now; None for none.
        """
        lease = self.leases.get(peer)
        slot = self.slots[key]
        before = slot.value()
        if lease is None:
            requests = TokenBucket(REQUESTS_RATE, REQUESTS_BURST, now)
            lease = SlotLease(peer, key, now, requests, TokenBucket(RESENDS, 1, now))
            self.leases[peer] = lease
            previous = None
        else:
            previous = lease.key
            self._vacate(lease)
        # "Servers MUST register clients with a default not_ready status": also those already in.
        lease.key, lease.tag, lease.ready = key, tag, False
        slot.lease = lease
        self._room -= slot.extra(tag)
        self._send((slot.registered, peer))
        if slot.value() == before:
            self.inform(peer)
        else:
            self._change(now)
        return previous

    def set_ready(self, lease: SlotLease, ready: bool, now: float) -> bool:
        """Note what a client said of itself; return whether that changed anything.

        If not, it is sent the lobby's information, since it may have missed it.
        """
        if lease.ready == ready:
            self.inform(lease.peer)
            return False
        lease.ready = ready
        self._ready += 1 if ready else -1
        self._change(now)
        return True

    def inform(self, peer: Hashable) -> None:
        """Send the lobby's information to one peer."""
        self._send((self.information(), peer))

    # --- the server's own side ---

    def message(self, text: str, peer: Hashable | None = None) -> None:
        """Send a message to one client, by default to all."""
        message = self._message(text)
        for each in self.leases if peer is None else (peer,):
            self._send((message, each))

    def start(self, port: int, now: float) -> None:
        """Tell all clients that the rollout starts; the last changes of the lobby before it."""
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
        if self.leases[peer].starts.take(1, now):
            self._send((self._start, peer))
        return True

    def drop_idle(self, now: float) -> list[SlotLease]:
        """Free the slots of the clients that were silent for too long and return these."""
        idle = [lease for lease in self.leases.values() if lease.heard <= now - IDLE]
        for lease in idle:
            del self.leases[lease.peer]
            self._vacate(lease)
        if idle:
            self._change(now)
        return idle

    def flush(self, now: float) -> None:
        """Send the changes that were gathered, if it is time."""
        if self._changed and now >= self._quiet_until:
            self._broadcast(now)

    def information(self) -> bytes:
        """Return the datagram of the lobby's information."""
        if self._encoded is None:
            slots = tuple(slot.value() for slot in self.slots.values())
            information = perlert.LobbyInformation(self._name, self._number, slots)
            self._encoded = perlert.encode(information, limits=self._limits)
        return self._encoded

    def _message(self, text: str) -> bytes:
        message = perlert.LobbyMessage(self._name, self._number, text)
        return perlert.encode(message, limits=self._limits)

    def _vacate(self, lease: SlotLease) -> None:
        slot = self.slots[lease.key]
        slot.lease = None
        self._room += slot.extra(lease.tag)
        self._ready -= lease.ready

    def _change(self, now: float) -> None:
        self._encoded = None
        self._changed = True
        self.flush(now)

    def _broadcast(self, now: float) -> None:
        self._changed = False
        self._quiet_until = now + GATHER
        # Always, not only when something is to be sent: so the times of all lobbies come in order.
        self._wake((self._quiet_until, self))
        self._send_all(self.information())

    def _send_all(self, datagram: bytes) -> None:
        for peer in self.leases:
            self._send((datagram, peer))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))  # the codec refuses these, and says where


class TokenBucket:
    """Fills with `rate` units a second up to `burst`.

    What is larger than the bucket may be taken from a full one, which then owes the rest: the
    rate holds, and nothing is impossible for ever.
    """

    __slots__ = ("_burst", "_filled", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = self._level = burst
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
