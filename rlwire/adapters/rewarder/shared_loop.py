"""`SharedLoop`: an event loop that other threads may act on while it waits.

To hand something to an event loop, another thread writes to a pipe and the loop's thread wakes up
to do it: two process switches' worth of time, more than a small message takes in all. Here one lock
is held whenever the loop runs anything and given away while it waits for its descriptors, so who
has the lock may do at once what otherwise only the loop's own thread may.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

__all__ = ["SharedLock", "SharedLoop"]

# What these wait for can be changed meanwhile by another thread; others have to be woken up.
_LIVE = tuple(
    getattr(selectors, name)
    for name in ("EpollSelector", "KqueueSelector")
    if hasattr(selectors, name)
)


class SharedLock:
    """A lock whose holder cannot take it again while another thread waits for it.

    Python's own locks may go to who has just released them, again and again: a thread that does
    little else than write would keep the loop from running.
    """

    __slots__ = ("_gate", "_lock")

    def __init__(self) -> None:
        self._gate = threading.Lock()  # of the one that is next
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; returns False if it is not free, or not for long, and `blocking` is false."""
        if not self._gate.acquire(blocking):
            return False
        try:
            return self._lock.acquire(blocking)
        finally:
            self._gate.release()

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def locked(self) -> bool:
        """Return whether a thread has it."""
        return self._lock.locked()

    def __enter__(self) -> None:
        with self._gate:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Selector(selectors.DefaultSelector):
    """Gives the lock away while it waits."""

    def __init__(self, lock: SharedLock) -> None:
        super().__init__()
        self._lock = lock
        self._changed = False

    def select(self, timeout: float | None = None) -> Any:
        self._changed = False
        self._lock.release()
        try:
            ready = super().select(timeout)
        finally:
            self._lock.acquire()
        return self._still(ready) if self._changed else ready

    def unregister(self, fileobj: Any) -> Any:
        self._changed = True
        return super().unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> Any:
        self._changed = True
        return super().modify(fileobj, events, data)

    def _still(self, ready: list[tuple[selectors.SelectorKey, int]]) -> Any:
        """Return what of this is true after what other threads did meanwhile."""
        known = self.get_map()
        return [
            (known[key.fd], mask & known[key.fd].events)
            for key, mask in ready
            if key.fd in known and mask & known[key.fd].events
        ]


class SharedLoop(asyncio.SelectorEventLoop):
    """An event loop with a `lock`.

    Another thread that has the lock may call what asyncio allows the loop's own thread only, except
    what sets timers; then it calls `changed`. It must not hold the lock for long, and code that the
    loop runs must not wait for what that thread does: who cannot rule that out takes the lock
    without waiting for it, and has the loop do it if that fails.

    Args:
        lock: one that is to outlive the loop; by default its own.

    Attributes:
        lock: held by the loop's thread except while it waits.
    """

    def __init__(self, lock: SharedLock | None = None) -> None:
        self.lock = SharedLock() if lock is None else lock
        self._thread = 0
        selector = _Selector(self.lock)
        self._live = isinstance(selector, _LIVE)
        super().__init__(selector)

    def run_forever(self) -> None:
        """Run until `stop`, with the lock."""
        with self.lock:
            self._thread = get_ident()
            try:
                super().run_forever()
            finally:
                self._thread = 0

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """As always, but from another thread it wakes the loop up."""
        thread = self._thread
        if thread == 0 or thread == get_ident():
            return super().call_soon(callback, *args, context=context)
        return self.call_soon_threadsafe(callback, *args, context=context)

    def changed(self) -> None:
        """Have the loop look again, where it must, at what another thread did with the lock."""
        if not self._live and self._thread != 0:
            self.call_soon_threadsafe(_nothing)


def _nothing() -> None:
    """Wake up."""
