import asyncio
import gc
import os
import sys
import weakref

import pytest

from rlwire.sessions.layer import Layer
from rlwire.transports import timers_asyncio
from rlwire.transports.sockets import Timeouts
from rlwire.transports.timers_asyncio import TimeoutTimer
from tests.waiting import eventually_async


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").run
    return asyncio.run


@pytest.fixture(params=["system", "loop"], autouse=True)
def kind(request, monkeypatch):
    if request.param == "loop":

        def fail(seconds):
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(timers_asyncio, "open_timer", fail)
    elif sys.platform != "linux":
        pytest.skip("no timer of the system's here")
    return str(request.param)


class Watched:
    """A connection without a deadline of its session's."""

    session = Layer()

    def __init__(self):
        self.looks = []

    def check_timeouts(self, now):
        self.looks.append(now)


def times(seconds):
    return Timeouts(connect=None, read=seconds, write=None, idle=None, first=None)


@pytest.mark.skipif(sys.platform != "linux", reason="counts Linux's descriptors")
async def test_timer_leaves_no_descriptor_open(run):
    mine, watched = TimeoutTimer(asyncio.get_running_loop()), Watched()
    for _ in range(3):
        before = len(os.listdir("/proc/self/fd"))
        mine.add(watched, times(60))
        mine.add(watched, times(1))
        mine.discard(watched)
        mine.discard(watched)
        assert len(os.listdir("/proc/self/fd")) == before


async def test_loop_has_one_timer_with_the_shortest_interval(run, monkeypatch):
    monkeypatch.setattr(timers_asyncio, "_COARSEST", 1000.0)
    loop = asyncio.get_running_loop()
    mine = TimeoutTimer.of(loop)
    assert TimeoutTimer.of(loop) is mine
    coarse, fine, untimed = Watched(), Watched(), Watched()
    mine.add(untimed, times(None))
    await asyncio.sleep(0.05)
    assert not untimed.looks
    mine.add(coarse, times(8000))
    await asyncio.sleep(0.05)
    assert not coarse.looks
    mine.add(fine, times(0.1))
    await eventually_async(lambda: len(fine.looks) > 2)
    assert coarse.looks == fine.looks == untimed.looks
    for watched in (coarse, fine, untimed):
        mine.discard(watched)
    count = len(fine.looks)
    await asyncio.sleep(0.05)
    assert len(fine.looks) == count
    # Having been empty, it is not as fine as before.
    mine.add(coarse, times(8000))
    await asyncio.sleep(0.05)
    assert len(coarse.looks) == count
    mine.discard(coarse)


def test_closed_loop_frees_its_timer(run):
    async def main():
        loop = asyncio.get_running_loop()
        watched.append(Watched())
        TimeoutTimer.of(loop).add(watched[0], times(60))
        return weakref.ref(loop)

    watched = []
    loop = run(main())
    gc.collect()
    gc.collect()
    assert loop() is None
