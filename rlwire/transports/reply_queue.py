"""What other threads make for a blocking connection: deferred replies, and threads for them."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from rlwire.transports.deferred import DeferredReply

logger = logging.getLogger(__name__)


class ReplyQueue:
    """Answers that come by themselves, and threads that make them.

    Attributes:
        owed: how many answers are still to come.
    """

    def __init__(self, name: str) -> None:
        self.owed = 0
        self._closed = False
        self._name = name
        self._given: deque[DeferredReply] = deque()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []

    def give(self, reply: DeferredReply) -> None:
        """Have the connection's thread send a reply that is done."""
        self._given.append(reply)
        with contextlib.suppress(OSError):  # full, and so it wakes; or closed, and nobody waits
            self._waker.send(b"\0")

    def wait(self, file: int, seconds: float | None) -> bool:
        """Wait for something to be given, or to be read from `file`; return whether it can be."""
        if self._given:
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

    def take(self) -> DeferredReply | None:
        """Return what was given first, and is not owed any more; None for nothing."""
        if not self._given:
            return None
        self.owed -= 1
        return self._given.popleft()

    def run(self, work: Callable[[], None]) -> None:
        """Have a thread do `work`; nothing waits for another's end."""
        if self._idle:
            self._idle.pop().put(work)
            return
        todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        todo.put(work)
        threading.Thread(
            target=self._work, args=(todo,), name=f"{self._name} aside", daemon=True
        ).start()

    def _work(self, todo: SimpleQueue[Callable[[], None] | None]) -> None:
        while True:
            work = todo.get()
            if work is None:
                return
            try:
                work()
            except Exception:
                logger.exception("%s: a thread failed", self._name)
            work = None  # it may hold a message
            if self._closed:
                return
            self._idle.append(todo)
            if self._closed:
                self._end_idle()

    def close(self) -> None:
        """End the threads that have nothing to do, and others when they have done it."""
        self._closed = True
        self._end_idle()
        self._wake.close()
        self._waker.close()

    def _end_idle(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().put(None)
