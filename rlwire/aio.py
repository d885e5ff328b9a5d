"""The front door for asyncio: `connect` by URL, as `rlwire.connect`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from rlwire.protocols import URL, resolve

__all__ = ["Connecting", "connect"]


class Connecting:
    """A client that is about to be: ``async with`` it, or ``await`` it and close it later."""

    def __init__(self, steps: Any) -> None:
        self._steps = steps
        self._client: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._steps.__await__()  # type: ignore[no-any-return]

    async def __aenter__(self) -> Any:
        self._client = await self._steps
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
    there; what is wrong with the arguments raises at once.
    """
    where, protocol, keywords = resolve(url, "client", options)
    return Connecting(protocol.part("async_client")(where, **keywords))
