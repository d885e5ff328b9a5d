"""`AsyncClient`: `Client` for the tasks of an event loop."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from rlwire.adapters.perlert.client import ClientBase, Waits
from rlwire.codecs.perlert import AgentSlot
from rlwire.sessions.perlert_client import Frame
from rlwire.transports import udp_asyncio

__all__ = ["AsyncClient"]

_T = TypeVar("_T")


class AsyncClient(ClientBase[udp_asyncio.DatagramEndpoint]):
    """`Client` with coroutines: the same methods, arguments and errors.

    ::

        async with AsyncClient("127.0.0.1:32322", "CartPole-v1") as client:
            await client.register()
            client.ready()
            await client.wait_start()
            while not (frame := await client.frame()).done:
                client.act("1")

    What gets lost is asked for again while the loop runs, whether or not anybody waits. One task
    may wait at a time; `ready` and `act` only send, so they need no ``await``.

    The arguments are `ClientBase`'s.
    """

    async def __aenter__(self) -> AsyncClient:
        return self if self._connection is not None else await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def connect(self) -> AsyncClient:
        """Open a port, as `Client.connect`."""
        self._check_closed()
        self._connection = await udp_asyncio.connect(
            self._address, self._make_session, **self._options
        )
        return self

    async def lobby(self, timeout: float | None = None) -> tuple[AgentSlot, ...]:
        """Ask for the lobby's slots, as `Client.lobby`."""
        return await self._drive(self._lobby(timeout))

    async def register(
        self, key: str | None = None, *, timeout: float | None = None, wait: float | None = 0.0
    ) -> str:
        """Get a slot, as `Client.register`."""
        return await self._drive(self._register(key, timeout, wait))

    async def wait_start(self, timeout: float | None = None) -> str:
        """Wait until the run begins, as `Client.wait_start`."""
        return await self._drive(self._start(timeout))

    async def frame(self, timeout: float | None = None) -> Frame:
        """Return the next frame, as `Client.frame`."""
        return await self._drive(self._next_frame(timeout))

    async def frames(self, timeout: float | None = None) -> list[Frame]:
        """Return all frames that have arrived, as `Client.frames`."""
        return await self._drive(self._all_frames(timeout))

    async def _drive(self, steps: Waits[_T]) -> _T:
        try:
            timeout = next(steps)
            while True:
                connection = self._opened()
                events = await connection.wait(timeout, refusals=self._refused is not None)
                if events:
                    self._refused = connection.sock.refusals
                    self._take(events)
                timeout = next(steps)
        except StopIteration as end:
            value: _T = end.value
            return value
