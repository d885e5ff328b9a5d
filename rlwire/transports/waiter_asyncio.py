"""What one task at a time waits with, to be resumed at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any
from weakref import WeakKeyDictionary

logger = logging.getLogger(__name__)


class Waiter:
    """Awaitable by one task at a time: `begin`, then await it, while others may end the wait.

    Tasks take any object with these methods and `_asyncio_future_blocking` for a future
    (`asyncio.isfuture`), and look for its loop in `_loop` where it has no `get_loop`, which would
    be one more call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self.waiting = False

    def begin(self) -> Waiter:
        """Begin to wait: there is no result yet, and what came too late for the last is gone."""
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

    def result(self) -> None:
        """Do nothing. Tasks call it before they go on; `__await__` has the result, and raises."""

    def cancel(self, msg: Any = None) -> bool:
        """End the wait with a CancelledError; returns whether there was one to end."""
        if not self.waiting:
            return False
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._wake()
        return True


class FutureWaiter(Waiter):
    """The same with a new future each time: the loop resumes the task, in its next round."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._future: asyncio.Future[None] | None = None

    def resume(self, result: Any) -> None:
        """End the wait; the loop resumes the task."""
        self.set_result(result)

    def _wake(self) -> None:
        self.waiting = False
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[Any, None, Any]:
        if self.waiting:
            self._future = self._loop.create_future()
            try:
                yield from self._future.__await__()
            finally:
                self._future = None
                self.waiting = False
        return (yield from super().__await__())


_kind = Waiter  # what is tried
_holds: WeakKeyDictionary[type[asyncio.AbstractEventLoop], bool] = WeakKeyDictionary()


async def try_waiters() -> None:
    """Find out, once for a class of loops, whether a `Waiter` resumes tasks of the running one."""
    loop = asyncio.get_running_loop()
    if type(loop) not in _holds:
        _holds[type(loop)] = await _hold(loop)


def best_waiter(loop: asyncio.AbstractEventLoop) -> Waiter:
    """Return a `Waiter`, or a `FutureWaiter` unless `try_waiters` found that one holds."""
    return _kind(loop) if _holds.get(type(loop), False) else FutureWaiter(loop)


async def _hold(loop: asyncio.AbstractEventLoop) -> bool:
    """Try all that is asked of a waiter, on a task of the loop's own making."""
    waiter = _kind(loop)
    seen: list[Any] = []

    async def wait() -> None:
        for _ in range(3):
            try:
                seen.append(await waiter.begin())
            except (KeyError, asyncio.CancelledError) as error:
                seen.append(type(error))

    def resume() -> None:
        with contextlib.suppress(Exception):
            waiter.resume("at once")
        seen.append("resumed")

    task = loop.create_task(wait())
    try:
        for step in (None, resume, lambda: waiter.set_exception(KeyError()), task.cancel):
            if step is not None:
                loop.call_soon(step)
            for _ in range(3):
                await asyncio.sleep(0)
        return seen == ["at once", "resumed", KeyError, asyncio.CancelledError] and task.done()
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=1.0)
        if task.done() and not task.cancelled() and task.exception() is not None:
            logger.debug("%s: tasks take no waiters: %s", type(loop).__name__, task.exception())
