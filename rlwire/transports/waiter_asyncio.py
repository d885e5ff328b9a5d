"""`Waiter`: an awaitable whose task is resumed within the call that ends its wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class Waiter:
    """Awaitable by one task at a time: `start`, await it, then `pop` the result.

    Tasks of asyncio treat an object with these attributes as a future (`asyncio.isfuture`). It is
    also its own iterator, so that a wait allocates nothing. Awaiting returns None, because a
    compiled iterator that raises a value makes a frame for its traceback.

    Attributes:
        waiting: whether the wait has not ended.
        busy: whether a task waits, or has not yet continued with what ended its wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self.waiting = self.busy = False

    def start(self) -> Waiter:
        self._result = self._error = None
        self.waiting = self.busy = True
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

    def pop(self) -> Any:
        """Return and forget the result, None for none; it may come while a task is cancelled."""
        result, self._result = self._result, None
        return result

    def _wake(self) -> None:
        self.waiting = False
        if self._callback is not None:
            self._loop.call_soon(self._callback, self, context=self._context)
            self._callback = self._context = None

    # The interface of an awaitable's iterator.

    def __await__(self) -> Generator[Any, Any, None]:
        return self  # type: ignore[return-value]

    def __next__(self) -> Waiter:
        if self.waiting:
            self._asyncio_future_blocking = True
            return self
        self.busy = False
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                error = None  # its traceback refers to this frame, and to the frames that waited
        raise StopIteration

    def throw(self, kind: Any, value: Any = None, _: Any = None) -> Any:
        self.waiting = self.busy = False
        raise kind if value is None else value

    def close(self) -> None:
        self.waiting = self.busy = False

    # The interface of a future.

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
