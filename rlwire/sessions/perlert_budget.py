"""How much a PERLERT server sends to peers that it need not trust: token buckets.

A datagram's source address may be forged, so an answer may go to a victim. Answers to peers
without a slot are paid from a bucket of the host that they go to, and lobby information from one
for all hosts together besides. Time is passed in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

__all__ = ["StrangersBudget", "TokenBucket", "host_of"]


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
    """A bucket for each host, at most `hosts` of them, and one for all.

    A new host finds a full bucket, so forgetting the host that was not heard for the longest time
    costs nothing if its bucket is full again, and otherwise no more than the bucket for all lets
    through.

    Args:
        rate: bytes a second to one host.
        burst: bytes at once to one host.
        all_rate: bytes a second to all hosts.
        all_burst: bytes at once to all hosts.
        hosts: how many are remembered.
    """

    __slots__ = ("_all", "_all_burst", "_all_rate", "_buckets", "_burst", "_hosts", "_rate")

    def __init__(
        self, *, rate: float, burst: float, all_rate: float, all_burst: float, hosts: int
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._all_rate = all_rate
        self._all_burst = all_burst
        self._hosts = hosts
        self._all: TokenBucket | None = None
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, host: Hashable, size: int, now: float) -> bool:
        """Pay for `size` bytes to `host` out of both buckets, or out of neither."""
        if self._all is None:
            self._all = TokenBucket(self._all_rate, self._all_burst, now)
        if not self._all.holds(size, now) or not self.take_own(host, size, now):
            return False
        return self._all.take(size, now)

    def take_own(self, host: Hashable, size: int, now: float) -> bool:
        """Pay out of the host's own bucket only.

        For what is bounded otherwise, such as by the number of slots, and shall go on while
        others empty the bucket for all.
        """
        bucket = self._buckets.get(host)
        if bucket is None:
            if len(self._buckets) >= self._hosts:
                self._buckets.popitem(last=False)
            bucket = self._buckets[host] = TokenBucket(self._rate, self._burst, now)
        else:
            self._buckets.move_to_end(host)
        return bucket.take(size, now)


def host_of(peer: Hashable) -> Hashable:
    """Return the host of a socket address; whatever else a peer may be is its own host."""
    return peer[0] if isinstance(peer, tuple) and peer else peer
