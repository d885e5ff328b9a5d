"""`AsyncClient`: `Client` for the tasks of an event loop."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from rlwire.adapters.perlert.client import ClientBase, Waits
from rlwire.codecs.perlert import AgentSlot
from rlwire.errors import ConnectionClosed
from rlwire.sessions.perlert_client import Frame
from rlwire.transports import udp_asyncio
from rlwire.transports.udp_sockets import DatagramSocket

__all__ = ["AsyncClient"]

_T = TypeVar("_T")


class AsyncClient(ClientBase):
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

    _endpoint: udp_asyncio.DatagramEndpoint | None = None

    async def __aenter__(self) -> AsyncClient:
        return self if self._endpoint is not None else await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def connect(self) -> AsyncClient:
        """Open a port, as `Client.connect`."""
        if self._endpoint is not None:
            raise RuntimeError(f"{self} is open already")
        self._endpoint = await udp_asyncio.connect(
            self._address, self._make_session, **self._options
        )
        return self

    def close(self) -> None:
        """Close the port, as `Client.close`."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            try:
                self._leave()
                endpoint.flush()
            finally:
                self._open_session = None
                endpoint.close()

    async def lobby(self, timeout: float | None = None) -> tuple[AgentSlot, ...]:
        """Ask for the lobby's slots, as `Client.lobby`."""
        return await self._drive(self._lobby(timeout))

    async def register(
        self, key: str | None = None, *, timeout: float | None = None, wait: float | None = 0.0
    ) -> str:
        """Get a slot, as `Client.register`."""
        return await self._drive(self._register(key, timeout, wait))

    def ready(self, ready: bool = True) -> None:
        """Say that one is ready, as `Client.ready`."""
        self._session.set_ready(ready, monotonic())
        self._opened().flush()

    async def wait_start(self, timeout: float | None = None) -> str:
        """Wait until the run begins, as `Client.wait_start`."""
        return await self._drive(self._start(timeout))

    def act(self, action: Any) -> None:
        """Say what to do from now on, as `Client.act`."""
        self._act(action)
        self._opened().flush()

    async def frame(self, timeout: float | None = None) -> Frame:
        """Return the next frame, as `Client.frame`."""
        return await self._drive(self._next_frame(timeout))

    async def frames(self, timeout: float | None = None) -> list[Frame]:
        """Return all frames that have arrived, as `Client.frames`."""
        return await self._drive(self._all_frames(timeout))

    def statistics(self) -> dict[str, int]:
        """Return the session's counts and the endpoint's."""
        endpoint = self._endpoint
        counts = {} if endpoint is None else endpoint.statistics()
        return {**counts, **self._session.statistics()}

    def _socket(self) -> DatagramSocket:
        return self._opened().sock

    async def _drive(self, steps: Waits[_T]) -> _T:
        try:
            timeout = next(steps)
            while True:
                heard = self._refused is not None
                self._take(await self._opened().wait(timeout, refusals=heard))
                timeout = next(steps)
        except StopIteration as end:
            value: _T = end.value
            return value

    def _opened(self) -> udp_asyncio.DatagramEndpoint:
        if self._endpoint is None:
            raise ConnectionClosed(f"{self} is not open: use `async with`, or connect()")
        return self._endpoint
