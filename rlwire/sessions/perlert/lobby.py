"""One lobby of an instance: its slots and the clients that hold them.

Lobby information always fits into one datagram, whichever slots are open.

Source addresses may be forged, so replies may go to a victim. Token buckets therefore limit them:
`StrangersBudget` for peers without a slot, and one bucket for each client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from rlwire.codecs import perlert
from rlwire.errors import LimitExceeded
from rlwire.limits import Limits

START_MESSAGE: Final = "Simulation will start..."  # before ``start``, as in Figure 1
START_RESEND: Final = 5.0  # seconds; section 6: "keep the SERVER_LOBBY_PORT open for five seconds"
RESENDS: Final = 30.0  # resent ``start`` or ``done`` per second and client: the stream's rate
# Key of a registration by which rlwire's clients say goodbye, since the draft has no message for
# it. To the rollout port, with a timestamp as its tag, it confirms a ``done``. Other servers have
# no such slot and ignore it.
LEAVE: Final = "rlwire.leave"
SERVER_TAG: Final = "cpu"  # of open slots, which the server plays: Figure 1

# Seconds. The first change of a lobby is sent at once, further changes together after this time: at
# most 20 datagrams per second and client.
GATHER: Final = 0.05

# Seconds after which a silent client loses its slot, or its part in a rollout: enough for a person
# to decide, and a forged address does not block a slot.
IDLE: Final = 300.0

# Lobby requests of one client, per second and in a burst: each may cause a datagram to all clients.
# Clients that repeat lost requests send fewer.
REQUESTS_RATE: Final = 5.0
REQUESTS_BURST: Final = 20.0

# Bytes to all peers of one host without a slot, per second and in a burst: little for a victim, and
# a thousand clients of one host may register at the same time.
STRANGER_RATE: Final = 4 * 1024.0
STRANGER_BURST: Final = 64 * 1024.0
STRANGERS_RATE: Final = 128 * 1024.0  # lobby information to all hosts together
STRANGERS_BURST: Final = 256 * 1024.0
HOSTS: Final = 4096  # with a bucket, about a megabyte in all

_CLOSED = len(";=close,,,not_ready")  # longer than the text of an open slot


@dataclass(slots=True, eq=False)
class SlotLease:
    peer: Hashable
    key: str
    last_received: float  # when it last sent to the lobby port
    requests: TokenBucket
    starts: TokenBucket
    tag: str = ""
    ready: bool = False


class Lobby:
    """The slots of one instance and their clients, until its rollout has ended.

    It starts with `players` ready clients. `slots` are AGENT_KIND by AGENT_KEY. `send` is called
    with each (datagram, peer), `at` with the time of the next `flush`, and `flush`.
    """

    def __init__(
        self,
        name: str,
        number: int,
        slots: Mapping[str, str],
        *,
        players: int | None = None,
        limits: Limits,
        send: Callable[[tuple[bytes, Hashable]], object],
        at: Callable[[float, Callable[[float], None]], object],
    ) -> None:
        self._name = name
        self._number = number
        self._limits = limits
        self._send = send
        self._at = at
        self.slots = dict(slots)
        if not self.slots:
            raise ValueError("an instance needs at least one slot")
        self.players = len(self.slots) if players is None else players
        if not 1 <= self.players <= len(self.slots):
            raise ValueError(f"players must be 1 to {len(self.slots)}, not {players!r}")
        size = _size(f"{name}:{number}")
        size += sum(_size(key) + _size(kind) + _CLOSED for key, kind in slots.items())
        if size > limits.datagram:
            raise LimitExceeded(
                "datagram",
                limits.datagram,
                size,
                path=f"the lobby information of {name}:{number} with empty tags",
                advice="use fewer slots or shorter keys, kinds and tags",
            )
        self._room = limits.datagram - size  # bytes for the tags of all slots
        self.leases: dict[Hashable, SlotLease] = {}  # by peer
        self._holders: dict[str, SlotLease] = {}  # by key
        self._information: bytes | None = None
        self._changed = False
        self._quiet_until = float("-inf")
        self.start_message = b""
        self.resends_until = float("-inf")  # of `start_message`
        self.information()  # raises here, instead of after a request, if it cannot be encoded

    @property
    def may_start(self) -> bool:
        """Whether there are enough clients and all of them are ready."""
        leases = self.leases.values()
        return len(leases) >= self.players and all(lease.ready for lease in leases)

    def refusal(self, peer: Hashable, key: str, tag: str) -> str | None:
        """Return the reason to drop a registration, None to accept it."""
        if key not in self.slots:
            return "unknown_slot"
        if key in self._holders and self._holders[key].peer != peer:
            return "slot_taken"
        others = sum(_size(each.tag) for each in self.leases.values() if each.peer != peer)
        return "tag_too_long" if others + _size(tag) > self._room else None

    def registered(self, key: str) -> bytes:
        """Return the reply to a registration."""
        return self._encode(perlert.Registered(self._name, self._number, key))

    def register(self, peer: Hashable, key: str, tag: str, now: float) -> str | None:
        """Give a slot to a client without a `refusal`, and confirm it; return its old slot."""
        lease = self.leases.get(peer)
        before = self.slot(key)
        previous = None
        if lease is None:
            requests = TokenBucket(REQUESTS_RATE, REQUESTS_BURST)
            lease = self.leases[peer] = SlotLease(peer, key, now, requests, TokenBucket(RESENDS, 1))
        else:
            previous = lease.key
            del self._holders[previous]
        # "Servers MUST register clients with a default not_ready status", also a second time.
        lease.key, lease.tag, lease.ready = key, tag, False
        self._holders[key] = lease
        self._send((self.registered(key), peer))
        if self.slot(key) == before:
            self.inform(peer)
        else:
            self._change(now)
        return previous

    def set_ready(self, lease: SlotLease, ready: bool, now: float) -> None:
        if lease.ready == ready:
            self.inform(lease.peer)
            return
        lease.ready = ready
        self._change(now)

    def inform(self, peer: Hashable) -> None:
        self._send((self.information(), peer))

    def message(self, text: str, peer: Hashable | None = None) -> None:
        message = self._encode(perlert.LobbyMessage(self._name, self._number, text))
        for each in self.leases if peer is None else (peer,):
            self._send((message, each))

    def start(self, port: int, now: float) -> None:
        """Send the last changes of the lobby and ``start`` to all clients."""
        self.start_message = self._encode(perlert.Start(self._name, self._number, port))
        self.resends_until = now + START_RESEND
        if self._changed:
            self._broadcast(now)
        self.message(START_MESSAGE)
        self._send_all(self.start_message)

    def drop_idle(self, now: float, timeout: float) -> list[SlotLease]:
        """Free the slots of clients that were silent for `timeout` seconds; return their leases."""
        idle = [lease for lease in self.leases.values() if lease.last_received <= now - timeout]
        for lease in idle:
            self.leave(lease, now)
        return idle

    def leave(self, lease: SlotLease, now: float) -> None:
        del self.leases[lease.peer], self._holders[lease.key]
        self._change(now)

    def flush(self, now: float) -> None:
        if self._changed and now >= self._quiet_until:
            self._broadcast(now)

    def information(self) -> bytes:
        if self._information is None:
            slots = tuple(map(self.slot, self.slots))
            self._information = self._encode(
                perlert.LobbyInformation(self._name, self._number, slots)
            )
        return self._information

    def slot(self, key: str) -> perlert.AgentSlot:
        kind, lease = self.slots[key], self._holders.get(key)
        if lease is None:
            return perlert.AgentSlot(key, True, kind, SERVER_TAG, True)
        return perlert.AgentSlot(key, False, kind, lease.tag, lease.ready)

    def _encode(self, message: object) -> bytes:
        return perlert.encode(message, limits=self._limits)

    def _change(self, now: float) -> None:
        self._information = None
        self._changed = True
        self.flush(now)

    def _broadcast(self, now: float) -> None:
        self._changed = False
        self._quiet_until = now + GATHER
        self._at(self._quiet_until, self.flush)
        self._send_all(self.information())

    def _send_all(self, datagram: bytes) -> None:
        for peer in self.leases:
            self._send((datagram, peer))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))  # the codec rejects surrogates later


class TokenBucket:
    """A rate limit: fills with `rate` units per second up to `burst`.

    `consume` also accepts more than `burst` from a full bucket, whose level is then negative.
    """

    __slots__ = ("_burst", "_filled", "_level", "_rate")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = self._level = burst
        self._filled = 0.0

    def consume(self, amount: float, now: float) -> bool:
        if not self.holds(amount, now):
            return False
        self._level -= amount
        return True

    def holds(self, amount: float, now: float) -> bool:
        if now > self._filled:
            self._level = min(self._burst, self._level + (now - self._filled) * self._rate)
            self._filled = now
        return self._level >= min(amount, self._burst)


class StrangersBudget:
    """Limits the bytes to peers without a slot: a bucket for each host, and one for all.

    If there are too many hosts, the least recent one is removed.
    """

    def __init__(self) -> None:
        self._all = TokenBucket(STRANGERS_RATE, STRANGERS_BURST)
        self.buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def consume(self, host: Hashable, size: int, now: float) -> bool:
        """Take `size` bytes to `host` from both buckets, or from neither."""
        own = self._all.holds(size, now) and self.consume_own(host, size, now)
        return own and self._all.consume(size, now)

    def consume_own(self, host: Hashable, size: int, now: float) -> bool:
        """Take from the host's own bucket only, for replies that the number of slots limits."""
        if host not in self.buckets:
            if len(self.buckets) >= HOSTS:
                self.buckets.popitem(last=False)
            self.buckets[host] = TokenBucket(STRANGER_RATE, STRANGER_BURST)
        self.buckets.move_to_end(host)
        return self.buckets[host].consume(size, now)
