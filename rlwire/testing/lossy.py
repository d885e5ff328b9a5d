"""A network of datagrams in one process that loses, repeats, delays and reorders, on its own clock.

Nothing sleeps, and the same seed gives the same run to the last datagram::

    network = LossyNetwork(seed=7, loss=0.3, delay=(0.01, 0.08))
    network.attach(("server", 32322), server.lobby)
    network.attach(("server", 32323), server.rollout)
    player = network.attach(("player", 5000), client)
    network.every(1 / 30, play_one_step)
    network.run_until(lambda: client.state is PerlertState.DONE, 60.0)
    player.events, network.statistics()
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from rlwire.errors import LocalProtocolError
from rlwire.transports.interface import DatagramSession, Peer

__all__ = ["LossyEndpoint", "LossyNetwork", "Ticker"]

_CAPACITY = 10_000  # datagrams under way at once; what is sent beyond that is lost
_HOLD = 0.1  # seconds by which a datagram that is reordered is late at most, on top of the delay
_STUCK = 100_000  # things that happen at one moment, after which they will never end


@dataclass(eq=False)
class LossyEndpoint:
    """A session at its address; made by `LossyNetwork.attach`.

    `events` are what the session reported, in order, unless `attach` was given an `on_event`.
    """

    address: Peer
    session: DatagramSession
    _on_event: Callable[[Any], object] | None
    events: list[Any] = field(default_factory=list)

    def report(self, events: list[Any]) -> None:
        """Keep events, or call `on_event` with each."""
        for event in events:
            (self._on_event or self.events.append)(event)


@dataclass
class Ticker:
    """Something that is called again and again; made by `LossyNetwork.every`."""

    _period: float
    _start: float
    _call: Callable[[float], object]
    _count: int = 0
    cancelled: bool = False

    def cancel(self) -> None:
        """Call it no more."""
        self.cancelled = True


class LossyNetwork:
    """Datagram sessions, the links between them, and their clock.

    `run` and `run_until` do what is due in the order of time: datagrams arrive, sessions advance
    at their deadlines, tickers tick. A session's own methods may be called between two runs, in
    tickers and in `on_event`, with `now` as the time. It suits some tens of sessions. One thread.

    Args:
        seed: of all chances, which are drawn in the order of sending.
        loss: share of datagrams that never arrives.
        duplicate: share that is sent twice; loss and delay then strike each copy by itself.
        delay: least and greatest seconds on the way.
        reorder: share that may be overtaken; the others arrive in the order they were sent in.
        trace: how many of the last datagrams' fates `trace_text` can tell.
    """

    def __init__(
        self,
        seed: int,
        *,
        loss: float = 0.0,
        duplicate: float = 0.0,
        delay: tuple[float, float] = (0.0, 0.0),
        reorder: float = 0.0,
        trace: int = 0,
    ) -> None:
        for name, share in (("loss", loss), ("duplicate", duplicate), ("reorder", reorder)):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} is a share between 0 and 1, not {share}")
        if not 0.0 <= delay[0] <= delay[1] < float("inf"):
            raise ValueError(f"delay is (least, greatest) in seconds, not {delay}")
        self._random = random.Random(seed).random
        self._loss, self._duplicate, self._delay, self._reorder = loss, duplicate, delay, reorder
        self._cuts: set[Peer] = set()
        self._now = 0.0
        self._endpoints: dict[Peer, LossyEndpoint] = {}
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._last: dict[tuple[Peer, Peer], float] = {}  # latest arrival of those kept in order
        self._under_way = 0
        self._counts: Counter[str] = Counter()
        self._trace: deque[tuple[float, str, Peer, Peer, bytes]] = deque(maxlen=trace)

    @property
    def now(self) -> float:
        """The clock, in seconds."""
        return self._now

    def attach(
        self,
        address: Peer,
        session: DatagramSession,
        on_event: Callable[[Any], object] | None = None,
    ) -> LossyEndpoint:
        """Put a session at an address, such as ``("10.0.0.1", 32322)``.

        `on_event` is called with each event at once; by default they gather in
        `LossyEndpoint.events`. A server with two ports has a session for each.
        """
        if address in self._endpoints:
            raise LocalProtocolError(f"{address} is taken: detach what is there first")
        endpoint = self._endpoints[address] = LossyEndpoint(address, session, on_event)
        return endpoint

    def detach(self, address: Peer) -> None:
        """Take the session at `address` away, as a crash does; what comes there is lost."""
        if self._endpoints.pop(address, None) is None:
            raise LocalProtocolError(f"nothing is attached at {address}")

    def every(
        self, period: float, call: Callable[[float], object], *, first: float | None = None
    ) -> Ticker:
        """Call `call(now)` every `period` seconds, the first time at `first` or after a period."""
        if period <= 0:
            raise ValueError(f"a period is longer than {period} s")
        ticker = Ticker(period, self._now + period if first is None else first, call)
        self._at(ticker._start, self._tick, ticker)
        return ticker

    def cut(self, address: Peer) -> None:
        """Let nothing pass from or to `address`; what is under way is lost too."""
        self._cuts.add(address)

    def heal(self, address: Peer) -> None:
        """Take back a `cut`."""
        self._cuts.discard(address)

    def run(self, until: float) -> None:
        """Let everything happen that is due up to and at the time `until`; it is `now` then.

        Raises:
            RuntimeError: the time stands still: a session has a deadline that never moves on, or
                two without a delay between them answer each other for ever.
        """
        self._drive(lambda: False, until)

    def run_until(self, predicate: Callable[[], object], limit: float) -> bool:
        """Let things happen, one after another, until the predicate holds; return whether it does.

        It is asked at first and after each thing that happened, for at most `limit` seconds.
        """
        return self._drive(predicate, self._now + limit)

    def _drive(self, predicate: Callable[[], object], end: float) -> bool:
        due, endpoints = self._due, self._endpoints
        moment, repeats = self._now, 0
        while True:
            # After each thing all are asked: it may have moved any of them, as sessions may share
            # what they know and a ticker may call whom it likes.
            first, late = end, None
            for endpoint in endpoints.values():
                session = endpoint.session
                for datagram, peer in session.datagrams():
                    self.send(datagram, endpoint.address, peer)
                deadline = session.next_deadline()
                if deadline is not None and (
                    deadline < first or (late is None and deadline == first)
                ):
                    first, late = deadline, endpoint
            if predicate():
                return True
            if due and due[0][0] <= first:
                self._now, _serial, action, arguments = heappop(due)
                action(*arguments)
            elif late is not None:
                self._now = max(self._now, first)
                late.report(late.session.advance(self._now))
            else:
                self._now = max(self._now, end)
                return False
            repeats = repeats + 1 if self._now == moment else 0
            moment = self._now
            if repeats > _STUCK:
                raise RuntimeError(f"the time stands still at {moment}, and things still happen")

    def send(self, datagram: bytes, source: Peer, destination: Peer) -> None:
        """Send one datagram; whoever is not attached, such as a forger, may be its source."""
        self._counts["sent"] += 1
        self._launch(datagram, source, destination)
        if self._duplicate and self._random() < self._duplicate:
            self._counts["duplicated"] += 1
            self._launch(datagram, source, destination)

    def statistics(self) -> dict[str, int]:
        """Return how many datagrams were ``sent`` and ``duplicated``, and what became of them.

        These two are together as many as ``delivered``, ``lost`` (by chance), ``cut``,
        ``unreachable`` (nobody was there), ``overflow`` (beyond the capacity) and ``under way``.
        ``held`` of them were held back, so that others could overtake.
        """
        names = ["sent", "duplicated", "delivered", "lost", "cut", "unreachable", "overflow"]
        return {name: self._counts[name] for name in (*names, "held")} | {
            "under way": self._under_way
        }

    def trace_text(self) -> str:
        """Return what became of the last datagrams, a line for each in the order of time."""
        return "\n".join(
            f"{when:9.3f} {fate:11} {source} -> {destination}  {datagram[:160]!r}"
            for when, fate, source, destination, datagram in self._trace
        )

    def _launch(self, datagram: bytes, source: Peer, destination: Peer) -> None:
        chance = self._random
        if source in self._cuts or destination in self._cuts:
            self._note("cut", datagram, source, destination)
        elif self._loss and chance() < self._loss:
            self._note("lost", datagram, source, destination)
        elif self._under_way >= _CAPACITY:
            self._note("overflow", datagram, source, destination)
        else:
            low, high = self._delay
            arrival = self._now + low + (high - low) * chance()
            if self._reorder and chance() < self._reorder:
                self._counts["held"] += 1
                arrival += _HOLD * chance()
            else:
                pair = source, destination
                arrival = max(arrival, self._last.get(pair, arrival))
                if len(self._last) > _CAPACITY:  # many forged sources
                    self._last.clear()
                self._last[pair] = arrival
            self._under_way += 1
            self._at(arrival, self._arrive, datagram, source, destination)

    def _arrive(self, datagram: bytes, source: Peer, destination: Peer) -> None:
        self._under_way -= 1
        endpoint = self._endpoints.get(destination)
        if source in self._cuts or destination in self._cuts:
            self._note("cut", datagram, source, destination)
        elif endpoint is None:
            self._note("unreachable", datagram, source, destination)
        else:
            self._note("delivered", datagram, source, destination)
            endpoint.report(endpoint.session.receive(datagram, source, self._now))

    def _tick(self, ticker: Ticker) -> None:
        if not ticker.cancelled:
            ticker._count += 1
            self._at(ticker._start + ticker._count * ticker._period, self._tick, ticker)
            ticker._call(self._now)

    def _at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        self._serial += 1  # what is due at the same time happens in the order it was planned in
        heappush(self._due, (when, self._serial, action, arguments))

    def _note(self, fate: str, datagram: bytes, source: Peer, destination: Peer) -> None:
        self._counts[fate] += 1
        self._trace.append((self._now, fate, source, destination, datagram))
