"""Reads a blocking connection in the agent's thread while that waits, in a thread of its own else.

A rewarder pushes at its own pace, so something must read while the agent thinks. Reading all in
another thread costs two context switches a step, so the reader's thread rests as long as the agent
acts or waits often.
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

_LOOK = 1.0  # seconds, at most, until the connection is told what time it is
_UNHEARD = 32  # messages that are sent, if nothing was read meanwhile, before it is looked for
_REST = 0.005  # seconds in which an agent acts or waits again, or else it thinks
_LOOKS = 64  # reads, at most, for an agent that does not wait: a flood is not to hold it
_QUICK = 0.02  # seconds in which most steps come; until then nothing wakes up the agent's thread


class Reader:
    """Has one connection read by two threads in turns; `waiting` is the agent's, while it waits."""

    def __init__(
        self,
        connection: Connection,
        session: RewarderClientSession,
        lock: Any,
        take: Callable[[Any], None],
        end: Callable[[Exception], None],
        trouble: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._session = session
        self._lock = lock
        self._take = take
        self._end = end
        self._trouble = trouble
        self._owner = get_ident()  # of the connection
        self._over = False
        self._due = 0.0  # when the connection is told what time it is
        self._resting = False  # whether our thread leaves the reading to the agent's
        self._asleep = False  # and until time is to pass, if nobody rings
        self._acts = 0  # of the agent: messages and waits
        self._unheard = 0  # messages that were sent since something was read
        self.waiting = 0
        self._reading = threading.Lock()  # held while waiting without `lock`, and to close
        self._fetch, self._quick = connection.share(_QUICK)
        self._agents, self._keepers = socket.socketpair()
        self._agents.setblocking(False)
        self._keepers.setblocking(False)
        self._agents_look = _look_at(self._agents.fileno(), connection.fileno())
        self._own_look = _look_at(self._keepers.fileno(), connection.fileno())
        self._doze = _look_at(self._keepers.fileno())
        if connection.pending:  # of what has no bell for it
            self._hear(self._fetch(False))
        self._thread = threading.Thread(target=self._run, name="rlwire reader", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None) -> None:
        """Wait for news in the agent's thread, which has the lock and releases it meanwhile."""
        if self.waiting:
            raise LocalProtocolError("another thread is waiting for a step; one may at a time")
        self.waiting = get_ident()
        self._acts += 1
        if not self._resting:
            self._resting = True
            _ring(self._agents)
        until = inf if timeout is None else monotonic() + timeout
        quick = self._quick and (timeout is None or timeout >= _QUICK)
        try:
            # Whoever closes waits until nobody reads, and is not waited for.
            while not self._over and self._reading.acquire(False):
                # Who has the lock meanwhile may act.
                self._lock.release()
                try:
                    if quick:
                        have = self._fetch(True)
                    elif self._agents_look(max(0.0, min(self._due, until) - monotonic())):
                        have = self._fetch(False)
                    else:
                        have = None
                        _silence(self._agents)
                finally:
                    self._reading.release()
                    self._lock.acquire()
                if have is not None:
                    self._hear(have)
                if self._session.news or self._trouble():
                    break
                now = monotonic()
                if now >= until:
                    break
                quick = quick and have is not None
                if not quick:
                    self._pass_time(now)
        finally:
            self.waiting = 0
            if self._asleep or self._session.asking:
                self.wake()

    def poll(self) -> None:
        """Read what is there already, without waiting; with the lock."""
        for _ in range(_LOOKS):
            if self.waiting or self._over or not self._agents_look(0.0):
                return
            self._hear(self._fetch(False))

    def send(self, message: Any) -> None:
        """Send a message; with the lock."""
        self._acts += 1
        self._unheard += 1
        if self._unheard % _UNHEARD == 0:
            self._make_room()
        connection = self._connection if self._owner == get_ident() else self._own()
        connection.send(message)

    def wake(self) -> None:
        """Have our thread take in what comes, when it comes, unless the agent waits."""
        if self._resting and not self.waiting:
            self._resting = False
            _ring(self._agents)

    def _make_room(self) -> None:
        """Read until there is room to write: the server does not read what it cannot answer."""
        room = False
        while not (room or self._over):
            if self.waiting:
                self._lock.release()
                try:
                    _, room = self._connection.may_write(_LOOK, reading=False)
                finally:
                    self._lock.acquire()
            else:
                found, room = self._connection.may_write(_LOOK, reading=True)
                if found:
                    self._hear(self._fetch(False))

    def _own(self) -> Connection:
        """Return the connection for the calling thread, which has the lock."""
        if self._owner != get_ident():
            self._owner = get_ident()
            self._connection.release()
        return self._connection

    def close(self) -> None:
        """Close the connection, and end the thread."""
        self._over = True
        _ring(self._keepers)
        _ring(self._agents)
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self._reading, self._lock:
            self._own().close()
            self._agents.close()
            self._keepers.close()

    def _run(self) -> None:
        acts = 0
        while not self._over:
            left = max(0.0, self._due - monotonic())
            if not self._resting:
                ready = self._own_look(left)
            else:
                ready = self._doze(left if self._asleep else min(left, _REST))
            with self._lock:
                if not ready:
                    _silence(self._keepers)
                elif not (self.waiting or self._over):
                    self._hear(self._fetch(False))
                self._pass_time(monotonic())
                if self.waiting and (self._session.news or self._trouble()):
                    _ring(self._keepers)
                # Who has waited for so long calls us when it does not any more.
                self._asleep = self.waiting != 0 and self._acts == acts
                active = self._acts != acts and not self._session.asking
                self._resting = active or self.waiting != 0
                acts = self._acts

    def _hear(self, have: int | OSError | None) -> None:
        """Take in what was fetched; with None time passes; with the lock."""
        if self._over:
            return
        connection = self._connection if self._owner == get_ident() else self._own()
        try:
            connection.listen(self._take, have)
            while not self._quick and connection.pending:
                connection.listen(self._take, self._fetch(False))
        except Exception as error:
            self._over = True
            self._end(error)
        else:
            if have is not None:
                self._unheard = 0

    def _pass_time(self, now: float) -> None:
        """Tell the connection what time it is, if that is due; with the lock."""
        if now >= self._due:
            self._hear(None)
            due = self._connection.session.next_deadline()
            self._due = now + _LOOK if due is None else min(now + _LOOK, due)


def _ring(bell: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it rings already, or nobody is there any more
        bell.send(b"!")


def _silence(bell: socket.socket) -> None:
    with contextlib.suppress(OSError):
        bell.recv(64)


def _look_at(alarm: int, file: int | None = None) -> Callable[[float], bool]:
    """Return what waits for so many seconds, or a ring, and says whether `file` has something."""
    poll = select.poll()
    for number in (file, alarm):
        if number is not None:
            poll.register(number, select.POLLIN)

    def look(seconds: float) -> bool:
        found = poll.poll(ceil(1000 * seconds))
        return bool(found) and found[0][0] == file

    return look
