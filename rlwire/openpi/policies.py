"""What a policy is, and the threads that it thinks in.

Not here: clients (`rlwire.openpi.server`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

Infer: TypeAlias = Callable[[Any], Any]
_T = TypeVar("_T")


def resolve_policy(policy: Any) -> Infer:
    """Return what answers an observation: a policy's `infer`, or the policy itself."""
    if inspect.isclass(policy):
        raise TypeError(f"a policy is wanted, not its class; write {policy.__name__}(...)")
    infer: Callable[[Any], Any] = getattr(policy, "infer", policy)
    if not callable(infer):
        raise TypeError(
            f"a policy has a method infer, or is a function; {type(policy).__name__} is neither"
        )
    return infer


class _Job(NamedTuple):
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]


class Workers:
    """Threads that call a policy, or decode for one, in the order in which they are asked to.

    Not `concurrent.futures`: its threads keep a program from ending while one of them is stuck, as
    a call into an accelerator can be.
    """

    def __init__(self, count: int, what: str = "policy") -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._count = count
        for number in range(count):
            threading.Thread(target=self._work, name=f"rlwire {what} {number}", daemon=True).start()

    def submit(self, call: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Have ``call(*arguments)`` called; the future gets its result.

        A call whose future is cancelled before its turn comes is not made.
        """
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(call, arguments, future))
        return future

    def stop(self) -> None:
        """Let the threads end, each after the call that it is in; what waits is not called."""
        while not self._jobs.empty():
            with contextlib.suppress(queue.Empty):  # a thread was faster
                self._jobs.get_nowait()
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future = job.future
            if future.cancelled():  # the client has gone
                continue
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.call(*job.arguments)
            except BaseException as raised:
                error = raised
            # RuntimeError: the loop is closed, nobody waits any more.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            # Nothing is kept until the next observation comes: not this one's memory either.
            del job, future, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, (StopIteration, asyncio.CancelledError)):
        # A future cannot carry the one, and the other would end who waits for it.
        future.set_exception(RuntimeError(f"the call raised {type(error).__name__}"))
    else:
        future.set_exception(error)
