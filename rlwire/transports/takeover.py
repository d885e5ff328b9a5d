"""Another thread takes over a blocking connection while its handler is slow."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from rlwire.errors import on_error

logger = logging.getLogger(__name__)

_LONG = 0.05  # seconds between two checks


class Monitor:
    """A thread that starts takeovers from slow handlers; `resting` while no handler runs."""

    def __init__(self, name: str) -> None:
        self.watched: set[Watched] = set()
        self.resting = True
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._woken, self._stopping = threading.Event(), threading.Event()

    def wake(self) -> None:
        """Start checking, because a handler has started."""
        with self._lock:
            self.resting = False
            self._woken.set()
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop; nothing is taken over after this returns."""
        with self._lock:  # `wake` may be starting the thread
            self._stopping.set()
            self._woken.set()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()

    def _check(self) -> bool:
        """Return whether any handler runs."""
        return any([watched.check() for watched in list(self.watched)])

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
    """A watched connection.

    Attributes:
        running: the event that its handler answers, by the call, which is the event's first item;
            added before that. The thread that pops it, the handler's or the monitor's, continues
            with the connection.
        monitor: to be woken if it rests when a handler starts.
    """

    def __init__(
        self, monitor: Monitor, waits: Callable[[], bool], take_over: Callable[[Any], object]
    ) -> None:
        self.monitor = monitor
        self.running: dict[Any, Any] = {}
        self._waits, self._take_over = waits, take_over
        self._seen: Any = None  # by the last check
        self._taking_over = threading.Lock()
        monitor.watched.add(self)

    def is_taken_over(self, call: Any) -> bool:
        """Return whether another thread, which popped the event, has the connection."""
        with self._taking_over:
            return self.running.pop(call, None) is None

    def check(self) -> bool:
        """Return whether a handler runs; take over if it already ran in the last check."""
        before, self._seen = self._seen, next(iter([*self.running.values()]), None)
        if self._seen is None:
            return False
        try:
            if self._seen is before and self._waits():
                self._hand_over()
        except Exception:
            logger.exception("a connection with a slow handler could not be taken over")
        return True

    def _hand_over(self) -> None:
        with self._taking_over, contextlib.suppress(KeyError):  # the handler has ended meanwhile
            call = self._seen[0]
            event = self.running.pop(call)
            with on_error(lambda: self.running.update({call: event})):
                self._take_over(event)

    def close(self) -> None:
        self.monitor.watched.discard(self)
