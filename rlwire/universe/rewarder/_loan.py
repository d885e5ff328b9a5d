"""`Loan`: in lockstep, the environment's thread reads the agent's connection itself.

An action on the event loop's thread costs two hand-overs to the environment's thread and back. So
the loop lends the active client's connection to that thread, until it needs the connection itself:
a timeout is checked, another thread pushes, the server stops, or the borrower makes no progress,
because a step or the agent is slow. All other connections stay on the loop.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from asyncio import TimerHandle, get_running_loop
from threading import get_ident
from typing import Any

from rlwire.codecs.rewarder import EnvReset
from rlwire.errors import ConnectionClosed, RlwireError
from rlwire.sessions.rewarder.server import RewarderServerSession
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import NOTHING

_CHECK = 0.05  # seconds without progress, at most twice that, after which the loop takes it back


class Loan:
    """A borrowed connection. The borrower may use it while it holds the lock and it has not ended.

    The service receives each reset, in the borrower's thread.
    """

    def __init__(
        self,
        service: Any,
        connection: AsyncConnection,
        thread: int,
        pair: tuple[socket.socket, socket.socket],
    ) -> None:
        self.service, self.connection = service, connection
        self.session: RewarderServerSession = connection.session.inner  # type: ignore[attr-defined]
        self.thread = thread  # of the borrower
        self.ended = False  # whether the loop owns the connection again
        self._loop = get_running_loop()
        self._lock = threading.RLock()  # a reset that is delivered may be refused
        self._bell, self._woken = pair  # do not block; the first wakes the borrower
        self._calls: Any = None
        self._error: Exception | None = None
        self._core = connection.core
        self._events = self._seen = 0  # received events, and those at the last check
        self._timer: TimerHandle | None = None

    @property
    def mine(self) -> bool:
        """Whether the calling thread may use the connection."""
        return not self.ended and self.thread == get_ident()

    def begin(self) -> bool:
        borrowed = self.connection.lend(self._recall)
        if borrowed is None:
            return False
        self._calls, self._file = borrowed
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        self._poll = poll.poll
        self._timer = self._loop.call_later(_CHECK, self._check)
        return True

    def _check(self) -> None:
        if self._events == self._seen:
            self.connection.take_back()
        else:
            self._seen = self._events
            self._timer = self._loop.call_later(_CHECK, self._check)

    def _recall(self) -> Exception | None:
        """End the loan, on the loop, and return the error of the borrower's last call.

        It waits for what the borrower does, but not for a step.
        """
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self.ended = True
        with contextlib.suppress(OSError):  # full, or closed
            self._bell.send(b"!")
        return self._error

    # Called by the borrower.

    def receive(self, seconds: float) -> Any:
        """Wait for an event and return it, a reset after its delivery; None without one.

        An action may be a tuple: see `RewarderServerSession.takes_action`.
        """
        if not self._core.idle():
            event = self._receive()
            if event is not None or self.ended:
                return event
        found = self._poll(1000 * seconds)
        if found and found[0][0] == self._file:
            return self._receive()
        with contextlib.suppress(OSError):
            self._woken.recv(64)
        return None

    def _receive(self) -> Any:
        with self._lock:
            if self.ended:
                return None
            try:
                self.session.takes_action = True
                event = self._calls.receive()
                self.session.takes_action = False
                if type(event) is EnvReset:  # before the loop may read the next
                    self.service.receive(self.connection, event)
            except Exception as error:
                self._end(error)
                return None
            self._events += 1
            if self._core.more or not self._core.open_and_flushed:
                self._end()
            return None if event is NOTHING else event

    def post(self, message: Any) -> bool:
        """Send a message; return False if the loop must send it, because the loan has ended."""
        with self._lock:
            if self.ended:
                return False
            try:
                self._core.put(message)
                if not self._calls.write():
                    self._core.copy_output()  # the environment may write to its arrays again
                    self._end()  # the loop waits until the client reads
            except OSError as error:  # ConnectionClosed too, before anything was sent
                self._end(error)
                return not isinstance(error, ConnectionClosed)
            return True

    def step(self, step: tuple[Any, ...]) -> bool:
        """Send a step as one message; return False if it must be sent as texts, if at all.

        It is a tuple as for `RewarderServerSession.send`.
        """
        try:
            return self.session.arrays and self.post(step)
        except RlwireError:
            return False

    def _end(self, error: Exception | None = None) -> None:
        """Return the connection to the loop. The lock is held."""
        self.session.takes_action = False
        self.ended, self._error = True, error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.connection.take_back)
