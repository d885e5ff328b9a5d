"""One thread for the deadlines of all blocking gRPC streams of the process.

grpcio's streams have no time limit for one message. A stream writes down until when it waits; the
thread sleeps until the first of these times, and cancels a stream that is still waiting then. A
wait that begins while it sleeps ends no earlier than one shortest time limit later, so the thread
looks again by then, and no stream ever has to wake it.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import Protocol

__all__ = ["NEVER", "Watched", "unwatch", "watch"]

logger = logging.getLogger(__name__)

NEVER = float("inf")


class Watched(Protocol):
    """What the watchdog looks at.

    Attributes:
        until: when the present wait ends, by `time.monotonic`; `NEVER` while nothing is waited
            for. Written by the stream, without a lock.
        shortest: seconds that its waits last at least; `NEVER` if they have no limit.
    """

    until: float
    shortest: float

    def expire(self) -> None:
        """End the wait; called from the watchdog's thread. It must not raise or block."""


_changed = threading.Condition()
_watched: set[Watched] = set()
_thread: threading.Thread | None = None


def watch(stream: Watched) -> None:
    """Look after a stream from now on, unless it has no time limit at all."""
    global _thread
    if stream.shortest == NEVER and stream.until == NEVER:
        return
    with _changed:
        _watched.add(stream)
        if _thread is None:
            _thread = threading.Thread(target=_run, name="rlwire grpc watchdog", daemon=True)
            _thread.start()
        else:
            _changed.notify()


def unwatch(stream: Watched) -> None:
    """Look after it no more; the thread ends with the last one. Any number of times."""
    with _changed:
        if stream in _watched:
            _watched.remove(stream)
            if not _watched:
                _changed.notify()


def _run() -> None:
    global _thread
    while True:
        with _changed:
            if not _watched:
                _thread = None
                return
            now = monotonic()
            late = [stream for stream in _watched if stream.until <= now]
            # One that is being ended is not looked at again.
            _watched.difference_update(late)
            if not late:
                next_look = min(min(stream.until, now + stream.shortest) for stream in _watched)
                _changed.wait(min(next_look - now, threading.TIMEOUT_MAX))
        for stream in late:
            try:
                stream.expire()
            except Exception:
                logger.exception("a stream could not be ended in time")
