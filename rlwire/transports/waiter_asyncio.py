"""`Waiter`: an awaitable whose task is resumed within the call that ends its wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class Waiter:
    """Awaitable by one task at a time: `start`, then await it.

    Tasks of asyncio treat an object with these attributes as a future (`asyncio.isfuture`).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self.waiting = False

    def start(self) -> Waiter:
        self._result = self._error = None
        self.waiting = True
        return self

    def resume(self, result: Any) -> None:
        """End the wait and run the task until it waits again, within this call."""
        self._result = result
        self.waiting = False
        callback, context = self._callback, self._context
        if callback is not None:
            self._callback = self._context = None
            assert context is not None
            try:
                context.run(callback, self)
            except RuntimeError:  # called from another task; a task's own errors stay in it
                self._loop.call_soon(callback, self, context=context)

    def set_exception(self, error: BaseException) -> None:
        """End the wait, if there is one, with an error."""
        if self.waiting:
            self._error = error
            self._wake()

    def pop_late(self) -> Any:
        """Return the result that came while the task was being cancelled, or None."""
        result, self._result = self._result, None
        return result

    def _wake(self) -> None:
        self.waiting = False
        if self._callback is not None:
            self._loop.call_soon(self._callback, self, context=self._context)
            self._callback = self._context = None

    # The interface of a future.

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
                error = None  # its traceback refers to this frame, and to the frames that waited
        result, self._result = self._result, None
        return result

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        self._callback, self._context = callback, context
        if not self.waiting:
            self._wake()

    def result(self) -> None:
        """Do nothing: tasks call it before they continue, and `__await__` returns or raises."""

    def cancel(self, msg: Any = None) -> bool:
        """End the wait with a CancelledError; return whether there was one."""
        if not self.waiting:
            return False
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._wake()
        return True
