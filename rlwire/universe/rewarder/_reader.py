"""`Reader` reads a blocking connection in the agent's thread while that waits, else in its own.

A rewarder pushes at its own rate, so a thread must read while the agent computes. While the agent
acts or waits, that thread rests, which saves two context switches per step, and reads between two
rests what has arrived.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from math import ceil, inf
from threading import get_ident
from time import monotonic, sleep
from typing import Any

from rlwire.errors import LocalProtocolError, WouldWait
from rlwire.sessions.rewarder.client import RewarderClientSession
from rlwire.transports.interface import NOTHING
from rlwire.transports.tcp import Connection

_TICK = 1.0  # seconds, at most, between two ticks of the session
_UNREAD = 32  # messages sent without a read, after which `send` checks for room
_REST = 0.005  # seconds that the reader's thread rests, so also how old unread messages get
_READS = 64  # maximum of reads in one `poll`, so that a flood does not block the agent
_TURN = 0.02  # seconds, at most, of one read of the agent's thread, which then checks for the end


class Reader:
    """Reads one connection alternately in two threads; `waiting` while the agent's waits."""

    def __init__(
        self,
        connection: Connection,
        session: RewarderClientSession,
        lock: Any,
        receive: Callable[[Any], None],
        end: Callable[[Exception], None],
        has_errors: Callable[[], bool],
    ) -> None:
        self._connection, self._core = connection, connection.core
        self._session = session
        self._lock = lock
        self._receive = receive
        self._end = end
        self._has_errors = has_errors
        self._owner = get_ident()  # of the connection
        self._closed = False
        self._due = 0.0  # when the session's next tick is due
        self._acts = 0  # messages and waits of the agent
        self._unread_sends = 0  # messages that were sent since the last read
        self.waiting = False
        self._watched = False  # whether an event loop reads, and no thread
        self._polling = False  # whether the reader's thread waits for the connection
        self._fetching = False  # whether the agent's thread reads, without `lock`
        self._fetch, self._quick = connection.reader_call(_TURN)
        self._calls = connection.calls
        self._bell, self._rung = socket.socketpair()
        for end_of_pair in (self._bell, self._rung):
            end_of_pair.setblocking(False)
        self._readable = _poll_for(connection.fileno())
        self._readable_or_rung = _poll_for(connection.fileno(), self._rung.fileno())
        self._wait_for_bell = _poll_for(None, self._rung.fileno())
        if connection.pending:  # buffered bytes, which poll() does not report
            self._process(self._fetch(False))
        self._thread = threading.Thread(target=self._run, name="rlwire reader", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None) -> None:
        """Wait for news in the agent's thread. It holds the lock, and releases it meanwhile."""
        if self.waiting:
            raise LocalProtocolError("another thread is waiting for a step: one at a time may wait")
        left = inf if timeout is None else timeout
        until = inf if timeout is None else monotonic() + timeout
        self.waiting = True
        try:  # from here on Ctrl-C may come after each call
            self._acts += 1
            if self._polling:  # else the system would wake both threads for each message
                self._polling = False
                self.wake()
            if self._core.sending:  # what `send` left in an event loop
                self._process(None)
            while left > 0 and not self._closed:
                have = self._fetch_unlocked(left)
                if have is not None:
                    self._feed(have)
                if self._session.has_news or self._has_errors():
                    return
                left = until - monotonic()
        finally:
            self.waiting = False
            if self._session.has_requests:
                self.wake()

    def exchange(self, message: Any, timeout: float) -> tuple[float, Any] | None:
        """Send an action; return `taken_step` if the answer is one message, else None: `wait`.

        As `wait`, in the agent's thread. What is not the plain case is done by `_process`.
        """
        core, session = self._core, self._session
        busy = self.waiting or self._watched or self._polling or self._unread_sends > 0
        quick = self._quick and timeout >= _TURN and get_ident() == self._owner
        self.send(message)
        if busy or not quick:
            return None
        self.waiting = session.takes_step = True
        try:
            until = monotonic() + _TURN
            have = self._fetch_unlocked(timeout)
            while have is not None:
                event = self._feed(have)
                again = event is NOTHING and core.direct and monotonic() < until
                have = self._fetch_unlocked(timeout) if again else None  # of a large message
        finally:
            self.waiting = False
            if session.has_requests:
                self.wake()
            step = session.taken_step()
        return step

    def _fetch_unlocked(self, left: float) -> int | OSError | None:
        """Read once while other threads can act, for up to `left` seconds and a turn."""
        self._fetching = True
        try:
            self._lock.release()
            if self._quick and left >= _TURN:
                return self._fetch(True)
            return self._fetch(False) if self._readable(min(left, _TURN)) else None
        finally:
            self._fetching = False
            self._lock.acquire()

    def watch(self, wanted: bool) -> int:
        """Leave reading to an event loop's `poll`, or read again; return the file, -1 for none."""
        with self._lock:
            self._watched = wanted and self._quick
            self._owner = 0
            self._connection.watch(self._watched)  # nothing waits in the loop, not even for pongs
        self.wake()
        return self._connection.fileno() if self._quick else -1

    def poll(self) -> None:
        """Read what has arrived, without waiting. The lock must be held."""
        for _ in range(_READS):
            if self.waiting or self._closed or not self._readable(0.0):
                return
            self._process(self._fetch(False))

    def send(self, message: Any) -> None:
        """Send a message. The lock must be held."""
        self._acts += 1
        self._unread_sends += 1
        if self._unread_sends % _UNREAD == 0 and not self._watched:
            self._make_room()
        if get_ident() != self._owner:
            self._claim()
        try:  # as the connection's `send`
            self._core.put(message)
            if self._calls.write():
                return
        except BaseException as error:
            self._connection.finish_send(error)
        else:
            self._connection.finish_send()

    def wake(self) -> None:
        """Let the reader's thread read now, unless the agent waits."""
        with contextlib.suppress(OSError):  # full, so it rings already; or closed
            self._bell.send(b"!")

    def _make_room(self) -> None:
        """Read until there is room to write: a server with a full send buffer does not read."""
        room = False
        while not (room or self._closed):
            if self.waiting:
                self._lock.release()
                try:
                    _, room = self._connection.may_write(_TICK, reading=False)
                finally:
                    self._lock.acquire()
            else:
                found, room = self._connection.may_write(_TICK, reading=True)
                if found:
                    self._process(self._fetch(False))

    def _claim(self) -> Connection:
        """Make the calling thread the connection's owner. The lock must be held."""
        self._owner = get_ident()
        self._connection.release()
        self._connection.claim()
        return self._connection

    def close(self) -> None:
        """Close the connection, and end the thread."""
        self._closed = True
        self.wake()
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            while self._fetching:  # at most `_TURN`
                sleep(0.001)
            self._claim().close()
            self._bell.close()
            self._rung.close()

    def _run(self) -> None:
        acts = 0
        while not self._closed:
            left = max(0.0, self._due - monotonic())
            active = self._acts != acts and not self._session.has_requests
            acts = self._acts
            if self.waiting or self._watched or active:
                self._wait_for_bell(min(left, _REST))
            else:
                self._polling = True
                self._readable_or_rung(left)
            with self._lock:
                if self._closed:
                    return
                with contextlib.suppress(BlockingIOError):
                    self._rung.recv(64)
                if not self._watched:
                    self.poll()
                self._pass_time(monotonic())

    def _feed(self, have: int | OSError) -> Any:
        """Do the plain case of `_process`; return the event, or NOTHING."""
        core = self._core
        if type(have) is not int or not self._quick or self._closed or get_ident() != self._owner:
            self._process(have)
            return NOTHING
        try:
            event = core.feed(have)
        except BaseException as error:
            self._process(error)
            return NOTHING
        self._unread_sends = 0
        if event is not NOTHING:
            self._receive(event)
        if core.sending or core.more or not (event is NOTHING or core.idle()):
            self._process(None)
        return event

    def _process(self, have: int | BaseException | None) -> None:
        """Process what was fetched, None for a tick, or an error. The lock must be held."""
        if self._closed:
            return
        if get_ident() != self._owner:
            self._claim()
        connection = self._connection
        try:
            connection.deliver(self._receive, have)
            while not self._quick and connection.pending:
                connection.deliver(self._receive, self._fetch(False))
        except WouldWait:  # watched: a later call sends the rest
            pass
        except Exception as error:
            self._closed = True
            self._end(error)
        else:
            if have is not None:
                self._unread_sends = 0

    def _pass_time(self, now: float) -> None:
        """Tick the session if a tick is due. The lock must be held."""
        if now >= self._due:
            self._process(None)
            due = self._connection.session.next_deadline()
            self._due = now + _TICK if due is None else min(now + _TICK, due)


def _poll_for(file: int | None, bell: int | None = None) -> Callable[[float], bool]:
    """Return a function that waits for either, and returns whether `file` has data."""
    poll = select.poll()
    for number in (file, bell):
        if number is not None:
            poll.register(number, select.POLLIN)
    return lambda seconds: any(found == file for found, _ in poll.poll(ceil(1000 * seconds)))
