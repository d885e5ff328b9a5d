"""The front door for asyncio: `connect` by URL, as `rlwire.connect`, and `serve`."""

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
    """Serve something at a URL while the ``async with`` lasts, beside the running loop.

    ::

        async with rlwire.aio.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
            print(server.url)

    What makes the thing, and what stops the server, runs in another thread. Arguments and errors as
    of `rlwire.serve`.
    """
    import asyncio

    server = await asyncio.to_thread(rlwire.serve, thing, url, **options)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


class Connecting:
    """A client that is about to be: ``async with`` it, or ``await`` it and close it later."""

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
    """Return what connects, when it is awaited, to a server on the running loop.

    ::

        async with rlwire.aio.connect("dm-env-rpc://localhost:9911/world") as client:
            await client.step()
        client = await rlwire.aio.connect("rlx://localhost:7001")

    The clients are those of `rlwire.connect` whose names begin with Async. Arguments and errors as
    there; a URL or an option that is wrong raises at once.
    """
    begin, where, keywords = resolve(url, "client", options, "async_")

    async def connected() -> Any:
        with spoken(where):
            return await begin(where, **keywords)

    return Connecting(connected)
