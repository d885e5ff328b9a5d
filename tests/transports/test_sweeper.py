from __future__ import annotations

import asyncio
import gc
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from rlwire.transports import sweeper
from rlwire.transports.sockets import Timeouts
from rlwire.transports.sweeper import Sweeper, Timer


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: Any) -> Callable[[Any], Any]:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").run  # type: ignore[no-any-return]
    return asyncio.run


@pytest.fixture(params=["system", "loop"], autouse=True)
def kind(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "loop":
        monkeypatch.setattr(sweeper, "_timer_file", None)
    elif sweeper._timer_file is None:
        pytest.skip("no timer of the system's here")
    return str(request.param)


class Session:
    def __init__(self, due: float | None = None) -> None:
        self.due = due

    def next_deadline(self) -> float | None:
        return self.due


class Watched:
    def __init__(self, due: float | None = None) -> None:
        self.session: Any = Session(due)
        self.looks: list[float] = []

    def sweep(self, now: float) -> None:
        self.looks.append(now)


def times(seconds: float | None) -> Timeouts:
    return Timeouts(connect=None, read=seconds, write=None, idle=None, first=None)


async def eventually(condition: Callable[[], Any]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def test_a_timer_calls_again_and_again_until_it_is_stopped(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: list[float] = []
        timer = Timer(loop, lambda: calls.append(loop.time()))
        begun = loop.time()
        timer.start(0.03)
        await eventually(lambda: len(calls) == 3)
        assert calls[2] - begun > 0.08
        timer.stop()
        timer.stop()
        await asyncio.sleep(0.1)
        assert len(calls) == 3
        timer.start(0.01)
        await eventually(lambda: len(calls) > 3)
        timer.stop()

    run(main())


def test_it_may_be_stopped_from_what_it_calls(run: Any) -> None:
    async def main() -> None:
        calls: list[int] = []

        def call() -> None:
            calls.append(1)
            timer.stop()

        timer = Timer(asyncio.get_running_loop(), call)
        timer.start(0.01)
        await asyncio.sleep(0.1)
        assert calls == [1]

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="counts Linux's descriptors")
def test_no_descriptor_stays_open(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            before = len(os.listdir("/proc/self/fd"))
            timer = Timer(loop, lambda: None)
            timer.start(10)
            timer.start(20)
            timer.stop()
            assert len(os.listdir("/proc/self/fd")) == before

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only there is one")
def test_without_descriptors_the_loop_s_own_timer(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(seconds: float) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(sweeper, "_timer_file", fail)

    async def main() -> None:
        calls: list[int] = []
        timer = Timer(asyncio.get_running_loop(), lambda: calls.append(1))
        timer.start(0.01)
        await eventually(lambda: len(calls) > 1)
        timer.stop()

    run(main())


def test_one_sweeper_a_loop_as_fine_as_its_finest(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        mine = Sweeper.of(loop)
        assert Sweeper.of(loop) is mine
        coarse, fine, untimed = Watched(), Watched(), Watched()
        mine.add(untimed, times(None))
        await asyncio.sleep(0.05)
        assert not untimed.looks
        mine.add(coarse, times(60))
        await asyncio.sleep(0.05)
        assert not coarse.looks
        mine.add(fine, times(0.1))
        await eventually(lambda: len(fine.looks) > 2)
        assert coarse.looks == fine.looks == untimed.looks
        for watched in (coarse, fine, untimed):
            mine.discard(watched)
        count = len(fine.looks)
        await asyncio.sleep(0.05)
        assert len(fine.looks) == count
        # Having been empty, it is not as fine as before.
        mine.add(coarse, times(60))
        await asyncio.sleep(0.05)
        assert len(coarse.looks) == count
        mine.discard(coarse)

    run(main())


def test_the_tick_grows_again_when_the_finest_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeTimer:
        """Rings when it is told to, and counts how often it would ring in a second."""

        seconds = 0.0

        def __init__(self, loop: Any, call: Callable[[], None]) -> None:
            self.ring = call
            timers.append(self)

        def start(self, seconds: float) -> None:
            self.seconds = seconds

        def stop(self) -> None:
            self.seconds = 0.0

    timers: list[FakeTimer] = []
    monkeypatch.setattr(sweeper, "Timer", FakeTimer)

    async def main() -> None:
        mine = Sweeper(asyncio.get_running_loop())
        (timer,) = timers
        coarse, middle, fine, untimed = Watched(), Watched(), Watched(), Watched()
        for watched, seconds in ((coarse, 60), (middle, 4), (fine, 0.01), (untimed, None)):
            mine.add(watched, times(seconds))
        assert timer.seconds == 0.01
        timer.ring()
        assert timer.seconds == 0.01
        mine.discard(fine)
        timer.ring()
        assert timer.seconds == 0.5
        mine.add(fine, times(0.01))
        assert timer.seconds == 0.01
        mine.discard(fine)
        mine.discard(middle)
        timer.ring()
        assert timer.seconds == 1.0
        mine.discard(coarse)
        timer.ring()
        assert timer.seconds == 0.0, "nobody has a time"
        mine.add(fine, times(0.01))
        assert timer.seconds == 0.01
        del fine, watched
        gc.collect()
        timer.ring()
        assert timer.seconds == 0.0, "it went without a word"

    asyncio.run(main())


def test_a_session_s_own_times_count(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        watched = Watched(due=loop.time() + 0.1)
        Sweeper.of(loop).add(watched, times(None))
        await eventually(lambda: watched.looks)
        Sweeper.of(loop).discard(watched)

    run(main())


def test_a_loop_that_ends_takes_its_sweeper_along(run: Any) -> None:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        watched.append(Watched())
        Sweeper.of(loop).add(watched[0], times(60))
        return weakref.ref(loop)

    watched: list[Watched] = []
    loop = run(main())
    gc.collect()
    gc.collect()
    assert loop() is None
