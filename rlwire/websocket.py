"""WebSocket clients by URL: `connect("ws://host:port/path", inner)`, blocking or asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rlwire.errors import without_secret
from rlwire.sessions.layer import Layer
from rlwire.sessions.stack import Stack
from rlwire.sessions.websocket import WebSocketClientSession
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tls import TLS, ClientTLS

if TYPE_CHECKING:
    from rlwire.transports.interface import Recording

__all__ = ["connect", "connect_asyncio", "url_of"]


def url_of(address: AddressLike, tls: TLS = None, resource: str = "") -> str:
    """Return the WebSocket URL of an address, with `resource` as path and query.

    An address is ``"host:port"``, ``"unix:/path"``, ``"shm:/path"`` or ``(host, port)``. A URL is
    returned unchanged.
    """
    if isinstance(address, str) and "://" in address:
        return address
    scheme, where = "ws" if tls is None else "wss", parse(address)
    if where.path:
        carrier = "shm" if where.shm else "unix"
        return f"{scheme}+{carrier}://{quote(where.path)}{resource and ':'}{resource}"
    return f"{scheme}://{where}{resource}"


def connect(
    url: str,
    inner: Layer | None = None,
    *,
    tls: TLS = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
    record: Recording | None = None,
    **options: Any,
) -> tcp.Connection:
    """Connect to a WebSocket server.

    Args:
        url: ``ws://host:port/path`` or ``ws+unix:///socket:/path`` (or ``ws+shm``), or ``wss``
            for TLS.
        inner: a new layer for the messages; None for plain str and bytes.
        tls: for ``wss``; by default the system's certificate authorities.
        timeout: seconds, or `Timeouts`, whose `connect` applies to TCP with TLS, and again to the
            WebSocket handshake.
        backoff: retries; by default none.
        record: where the connection is recorded; by default nowhere.
        options: see `rlwire.sessions.websocket.WebSocketClientSession`.

    Raises:
        ValueError: the URL is invalid, or `tls` is given for ``ws``.
        Refused: the server rejected the WebSocket.
        Further errors: see `rlwire.transports.tcp.connect`.
    """
    where, session, context = _dialed(url, inner, tls, options)
    return tcp.connect(where, session, timeout=timeout, tls=context, backoff=backoff, record=record)


async def connect_asyncio(
    url: str,
    inner: Layer | None = None,
    *,
    tls: TLS = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
    record: Recording | None = None,
    **options: Any,
) -> tcp_asyncio.AsyncConnection:
    """Connect on the running event loop; arguments and errors as for `connect`."""
    where, session, context = _dialed(url, inner, tls, options)
    return await tcp_asyncio.connect(
        where, session, timeout=timeout, tls=context, backoff=backoff, record=record
    )


def _dialed(
    url: str, inner: Layer | None, tls: TLS, options: dict[str, Any]
) -> tuple[Address, Layer, TLS]:
    client = WebSocketClientSession(url, **options)
    session = client if inner is None else Stack(client, inner)
    target = client.target
    if target.unix is not None:
        where = Address(path=target.unix, shm=target.shm)
    else:
        where = Address(target.host, target.port)
    if target.secure:
        return where, session, ClientTLS()() if tls is None else tls
    if tls is not None:
        raise ValueError(f"tls is given, but {without_secret(url)} is not encrypted: use wss://")
    return where, session, None
