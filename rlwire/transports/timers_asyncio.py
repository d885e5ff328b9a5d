"""One timer per event loop checks the timeouts of all connections, so that messages set none."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary, ref

from rlwire.transports.socket_calls import open_timer
from rlwire.transports.sockets import Timeouts

if TYPE_CHECKING:
    from rlwire.transports.connection_asyncio import AsyncConnection

_FINEST, _COARSEST = 0.01, 1.0  # seconds between two checks
_NEVER = float("inf")


class Timed(Protocol):
    def check_timeouts(self, now: float) -> object: ...


class TimeoutTimer:
    """Calls `check_timeouts` of all connections of a loop, at a fixed interval."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # `_all` keeps this object, which must not keep the loop or its connections alive.
        self._loop = ref(loop)
        self._ticks: WeakKeyDictionary[Timed, float] = WeakKeyDictionary()
        self._tick = _NEVER  # seconds between two checks
        self._file = -1
        self._handle: ref[asyncio.TimerHandle] | None = None  # it refers to the loop

    def __del__(self) -> None:
        if self._file != -1:
            os.close(self._file)

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> TimeoutTimer:
        timer = _all.get(loop)
        if timer is None:
            timer = _all[loop] = TimeoutTimer(loop)
        return timer

    def add(self, connection: AsyncConnection, timeout: Timeouts) -> None:
        loop = self._loop()
        assert loop is not None
        times = [
            time for time in (timeout.first, timeout.read, timeout.write, timeout.idle) if time
        ]
        due = connection.session.next_deadline()
        if due is not None:
            times.append(due - loop.time())
        self.check(connection, min(max(min(times) / 8, _FINEST), _COARSEST) if times else _NEVER)

    def check(self, timed: Timed, tick: float) -> None:
        """Call its `check_timeouts` every `tick` seconds, or more often, until `discard`."""
        self._ticks[timed] = tick
        self._check_every(min(tick, self._tick))

    def discard(self, timed: Timed) -> None:
        self._ticks.pop(timed, None)
        if not self._ticks:
            self._check_every(_NEVER)

    def _check_every(self, tick: float) -> None:
        loop = self._loop()
        if tick == self._tick or loop is None:
            return
        self._tick = tick
        handle = None if self._handle is None else self._handle()
        if handle is not None:
            handle.cancel()
        if self._file != -1:
            if not loop.is_closed():
                loop.remove_reader(self._file)
            os.close(self._file)
        self._file, self._handle = -1, None
        if tick == _NEVER:
            return
        try:
            self._file = open_timer(tick)
            loop.add_reader(self._file, self._check)
        except OSError:
            self._handle = ref(loop.call_later(tick, self._check))

    def _check(self) -> None:
        loop = self._loop()
        assert loop is not None
        if self._handle is not None:
            self._handle = ref(loop.call_later(self._tick, self._check))
        else:
            with contextlib.suppress(OSError):
                os.read(self._file, 8)
        now = loop.time()
        for timed in list(self._ticks):
            timed.check_timeouts(now)
        # The connection with the finest tick may be gone.
        self._check_every(min(self._ticks.values(), default=_NEVER))


_all: WeakKeyDictionary[asyncio.AbstractEventLoop, TimeoutTimer] = WeakKeyDictionary()
