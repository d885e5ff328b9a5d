"""Has another thread take a blocking connection over while its own is at work for long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rlwire.transports.threads import Worker

logger = logging.getLogger(__name__)

_LONG = 0.05  # seconds that a thread may be at one piece of work before somebody looks what waits


class Monitor:
    """One thread that sees, for many connections, whether another has to take one over.

    It looks every so often, and rests while nobody is at work when it does.

    Attributes:
        resting: whether somebody who begins to work is to `wake` it.
    """

    def __init__(self, name: str) -> None:
        self.resting = True
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._worker = Worker(self._run, name)

    def add(self, waits: Callable[[], bool], take_over: Callable[[], object]) -> Watched:
        """Watch one more connection, until it is closed."""
        watched = Watched(self, waits, take_over)
        with self._lock:
            self._watched.add(watched)
        return watched

    def discard(self, watched: Watched) -> None:
        """Watch a connection no more."""
        with self._lock:
            self._watched.discard(watched)

    def wake(self) -> None:
        """Have it look, for somebody works."""
        with self._lock:
            self.resting = False
            self._worker.wake()
            if not (self._worker.started or self._worker.stopping):
                self._worker.start()

    def close(self) -> None:
        """Have nothing taken over any more; returns when that holds."""
        self._worker.stop()

    def _look(self) -> bool:
        """Return whether anybody is at work."""
        with self._lock:
            watched = list(self._watched)
        return any([each.look() for each in watched])

    def _run(self, worker: Worker) -> None:
        while worker.sleep(_LONG):
            if not self._look():
                self.resting = True
                # Who began before that did not see it rest.
                if not self._look():
                    worker.wait()
                self.resting = False


class Watched:
    """A connection's thread, as a `Monitor` sees it; what is called for each message is short."""

    __slots__ = ("_mine", "_monitor", "_take_over", "_waits")

    def __init__(
        self, monitor: Monitor, waits: Callable[[], bool], take_over: Callable[[], object]
    ) -> None:
        self._monitor = monitor
        self._waits = waits
        self._take_over = take_over
        # While the thread is at work: whether the monitor has seen that. Whoever pops it, the
        # thread that is done or the monitor's, goes on with the connection: only one of them can.
        self._mine: list[bool] = []

    def begin(self) -> None:
        """Note that the thread begins a piece of work."""
        self._mine.append(False)
        if self._monitor.resting:
            self._monitor.wake()

    def end(self) -> bool:
        """Note that it is done; return whether the connection is still the thread's."""
        try:
            self._mine.pop()
        except IndexError:
            return False
        return True

    def look(self) -> bool:
        """Return whether the thread is at work."""
        try:
            seen, self._mine[0] = self._mine[0], True
        except IndexError:
            return False
        try:
            if seen and self._waits() and self.end():
                self._take_over()
        except Exception:
            logger.exception("a connection whose thread is at work could not be taken over")
        return True

    def close(self) -> None:
        """Be watched no more."""
        self._monitor.discard(self)
