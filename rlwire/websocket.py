"""`connect("ws://host:port/path", inner)`: a WebSocket from its URL, blocking or asyncio."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from rlwire.sessions.websocket import RawMessages, WebSocketClientSession
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tls import ClientSide, ClientTLS

__all__ = ["connect", "connect_asyncio", "url_of"]


def url_of(address: AddressLike, tls: ClientSide = None, resource: str = "") -> str:
    """Return the URL of the WebSocket at an address, which may be one already.

    Args:
        address: ``"host:port"``, ``"unix:/path"``, ``"shm:/path"``, ``(host, port)``, or a
            URL.
        tls: for TLS.
        resource: path and query.

    Raises:
        ValueError: it is no address.
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
    tls: ClientSide = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
    **options: Any,
) -> tcp.Connection:
    """Connect to a WebSocket server.

    Args:
        url: ``ws://host:port/path`` or ``ws+unix:///socket:/path`` (or ``ws+shm``), or ``wss``
            for TLS.
        inner: a new session that says what messages mean; None for str and bytes as they are.
        tls: for ``wss``; by default a context that trusts the system's authorities.
        timeout: by default `Timeouts()`; `connect` counts for TCP and TLS, and once more for
            WebSocket's handshake.
        backoff: how often and when to try to reach the server; by default once.
        options: those of `rlwire.sessions.websocket.WebSocketClientSession`.

    Raises:
        ValueError: the URL is none, or does not fit `tls`.
        Refused: the server answered, but not with a WebSocket.
        What `rlwire.transports.tcp.connect` raises.
    """
    where, client, context = _dialed(url, inner, tls, options)
    return tcp.connect(where, client, timeout=timeout, tls=context, backoff=backoff)


async def connect_asyncio(
    url: str,
    inner: Any = None,
    *,
    tls: ClientSide = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
    **options: Any,
) -> tcp_asyncio.AsyncConnection:
    """Connect to a WebSocket server on the running loop; arguments and errors as for `connect`."""
    where, client, context = _dialed(url, inner, tls, options)
    return await tcp_asyncio.connect(where, client, timeout=timeout, tls=context, backoff=backoff)


def _dialed(
    url: str, inner: Any, tls: ClientSide, options: dict[str, Any]
) -> tuple[Address, WebSocketClientSession, ClientSide]:
    """Return where to connect, with which session and which TLS."""
    client = WebSocketClientSession(RawMessages() if inner is None else inner, url, **options)
    target = client.target
    if target.unix is not None:
        where = Address(path=target.unix, shm=target.shm)
    else:
        where = Address(target.host, target.port)
    if target.secure:
        return where, client, ClientTLS()() if tls is None else tls
    if tls is not None:
        raise ValueError("a ws:// URL is not for TLS; write wss://")
    return where, client, None
