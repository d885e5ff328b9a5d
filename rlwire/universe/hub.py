"""`Hub`: the thread in which all remotes of a program are spoken with; `News` of what has come.

Agents never wait for a remote: what is to be said is handed to the thread's event loop, and what
has come is asked for there.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from rlwire.errors import ConnectionClosed
from rlwire.transports.forking import not_ours, of_this_process

if TYPE_CHECKING:
    from rlwire.universe.rfb.screens import Screens

_Result = TypeVar("_Result")


class News:
    """Counts what comes; for many threads, of which those that wait are woken.

    Two things count: all that comes, which is each message and picture, and turns, which are those
    after which an index may be seen or not, such as an episode's beginning and a lost connection.
    """

    __slots__ = ("_all", "_condition", "_others", "_turns")

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._all = self._turns = 0
        self._others: list[News] = []

    def note(self, turn: bool = False) -> None:
        """Take note that something has come."""
        with self._condition:
            self._all += 1
            self._turns += turn
            self._condition.notify_all()
        for other in self._others:
            other.note(turn)

    def pass_on(self, other: News) -> None:
        """Have another one take note of the same from now on."""
        self._others.append(other)

    def seen(self) -> tuple[int, int]:
        """Return what has come so far, for `wait`."""
        with self._condition:
            return self._all, self._turns

    def wait(
        self, seen: tuple[int, int], timeout: float | None = None, *, turns: bool = False
    ) -> bool:
        """Wait until more has come than what was seen; return whether it has."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self._turns != seen[1] if turns else self._all != seen[0], timeout
            )


class Hub:
    """An event loop in a thread of its own, and `Screens`."""

    def __init__(self, screens: Any = None) -> None:
        if screens is not None:
            self.screens = screens
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last: set[asyncio.Task[Any]] = set()
        self._ended: Exception | None = None
        self._telling = threading.Lock()
        self._told: list[Callable[[], object]] = []
        self._thread = threading.Thread(target=self._run, name="rlwire universe", daemon=True)
        self._thread.start()
        of_this_process(self)

    @functools.cached_property
    def screens(self) -> Screens:
        """Where pixels come from."""
        from rlwire.universe.rfb.screens import Screens

        return Screens()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def ask(self, function: Callable[[], _Result]) -> _Result:
        """Return what a function returns in the loop's thread, which it does not hold up."""
        if threading.current_thread() is self._thread:
            return function()
        answer: Future[_Result] = Future()

        def call() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self.tell(call)
        return answer.result()

    def tell(self, function: Callable[[], object]) -> None:
        """Have a function called in the loop's thread; errors as of `ask`."""
        if self._ended is not None:
            raise self._ended
        with self._telling:
            self._told.append(function)
            if len(self._told) > 1:
                return  # the loop is woken already
        self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        """Call what was told until now."""
        with self._telling:
            told, self._told = self._told, []
        for function in told:
            self._loop.call_soon(function)

    def begin(
        self, work: Coroutine[Any, Any, Any], *, to_its_end: bool = False
    ) -> asyncio.Task[Any]:
        """Begin a task, in the loop's thread."""
        task = self._loop.create_task(work)
        tasks = self._last if to_its_end else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def wait(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Return what a task returns, when it has."""
        if self._ended is not None:
            raise self._ended
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def close(self) -> None:
        """End all tasks and the thread, and close the screens; again does nothing."""
        if self._ended is not None:
            return
        self.wait(self._end_tasks)
        self._ended = ConnectionClosed("the remotes were closed on this side")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if "screens" in vars(self):
            self.screens.close()

    async def _end_tasks(self) -> None:
        for task in set(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._last, return_exceptions=True)
        await asyncio.sleep(0)  # sockets are closed in the loop's next turn

    def disown(self) -> None:
        """See `rlwire.transports.forking.Forked`: thread and connections are the parent's."""
        self._ended = not_ours("the remotes")
        with contextlib.suppress(IndexError):
            if _shared[0] is self:
                _shared.clear()


_shared: list[Hub] = []
_holders: list[object] = []
_sharing = threading.Lock()


@contextlib.contextmanager
def shared_hub() -> Iterator[Hub]:
    """Give the hub that all single environments of this process share, as long as one needs it."""
    holder = object()
    with _sharing:
        if not _shared:
            _holders.clear()
            _shared.append(Hub())
        hub = _shared[0]
        _holders.append(holder)
    try:
        yield hub
    finally:
        last = None
        with _sharing:
            if holder in _holders:
                _holders.remove(holder)
                if not _holders and _shared and _shared[0] is hub:
                    last = _shared.pop()
        if last is not None:
            last.close()
