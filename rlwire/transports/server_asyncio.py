"""The server of all stream protocols on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import socket
from typing import Any

from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.server import DRAINING, BaseServer, end_reason
from rlwire.transports.sockets import prepare
from rlwire.transports.stream_asyncio import open_stream
from rlwire.transports.timers_asyncio import TimeoutTimer

__all__ = ["LoopServer"]

logger = logging.getLogger(__name__)


class LoopServer(BaseServer[AsyncConnection]):
    """Serves all connections on one event loop; arguments as for `BaseServer`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._acceptor: asyncio.Task[None] | None = None
        self._accepting_ended = False  # accepts no more connections

    async def __aenter__(self) -> LoopServer:
        return self if self._started else await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self) -> LoopServer:
        self._start_once()
        self._acceptor = asyncio.create_task(self._accept(asyncio.get_running_loop()))
        return self

    async def drain(self, seconds: float) -> None:
        """Stop accepting, and wait until connections have drained; call `stop` afterwards."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await self._stop_accepting()
        while self._open and (left := until - loop.time()) > 0:
            for connection in self.open_connections:
                connection.drain()
            await asyncio.sleep(min(left, DRAINING))

    async def stop(self, grace: float = 5.0) -> None:
        """Stop accepting, close all connections and wait for their handlers.

        A running handler may send its reply; after half of the grace time it is cancelled.
        """
        self._on_stop()
        await self._stop_accepting()
        for task, connection in list(self._open.items()):
            if connection is None:
                task.cancel()
            else:
                connection.stop_receiving()
        await self._join(grace / 2)
        for task, connection in list(self._open.items()):
            if task is not asyncio.current_task():
                task.cancel()
            if connection is not None:
                connection.abort()
        await self._join(grace / 2)
        self._log_abandoned(asyncio.current_task(), grace)

    async def _stop_accepting(self) -> None:
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            # Cancelling asyncio's accept could lose a socket that it has accepted.
            self._accepting_ended = True
            with contextlib.suppress(ValueError):  # the listener is closed
                asyncio.get_running_loop().remove_reader(self._listener)
            await asyncio.sleep(0)
            acceptor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await acceptor
        self.close_listener()

    def _close_own_inherited(self) -> None:
        self._acceptor = None

    async def _join(self, seconds: float) -> None:
        tasks = [task for task in self._open if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                sock, sockaddr = await loop.sock_accept(self._listener)
            except ValueError:  # raised by uvloop if the listener is closed
                self._accept_failed(OSError(errno.EBADF, "the listener is closed"))
                return
            except OSError as error:
                delay = self._accept_failed(error)
                if delay is None:
                    return
                await asyncio.sleep(delay)
                continue
            if self._accepting_ended:
                sock.close()
                return
            names = self._admit(sock, sockaddr)
            if names is not None:
                task = loop.create_task(self._serve(sock, *names))
                self._open[task] = None
                task.add_done_callback(functools.partial(self._on_served, names[1]))
            # At most one per iteration of the loop, so that connections are served in between.
            await asyncio.sleep(self._pause())

    def _on_served(self, host: str, task: asyncio.Task[None]) -> None:
        del self._open[task]
        self._admission.leave(host)

    async def _serve(self, sock: socket.socket, peer: str, host: str) -> None:
        try:
            sock.setblocking(False)
            prepare(sock)
            session, tap = self._session_for(host), self._tap(peer)
            connection = AsyncConnection(session, peer, self._timeouts, accepted=True, tap=tap)
            connection.log = self._log
            seconds = self._timeouts.handshake
            await open_stream(
                connection, sock, tls=self._tls, shm=self._shm, handshake_timeout=seconds
            )
        except (OSError, asyncio.TimeoutError) as error:
            # The peer closed before TLS, which is normal (some systems then reject socket options),
            # or TLS failed.
            self._log.log(
                logging.DEBUG if isinstance(error, ConnectionError) else logging.WARNING,
                "%s: not served: %s", peer, str(error) or type(error).__name__,
            )  # fmt: skip
            sock.close()
            self._count("lost", bad=True)
            # The error and its frames refer to each other: free them without a garbage collection.
            cause: BaseException | None = error
            while cause is not None:
                cause.__traceback__, cause = None, cause.__context__
            return
        except Exception:
            self._log.exception("%s: a session failed", peer)
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        self._open[task] = connection
        try:
            await connection.open(self._timeouts.handshake)
            TimeoutTimer.of(loop).add(connection, self._timeouts)
            logger.debug("%s: connected", peer)
            if self._converse is not None:
                await self._converse(connection)
                self._ended(connection, None)
            else:
                assert self._make_handler is not None
                connection.serve(self._make_handler(connection))
                await connection.wait_closed()
                why = end_reason(connection, connection.fault)
                self._count(why, bad=why == "invalid" or connection.core.silent)
        except Exception as error:
            self._ended(connection, error)
        finally:
            connection.close_soon()
            await connection.wait_closed()
            TimeoutTimer.of(loop).discard(connection)
