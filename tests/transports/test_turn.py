from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rlwire.transports import turn as module
from rlwire.transports.turn import PlainTurn, Turn, best_turn, try_turns


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: Any) -> Callable[[Any], Any]:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").run
    return asyncio.run


@pytest.fixture(params=[Turn, PlainTurn])
def make(request: Any) -> Any:
    return request.param


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
def test_from_inside_another_task_the_loop_resumes(run: Any, make: Any, way: str) -> None:
    async def main() -> list[Any]:
        turn, seen = make(asyncio.get_running_loop()), []

        async def wait() -> None:
            seen.append(await turn.begin())

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        getattr(turn, way)("a")
        seen.append("after")
        await task
        return seen

    assert run(main()) == ["after", "a"]


def test_cancelling(run: Any, make: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turn = make(loop)

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


def test_an_error_too_late_is_not_the_next_wait_s(run: Any, make: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turn = make(loop)

        async def wait() -> Any:
            return await turn.begin()

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        turn.set_exception(KeyError("late"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        loop.call_soon(turn.resume, "next")
        assert await wait() == "next"

    run(main())


class Deaf(Turn):
    """Never resumes anybody."""

    def resume(self, result: Any) -> None:
        self.waiting = False


class Unknown(Turn):
    """What tasks take for no future."""

    def __await__(self) -> Any:
        yield self


class Late(Turn):
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
        assert type(best_turn(loop)) is PlainTurn, "not tried yet"
        await asyncio.gather(try_turns(), try_turns())
        assert type(best_turn(loop)) is Turn
        monkeypatch.setattr(module, "_kind", Deaf)
        await try_turns()
        assert type(best_turn(loop)) is Deaf, "it was not tried again"

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
        await try_turns()
        assert type(best_turn(loop)) is PlainTurn
        assert asyncio.all_tasks() == before
        assert not reported

    run(main())
