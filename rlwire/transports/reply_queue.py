"""Deferred replies of a blocking connection, and threads that make them."""

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
    """Replies that other threads make.

    Attributes:
        owed: how many replies are not yet taken.
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
        """Queue a reply that is done, and wake the connection's thread."""
        self._given.append(reply)
        with contextlib.suppress(OSError):  # full, or closed
            self._waker.send(b"\0")

    def wait(self, file: int, seconds: float | None) -> bool:
        """Wait for a reply or for `file` to be readable; return whether the latter is."""
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
        """Return the first reply in the queue, or None."""
        if not self._given:
            return None
        self.owed -= 1
        return self._given.popleft()

    def run(self, work: Callable[[], None]) -> None:
        """Run `work` in an idle thread or a new one."""
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
        """End the idle threads, and others when their work is done."""
        self._closed = True
        self._end_idle()
        self._wake.close()
        self._waker.close()

    def _end_idle(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().put(None)
