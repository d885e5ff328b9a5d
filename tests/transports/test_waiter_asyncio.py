from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rlwire.transports.waiter_asyncio import Waiter


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: Any) -> Callable[[Any], Any]:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").run
    return asyncio.run


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
def test_from_inside_another_task_the_loop_resumes(run: Any, way: str) -> None:
    async def main() -> list[Any]:
        waiter, seen = Waiter(asyncio.get_running_loop()), []

        async def wait() -> None:
            seen.append(await waiter.begin())

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        getattr(waiter, way)("a")
        seen.append("after")
        await task
        return seen

    assert run(main()) == ["after", "a"]


def test_cancelling(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiter = Waiter(loop)

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


def test_an_error_too_late_is_not_the_next_wait_s(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiter = Waiter(loop)

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
