"""`Reader` reads a blocking connection in the agent's thread while that waits, else in its own.

A rewarder pushes at its own rate, so a thread must read while the agent computes. While the agent
acts or waits often, that thread rests, which saves two context switches per step.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from math import ceil, inf
from threading import get_ident
from time import monotonic
from typing import Any

from rlwire.errors import LocalProtocolError
from rlwire.sessions.rewarder.client import RewarderClientSession
from rlwire.transports.tcp import Connection

_TICK = 1.0  # seconds, at most, between two ticks of the session
_UNREAD = 32  # messages sent without a read, after which `send` checks for room
_REST = 0.005  # seconds without an act or a wait after which the reader's thread reads again
_READS = 64  # maximum of reads in one `poll`, so that a flood does not block the agent
_QUICK = 0.02  # seconds in which most steps arrive; until then only data wakes the agent's thread


class Reader:
    """Reads one connection alternately in two threads; `waiting` is the agent thread's id, or 0."""

    def __init__(
        self,
        connection: Connection,
        session: RewarderClientSession,
        lock: Any,
        receive: Callable[[Any], None],
        end: Callable[[Exception], None],
        has_errors: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._session = session
        self._lock = lock
        self._receive = receive
        self._end = end
        self._has_errors = has_errors
        self._owner = get_ident()  # of the connection
        self._closed = False
        self._due = 0.0  # when the session's next tick is due
        self._resting = False  # whether the reader's thread leaves reading to the agent's
        self._asleep = False  # whether it rests until the next tick, unless woken
        self._acts = 0  # messages and waits of the agent
        self._unread_sends = 0  # messages that were sent since the last read
        self.waiting = 0
        self._reading = threading.Lock()  # held while waiting without `lock`, and to close
        self._fetch, self._quick = connection.reader_call(_QUICK)
        self._agent_end, self._reader_end = socket.socketpair()
        self._agent_end.setblocking(False)
        self._reader_end.setblocking(False)
        self._agent_poll = _poll_for(self._agent_end.fileno(), connection.fileno())
        self._reader_poll = _poll_for(self._reader_end.fileno(), connection.fileno())
        self._idle_wait = _poll_for(self._reader_end.fileno())
        if connection.pending:  # buffered bytes, which poll() does not report
            self._process(self._fetch(False))
        self._thread = threading.Thread(target=self._run, name="rlwire reader", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None) -> None:
        """Wait for news in the agent's thread. It holds the lock, and releases it meanwhile."""
        if self.waiting:
            raise LocalProtocolError("another thread is waiting for a step: one at a time may wait")
        self.waiting = get_ident()
        self._acts += 1
        if not self._resting:
            self._resting = True
            _notify(self._agent_end)
        until = inf if timeout is None else monotonic() + timeout
        quick = self._quick and (timeout is None or timeout >= _QUICK)
        try:
            # `close` waits for this lock, so this thread must not wait for `close`.
            while not self._closed and self._reading.acquire(False):
                self._lock.release()  # other threads can act meanwhile
                try:
                    if quick:
                        have = self._fetch(True)
                    elif self._agent_poll(max(0.0, min(self._due, until) - monotonic())):
                        have = self._fetch(False)
                    else:
                        have = None
                        _drain_pipe(self._agent_end)
                finally:
                    self._reading.release()
                    self._lock.acquire()
                if have is not None:
                    self._process(have)
                if self._session.has_news or self._has_errors():
                    break
                now = monotonic()
                if now >= until:
                    break
                quick = quick and have is not None
                if not quick:
                    self._pass_time(now)
        finally:
            self.waiting = 0
            if self._asleep or self._session.has_requests:
                self.wake()

    def poll(self) -> None:
        """Read what has arrived, without waiting. The lock must be held."""
        for _ in range(_READS):
            if self.waiting or self._closed or not self._agent_poll(0.0):
                return
            self._process(self._fetch(False))

    def send(self, message: Any) -> None:
        """Send a message. The lock must be held."""
        self._acts += 1
        self._unread_sends += 1
        if self._unread_sends % _UNREAD == 0:
            self._make_room()
        connection = self._connection if self._owner == get_ident() else self._claim()
        connection.send(message)

    def wake(self) -> None:
        """Wake up the reader's thread to read, unless the agent waits."""
        if self._resting and not self.waiting:
            self._resting = False
            _notify(self._agent_end)

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
        if self._owner != get_ident():
            self._owner = get_ident()
            self._connection.release()
        return self._connection

    def close(self) -> None:
        """Close the connection, and end the thread."""
        self._closed = True
        _notify(self._reader_end)
        _notify(self._agent_end)
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self._reading, self._lock:
            self._claim().close()
            self._agent_end.close()
            self._reader_end.close()

    def _run(self) -> None:
        acts = 0
        while not self._closed:
            left = max(0.0, self._due - monotonic())
            if not self._resting:
                ready = self._reader_poll(left)
            else:
                ready = self._idle_wait(left if self._asleep else min(left, _REST))
            with self._lock:
                if not ready:
                    _drain_pipe(self._reader_end)
                elif not (self.waiting or self._closed):
                    self._process(self._fetch(False))
                self._pass_time(monotonic())
                if self.waiting and (self._session.has_news or self._has_errors()):
                    _notify(self._reader_end)
                # An agent that still waits calls `wake` afterwards.
                self._asleep = self.waiting != 0 and self._acts == acts
                active = self._acts != acts and not self._session.has_requests
                self._resting = active or self.waiting != 0
                acts = self._acts

    def _process(self, have: int | OSError | None) -> None:
        """Process what was fetched, None for a tick. The lock must be held."""
        if self._closed:
            return
        connection = self._connection if self._owner == get_ident() else self._claim()
        try:
            connection.deliver(self._receive, have)
            while not self._quick and connection.pending:
                connection.deliver(self._receive, self._fetch(False))
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


def _notify(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # full, so it rings already; or closed
        end.send(b"!")


def _drain_pipe(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.recv(64)


def _poll_for(notified: int, file: int | None = None) -> Callable[[float], bool]:
    """Return a function that waits for either, and returns whether `file` has data."""
    poll = select.poll()
    for number in (file, notified):
        if number is not None:
            poll.register(number, select.POLLIN)

    def poll_for(seconds: float) -> bool:
        found = poll.poll(ceil(1000 * seconds))
        return bool(found) and found[0][0] == file

    return poll_for
