"""`Relay`: stands in front of a server, and passes on what both sides say.

A `Route` says who is reached. A relay knows no protocol but that of its two sessions, which may
differ: a page's WebSocket on one side, TCP on the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

from rlwire.adapters.serving import Service, StreamOptions, StreamServer
from rlwire.errors import EncodeError, RlwireError
from rlwire.sessions import websocket
from rlwire.transports.address import AddressLike
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import StreamSession
from rlwire.transports.sockets import Timeouts

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["TIMEOUTS", "Relay", "Route"]

logger = logging.getLogger(__name__)

TIMEOUTS = Timeouts(idle=None)
"""The times of connections by default: how long one may be silent is for the two sides to say."""


class Route(ABC):
    """What a relay does with those who connect."""

    @abstractmethod
    def session(self) -> StreamSession:
        """Return a new session of the server's side."""

    @abstractmethod
    async def reach(self, connection: AsyncConnection) -> AsyncConnection:
        """Return a connection to whoever it is for.

        Raises:
            RlwireError, OSError: there is none; the log has it, and the connection ends.
        """


class Relay(StreamServer):
    """Passes on what two sides of a connection say, on an event loop of its own.

    What is passed on is not stored up: who does not read is not sent more, and the other side is
    not listened to meanwhile.

    Args:
        scheme: of its URL.
        address: where to listen.
        route: who is reached.
        options: `rlwire.adapters.serving.StreamOptions`.
    """

    handlers = "a relayed connection"

    def __init__(
        self, scheme: str, address: AddressLike, route: Route, **options: Unpack[StreamOptions]
    ) -> None:
        self.scheme = scheme
        options["timeouts"] = options.get("timeouts") or TIMEOUTS
        super().__init__(address, _Passage(route), **options)


class _Passage(Service):
    def __init__(self, route: Route) -> None:
        self._route = route

    def session(self) -> StreamSession:
        return self._route.session()

    async def converse(self, connection: AsyncConnection) -> None:
        try:
            other = await self._route.reach(connection)
        except (RlwireError, OSError) as error:
            logger.warning("%s: nobody is reached for it: %s", connection.peer, error)
            _leave(connection, 1013, "who this is for cannot be reached")
            return
        async with other:
            ways = {
                asyncio.create_task(_pass(connection, other)): other,
                asyncio.create_task(_pass(other, connection)): connection,
            }
            try:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                for way in ways:
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        await way
            for way in done:
                _tell(way.exception(), ways[way])


async def _pass(giver: AsyncConnection, taker: AsyncConnection) -> NoReturn:
    while True:
        await taker.send(await giver.receive())


def _tell(error: BaseException | None, to: AsyncConnection) -> None:
    """Have a WebSocket's close frame say why the other side is gone; the log has what failed."""
    if isinstance(error, websocket.Closed):
        _leave(to, error.code, error.reason)
    elif isinstance(error, RlwireError):
        logger.info("%s: the other side is gone: %s", to.peer, error)
    elif error is not None:
        logger.error("%s: its relay failed", to.peer, exc_info=error)


def _leave(connection: AsyncConnection, code: int, reason: str) -> None:
    session = connection.session
    if isinstance(session, websocket.Client | websocket.Server):
        with contextlib.suppress(EncodeError):  # such as 1005, which no close frame says
            session.leave(code, reason)
