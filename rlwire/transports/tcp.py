"""Blocking TCP, TLS and unix sockets: `connect` for a client, and a `Server` of threads.

What a connection does is in `rlwire.transports.connection`, the event loop's counterpart in
`rlwire.transports.tcp_asyncio`.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from time import monotonic, sleep
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
from rlwire.transports.connection import Connection
from rlwire.transports.forking import of_this_process
from rlwire.transports.interface import StreamSession
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.sockets import (
    Backoff,
    Timeouts,
    accept_delay,
    adopt,
    listen,
    local_address,
    peer_host,
    peer_name,
    prepare,
    unlink,
)
from rlwire.transports.waits import drive

__all__ = ["Backoff", "Connection", "Server", "Timeouts", "connect", "listen"]

logger = logging.getLogger(__name__)


def connect(
    address: AddressLike,
    session: StreamSession,
    *,
    timeouts: Timeouts | None = None,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    backoff: Backoff | None = None,
) -> Connection:
    """Connect to a server.

    Args:
        address: ``"host:port"``, ``"[ipv6]:port"``, ``"unix:/path"`` or ``(host, port)``.
        session: a new session of the client's side.
        timeouts: by default `Timeouts()`.
        tls: from `rlwire.transports.tls.client_context`; None for no encryption.
        server_hostname: the name that the server's certificate must have, if not the host's.
        backoff: how often and when to try; by default once.

    Raises:
        ValueError: the address makes no sense.
        DeadlineExceeded: the last attempt took too long, or the backoff's deadline came.
        OSError: the last attempt failed; the system's own error, with the address and the number
            of attempts in its text.
        RlwireError: the session and its peer found nothing to talk about (such as a WebSocket
            that was refused); this is not tried again.
    """
    where = parse(address)
    timeouts = timeouts or Timeouts()
    dialer = _Dialer(tls, server_hostname or where.host or None)
    sock: socket.socket = drive(
        connecting.connect(
            where,
            lambda until: connecting.dial(where, dialer, until),
            sleep,
            timeouts.connect,
            backoff,
        )
    )
    connection = Connection(sock, session, str(where), timeouts)
    try:
        connection.open(timeouts.connect)
    except BaseException:
        connection.close()
        raise
    return connection


class _Dialer:
    """Connects sockets, and blocks."""

    resolve = staticmethod(Address.resolve)

    def __init__(self, tls: ssl.SSLContext | None, server_hostname: str | None) -> None:
        self._tls = tls
        self._server_hostname = server_hostname

    @staticmethod
    def connect(sock: socket.socket, sockaddr: Any, until: float) -> None:
        sock.settimeout(connecting.time_left(until))
        sock.connect(sockaddr)

    def finish(self, sock: socket.socket, until: float) -> socket.socket:
        if self._tls is None:
            sock.settimeout(None)
            return sock
        sock.settimeout(connecting.time_left(until))
        return self._tls.wrap_socket(sock, server_hostname=self._server_hostname)


class Server:
    """Listens, and runs a handler in a thread of its own for each connection.

    A thread a connection answers fastest while clients are few; see
    `rlwire.transports.tcp_asyncio.AsyncServer` for many.

    Args:
        listener: an address, or a listening socket (`listen`) that several servers share.
        make_session: called once a connection, for a new session of the server's side.
        handler: called with each connection; when it returns, the connection is closed. What it
            raises is logged and ends that connection only. An error of the peer's (DecodeError,
            LimitExceeded, RemoteProtocolError) that it lets out is told to the peer first.
        timeouts: by default `Timeouts()`.
        tls: from `rlwire.transports.tls.server_context`; None for no encryption.
        max_connections: further ones are refused, with a line in the log.
        max_connections_per_address: the same for those from one address; see `Admission`.
        backlog: connections that the system keeps until they are accepted.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(
        self,
        listener: AddressLike | socket.socket,
        make_session: Callable[[], StreamSession],
        handler: Callable[[Connection], None],
        *,
        timeouts: Timeouts | None = None,
        tls: ssl.SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        backlog: int = 128,
    ) -> None:
        self._make_session = make_session
        self._handler = handler
        self._timeouts = timeouts or Timeouts()
        self._tls = tls
        self._admission = Admission(max_connections, max_connections_per_address)
        self._log = SeldomLog(logger)
        self._listener, self._owns_listener = adopt(listener, backlog)
        self._address = local_address(self._listener)
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, Connection] = {}
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._acceptor: threading.Thread | None = None
        self._wake, self._waker = socket.socketpair()
        of_this_process(self)

    def __enter__(self) -> Server:
        return self if self._acceptor is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose."""
        return self._address

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def start(self) -> Server:
        """Begin to accept, in a thread of its own."""
        if self._acceptor is not None:
            raise RuntimeError("a server starts once; make a new one")
        self._acceptor = threading.Thread(
            target=self._accept, name=f"rlwire accept {self._address}", daemon=True
        )
        self._acceptor.start()
        logger.info("listening on %s", self._address)
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; returns whether it has."""
        return self._stopped.wait(timeout)

    def stop(self, grace: float = 5.0) -> None:
        """Stop accepting, end all connections and wait for their threads.

        A handler at work may still send its answer; half of the grace time later it cannot. A
        thread that the grace time does not end is logged and left behind.

        Args:
            grace: seconds for all of it.
        """
        with self._lock:
            first = not self._stopping.is_set()
            self._stopping.set()
        if not first:
            self._stopped.wait(grace)
            return
        until = monotonic() + grace
        self._waker.send(b"\0")
        if self._acceptor is not None:
            self._acceptor.join(grace)
        if self._owns_listener:
            unlink(self._listener)
            self._listener.close()
        self._for_each(Connection.stop_receiving)
        self._join(monotonic() + grace / 2)
        self._for_each(Connection.close)
        self._join(until)
        for thread, connection in self._snapshot():
            if thread is not threading.current_thread():
                logger.warning(
                    "%s: its handler did not end within %.1f s and is left behind",
                    connection.peer, grace,
                )  # fmt: skip
        self._wake.close()
        self._waker.close()
        self._log.flush()
        self._stopped.set()

    def disown(self) -> None:
        """See `Forked.disown`; one that has not started may start in the child."""
        if self._acceptor is None:
            return
        self._lock = threading.Lock()
        self._open.clear()
        self._stopping.set()
        self._stopped.set()
        for sock in (self._wake, self._waker, self._listener):
            if sock is not self._listener or self._owns_listener:
                sock.close()

    def _snapshot(self) -> list[tuple[threading.Thread, Connection]]:
        with self._lock:
            return list(self._open.items())

    def _for_each(self, action: Callable[[Connection], None]) -> None:
        for _, connection in self._snapshot():
            action(connection)

    def _join(self, until: float) -> None:
        for thread, _ in self._snapshot():
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))

    def _accept(self) -> None:
        failures = 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                selector.select()
                if self._stopping.is_set():
                    return
                try:
                    sock, sockaddr = self._listener.accept()
                except BlockingIOError:
                    continue  # another process that shares the listener took it
                except OSError as error:
                    delay = accept_delay(error, failures)
                    if delay is None:
                        logger.error("%s: cannot accept any more: %s", self._address, error)
                        return
                    failures += 1
                    self._log.warning("%s: cannot accept a connection: %s", self._address, error)
                    self._stopping.wait(delay)
                    continue
                failures = 0
                try:
                    self._admit(sock, sockaddr)
                except Exception:
                    self._log.exception("%s: a new connection failed", self._address)
                    sock.close()

    def _admit(self, sock: socket.socket, sockaddr: Any) -> None:
        peer = peer_name(sock, sockaddr)
        # Before 3.13 a socket may inherit that its listener does not block.
        sock.setblocking(True)
        host = peer_host(sockaddr)
        try:
            self._admission.enter(host)
        except LimitExceeded as error:
            self._turn_away(sock, peer, error)
            return
        try:
            self._begin(sock, peer, host)
        except BaseException:
            self._admission.leave(host)
            raise

    def _begin(self, sock: socket.socket, peer: str, host: str) -> None:
        try:
            prepare(sock)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            connection = Connection(sock, self._make_session(), peer, self._timeouts)
        except OSError as error:
            # Some systems refuse socket options once the peer has hung up.
            self._log.debug("%s: gone before it was served: %s", peer, error)
            sock.close()
            self._admission.leave(host)
            return
        thread = threading.Thread(
            target=self._serve, args=(connection, host), name=f"rlwire {peer}", daemon=True
        )
        with self._lock:
            self._open[thread] = connection
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads for us
            with self._lock:
                del self._open[thread]
            self._admission.leave(host)
            self._log.error("%s: closed, no thread for it: %s", peer, error)
            connection.close()

    def _turn_away(self, sock: socket.socket, peer: str, error: LimitExceeded) -> None:
        self._log.warning("%s: refused, %s", peer, error)
        with sock:
            if self._tls is None:
                sock.setblocking(False)
                with contextlib.suppress(OSError):
                    sock.send(b"".join(self._make_session().refuse(error)))

    def _serve(self, connection: Connection, host: str) -> None:
        peer = connection.peer
        try:
            connection.handshake(self._timeouts.handshake)
            logger.debug("%s: connected", peer)
            self._handler(connection)
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
            connection.close()
            with self._lock:
                del self._open[threading.current_thread()]
            self._admission.leave(host)
