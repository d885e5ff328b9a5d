"""Another thread takes over a blocking connection while its handler is slow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

_LONG = 0.05  # seconds between two checks


class Monitor:
    """A thread that starts takeovers from slow handlers; `resting` while no handler runs."""

    def __init__(self, name: str) -> None:
        self.resting = True
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._name = name
        self._thread: threading.Thread | None = None
        self._woken, self._stopping = threading.Event(), threading.Event()

    def add(self, waits: Callable[[], bool], take_over: Callable[[], object]) -> Watched:
        watched = Watched(self, waits, take_over)
        with self._lock:
            self._watched.add(watched)
        return watched

    def wake(self) -> None:
        """Start checking, because a handler has started."""
        with self._lock:
            self.resting = False
            self._woken.set()
            if self._thread is None and not self._stopping.is_set():
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """Stop; nothing is taken over after this returns."""
        self._stopping.set()
        self._woken.set()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()

    def _check(self) -> bool:
        """Return whether any handler runs."""
        with self._lock:
            watched = list(self._watched)
        return any([each.check() for each in watched])

    def _run(self) -> None:
        while not self._stopping.wait(_LONG):
            if not self._check():
                self.resting = True
                # A handler that started before this did not see `resting`.
                if not self._check():
                    self._woken.wait()
                    self._woken.clear()
                self.resting = False


class Watched:
    """A watched connection; `begin` and `end` are called for each message."""

    def __init__(
        self, monitor: Monitor, waits: Callable[[], bool], take_over: Callable[[], object]
    ) -> None:
        self._monitor = monitor
        self._waits = waits
        self._take_over = take_over
        # One item while a handler runs: whether the monitor has seen it. The thread that pops the
        # item, the connection's or the monitor's, continues with the connection.
        self._mine: list[bool] = []

    def begin(self) -> None:
        """Report that a handler starts."""
        self._mine.append(False)
        if self._monitor.resting:
            self._monitor.wake()

    def end(self) -> bool:
        """Report that it has ended; return whether this thread still owns the connection."""
        try:
            self._mine.pop()
        except IndexError:
            return False
        return True

    def check(self) -> bool:
        """Return whether a handler runs; take over if it already ran in the last check."""
        try:
            seen, self._mine[0] = self._mine[0], True
        except IndexError:
            return False
        try:
            if seen and self._waits() and self.end():
                self._take_over()
        except Exception:
            logger.exception("a connection with a slow handler could not be taken over")
        return True

    def close(self) -> None:
        with self._monitor._lock:
            self._monitor._watched.discard(self)
