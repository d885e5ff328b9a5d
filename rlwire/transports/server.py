"""The base of all stream servers, and the one with a thread per connection, for few clients."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import selectors
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    RemoteProtocolError,
    RlwireError,
    on_error,
)
from rlwire.sessions.layer import Layer
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    Admission,
    network_of,
)
from rlwire.transports.connection import Connection
from rlwire.transports.forking import track
from rlwire.transports.interface import ConnectionTap, Handler, Recording
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.shm import ShmSocket, check_carrier, refused
from rlwire.transports.sockets import (
    Timeouts,
    listen,
    local_address,
    peer_host,
    peer_name,
    prepare,
    unlink,
)
from rlwire.transports.takeover import Monitor
from rlwire.transports.tls import TLS, context_of

if TYPE_CHECKING:
    from rlwire.transports.connection_asyncio import AsyncConnection

__all__ = ["BaseServer", "ServerSettings", "ThreadServer"]

logger = logging.getLogger(__name__)

_C = TypeVar("_C", "Connection", "AsyncConnection")

DRAINING = 0.02
"""Seconds between two checks of a draining server."""

_PAUSE = 0.001  # seconds without accepting for each failed connection
_PAUSES = 20  # the longest pause, in failed connections


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server; picklable for worker processes if `tls` is.

    Attributes:
        tls: a context, or a callable that returns one, such as `rlwire.transports.tls.ServerTLS`.
        timeout: by default `Timeouts()`.
        max_connections: further connections are rejected and logged.
        max_connections_per_address: the same for connections from one address; see `Admission`.
        shm: whether bytes go through shared memory; always so if the address says it.
        record: where connections are recorded; by default nowhere.
    """

    tls: TLS = None
    timeout: Timeouts | float | None = None
    max_connections: int = MAX_CONNECTIONS
    max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS
    shm: bool = False
    record: Recording | None = None


