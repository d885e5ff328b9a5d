"""What one task at a time waits with, to be resumed at once.

When a plain future gets its result, the event loop notes that its task shall go on, polls all
descriptors once more, and then resumes the task. In a round trip of a small message that second
round, and a new future each time, cost more than the message. A `Turn` resumes its task from where
the result came up, and is used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

__all__ = ["Turn"]


class Turn:
    """Awaitable by one task at a time: `begin`, then await it, while others may end the wait.

    Tasks take any object with these methods and `_asyncio_future_blocking` for a future
    (`asyncio.isfuture`), and look for its loop in `_loop` where it has no `get_loop`, which would
    be one more call.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "_callback",
        "_context",
        "_error",
        "_loop",
        "_result",
        "waiting",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self.waiting = False

    def begin(self) -> Turn:
        """Begin to wait: there is no result yet."""
        self.waiting = True
        return self

    def resume(self, result: Any) -> None:
        """End the wait and run the task until it waits again, within this call.

        From inside another task that is not possible; the loop then resumes it.
        """
        self._result = result
        self.waiting = False
        callback, context = self._callback, self._context
        if callback is not None:
            self._callback = self._context = None
            assert context is not None
            try:
                context.run(callback, self)
            except RuntimeError:  # no task may be entered here; what a task raises stays in it
                self._loop.call_soon(callback, self, context=context)

    def set_result(self, result: Any) -> None:
        """End the wait; the loop resumes the task."""
        self._result = result
        self._wake()

    def set_exception(self, error: BaseException) -> None:
        """End the wait with an exception; the loop resumes the task."""
        self._error = error
        self._wake()

    def take_late(self) -> Any:
        """Return the result that came after all while the task was being cancelled, or None."""
        result, self._result = self._result, None
        return result

    def _wake(self) -> None:
        self.waiting = False
        if self._callback is not None:
            self._loop.call_soon(self._callback, self, context=self._context)
            self._callback = self._context = None

    # What a task asks of a future.

    def __await__(self) -> Generator[Any, None, Any]:
        if self.waiting:
            self._asyncio_future_blocking = True
            yield self
        error = self._error
        if error is not None:
            self._error = None
            try:
                raise error
            finally:
                error = None  # its traceback has this frame, and would keep it and what waited
        result, self._result = self._result, None
        return result

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Take note of how the task that waits is resumed."""
        self._callback, self._context = callback, context
        if not self.waiting:
            self._wake()

    # Tasks call it before they go on; `__await__` has the result, and raises. It is the quickest
    # function without arguments.
    result = bool

    def cancel(self, msg: Any = None) -> bool:
        """End the wait with a CancelledError; returns whether there was one to end."""
        if not self.waiting:
            return False
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._wake()
        return True
