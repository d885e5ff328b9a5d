"""What comes to a blocking connection from other threads: answers made aside, and who stands in.

Where an answer is made in the connection's own thread and takes long, a `Watch` has another thread
take the connection over.
"""

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

_LONG = 0.05  # seconds that a thread may be at one piece of work before somebody looks what waits


class Aside:
    """Answers that come by themselves, and threads that make them.

    One thread, the connection's own, waits; `give` may be called from any. There are as many
    threads as ever had work at the same time; they end with the connection.

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


class Watch:
    """One thread that sees, for many connections, whether another has to take one over.

    It looks every so often, and rests while nobody is at work when it does.

    Attributes:
        resting: whether somebody who begins to work is to `wake` it.
    """

    def __init__(self, name: str) -> None:
        self.resting = True
        self._name = name
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._woken, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, waits: Callable[[], bool], take_over: Callable[[], object]) -> Watched:
        """Watch one more connection, until `discard`."""
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
            self._woken.set()
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Have nothing taken over any more; returns when that holds."""
        with self._lock:
            self._closed.set()
            self._woken.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _look(self) -> bool:
        """Return whether anybody is at work."""
        with self._lock:
            watched = list(self._watched)
        return any([each.look() for each in watched])

    def _run(self) -> None:
        while not self._closed.wait(_LONG):
            if not self._look():
                self._woken.clear()
                self.resting = True
                # Who began before that did not see it rest, and `close` may have woken it before.
                if not self._look() and not self._closed.is_set():
                    self._woken.wait()
                self.resting = False


class Watched:
    """A connection's thread, as a `Watch` sees it; what is called for each message is short."""

    __slots__ = ("_mine", "_take_over", "_waits", "_watch")

    def __init__(
        self, watch: Watch, waits: Callable[[], bool], take_over: Callable[[], object]
    ) -> None:
        self._watch = watch
        self._waits = waits
        self._take_over = take_over
        # While the thread is at work: whether the watch has seen that. Whoever pops it, the thread
        # that is done or the watch's, goes on with the connection: only one of them can.
        self._mine: list[bool] = []

    def begin(self) -> None:
        """Note that the thread begins a piece of work."""
        self._mine.append(False)
        if self._watch.resting:
            self._watch.wake()

    def end(self) -> bool:
        """Note that it is done; return whether the connection is still the thread's."""
        try:
            self._mine.pop()
        except IndexError:
            return False
        return True

    def look(self) -> bool:
        """Return whether the thread is at work.

        If it was at the look before, and something waits, the connection is taken over.
        """
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
        self._watch.discard(self)
