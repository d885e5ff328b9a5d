"""`ClientLoop`: an event loop in a thread of its own, for clients that never make agents wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from rlwire.errors import ConnectionClosed
from rlwire.transports.forking import not_ours, of_this_process

_Result = TypeVar("_Result")


class Arrivals:
    """Counts what arrives, and wakes the threads that wait for more.

    Changes of status count apart: an index may then be shown or masked, such as at an episode's
    beginning and after a lost connection.
    """

    __slots__ = ("_all", "_condition", "_status")

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._all = self._status = 0

    def notify(self, *, status: bool = False) -> None:
        """Count one more."""
        with self._condition:
            self._all += 1
            self._status += status
            self._condition.notify_all()

    def count(self) -> tuple[int, int]:
        """Return what has arrived so far, for `wait`."""
        with self._condition:
            return self._all, self._status

    def wait(
        self, seen: tuple[int, int], timeout: float | None = None, *, status: bool = False
    ) -> bool:
        """Wait until more has arrived than `seen`; return whether it has."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self._status != seen[1] if status else self._all != seen[0], timeout
            )


class ClientLoop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[Any]] = set()
        self._ended: Exception | None = None
        self._lock = threading.Lock()
        self._calls: list[Callable[[], object]] = []
        self._thread = threading.Thread(target=self._run, name="rlwire universe", daemon=True)
        self._thread.start()
        of_this_process(self)

    @functools.cached_property
    def painter(self) -> ClientLoop:
        """Another loop, for the pixels: while it paints, this one answers."""
        return ClientLoop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function.

        Raises:
            ConnectionClosed: the loop is closed.
            LocalProtocolError: it is the parent process's, from before a fork.
        """
        if self._ended is not None:
            raise self._ended
        with self._lock:
            self._calls.append(function)
            if len(self._calls) > 1:
                return  # the loop is woken up already
        self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for function in calls:
            self._loop.call_soon(function)

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Return what a function returns in the loop's thread; errors as of `call_soon`."""
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
        """Begin a task, in the loop's thread; `close` cancels it, or awaits one that `closes`."""
        task = self._loop.create_task(work)
        tasks = self._closing if closes else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def run(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Wait for a task, and return its result; errors as of `call_soon`."""
        return self._submit(work).result()

    async def wait_for(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Do what `run` does, in another loop."""
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> Future[_Result]:
        if self._ended is not None:
            raise self._ended
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def close(self) -> None:
        """End all tasks and the thread; again does nothing."""
        if self._ended is not None:
            return
        self.run(self._end_tasks)
        self._ended = ConnectionClosed("the remotes were closed on this side")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if "painter" in vars(self):
            self.painter.close()

    async def _end_tasks(self) -> None:
        for task in set(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await asyncio.sleep(0)  # sockets are closed in the loop's next turn

    def close_inherited(self) -> None:
        """See `rlwire.transports.forking.Forked`: thread and connections are the parent's."""
        self._ended = not_ours("the remotes")
        if _shared and _shared[0] is self:
            _shared.clear()


_shared: list[ClientLoop] = []
_users: list[object] = []
_sharing = threading.Lock()


@contextlib.contextmanager
def shared_loop() -> Iterator[ClientLoop]:
    """Give the loop of all environments of `rlwire.make`, which lives as long as one of them."""
    user = object()
    with _sharing:
        if not _shared:
            _users.clear()
            _shared.append(ClientLoop())
        loop = _shared[0]
        _users.append(user)
    try:
        yield loop
    finally:
        last = False
        with _sharing:
            if user in _users:
                _users.remove(user)
                last = not _users and bool(_shared) and _shared[0] is loop
                if last:
                    _shared.clear()
        if last:
            loop.close()
