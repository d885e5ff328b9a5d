"""The front door for asyncio: `connect` and `serve`, as of `rlwire`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

import rlwire
from rlwire.registry import URL, resolve, spoken

if TYPE_CHECKING:
    from rlwire.serving.serving import BackgroundServer

__all__ = ["Connecting", "connect", "serve"]


@contextlib.asynccontextmanager
async def serve(thing: Any, url: str | URL, **options: Any) -> AsyncIterator[BackgroundServer]:
    """Serve something at a URL inside an ``async with``; arguments and errors as `rlwire.serve`.

    ::

        async with rlwire.aio.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
            print(server.url)

    Factories, and stopping the server, run in another thread.
    """
    import asyncio

    server = await asyncio.to_thread(rlwire.serve, thing, url, **options)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


class Connecting:
    """A pending client: ``async with`` it, or ``await`` it and close it later."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._begin = begin
        self._client: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._begin().__await__()

    async def __aenter__(self) -> Any:
        self._client = await self
        return await self._client.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(*error)


def connect(url: str | URL, **options: Any) -> Connecting:
    """Return an awaitable that connects to a server; arguments and errors as `rlwire.connect`.

    ::

        async with rlwire.aio.connect("dm-env-rpc://localhost:9911/world") as client:
            await client.step()
        client = await rlwire.aio.connect("rlx://localhost:7001")

    The clients are the Async variants of those of `rlwire.connect`. An invalid URL or option raises
    at once.
    """
    begin, where, keywords = resolve(url, "client", options, "async_")

    async def connected() -> Any:
        with spoken(where):
            return await begin(where, **keywords)

    return Connecting(connected)
