"""Base of clients that receive unrequested messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rlwire.errors import ConnectionClosed, DeadlineExceeded
from rlwire.transports.connecting import close_and_wait
from rlwire.transports.interface import NOTHING
from rlwire.transports.waits import Counting, Waits, driven


class PushClient(Counting):
    """Base of clients with one connection at a time, on which unrequested messages arrive."""

    _ended: Exception | None = None
    _heard = 0  # how often waiting threads or tasks were woken

    def _peer(self) -> Any:
        raise NotImplementedError

    def _wait(self, seconds: float | None, heard: int) -> Any:
        """Wait up to `seconds`, or return an awaitable, until `_heard` differs from `heard`."""
        raise NotImplementedError

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
        return self._ended is not None or self._connection is None

    def _end(self, error: Exception) -> None:
        """Record why no more messages arrive; the first reason counts."""
        if self._ended is None:
            self._ended = error
        self._wake()

    def _wake(self) -> None:
        """Wake waiting threads or tasks."""

    def _gone(self) -> None:
        self._end(ConnectionClosed(f"{self._peer()}: connection closed"))

    def _check(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        if self._connection is None:
            raise ConnectionClosed(f"{self} is not connected: call connect(), or use `with`")

    def _until(self, there: Callable[[], Any], timeout: float | None, what: str) -> Waits[None]:
        """Wait until `there` returns something true."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            heard = self._heard
            if there():
                return
            self._check()
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded(f"{self._peer()}: no {what} within {timeout:g} s")
            yield self._wait(left, heard)


class PushHandler:
    """A handler that sends no replies: it passes on events and the end of the connection."""

    def __init__(self, hear: Callable[[Any], object], gone: Callable[[], object]) -> None:
        self._hear = hear
        self._gone = gone

    def answer(self, event: Any) -> Any:
        self._hear(event)
        return NOTHING

    def failure(self, event: Any, error: Exception) -> Any:
        raise error

    def close(self) -> None:
        self._gone()
