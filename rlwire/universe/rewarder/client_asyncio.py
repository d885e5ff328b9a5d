"""`AsyncRewarderClient`: `RewarderClient` for the tasks of an event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rlwire import websocket
from rlwire.errors import LocalProtocolError
from rlwire.sessions.rewarder.client import Step
from rlwire.transports.hearing import Ear
from rlwire.transports.tcp_asyncio import AsyncConnection
from rlwire.transports.turn import Turn, best_turn
from rlwire.transports.waits import Asyncio, Waits
from rlwire.universe.rewarder.client import ClientBase


class AsyncRewarderClient(Asyncio, ClientBase):
    """An agent's, or an observer's, connection to a rewarder.

    ::

        async with AsyncRewarderClient("127.0.0.1:15900", auth="secret") as client:
            await client.reset()
            while not (step := await client.step()).done:
                client.act([("Action", choose(step.observation))])

    What comes is taken in while the loop runs, so pings are timed well and nothing piles up in the
    network; `step` gives all that came since the last one. One task may wait in `step` at a time.

    The arguments and errors are `ClientBase`'s.
    """

    _connect = staticmethod(websocket.connect_asyncio)

    def __init__(self, address: Any, **options: Any) -> None:
        super().__init__(address, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: Turn | None = None  # of a task that waits for a step
        self._due: float | None = None  # how long it waits
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._waiters: set[asyncio.Future[None]] = set()  # of the others

    async def step(self, timeout: float | None = None) -> Step:
        """Return what has come since the last step, as `RewarderClient.step`."""
        session = self._session
        if not session.news:
            until = None if timeout is None else time.monotonic() + timeout
            self._check_step()
            while until is None or time.monotonic() < until:
                await self._next(until)
                if session.news:
                    break
                self._check_step()
        return session.take()

    def _next(self, until: float | None) -> Turn:
        """Return what to await for news, an error or that time; it may end before."""
        turn = self._turn
        assert turn is not None
        if turn.waiting:
            raise LocalProtocolError("another task is waiting for a step; one may at a time")
        self._due = until
        if until is not None and (self._timer is None or self._timer_due > until):
            self._set_timer(until)
        return turn.begin()

    # One timer for many steps: it is not set anew for each, but looks what has become of them.

    def _set_timer(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        assert self._loop is not None
        self._timer_due = until
        self._timer = self._loop.call_later(max(0.0, until - time.monotonic()), self._timed)

    def _timed(self) -> None:
        self._timer = None
        if self._turn is None or not self._turn.waiting or self._due is None:
            return
        if time.monotonic() >= self._due:
            self._turn.resume(None)
        else:
            self._set_timer(self._due)

    def _listen(self, connection: Any) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._turn = best_turn(loop)
        self._transmit = connection.post
        connection.serve(Ear(self._hear, self._gone), self._end)

    def _hear(self, event: Any) -> None:
        """Take one event, and run the task that waits for it, within this call."""
        self._take(event)
        turn = self._turn
        if turn is not None and turn.waiting and self._session.news:
            turn.resume(None)

    def _wake(self) -> None:
        turn = self._turn
        if turn is not None and turn.waiting and (self._refused or self._ended is not None):
            turn.resume(None)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self, seconds: float | None, heard: int) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=seconds)
        finally:
            self._waiters.discard(waiter)

    def _hang_up(self, connection: AsyncConnection) -> Waits[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        yield from super()._hang_up(connection)
