"""Connections over TCP, TLS, unix sockets and shared memory on asyncio or uvloop."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from rlwire.transports import connecting
from rlwire.transports.address import Address, AddressLike, parse, tap_of
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import StreamSession
from rlwire.transports.shm import check_carrier
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.stream_asyncio import open_stream
from rlwire.transports.timers_asyncio import TimeoutTimer
from rlwire.transports.tls import ClientSide, context_of
from rlwire.transports.waits import drive_async

__all__ = ["AsyncConnection", "Backoff", "Timeouts", "connect"]


async def connect(
    address: AddressLike,
    session: StreamSession,
    *,
    tls: ClientSide = None,
    server_hostname: str | None = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
) -> AsyncConnection:
    """Connect to a server; arguments and errors as for `rlwire.transports.tcp.connect`."""
    where = parse(address)
    timeout = Timeouts.of(timeout)
    hostname = server_hostname or getattr(tls, "server_hostname", None) or where.host
    dialer = _AsyncDialer(where, (session, str(where), timeout), context_of(tls), hostname)
    connection: AsyncConnection = await drive_async(
        connecting.connect(where, dialer, timeout, backoff)
    )
    if not connection.closed:
        dialer.timer.add(connection, timeout)
    return connection


class _AsyncDialer:
    """Connects sockets on the running event loop."""

    sleep = staticmethod(asyncio.sleep)

    def __init__(
        self, where: Address, made_with: Any, tls: ssl.SSLContext | None, hostname: str
    ) -> None:
        check_carrier(where, tls)
        self._loop = loop = asyncio.get_running_loop()
        self.timer = TimeoutTimer.of(loop)
        self._made_with = made_with
        self._where = where
        self._open = functools.partial(
            open_stream, tls=tls, server_hostname=hostname, shm=where.shm
        )

    def resolve(self, where: Address, until: float) -> Awaitable[Any]:
        return _within(until, self._loop.run_in_executor, None, where.resolve)

    def connect(self, sock: socket.socket, sockaddr: Any, until: float) -> Awaitable[Any]:
        sock.setblocking(False)
        return _within(until, self._loop.sock_connect, sock, sockaddr)

    async def finish(self, sock: socket.socket, until: float) -> AsyncConnection:
        connection = AsyncConnection(
            *self._made_with, on_end=self.timer.discard, tap=tap_of(self._where)
        )
        await _within(until, self._open, connection, sock)
        return connection


async def _within(until: float, do: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    left = connecting.time_left(until)
    try:
        return await asyncio.wait_for(do(*arguments), left)
    except asyncio.TimeoutError as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a timeout of the network
        # Before 3.11 asyncio's TimeoutError is another class, and no OSError.
        raise TimeoutError("timed out") from error
