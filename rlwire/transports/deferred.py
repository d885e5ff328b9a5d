"""`DeferredReply`: a reply that a handler returns now and sets later."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from rlwire.errors import ConnectionClosed
from rlwire.streams import NOTHING, StreamCore, StreamPhase
from rlwire.transports.sockets import peer_closed

__all__ = ["DeferredReply"]

_PEER_CHECK = 0.5  # seconds between two checks whether the peer has closed


class DeferredReply:
    """A reply that is sent later: call `set`, `fail` or `cancel` once, from any thread."""

    # The GIL makes it thread-safe: no code is called between a check and a change.

    def __init__(self) -> None:
        self._call: Callable[[DeferredReply], object] | None = None
        self._convert: Callable[[Any, Any, BaseException | None], Any] | None = None
        self._event: Any = None
        self._value: Any = NOTHING
        self._error: BaseException | None = None
        self._done = False
        self._cancelled = False

    def set(self, reply: Any) -> None:
        """Send `reply`; `NOTHING` sends nothing."""
        if not self._done:
            self._done, self._value = True, reply
            self._notify()

    def fail(self, error: BaseException) -> None:
        """Act as if the handler had raised `error`."""
        if not self._done:
            self._done, self._error = True, error
            self._notify()

    def cancel(self) -> None:
        """Send nothing."""
        if not self._done:
            self._done = self._cancelled = True
            self._convert = self._event = None
            self._notify()

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        """Return whether it was cancelled, for example because the peer has disconnected."""
        return self._cancelled

    def then(
        self, convert: Callable[[Any, Any, BaseException | None], Any], event: Any = None
    ) -> DeferredReply:
        """Make the reply with ``convert(event, value, error)``, in the connection's thread."""
        self._convert, self._event = convert, event
        return self

    def add_done_callback(self, call: Callable[[DeferredReply], object]) -> None:
        """Call ``call(self)`` once it is done, in the thread that sets it; one callback only."""
        self._call = call
        if self._done:
            self._notify()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait up to `seconds` until it is done; return whether it is. For one thread only."""
        if not self._done:
            lock = Lock()
            lock.acquire()
            self.add_done_callback(lambda _: lock.release())
            lock.acquire(timeout=-1 if seconds is None else seconds)
        return self._done

    def result(self) -> Any:
        """Return the reply once it is done, `NOTHING` for none, or raise its error."""
        convert, error = self._convert, self._error
        if convert is not None:
            event, self._convert, self._event = self._event, None, None
            return convert(event, self._value, error)
        if error is None:
            return self._value
        if not isinstance(error, Exception):
            raise RuntimeError(f"the reply failed with {type(error).__name__}")
        raise error

    def _notify(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(self)


def wait_for(reply: DeferredReply, core: StreamCore, file: int) -> Any:
    """Wait for a reply; raise ConnectionClosed if the peer at socket `file` closes."""
    while not reply.wait(_PEER_CHECK):
        if core.closed or (core.phase != StreamPhase.DEAF and peer_closed(file)):
            reply.cancel()
            raise ConnectionClosed("the peer closed the connection before its reply was set")
    return reply.result()
