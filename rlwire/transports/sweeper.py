"""One timer for the times of all asyncio connections of a loop, so that a message costs none."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from rlwire.transports.interface import StreamSession
from rlwire.transports.sockets import Timeouts

__all__ = ["Sweeper", "Swept", "Timer"]

_FINEST, _COARSEST = 0.01, 1.0  # seconds between two sweeps
_NEVER = float("inf")


class Swept(Protocol):
    """What it watches."""

    session: StreamSession

    def sweep(self, now: float) -> None:
        """Look whether something has lasted too long."""


class Sweeper:
    """Lets connections look, all at once, whether something has lasted too long.

    A connection measures from its first look at a state, so a time is up to two sweeps longer than
    asked for: a quarter, and two seconds at most.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # `_all` keeps this: neither the loop nor what is in it is to live longer because of it.
        self._loop = ref(loop)
        self._connections: WeakKeyDictionary[Swept, float] = WeakKeyDictionary()  # their ticks
        self._tick = _NEVER
        self._timer = Timer(loop, self._sweep)

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Sweeper:
        """Return the loop's one."""
        sweeper = _all.get(loop)
        if sweeper is None:
            sweeper = _all[loop] = Sweeper(loop)
        return sweeper

    def add(self, connection: Swept, timeouts: Timeouts) -> None:
        """Watch a connection; the timer runs while there is one."""
        times = [
            time for time in (timeouts.first, timeouts.read, timeouts.write, timeouts.idle) if time
        ]
        due = connection.session.next_deadline()
        if due is not None:
            times.append(due - self._now())
        tick = min(max(min(times) / 8, _FINEST), _COARSEST) if times else _NEVER
        self._connections[connection] = tick
        if tick < self._tick:
            self._tick = tick
            self._timer.start(tick)

    def discard(self, connection: Swept) -> None:
        """Watch a connection no more."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._tick = _NEVER
            self._timer.stop()

    def _now(self) -> float:
        loop = self._loop()
        assert loop is not None
        return loop.time()

    def _sweep(self) -> None:
        now = self._now()
        for connection in list(self._connections):
            connection.sweep(now)
        # The one that wanted the finest tick may have gone.
        tick = min(self._connections.values(), default=_NEVER)
        if tick > self._tick:
            self._tick = tick
            if tick == _NEVER:
                self._timer.stop()
            else:
                self._timer.start(tick)


_all: WeakKeyDictionary[asyncio.AbstractEventLoop, Sweeper] = WeakKeyDictionary()


class Timer:
    """Calls again and again.

    While one of asyncio's own timers is set, each round of the loop looks at the clock and at the
    timers, before and after it polls: a twentieth of a small message's round trip. A timer of the
    system's is one more descriptor, which is silent until it is time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = ref(loop)
        self._call = call
        self._seconds = 0.0
        self._handle: ref[asyncio.TimerHandle] | None = None  # it, too, holds the loop
        self._file = -1

    def __del__(self) -> None:
        if self._file != -1:
            os.close(self._file)

    def start(self, seconds: float) -> None:
        """Call every so many seconds from now on."""
        self.stop()
        self._seconds = seconds
        loop = self._loop()
        assert loop is not None
        if _timer_file is not None:
            with contextlib.suppress(OSError):  # no descriptor is left
                self._file = _timer_file(seconds)
                loop.add_reader(self._file, self._ring)
                return
        self._handle = ref(loop.call_later(seconds, self._again))

    def stop(self) -> None:
        """Call no more."""
        handle = None if self._handle is None else self._handle()
        if handle is not None:
            handle.cancel()
        self._handle = None
        if self._file != -1:
            loop = self._loop()
            if loop is not None and not loop.is_closed():
                loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._file, 8)
        self._call()

    def _again(self) -> None:
        loop = self._loop()
        assert loop is not None
        self._handle = ref(loop.call_later(self._seconds, self._again))
        self._call()


class _ITimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


def _make_timer_file() -> Callable[[float], int] | None:
    """Return what opens a timerfd of Linux that rings again and again; None where there is none."""
    # Where `long` is 32 bits the C library may have a wider time.
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    try:
        library = ctypes.CDLL(None, use_errno=True)
        create, settime = library.timerfd_create, library.timerfd_settime
    except (OSError, AttributeError):
        return None
    settime.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(_ITimerSpec), ctypes.c_void_p]

    def open_timer(seconds: float) -> int:
        monotonic = 1
        file = create(monotonic, os.O_NONBLOCK | os.O_CLOEXEC)
        if file == -1:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        whole, part = divmod(max(1, round(seconds * 1e9)), 1_000_000_000)
        if settime(file, 0, _ITimerSpec(whole, part, whole, part), None) == -1:
            os.close(file)
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        return int(file)

    return open_timer


_timer_file = _make_timer_file()
