"""Replies that a handler returns now and sets later: `DeferredReply`, and a queue of those set."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from rlwire.errors import ConnectionClosed
from rlwire.streams import NOTHING, StreamCore, StreamPhase
from rlwire.transports.sockets import peer_closed

__all__ = ["DeferredReply"]

logger = logging.getLogger(__name__)

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
            lock = threading.Lock()
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
        if core.closed or (core.phase != StreamPhase.READ_CLOSED and peer_closed(file)):
            reply.cancel()
            raise ConnectionClosed("the peer closed the connection before its reply was set")
    return reply.result()


class ReplyQueue:
    """Deferred replies, set by other threads; `pending` counts those not yet popped."""

    def __init__(self, name: str) -> None:
        self.pending = 0
        self._name = name
        self.done: deque[DeferredReply] = deque()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle: list[None] = []  # an item for each idle helper thread

    def put(self, reply: DeferredReply) -> None:
        """Queue a reply that is done, and wake the connection's thread."""
        self.done.append(reply)
        with contextlib.suppress(OSError):  # full, or closed
            self._waker.send(b"\0")

    def wait(self, file: int, seconds: float | None) -> bool:
        """Wait for a reply or for `file` to be readable; return whether the latter is."""
        if self.done:
            seconds = 0.0
        files = [file, self._wake.fileno()]
        poll = select.poll()
        for each in files:
            poll.register(each, select.POLLIN)
        ready = [found for found, _ in poll.poll(None if seconds is None else 1e3 * seconds)]
        if files[1] in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake.recv(4096)
        return file in ready

    def pop(self) -> DeferredReply | None:
        """Return the first reply in the queue, or None."""
        if not self.done:
            return None
        self.pending -= 1
        return self.done.popleft()

    def run(self, work: Callable[[], None]) -> None:
        """Do the work in a helper thread, an idle one if possible; also after `close`."""
        if self._idle and self._wake.fileno() >= 0:
            self._idle.pop()
            self._work.put(work)
        else:
            name = f"{self._name} helper"
            threading.Thread(target=self._help, args=([work],), name=name, daemon=True).start()

    def _help(self, first: list[Callable[[], None]]) -> None:
        work: Callable[[], None] | None = first.pop()
        while work is not None:
            try:
                work()
            except Exception:
                logger.exception("%s: a helper thread failed", self._name)
            work = None  # it may refer to a message
            self._idle.append(None)
            work = self._work.get()
        self._work.put(None)  # for the other threads

    def close(self) -> None:
        """End the idle threads now, and the others when their work is done."""
        if self._wake.fileno() >= 0:
            self._wake.close()
            self._waker.close()
            self._work.put(None)
