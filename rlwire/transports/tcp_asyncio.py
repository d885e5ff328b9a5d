"""TCP, TLS and unix sockets over asyncio or uvloop: `connect` and an `AsyncServer`.

What a connection does is in `rlwire.transports.connection_asyncio`, the blocking counterpart in
`rlwire.transports.tcp`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    RemoteProtocolError,
)
from rlwire.transports import connecting
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    Admission,
)
from rlwire.transports.connection_asyncio import AsyncConnection, Responder
from rlwire.transports.forking import of_this_process
from rlwire.transports.interface import StreamSession
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.sockets import (
    Backoff,
    Timeouts,
    accept_delay,
    adopt,
    local_address,
    peer_host,
    peer_name,
    prepare,
    unlink,
)
from rlwire.transports.stream_asyncio import open_stream
from rlwire.transports.sweeper import Sweeper
from rlwire.transports.waits import drive_async

__all__ = [
    "AsyncConnection",
    "AsyncServer",
    "Backoff",
    "Responder",
    "Timeouts",
    "connect",
    "serve",
]

logger = logging.getLogger(__name__)


async def connect(
    address: AddressLike,
    session: StreamSession,
    *,
    timeouts: Timeouts | None = None,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    backoff: Backoff | None = None,
) -> AsyncConnection:
    """Connect to a server; arguments and errors as for `rlwire.transports.tcp.connect`."""
    where = parse(address)
    timeouts = timeouts or Timeouts()
    dialer = _Dialer(where, session, timeouts, tls, server_hostname)
    connection: AsyncConnection = await drive_async(
        connecting.connect(
            where,
            lambda until: connecting.dial(where, dialer, until),
            asyncio.sleep,
            timeouts.connect,
            backoff,
        )
    )
    try:
        await connection.open(timeouts.connect)
    except BaseException:
        connection.close()
        raise
    if not connection.closed:
        dialer.sweeper.add(connection, timeouts)
    return connection


class _Dialer:
    """Connects sockets on the running loop."""

    def __init__(
        self,
        where: Address,
        session: StreamSession,
        timeouts: Timeouts,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.sweeper = Sweeper.of(self._loop)
        self._connection = functools.partial(
            AsyncConnection, session, str(where), timeouts, on_end=self.sweeper.discard
        )
        self._open = functools.partial(
            open_stream, tls=tls, server_hostname=server_hostname or where.host
        )

    def resolve(self, where: Address) -> Awaitable[Any]:
        return self._loop.run_in_executor(None, where.resolve)

    def connect(self, sock: socket.socket, sockaddr: Any, until: float) -> Awaitable[None]:
        sock.setblocking(False)
        return _within(until, self._loop.sock_connect, sock, sockaddr)

    async def finish(self, sock: socket.socket, until: float) -> AsyncConnection:
        connection = self._connection()
        await _within(until, self._open, connection, sock)
        return connection


async def _within(until: float, do: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    left = connecting.time_left(until)
    try:
        await asyncio.wait_for(do(*arguments), left)
    except asyncio.TimeoutError as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the network's own
        # Before 3.11 asyncio's TimeoutError is another class, and no OSError.
        raise TimeoutError("timed out") from error


class AsyncServer:
    """Listens, and serves all its connections on one event loop.

    Args:
        listener: an address, or a listening socket that several servers share.
        make_session: called once a connection, for a new session of the server's side.
        handler: a coroutine function, called with each connection; when it returns, the
            connection is closed. Its errors are treated as those of a threaded server's handler.
        make_responder: instead of a handler: called with each connection, for an object that
            answers its events at once. It saves the switch to a task for each message. Commands
            out of turn are refused without it, and logged.
        timeouts: by default `Timeouts()`.
        tls: from `rlwire.transports.tls.server_context`; None for no encryption.
        max_connections: further ones are refused, with a line in the log.
        max_connections_per_address: the same for those from one address; see `Admission`.
        backlog: connections that the system keeps until they are accepted.

    Raises:
        OSError: the address cannot be listened on.
        TypeError: neither `handler` nor `make_responder` is given, or both are.
    """

    def __init__(
        self,
        listener: AddressLike | socket.socket,
        make_session: Callable[[], StreamSession],
        handler: Callable[[AsyncConnection], Awaitable[None]] | None = None,
        *,
        make_responder: Callable[[AsyncConnection], Responder] | None = None,
        timeouts: Timeouts | None = None,
        tls: ssl.SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        backlog: int = 1024,
    ) -> None:
        if (handler is None) == (make_responder is None):
            raise TypeError("a server needs either handler or make_responder")
        self._make_session = make_session
        self._handler = handler
        self._make_responder = make_responder
        self._timeouts = timeouts or Timeouts()
        self._tls = tls
        self._admission = Admission(max_connections, max_connections_per_address)
        self._log = SeldomLog(logger)
        self._listener, self._owns_listener = adopt(listener, backlog)
        self._address = local_address(self._listener)
        self._open: dict[asyncio.Task[None], AsyncConnection | None] = {}
        self._acceptor: asyncio.Task[None] | None = None
        self._stopped: asyncio.Event | None = None
        of_this_process(self)

    async def __aenter__(self) -> AsyncServer:
        return self if self._acceptor is not None else await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose."""
        return self._address

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    async def start(self) -> AsyncServer:
        """Begin to accept, on the running loop."""
        if self._acceptor is not None:
            raise RuntimeError("a server starts once; make a new one")
        loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._acceptor = loop.create_task(self._accept(loop))
        logger.info("listening on %s", self._address)
        return self

    async def wait(self) -> None:
        """Wait until the server has stopped."""
        if self._stopped is not None:
            await self._stopped.wait()

    async def stop(self, grace: float = 5.0) -> None:
        """Stop accepting, end all connections and wait for their handlers.

        A handler at work may still send its answer; half of the grace time later it is cancelled.

        Args:
            grace: seconds for all of it.
        """
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            acceptor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await acceptor
        if self._listener.fileno() != -1 and self._owns_listener:
            unlink(self._listener)
            self._listener.close()
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
        for task, connection in self._open.items():
            if task is not asyncio.current_task() and connection is not None:
                logger.warning(
                    "%s: its handler did not end within %.1f s and is left behind",
                    connection.peer, grace,
                )  # fmt: skip
        self._log.flush()
        if self._stopped is not None:
            self._stopped.set()

    def disown(self) -> None:
        """See `Forked.disown`; one that has not started may start in the child."""
        if self._acceptor is None:
            return
        self._acceptor = None
        self._open.clear()
        if self._owns_listener:
            self._listener.close()

    async def _join(self, seconds: float) -> None:
        tasks = [task for task in self._open if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        failures = 0
        while True:
            try:
                sock, sockaddr = await loop.sock_accept(self._listener)
            except OSError as error:
                delay = accept_delay(error, failures)
                if delay is None:
                    logger.error("%s: cannot accept any more: %s", self._address, error)
                    return
                failures += 1
                self._log.warning("%s: cannot accept a connection: %s", self._address, error)
                await asyncio.sleep(delay)
                continue
            failures = 0
            peer, host = peer_name(sock, sockaddr), peer_host(sockaddr)
            try:
                self._admission.enter(host)
            except LimitExceeded as error:
                self._turn_away(sock, peer, error)
                await asyncio.sleep(0)
                continue
            task = loop.create_task(self._serve(sock, peer))
            self._open[task] = None
            task.add_done_callback(functools.partial(self._left, host))
            await asyncio.sleep(0)

    def _left(self, host: str, task: asyncio.Task[None]) -> None:
        del self._open[task]
        self._admission.leave(host)

    def _turn_away(self, sock: socket.socket, peer: str, error: LimitExceeded) -> None:
        self._log.warning("%s: refused, %s", peer, error)
        with sock:
            if self._tls is None:
                with contextlib.suppress(OSError):
                    sock.send(b"".join(self._make_session().refuse(error)))

    async def _serve(self, sock: socket.socket, peer: str) -> None:
        try:
            connection = await self._adopt(sock, peer)
        except (OSError, asyncio.TimeoutError) as error:
            # It hung up before TLS, which is no fault (some systems then refuse socket options); or
            # TLS failed.
            self._log.log(
                logging.DEBUG if isinstance(error, ConnectionError) else logging.WARNING,
                "%s: gone before it was served: %s", peer, str(error) or type(error).__name__,
            )  # fmt: skip
            sock.close()
            # Its frames hold it, and all of the handshake, until a full garbage collection.
            cause: BaseException | None = error
            while cause is not None:
                cause.__traceback__, cause = None, cause.__context__
            return
        except BaseException:
            sock.close()
            raise
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._open[task] = connection
        try:
            await connection.open(self._timeouts.handshake)
            Sweeper.of(loop).add(connection, self._timeouts)
            logger.debug("%s: connected", peer)
            if self._make_responder is not None:
                connection.serve(self._make_responder(connection))
                await connection.wait_closed()
            else:
                assert self._handler is not None
                await self._handler(connection)
                logger.debug("%s: closed after its handler ended", peer)
        except (DecodeError, LimitExceeded, RemoteProtocolError) as error:
            self._log.warning("%s: closed, it sent what is not allowed: %s", peer, error)
            connection.refuse(error)
        except DeadlineExceeded as error:
            self._log.warning("closed, too slow: %s", error)
            connection.refuse(error)
        except ConnectionClosed as error:
            # A clean end between two messages is how a client leaves.
            self._log.log(logging.WARNING if connection.broken else logging.DEBUG, "%s", error)
        except Exception:
            self._log.exception("%s: closed, its handler failed", peer)
        finally:
            connection.close_soon()
            await connection.wait_closed()
            Sweeper.of(loop).discard(connection)

    async def _adopt(self, sock: socket.socket, peer: str) -> AsyncConnection:
        sock.setblocking(False)
        prepare(sock)
        connection = AsyncConnection(self._make_session(), peer, self._timeouts, accepted=True)
        await open_stream(
            connection, sock, tls=self._tls, handshake_timeout=self._timeouts.handshake
        )
        return connection


async def serve(
    listener: AddressLike | socket.socket,
    make_session: Callable[[], StreamSession],
    handler: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    **options: Any,
) -> AsyncServer:
    """Make an `AsyncServer` and start it; arguments as there."""
    return await AsyncServer(listener, make_session, handler, **options).start()
