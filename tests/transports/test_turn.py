from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rlwire.transports.turn import Turn


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: Any) -> Callable[[Any], Any]:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").run  # type: ignore[no-any-return]
    return asyncio.run


def test_a_task_is_resumed_within_the_call(run: Any) -> None:
    async def main() -> list[Any]:
        loop = asyncio.get_running_loop()
        turn, seen = Turn(loop), []
        done = loop.create_future()

        async def wait() -> None:
            for _ in range(3):
                seen.append(await turn.begin())
            done.set_result(None)

        def give() -> None:
            for value in ("a", None, "c"):
                turn.resume(value)
                seen.append("after")

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        assert asyncio.isfuture(turn)
        loop.call_soon(give)
        await done
        await task
        return seen

    assert run(main()) == ["a", "after", None, "after", "c", "after"]


@pytest.mark.parametrize("way", ["resume", "set_result"])
def test_from_inside_another_task_the_loop_resumes(run: Any, way: str) -> None:
    async def main() -> list[Any]:
        turn, seen = Turn(asyncio.get_running_loop()), []

        async def wait() -> None:
            seen.append(await turn.begin())

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        getattr(turn, way)("a")
        seen.append("after")
        await task
        return seen

    assert run(main()) == ["after", "a"]


def test_exceptions(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(loop)
        loop.call_soon(turn.set_exception, KeyError("x"))
        with pytest.raises(KeyError):
            await turn.begin()
        loop.call_soon(turn.resume, "used again")
        assert await turn.begin() == "used again"

    run(main())


def test_a_result_before_the_wait(run: Any) -> None:
    async def main() -> None:
        turn = Turn(asyncio.get_running_loop())
        turn.begin()
        turn.resume("early")
        assert await turn == "early"
        turn.begin()
        turn.set_result("early again")
        assert await turn == "early again"

    run(main())


def test_cancelling(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(loop)

        async def wait() -> Any:
            return await turn.begin()

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not turn.waiting
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), 0.01)
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        turn.set_result("late")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert turn.take_late() == "late"
        assert turn.take_late() is None
        assert not turn.cancel()

    run(main())


def test_what_the_task_raises_stays_in_it(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(loop)

        async def wait() -> None:
            await turn.begin()
            raise RuntimeError("the user's own")

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        loop.call_soon(turn.resume, None)
        with pytest.raises(RuntimeError, match="own"):
            await task

    run(main())
