"""A network of datagrams in one process: seeded loss, duplication, delay, reordering; own clock."""

import random
from collections import deque
from heapq import heappop, heappush
from itertools import count

_DUPLICATE = 0.1  # share that is sent twice
_DELAY = (0.005, 0.06)  # seconds of a datagram's way
_REORDER = 0.2  # share that may be overtaken
_HOLD = 0.1  # seconds by which a reordered datagram is late at most
_STUCK = 100_000  # actions at one moment, after which they will never end


class Ticker:
    """A call that is repeated until it is cancelled."""

    def __init__(self, period, start, call):
        self.times = (start + number * period for number in count())
        self.call = call

    def cancel(self):
        self.call = None


class LossyNetwork:
    """Datagram sessions, the links between them, and their clock; the same seed repeats a run.

    `loss` is the share of datagrams that are lost.
    """

    def __init__(self, seed, loss):
        self._random = random.Random(seed).random
        self._loss = loss
        self.now = 0.0
        self._sessions = {}
        self._due = []
        self._serial = 0
        self._last = {}  # latest arrival of those kept in order
        self._trace = deque(maxlen=400)

    def attach(self, address, session, on_event=bool):
        """Put a session at an address; `on_event` is called with each of its events."""
        assert address not in self._sessions
        self._sessions[address] = session, on_event

    def detach(self, address):
        """Remove the session at an address, as a crash does."""
        del self._sessions[address]

    def every(self, period, call, *, first=None):
        """Call `call(now)` every `period` seconds, the first time at `first` or after a period."""
        ticker = Ticker(period, self.now + period if first is None else first, call)
        self._at(next(ticker.times), self._tick, ticker)
        return ticker

    def run_until(self, predicate, limit):
        """Act until the predicate holds, for at most `limit` seconds; return whether it does."""
        end = self.now + limit
        moment, repeats = self.now, 0
        while True:
            first, late = end, None
            for address, (session, _) in self._sessions.items():
                for datagram, peer in session.datagrams():
                    self.send(datagram, address, peer)
                deadline = session.next_deadline()
                if deadline is not None and (
                    deadline < first or (late is None and deadline == first)
                ):
                    first, late = deadline, address
            if predicate():
                return True
            if self._due and self._due[0][0] <= first:
                self.now, _serial, action, arguments = heappop(self._due)
                action(*arguments)
            elif late is not None:
                self.now = max(self.now, first)
                session, on_event = self._sessions[late]
                for event in session.advance(self.now):
                    on_event(event)
            else:
                self.now = max(self.now, end)
                return False
            repeats = repeats + 1 if self.now == moment else 0
            moment = self.now
            assert repeats < _STUCK, f"the time stands still at {moment}"

    def send(self, datagram, source, destination):
        self._launch(datagram, source, destination)
        if self._random() < _DUPLICATE:
            self._launch(datagram, source, destination)

    def trace_text(self):
        """Return what happened to the last datagrams, a line for each."""
        return "\n".join(
            f"{when:9.3f} {fate:11} {source} -> {destination}  {datagram[:160]!r}"
            for when, fate, source, destination, datagram in self._trace
        )

    def _launch(self, datagram, source, destination):
        if self._random() < self._loss:
            self._note("lost", datagram, source, destination)
        else:
            low, high = _DELAY
            arrival = self.now + low + (high - low) * self._random()
            if self._random() < _REORDER:
                arrival += _HOLD * self._random()
            else:
                pair = source, destination
                arrival = self._last[pair] = max(arrival, self._last.get(pair, arrival))
            self._at(arrival, self._arrive, datagram, source, destination)

    def _arrive(self, datagram, source, destination):
        session, on_event = self._sessions.get(destination, (None, bool))
        if session is None:
            self._note("unreachable", datagram, source, destination)
        else:
            self._note("delivered", datagram, source, destination)
            for event in session.receive(datagram, source, self.now):
                on_event(event)

    def _tick(self, ticker):
        if ticker.call is not None:
            self._at(next(ticker.times), self._tick, ticker)
            ticker.call(self.now)

    def _at(self, when, action, *arguments):
        self._serial += 1  # actions that are due together keep their order
        heappush(self._due, (when, self._serial, action, arguments))

    def _note(self, fate, datagram, source, destination):
        self._trace.append((self.now, fate, source, destination, datagram))
