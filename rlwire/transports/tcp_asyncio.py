"""Connections over TCP, TLS, unix sockets and shared memory on asyncio or uvloop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from typing import Any

from rlwire.errors import on_error
from rlwire.sessions.layer import Layer
from rlwire.transports.address import AddressLike
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.stream_asyncio import open_stream, within
from rlwire.transports.tcp import Dialer, time_left
from rlwire.transports.timers_asyncio import TimeoutTimer
from rlwire.transports.waits import drive_async

__all__ = ["AsyncConnection", "Backoff", "Timeouts", "connect"]


async def connect(address: AddressLike, session: Layer, **options: Any) -> AsyncConnection:
    """Connect to a server; arguments and errors as for `rlwire.transports.tcp.connect`."""
    dialer = _AsyncDialer(address, session, **options)
    connection: AsyncConnection = await drive_async(dialer.steps())
    if not connection.closed:
        dialer.timer.add(connection, dialer.timeouts)
    return connection


class _AsyncDialer(Dialer):
    """Connects sockets on the running event loop."""

    sleep = staticmethod(asyncio.sleep)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._loop = asyncio.get_running_loop()
        self.timer = TimeoutTimer.of(self._loop)

    def resolve(self, until: float) -> Awaitable[Any]:
        return within(time_left(until), self._loop.run_in_executor(None, self.where.resolve))

    def connect(self, sock: socket.socket, sockaddr: Any, until: float) -> Awaitable[Any]:
        sock.setblocking(False)
        return within(time_left(until), self._loop.sock_connect(sock, sockaddr))

    async def open(self, sock: socket.socket, until: float) -> AsyncConnection:
        connection = AsyncConnection(
            self.session, str(self.where), self.timeouts, on_end=self.timer.discard, tap=self.tap()
        )
        self.explain_silence(connection.core)
        left, name = time_left(until), self.hostname or ""
        opening = open_stream(
            connection, sock, tls=self.context, server_hostname=name, shm=self.where.shm
        )
        with on_error(connection.abort):  # also if the task is cancelled once the stream is open
            await within(left, opening)
        return connection
