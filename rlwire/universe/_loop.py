"""`ClientLoop`: an event loop in a thread of its own, so that clients do not block agents."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from rlwire.errors import ConnectionClosed
from rlwire.transports.forking import not_ours, track

_Result = TypeVar("_Result")


class Arrivals:
    """Counts all arrivals, and separately changes of status; wakes up waiting threads."""

    __slots__ = ("_all", "_condition", "_status")

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._all = self._status = 0

    def notify(self, *, status: bool = False) -> None:
        with self._condition:
            self._all += 1
            self._status += status
            self._condition.notify_all()

    def count(self) -> tuple[int, int]:
        with self._condition:
            return self._all, self._status

    def wait(
        self, seen: tuple[int, int], timeout: float | None = None, *, status: bool = False
    ) -> bool:
        """Wait until a count exceeds `seen`; return whether it does."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self._status != seen[1] if status else self._all != seen[0], timeout
            )


class ClientLoop:
    """An event loop in a daemon thread; its methods raise ConnectionClosed after `close`."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.ended: Exception | None = None
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="rlwire universe", daemon=True)
        self._thread.start()
        track(self)

    @functools.cached_property
    def painter(self) -> ClientLoop:
        """Another loop for the pixels, so that painting does not delay this one's replies."""
        return ClientLoop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def call_soon(self, function: Callable[[], object]) -> None:
        if self.ended is not None:
            raise self.ended
        self._loop.call_soon_threadsafe(function)

    def call(self, function: Callable[[], _Result]) -> _Result:
        if threading.current_thread() is self._thread:
            return function()
        result: Future[_Result] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self.call_soon(run)
        return result.result()

    def create_task(
        self, work: Coroutine[Any, Any, Any], *, closes: bool = False
    ) -> asyncio.Task[Any]:
        """Start a task from the loop's thread; `close` cancels it, or awaits it if it `closes`."""
        task = self._loop.create_task(work)
        tasks = self._closing if closes else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def submit(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> Future[_Result]:
        if self.ended is not None:
            raise self.ended
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def close(self) -> None:
        """Cancel all tasks and end the thread; a second call does nothing."""
        if self.ended is not None or sys.is_finalizing():  # then the thread runs no more
            return
        self.submit(self._end_tasks).result()
        self.ended = ConnectionClosed("the remotes were closed on this side")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if "painter" in vars(self):
            self.painter.close()

    async def _end_tasks(self) -> None:
        for task in set(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await asyncio.sleep(0)  # sockets are closed in the loop's next iteration

    def close_inherited(self) -> None:
        """As in `rlwire.transports.forking.Forked`; thread and connections are the parent's."""
        self.ended = not_ours("the remotes")


_shared: list[ClientLoop] = []  # one entry per user
_sharing = threading.Lock()


@contextlib.contextmanager
def shared_loop() -> Iterator[ClientLoop]:
    """Yield the loop of all environments of `rlwire.make`; the last user closes it."""
    with _sharing:
        loop = _shared[-1] if _shared and _shared[-1].ended is None else ClientLoop()
        _shared.append(loop)
    try:
        yield loop
    finally:
        with _sharing:
            _shared.remove(loop)
            last = loop not in _shared
        if last:
            loop.close()
