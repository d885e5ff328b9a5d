"""Whom a relay in front of a remote reaches: its pixels as bytes, its rewarder as texts.

Who passes them on is `rlwire.adapters.relay`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from rlwire.adapters.doors import client_tls, websocket_url
from rlwire.adapters.relay import TIMEOUTS, Ear, Route
from rlwire.adapters.websocket import connect_asyncio
from rlwire.errors import ConnectionClosed
from rlwire.protocols import URL
from rlwire.sessions import websocket
from rlwire.sessions.passing import Passing
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import StreamSession
from rlwire.transports.tcp_asyncio import connect
from rlwire.transports.tls import ClientSide

__all__ = ["PixelsRoute", "RewardsRoute", "reach_pixels", "reach_rewards"]

_Listening = Callable[[AsyncConnection], Ear]
_HEADERS = ("Authorization", "openai-observer")
"""What of a client's handshake the rewarder is told."""


async def reach_pixels(remote: URL, tls: ClientSide) -> AsyncConnection:
    """Return a connection to a remote's pixels, whose events are bytes."""
    where = remote.pixels_address
    if where is None:
        raise ConnectionClosed(f"{remote} has no pixels")
    return await connect(where, Passing(), timeouts=TIMEOUTS, tls=client_tls(remote, tls))


async def reach_rewards(
    remote: URL, tls: ClientSide, headers: list[tuple[str, str]], kind: websocket.Kind
) -> AsyncConnection:
    """Return a connection to a remote's rewarder, whose events are messages."""
    tls = client_tls(remote, tls)
    return await connect_asyncio(
        websocket_url(remote, tls), timeouts=TIMEOUTS, tls=tls, headers=headers, kind=kind
    )


class PixelsRoute(Route):
    """To the pixels of a remote.

    Args:
        remote: where it is.
        tls: for a remote with TLS.
        listening: makes who listens in.
    """

    def __init__(self, remote: URL, tls: ClientSide, listening: _Listening | None) -> None:
        self._remote = remote
        self._tls = tls
        self.listening = listening

    def session(self) -> StreamSession:
        """Return a session that passes bytes on."""
        return Passing()

    async def reach(self, connection: AsyncConnection) -> AsyncConnection:
        """Connect to the pixels."""
        return await reach_pixels(self._remote, self._tls)


class RewardsRoute(Route):
    """To the rewarder of a remote, which is told a client's password, and whether it observes.

    Args:
        remote: where it is.
        tls: for a remote with TLS.
        origins: the pages that may connect.
        listening: makes who listens in.
    """

    def __init__(
        self,
        remote: URL,
        tls: ClientSide,
        origins: Collection[str],
        listening: _Listening | None,
    ) -> None:
        self._remote = remote
        self._tls = tls
        self._origins = origins
        self.listening = listening

    def session(self) -> StreamSession:
        """Return a WebSocket's session."""
        return websocket.Server(
            websocket.Messages(),
            kind="text",
            origins=self._origins,
            pages=websocket.health,
            ping_interval=20.0,
        )

    async def reach(self, connection: AsyncConnection) -> AsyncConnection:
        """Connect to the rewarder."""
        request = connection.session.request  # type: ignore[attr-defined]
        said = [(name, request.headers.get(name)) for name in _HEADERS]
        headers = [(name, value) for name, value in said if value is not None]
        return await reach_rewards(self._remote, self._tls, headers, "text")