class BaseServer(ABC, Generic[_C]):
    """Accepts connections, counts them, and logs why they ended.

    Args:
        listener: an address, or a listening socket (`listen`) that several servers share.
        make_session: returns a new server session for a connection.
        converse: called with each connection, which is closed when it returns. An error closes that
            connection only; an error caused by the peer (DecodeError, LimitExceeded,
            RemoteProtocolError) is sent to the peer first.
        make_handler: instead of `converse`: returns the handler of a connection.
        on_stop: called on an event loop before the server stops.
        settings: by default `ServerSettings()`.

    Raises:
        OSError: the server cannot listen on the address.
        TypeError: neither `converse` nor `make_handler` is given, or both are.
    """

    def __init__(
        self,
        listener: AddressLike | socket.socket,
        make_session: Callable[[], Layer],
        converse: Callable[[_C], Any] | None = None,
        *,
        make_handler: Callable[[_C], Handler] | None = None,
        on_stop: Callable[[], object] = bool,
        settings: ServerSettings = ServerSettings(),
    ) -> None:
        if (converse is None) == (make_handler is None):
            raise TypeError("a server needs either converse or make_handler")
        self._make_session = make_session
        self._converse: Callable[[_C], Any] | None = converse
        self._make_handler: Callable[[_C], Handler] | None = make_handler
        self._on_stop = on_stop
        self._timeouts = Timeouts.of(settings.timeout)
        self._tls = context_of(settings.tls)
        self._admission = Admission(settings.max_connections, settings.max_connections_per_address)
        self._log = RateLimitedLog(logger)
        self._shm, self._record = settings.shm, settings.record
        self._owns_listener = not isinstance(listener, socket.socket)
        if isinstance(listener, socket.socket):
            self._listener = listener
        else:
            where = parse(listener)
            check_carrier(where, self._tls)
            self._shm = self._shm or where.shm
            self._listener = listen(where)
        self._listener.setblocking(False)
        self.address: Address = dataclasses.replace(local_address(self._listener), shm=self._shm)
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("rejected", "closed", "lost", "invalid", "late", "failed"), 0)
        self._bad_connections = 0  # failed connections since the last one was accepted
        self._accept_failures = 0  # of accept(), in a row
        self._started = False
        self._open: dict[Any, _C | None] = {}  # by thread or task; None during TLS's handshake
        track(self)

    @property
    def open_connections(self) -> tuple[_C, ...]:
        """The open connections, without those in a TLS handshake."""
        return tuple(found for found in list(self._open.values()) if found is not None)

    def statistics(self) -> dict[str, int]:
        """Return counts of connections, from any thread; see `StreamServer.statistics`."""
        with self._lock:
            return {"open": len(self._open), **self._counts}

    def close_inherited(self) -> None:
        """See `Forked.close_inherited`; a server that has not started may start in the child."""
        if self._started:
            self._lock = threading.Lock()
            self._open.clear()
            self._close_own_inherited()
            if self._owns_listener:
                self._listener.close()

    @abstractmethod
    def _close_own_inherited(self) -> None:
        """Close the parent's resources in a forked child."""

    def _start_once(self) -> None:
        if self._started:
            raise RuntimeError(f"the server at {self.address} was started before; create a new one")
        self._started = True
        logger.debug("listening on %s", self.address)

    def _log_abandoned(self, me: object, grace: float) -> None:
        """Log the handlers that still run, except the one in `me`, which stops the server."""
        for runs, connection in self._open.copy().items():
            if runs is not me and connection is not None:
                logger.warning(
                    "%s: abandoned, the handler did not finish within %.1f s",
                    connection.peer, grace,
                )  # fmt: skip
        self._log.flush()

    def close_listener(self) -> None:
        """Stop listening; a shared listener stays open for the other servers."""
        if self._owns_listener and self._listener.fileno() != -1:
            unlink(self._listener)
            self._listener.close()

    def _pause(self) -> float:
        """Return the seconds without accepting after bad connections, so that others are served."""
        with self._lock:
            bad, self._bad_connections = self._bad_connections, 0
        return min(bad, _PAUSES) * _PAUSE

    def _accept_failed(self, error: OSError) -> float | None:
        """Return the seconds to wait after accept() failed; None if the listener is closed."""
        if error.errno in (errno.EBADF, errno.EINVAL, errno.ENOTSOCK):
            logger.error("%s: stopped accepting connections: %s", self.address, error)
            return None
        self._accept_failures += 1
        self._log.warning("%s: cannot accept a connection: %s", self.address, error)
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            # The connection stays pending: accepting again at once would spin.
            return float(min(0.05 * 2 ** min(self._accept_failures - 1, 10), 1.0))
        return 0.0

    def _admit(self, sock: socket.socket, sockaddr: Any) -> tuple[str, str] | None:
        """Return an accepted peer's name and host; None if it was rejected."""
        self._accept_failures = 0
        peer, host = peer_name(sock, sockaddr, self._shm), peer_host(sock, sockaddr)
        try:
            self._admission.enter(host)
        except LimitExceeded as error:
            self._count("rejected", bad=True)
            self._log.warning("%s: connection rejected: %s", peer, error)
            with sock:
                if self._tls is None and not self._shm:
                    sock.setblocking(False)
                    try:
                        sock.send(b"".join(self._make_session().reject(error)))
                    except OSError:
                        pass
                    except Exception:
                        self._log.exception("%s: a session failed", peer)
            return None
        return peer, host

    def _session_for(self, host: str) -> Layer:
        session = self._make_session()
        if session.password_check is not None:
            session.password_check.address = network_of(host)
        return session

    def _tap(self, peer: str) -> ConnectionTap | None:
        return None if self._record is None else self._record.tap("server", peer)

    def _ended(self, connection: _C, error: Exception | None) -> None:
        """Log and count why a connection ended; send the error to a peer that caused it."""
        peer, log, why = connection.peer, self._log, end_reason(connection, error)
        if why == "invalid":
            log.warning("%s: connection closed after an invalid message: %s", peer, error)
        elif why == "late":
            log.warning("closed after a timeout: %s", error)
        elif why == "failed":
            log.exception("%s: connection closed, the handler failed", peer, exc_info=error)
        elif error is None:
            log.debug("%s: connection closed, the handler has returned", peer)
        else:
            # No warning for clients that disconnect between two messages, and for port scans, which
            # send nothing; but for a failed handshake of TLS or shared memory.
            cause = error.__cause__
            said = not connection.core.silent or isinstance(cause, ssl.SSLError) or refused(cause)
            log.log(logging.WARNING if why == "lost" and said else logging.DEBUG, "%s", error)
        self._count(why, bad=why == "invalid" or connection.core.silent)
        if why in ("invalid", "late"):
            assert isinstance(error, RlwireError)
            connection.reject(error)

    def _count(self, why: str, *, bad: bool) -> None:
        with self._lock:
            self._counts[why] += 1
            self._bad_connections += bad


