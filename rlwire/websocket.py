"""WebSocket clients by URL: `connect("ws://host:port/path", inner)`, blocking or asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rlwire.errors import without_secret
from rlwire.sessions.websocket import RawMessages, WebSocketClientSession
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
    inner: Any = None,
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
        inner: a new session for the messages; None for plain str and bytes.
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
    where, client, context = _dialed(url, inner, tls, record, options)
    return tcp.connect(where, client, timeout=timeout, tls=context, backoff=backoff)


async def connect_asyncio(
    url: str,
    inner: Any = None,
    *,
    tls: TLS = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
    record: Recording | None = None,
    **options: Any,
) -> tcp_asyncio.AsyncConnection:
    """Connect on the running event loop; arguments and errors as for `connect`."""
    where, client, context = _dialed(url, inner, tls, record, options)
    return await tcp_asyncio.connect(where, client, timeout=timeout, tls=context, backoff=backoff)


def _dialed(
    url: str, inner: Any, tls: TLS, record: Recording | None, options: dict[str, Any]
) -> tuple[Address, WebSocketClientSession, TLS]:
    client = WebSocketClientSession(RawMessages() if inner is None else inner, url, **options)
    target = client.target
    if target.unix is not None:
        where = Address(path=target.unix, shm=target.shm, record=record)
    else:
        where = Address(target.host, target.port, record=record)
    if target.secure:
        return where, client, ClientTLS()() if tls is None else tls
    if tls is not None:
        raise ValueError(f"tls is given, but {without_secret(url)} is not encrypted: use wss://")
    return where, client, None
