"""`rlwire.connect` and `rlwire.serve` for asyncio."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

import rlwire
from rlwire.urls import URL, naming_protocol

if TYPE_CHECKING:
    from rlwire.serving.serving import BackgroundServer

__all__ = ["Connecting", "connect", "serve"]


@contextlib.asynccontextmanager
async def serve(target: Any, url: str | URL, **options: Any) -> AsyncIterator[BackgroundServer]:
    """Serve an environment, an agent or a policy while an ``async with`` block runs.

    ::

        async with rlwire.aio.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
            print(server.url)

    Arguments, options and errors are those of `rlwire.serve`. Factories run in another thread, and
    so does the server's stop.
    """
    import asyncio

    server = await asyncio.to_thread(rlwire.serve, target, url, **options)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


class Connecting:
    """What `connect` returns: use it in ``async with``, or ``await`` it and close the client."""

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
    """Connect to a server; return an awaitable and context manager of the asyncio client.

    ::

        async with rlwire.aio.connect("dm-env-rpc://localhost:9911/world") as client:
            await client.step()
        client = await rlwire.aio.connect("rlx://localhost:7001")

    Arguments, options and errors are those of `rlwire.connect`. The clients are the Async variants.
    An invalid URL or option raises before the first ``await``.
    """
    from rlwire._options import resolve  # imports asyncio and ssl

    begin, where, keywords = resolve(url, "client", options, "async_")

    async def connected() -> Any:
        with naming_protocol(where):
            return await begin(where, **keywords)

    return Connecting(connected)
