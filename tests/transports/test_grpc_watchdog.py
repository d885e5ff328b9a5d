from __future__ import annotations

import threading
import time
from typing import Any

from rlwire.transports import grpc_watchdog
from rlwire.transports.grpc_watchdog import NEVER, unwatch, watch


class Stream:
    def __init__(self, shortest: float, until: float = NEVER) -> None:
        self.shortest = shortest
        self.until = until
        self.expired_at = 0.0

    def expire(self) -> None:
        self.expired_at = time.monotonic()


def running() -> bool:
    return any(thread.name == "rlwire grpc watchdog" for thread in threading.enumerate())


def test_it_ends_a_wait_in_time(eventually: Any) -> None:
    streams = [Stream(0.2), Stream(0.3), Stream(10.0)]
    for stream in streams:
        watch(stream)
    time.sleep(0.25)
    begun = time.monotonic()
    for stream in streams:
        stream.until = begun + stream.shortest
    eventually(lambda: streams[0].expired_at and streams[1].expired_at)
    for stream in streams[:2]:
        assert 0 <= stream.expired_at - begun - stream.shortest < 0.2
    assert streams[2].expired_at == 0
    for stream in streams:
        unwatch(stream)
        unwatch(stream)
    eventually(lambda: not running())


def test_one_that_waits_already_is_looked_at_at_once(eventually: Any) -> None:
    slow, quick = Stream(1000.0), Stream(NEVER, time.monotonic() + 0.1)
    watch(slow)
    watch(quick)
    eventually(lambda: quick.expired_at)
    assert slow.expired_at == 0
    unwatch(slow)
    eventually(lambda: not running())


def test_it_sleeps_while_nothing_is_waited_for(eventually: Any) -> None:
    stream = Stream(1000.0)
    looks = 0

    class Counting(Stream):
        @property
        def until(self) -> float:
            nonlocal looks
            looks += 1
            return NEVER

        @until.setter
        def until(self, value: float) -> None:
            pass

    stream = Counting(1000.0)
    watch(stream)
    time.sleep(0.1)
    before = looks
    time.sleep(0.3)
    assert looks == before
    unwatch(stream)
    eventually(lambda: not running())


def test_no_time_limit_needs_no_thread() -> None:
    watch(Stream(NEVER))
    assert not running()


def test_one_that_fails_harms_no_other(eventually: Any, log: Any) -> None:
    class Bad(Stream):
        def expire(self) -> None:
            raise ValueError("cannot")

    good = Stream(0.1, time.monotonic() + 0.1)
    watch(Bad(0.1, time.monotonic()))
    watch(good)
    eventually(lambda: good.expired_at)
    eventually(lambda: not running())
    assert "could not be ended in time" in log.text
    assert grpc_watchdog._watched == set()