def end_reason(connection: Connection | AsyncConnection, error: BaseException | None) -> str:
    """Return why a connection ended, as a key of the statistics."""
    if isinstance(error, (DecodeError, LimitExceeded, RemoteProtocolError)):
        return "invalid"
    if isinstance(error, DeadlineExceeded):
        return "late"
    if error is not None and not isinstance(error, ConnectionClosed):
        return "failed"
    return "lost" if connection.core.broken else "closed"


class ThreadServer(BaseServer[Connection]):
    """Serves each connection in its own thread; arguments as for `BaseServer`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._accepting_ended = threading.Event()  # set: accepts no more connections
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        with on_error(self.close_listener):
            self._wake, self._waker = socket.socketpair()
        self._acceptor: threading.Thread | None = None  # a fork ends threads made before `start`
        self._monitor = Monitor(f"rlwire monitor {self.address}")

    def __enter__(self) -> ThreadServer:
        return self if self._started else self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> ThreadServer:
        """Start accepting connections."""
        self._start_once()
        acceptor = threading.Thread(
            target=self._accept, name=f"rlwire accept {self.address}", daemon=True
        )
        acceptor.start()
        self._acceptor = acceptor
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped."""
        return self._stopped.wait(timeout)

    def drain(self, seconds: float) -> None:
        """Stop accepting, and wait until connections have drained; call `stop` afterwards."""
        until = monotonic() + seconds
        self.stop_accepting(seconds)
        while self._open and (left := until - monotonic()) > 0:
            for connection in self.open_connections:
                connection.drain()
            if self._stopping.wait(min(left, DRAINING)):
                return

    def stop(self, grace: float = 5.0) -> None:
        """Stop accepting, close all connections and wait for their threads.

        Running handlers have half of the grace time to reply. Threads that do not end are logged.
        """
        with self._lock:
            first = not self._stopping.is_set()
            self._stopping.set()
        if not first:
            self._stopped.wait(grace)
            return
        until = monotonic() + grace
        self.stop_accepting(grace)
        self._monitor.close()
        for connection in self.open_connections:
            connection.stop_receiving()
        self._join(monotonic() + grace / 2)
        for connection in self.open_connections:
            connection.close()
        self._join(until)
        self._log_abandoned(threading.current_thread(), grace)
        self._wake.close()
        self._waker.close()
        self._stopped.set()

    def stop_accepting(self, seconds: float) -> None:
        """Stop accepting; wait up to `seconds` for the accepting thread."""
        self._accepting_ended.set()
        with contextlib.suppress(OSError):  # already stopped
            self._waker.send(b"\0")
        if self._acceptor not in (None, threading.current_thread()):
            self._acceptor.join(seconds)
        self.close_listener()

    def _close_own_inherited(self) -> None:
        self._accepting_ended.set()
        self._stopping.set()
        self._stopped.set()
        self._wake.close()
        self._waker.close()

    def _join(self, until: float) -> None:
        with self._lock:
            # One that the accepting thread has not started yet finds its connection closed.
            threads = [thread for thread in self._open if thread.is_alive()]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            delay: float | None = 0.0
            while delay is not None and not self._accepting_ended.wait(delay):
                selector.select()
                if not self._accepting_ended.is_set():
                    delay = self._accept_one()

    def _accept_one(self) -> float | None:
        """Accept one connection; return the seconds to wait before the next, None to stop."""
        try:
            sock, sockaddr = self._listener.accept()
        except BlockingIOError:
            return 0.0  # another process that shares the listener accepted it
        except OSError as error:
            return self._accept_failed(error)
        try:
            # Before Python 3.13 the socket may inherit the listener's non-blocking mode.
            sock.setblocking(True)
            names = self._admit(sock, sockaddr)
            if names is not None:
                self._open_connection(sock, *names)
        except Exception:
            self._log.exception("%s: a session failed", self.address)
            sock.close()
        return self._pause()

    def _open_connection(self, sock: socket.socket, peer: str, host: str) -> None:
        try:
            prepare(sock)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            elif self._shm:
                sock = ShmSocket(sock, server_side=True)
            session = self._session_for(host)
            connection = Connection(
                sock, session, peer, self._timeouts, accepted=True, tap=self._tap(peer)
            )
            if self._start_thread(connection, host, None):
                return
        except OSError as error:
            # Some systems reject socket options once the peer has closed.
            self._log.debug("%s: not served: %s", peer, error)
        except BaseException:
            self._admission.leave(host)
            raise
        self._admission.leave(host)
        sock.close()  # last, because the peer may then read the statistics

    def _start_thread(self, connection: Connection, host: str, handler: Handler | None) -> bool:
        """Serve a connection in a new thread; return False if none can be started."""
        thread = threading.Thread(
            target=self._serve,
            args=(connection, host, handler),
            name=f"rlwire {connection.peer}",
            daemon=True,
        )
        with self._lock:
            self._open[thread] = connection
        try:
            thread.start()
            return True
        except RuntimeError as error:
            with self._lock:
                del self._open[thread]
            self._log.error("%s: closed, cannot start its thread: %s", connection.peer, error)
            connection.core.abort()
            return False

    def _serve(self, connection: Connection, host: str, handler: Handler | None) -> None:
        me = threading.current_thread()
        try:
            if handler is None:
                connection.handshake(self._timeouts.handshake)
                logger.debug("%s: connected", connection.peer)
            if self._converse is not None:
                self._converse(connection)
            else:
                self._answer(connection, host, handler)
            if me in self._open:
                self._ended(connection, None)
        except Exception as error:
            if me in self._open:
                self._ended(connection, error)
            else:  # another thread owns the connection
                self._log.exception("%s: the handler failed after a takeover", connection.peer)
        finally:
            if me in self._open:
                connection.close()
                with self._lock:
                    del self._open[me]
                self._admission.leave(host)

    def _answer(self, connection: Connection, host: str, handler: Handler | None) -> None:
        me = threading.current_thread()

        def take_over() -> None:
            """Serve the connection in another thread while the handler is slow in this one."""
            assert handler is not None
            with self._lock:
                del self._open[me]
            if not self._start_thread(connection, host, handler):
                handler.close()
                connection.close()
                self._admission.leave(host)

        connection.on_takeover(self._monitor, take_over)
        if handler is None:
            assert self._make_handler is not None
            handler = self._make_handler(connection)
        try:
            while me in self._open and not connection.closed:
                try:
                    connection.serve(handler.answer, handler.failure)
                except RemoteProtocolError as error:
                    self._log.warning("%s: rejected a message: %s", connection.peer, error)
                    connection.reject(error)
        finally:
            if me in self._open:
                handler.close()
