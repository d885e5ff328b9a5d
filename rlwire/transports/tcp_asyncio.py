"""Connections over TCP, TLS, unix sockets and shared memory on asyncio or uvloop."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from rlwire.sessions.layer import Layer
from rlwire.transports.address import AddressLike
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import Recording
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.stream_asyncio import open_stream
from rlwire.transports.tcp import Dialer, time_left
from rlwire.transports.timers_asyncio import TimeoutTimer
from rlwire.transports.tls import TLS
from rlwire.transports.waits import drive_async

__all__ = ["AsyncConnection", "Backoff", "Timeouts", "connect"]


async def connect(
    address: AddressLike,
    session: Layer,
    *,
    tls: TLS = None,
    server_hostname: str | None = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
    record: Recording | None = None,
) -> AsyncConnection:
    """Connect to a server; arguments and errors as for `rlwire.transports.tcp.connect`."""
    dialer = _AsyncDialer(address, session, tls, server_hostname, timeout, record)
    connection: AsyncConnection = await drive_async(dialer.steps(backoff))
    if not connection.closed:
        dialer.timer.add(connection, dialer.timeout)
    return connection


class _AsyncDialer(Dialer):
    """Connects sockets on the running event loop."""

    sleep = staticmethod(asyncio.sleep)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._loop = asyncio.get_running_loop()
        self.timer = TimeoutTimer.of(self._loop)

    def resolve(self, until: float) -> Awaitable[Any]:
        return _within(until, self._loop.run_in_executor, None, self.where.resolve)

    def connect(self, sock: socket.socket, sockaddr: Any, until: float) -> Awaitable[Any]:
        sock.setblocking(False)
        return _within(until, self._loop.sock_connect, sock, sockaddr)

    async def open(self, sock: socket.socket, until: float) -> AsyncConnection:
        connection = AsyncConnection(
            self.session, str(self.where), self.timeout, on_end=self.timer.discard, tap=self.tap()
        )
        self.explain_silence(connection.core)
        opening = functools.partial(
            open_stream, tls=self.tls, server_hostname=self.hostname or "", shm=self.where.shm
        )
        await _within(until, opening, connection, sock)
        return connection


async def _within(until: float, do: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    left = time_left(until)
    try:
        return await asyncio.wait_for(do(*arguments), left)
    except asyncio.TimeoutError as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a timeout of the network
        # Before 3.11 asyncio's TimeoutError is another class, and no OSError.
        raise TimeoutError("timed out") from error
