from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rlwire.transports import waiter_asyncio as module
from rlwire.transports.waiter_asyncio import FutureWaiter, Waiter, best_waiter, try_waiters


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: Any) -> Callable[[Any], Any]:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").run
    return asyncio.run


@pytest.fixture(params=[Waiter, FutureWaiter])
def make(request: Any) -> Any:
    return request.param


def test_a_task_is_resumed_within_the_call(run: Any) -> None:
    async def main() -> list[Any]:
        loop = asyncio.get_running_loop()
        waiter, seen = Waiter(loop), []
        done = loop.create_future()

        async def wait() -> None:
            for _ in range(3):
                seen.append(await waiter.begin())
            done.set_result(None)

        def give() -> None:
            for value in ("a", None, "c"):
                waiter.resume(value)
                seen.append("after")

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        assert asyncio.isfuture(waiter)
        loop.call_soon(give)
        await done
        await task
        return seen

    assert run(main()) == ["a", "after", None, "after", "c", "after"]


@pytest.mark.parametrize("way", ["resume", "set_result"])
def test_from_inside_another_task_the_loop_resumes(run: Any, make: Any, way: str) -> None:
    async def main() -> list[Any]:
        waiter, seen = make(asyncio.get_running_loop()), []

        async def wait() -> None:
            seen.append(await waiter.begin())

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        getattr(waiter, way)("a")
        seen.append("after")
        await task
        return seen

    assert run(main()) == ["after", "a"]


def test_cancelling(run: Any, make: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiter = make(loop)

        async def wait() -> Any:
            return await waiter.begin()

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not waiter.waiting
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), 0.01)
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiter.set_result("late")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiter.take_late() == "late"
        assert waiter.take_late() is None
        assert not waiter.cancel()

    run(main())


def test_an_error_too_late_is_not_the_next_wait_s(run: Any, make: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiter = make(loop)

        async def wait() -> Any:
            return await waiter.begin()

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiter.set_exception(KeyError("late"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        loop.call_soon(waiter.resume, "next")
        assert await wait() == "next"

    run(main())


class Deaf(Waiter):
    """Never resumes anybody."""

    def resume(self, result: Any) -> None:
        self.waiting = False


class Unknown(Waiter):
    """What tasks take for no future."""

    def __await__(self) -> Any:
        yield self


class Late(Waiter):
    """Resumes a round late."""

    def resume(self, result: Any) -> None:
        self.set_result(result)


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_holds", type(module._holds)())


@pytest.mark.usefixtures("untried")
def test_turns_are_tried_once_a_kind_of_loop(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert type(best_waiter(loop)) is FutureWaiter, "not tried yet"
        await asyncio.gather(try_waiters(), try_waiters())
        assert type(best_waiter(loop)) is Waiter
        monkeypatch.setattr(module, "_kind", Deaf)
        await try_waiters()
        assert type(best_waiter(loop)) is Deaf, "it was not tried again"

    run(main())
    assert len(module._holds) == 1


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("broken", [Deaf, Unknown, Late])
def test_where_they_do_not_hold_there_are_futures(
    run: Any, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_kind", broken)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reported: list[Any] = []
        loop.set_exception_handler(lambda _, context: reported.append(context))
        before = asyncio.all_tasks()
        await try_waiters()
        assert type(best_waiter(loop)) is FutureWaiter
        assert asyncio.all_tasks() == before
        assert not reported

    run(main())
