"""`rlwire.transports.waits`: one generator, two drivers. Nothing here waits for I/O."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from typing import Any

import pytest

from rlwire.transports.waits import (
    Asyncio,
    Blocking,
    ClientBase,
    TaskLock,
    Waits,
    drive,
    drive_async,
    driven,
)


class Echo:
    """A connection that answers at once; errors are raised when they are sent."""

    def __init__(self):
        self.log = []

    def exchange(self, event):
        self.log.append(event)
        if isinstance(event, BaseException):
            raise event
        return ["reply", event]

    def close(self):
        self.log.append("closed")


class AsyncEcho(Echo):
    async def exchange(self, event):
        await asyncio.sleep(0)
        return super().exchange(event)

    async def close(self):
        await asyncio.sleep(0)
        super().close()


@pytest.fixture(params=["blocking", "asyncio"])
def both(request):
    """A connection of one kind, and what drives a generator over it."""
    if request.param == "blocking":
        return Echo(), drive
    return AsyncEcho(), lambda steps: asyncio.run(drive_async(steps))


def talk(echo, *events):
    replies = []
    try:
        for event in events:
            try:
                replies.append((yield echo.exchange(event)))
            except KeyError as error:
                replies.append(f"caught {error}")
    finally:
        yield echo.close()
    return replies


def test_generator_receives_each_reply_and_error_where_it_waits(both):
    echo, run = both
    error = KeyError("a")
    replies = run(talk(echo, 1, None, error, "x"))
    assert replies == [["reply", 1], ["reply", None], "caught 'a'", ["reply", "x"]]
    assert echo.log == [1, None, error, "x", "closed"]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_generator_errors_propagate_unchanged(both, kind):
    echo, run = both
    error = kind("as it is")
    with pytest.raises(kind) as raised:
        run(talk(echo, 1, error, 2))
    assert raised.value is error
    assert error.__cause__ is None
    assert echo.log == [1, error, "closed"]
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    # Who called, where the generator waited, and what failed.
    assert names.index("talk") < len(names) - 1 - names[::-1].index("exchange")
    assert names[-1] == "exchange"


class Base(ClientBase):
    def __init__(self, echo: Any) -> None:
        self.echo = self._connection = echo

    @driven
    def ask(self, event: Any, *, times: int = 1) -> Waits[list[Any]]:
        """Ask so many times."""
        replies = []
        for _ in range(times):
            replies.append((yield self.echo.exchange(event)))
        return replies

    @driven
    def ask_twice(self, event: Any) -> Waits[list[Any]]:
        """Ask twice, by way of a public method."""
        first = yield self.ask(event)
        second = yield from self._own(event)
        return [*first, second]

    def _own(self, event: Any) -> Waits[Any]:
        return (yield self.echo.exchange(event))

    @driven
    def close(self) -> Waits[None]:
        """Close."""
        yield self.echo.close()


class Plain(Blocking, Base):
    pass


class Tasks(Asyncio, Base):
    pass


async def test_generated_methods_match_their_class_blocking_or_async() -> None:
    with Plain(Echo()) as plain:
        assert plain.ask(1, times=2) == [["reply", 1]] * 2
        assert plain.ask_twice("x") == [["reply", "x"]] * 2
    assert plain.echo.log == [1, 1, "x", "x", "closed"]

    async with Tasks(AsyncEcho()) as tasks:
        assert await tasks.ask(1, times=2) == [["reply", 1]] * 2
        assert await tasks.ask_twice("x") == [["reply", "x"]] * 2
    assert tasks.echo.log == [1, 1, "x", "x", "closed"]


@pytest.mark.parametrize("kind", [Plain, Tasks])
def test_generated_methods_have_names_docs_and_signatures(kind: type[Any]) -> None:
    method = kind.ask
    assert (method.__name__, method.__qualname__) == ("ask", f"{kind.__name__}.ask")
    assert method.__doc__ == "Ask so many times."
    assert method.__module__ == __name__
    signature = inspect.signature(method)
    assert list(signature.parameters) == ["self", "event", "times"]
    assert signature.return_annotation == "list[Any]"
    assert method.__annotations__["return"] == "list[Any]"
    assert inspect.iscoroutinefunction(method) == (kind is Tasks)


@pytest.mark.parametrize("passed_on", [True, False])
async def test_task_lock_passes_on_in_order_without_cancelled_tasks(passed_on: bool) -> None:
    lock, ran = TaskLock(), []

    async def work(number: int) -> None:
        if lock.locked:
            await lock.wait()
        lock.locked = True
        try:
            ran.append(number)
            await asyncio.sleep(0)
            assert ran[-1] == number
        finally:
            lock.release()

    lock.locked = True
    tasks = [asyncio.create_task(work(number)) for number in range(4)]
    await asyncio.sleep(0)
    if passed_on:
        lock.release()
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.sleep(0)
    if not passed_on:
        lock.release()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found[::2]] == [asyncio.CancelledError] * 2
    assert ran == [1, 3]
    assert not lock.locked


async def test_task_lock_may_be_released_before_a_cancelled_task_wakes() -> None:
    lock = TaskLock()
    lock.locked = True
    for releases in (True, False):
        task = asyncio.create_task(lock.wait())
        await asyncio.sleep(0)
        task.cancel()
        if releases:
            lock.release()
        (found,) = await asyncio.gather(task, return_exceptions=True)
        assert type(found) is asyncio.CancelledError
        assert lock.locked is not releases
        assert not lock._waiting
        lock.locked = True
