"""Base of clients that receive unrequested messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rlwire.errors import ConnectionClosed, DeadlineExceeded
from rlwire.transports.waits import Waits, close_and_wait, driven


class PushClient:
    """Mixin for clients with one connection at a time, on which unrequested messages arrive.

    Attributes:
        error: why the last connection ended; None while it is open, and before the first.
    """

    error: Exception | None = None
    _connection: Any = None
    _wakeups = 0  # of waiting threads or tasks
    # Waits up to some seconds, or returns an awaitable, until `_wakeups` is another number.
    _wait: Callable[[float | None, int], Any]
    _peer: Callable[[], Any]  # returns the other end

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._peer()}>"

    def _close_connection(self, connection: Any) -> Waits[None]:
        yield from close_and_wait(connection)

    @driven
    def close(self) -> Waits[None]:
        """Close the connection; waiting calls raise ConnectionClosed. Received messages stay."""
        self._end(ConnectionClosed(f"{self._peer()}: connection closed on this side"))
        connection, self._connection = self._connection, None
        if connection is not None:
            yield from self._close_connection(connection)

    @property
    def ended(self) -> bool:
        """Whether the connection has ended, or there was none."""
        return self.error is not None or self._connection is None

    def _end(self, error: Exception) -> None:
        """Record why no more messages arrive; the first reason counts."""
        if self.error is None:
            self.error = error
        self._wake()

    def _receive(self, event: Any) -> None:
        """Process one event."""

    def _wake(self) -> None:
        """Wake waiting threads or tasks."""

    def _check(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self._connection is None:
            raise ConnectionClosed(f"{self} is not connected: call connect(), or use `with`")

    def _until(self, arrived: Callable[[], Any], timeout: float | None, what: str) -> Waits[None]:
        """Wait until `arrived` returns something true."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            wakeups = self._wakeups
            if arrived():
                return
            self._check()
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded(f"{self._peer()}: no {what} within {timeout:g} s")
            yield self._wait(left, wakeups)


class PushHandler:
    """A handler of events that sends no replies: `answer` returns NOTHING."""

    def __init__(self, answer: Callable[[Any], Any], close: Callable[[], None]) -> None:
        self.answer, self.close = answer, close

    def failure(self, event: Any, error: Exception) -> Any:
        raise error
