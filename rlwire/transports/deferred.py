"""`DeferredReply`: a reply that a handler returns now, and sets later."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from rlwire.errors import ConnectionClosed
from rlwire.streams import NOTHING, StreamCore, StreamPhase
from rlwire.transports.sockets import hung_up

__all__ = ["DeferredReply"]

_LOOKS = 0.5  # seconds between two looks whether the peer still waits


class DeferredReply:
    """A reply that is not there yet: `set`, `fail` or `cancel` it once, from any thread.

    The first of them counts. An event loop's connection sends a reply that is set in the loop's
    thread at once, and others in its next round.
    """

    # The interpreter's lock guards it: nothing here calls anything between a look and a change.

    def __init__(self) -> None:
        self._call: Callable[[DeferredReply], object] | None = None
        self._convert: Callable[[Any, Any, BaseException | None], Any] | None = None
        self._event: Any = None
        self._value: Any = NOTHING
        self._error: BaseException | None = None
        self._done = False
        self._cancelled = False

    def set(self, reply: Any) -> None:
        """Send this; `NOTHING` is no reply."""
        if not self._done:
            self._done, self._value = True, reply
            self._notify()

    def fail(self, error: BaseException) -> None:
        """Have it treated as if the handler had raised `error` instead of deferring."""
        if not self._done:
            self._done, self._error = True, error
            self._notify()

    def cancel(self) -> None:
        """Send nothing: nobody waits for it any more."""
        if not self._done:
            self._done = self._cancelled = True
            self._convert = self._event = None
            self._notify()

    def done(self) -> bool:
        """Return whether it is set, failed or cancelled."""
        return self._done

    def cancelled(self) -> bool:
        """Return whether it was cancelled, such as by a peer that has gone."""
        return self._cancelled

    def then(
        self, convert: Callable[[Any, Any, BaseException | None], Any], event: Any = None
    ) -> DeferredReply:
        """Have ``convert(event, value, error)`` make the reply, where it is sent; return this.

        Args:
            convert: called once, in the connection's own thread, unless it is cancelled before;
                `error` is None, or why there is no value.
            event: what it is called with.
        """
        self._convert, self._event = convert, event
        return self

    def add_done_callback(self, call: Callable[[DeferredReply], object]) -> None:
        """Have it called with this once it is done, in whatever thread does that; one at most."""
        self._call = call
        if self._done:
            self._notify()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is done, in a thread that waits for it alone; return whether it is."""
        if not self._done:
            lock = Lock()
            lock.acquire()
            self.add_done_callback(lambda _: lock.release())
            lock.acquire(timeout=-1 if seconds is None else seconds)
        return self._done

    def result(self) -> Any:
        """Return the reply of one that is done, `NOTHING` for none, or raise why it failed."""
        convert, error = self._convert, self._error
        if convert is not None:
            event, self._convert, self._event = self._event, None, None
            return convert(event, self._value, error)
        if error is None:
            return self._value
        if not isinstance(error, Exception):
            raise RuntimeError(f"what should make the reply raised {type(error).__name__}")
        raise error

    def _notify(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(self)


def wait_for(reply: DeferredReply, core: StreamCore, file: int) -> Any:
    """Return a reply, after waiting; raise ConnectionClosed if the peer at socket `file` leaves."""
    while not reply.wait(_LOOKS):
        if core.closed or (core.phase != StreamPhase.DEAF and hung_up(file)):
            reply.cancel()
            raise ConnectionClosed("the peer has gone, and does not wait for its reply any more")
    return reply.result()
