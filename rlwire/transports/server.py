"""The server of all stream protocols, with a thread a connection: fastest while clients are few."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import selectors
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    Admission,
    network_of,
)
from rlwire.transports.connection import Connection
from rlwire.transports.forking import of_this_process
from rlwire.transports.interface import Handler, StreamSession
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.shm import ShmSocket, check_carrier, refused
from rlwire.transports.sockets import (
    Timeouts,
    accept_delay,
    adopt,
    local_address,
    peer_host,
    peer_name,
    prepare,
    unlink,
)
from rlwire.transports.takeover import Monitor
from rlwire.transports.threads import Worker

if TYPE_CHECKING:
    from rlwire.transports.connection_asyncio import AsyncConnection

__all__ = ["TLS", "BaseServer", "ThreadServer"]

logger = logging.getLogger(__name__)

TLS: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext] | None
"""A server's context, what makes one, or no encryption."""

_C = TypeVar("_C", "Connection", "AsyncConnection")

DRAINING = 0.02
"""Seconds after which a server that drains looks again at what is still under way."""

_PAUSE = 0.001  # seconds without accepting for each connection that came to nothing
_PAUSES = 20  # of them at once, at most


class BaseServer(ABC, Generic[_C]):
    """Who is let in, why connections ended, and what the log says of it.

    Args:
        listener: an address, or a listening socket (`listen`) that several servers share.
        make_session: called once a connection, for a new session of the server's side.
        converse: called with each connection; when it returns, the connection is closed. What it
            raises is logged and ends that connection only. An error of the peer's (DecodeError,
            LimitExceeded, RemoteProtocolError) that it lets out is told to the peer first.
        tls: a context, or what makes one, such as `rlwire.transports.tls.ServerTLS`; None for no
            encryption.
        timeout: by default `Timeouts()`.
        max_connections: further ones are rejected, with a line in the log.
        max_connections_per_address: the same for those from one address; see `Admission`.
        make_handler: instead of `converse`: called with each connection, for an object that
            answers its events one by one. Commands out of turn are rejected without it, and logged.
        on_stop: called before the server stops; on an event loop, in it.
        backlog: connections that the system keeps until they are accepted.
        shm: whether what is said goes through shared memory; None: if the address says so, which a
            socket cannot.

    Raises:
        OSError: the address cannot be listened on.
        TypeError: neither `converse` nor `make_handler` is given, or both are.
    """

    def __init__(
        self,
        listener: AddressLike | socket.socket,
        make_session: Callable[[], StreamSession],
        converse: Callable[[_C], Any] | None = None,
        *,
        tls: TLS = None,
        timeout: Timeouts | float | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        make_handler: Callable[[_C], Handler] | None = None,
        on_stop: Callable[[], object] = bool,
        backlog: int = 1024,
        shm: bool | None = None,
    ) -> None:
        if (converse is None) == (make_handler is None):
            raise TypeError("a server needs either converse or make_handler")
        self._make_session = make_session
        self._converse: Callable[[_C], Any] | None = converse
        self._make_handler: Callable[[_C], Handler] | None = make_handler
        self._on_stop = on_stop
        self._timeouts = Timeouts.of(timeout)
        self._tls = tls() if callable(tls) else tls
        self._admission = Admission(max_connections, max_connections_per_address)
        self._log = RateLimitedLog(logger)
        where = None if isinstance(listener, socket.socket) else parse(listener)
        self._shm = bool(where and where.shm) if shm is None else shm
        if where is not None:
            check_carrier(where, self._tls)
        self._listener, self._owns_listener = adopt(listener if where is None else where, backlog)
        self.address: Address = dataclasses.replace(local_address(self._listener), shm=self._shm)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(rejected=0)
        self._vain = 0  # connections that came to nothing, since the last one was accepted
        self._failures = 0  # of accept(), one after another
        self._started = False
        self._open: dict[Any, _C | None] = {}  # by the thread or task; None while TLS begins
        of_this_process(self)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    @property
    def open_connections(self) -> tuple[_C, ...]:
        """The connections that are open."""
        return tuple(found for found in list(self._open.values()) if found is not None)

    def statistics(self) -> dict[str, int]:
        """Return counts of connections, from any thread; see `StreamServer.statistics`."""
        with self._lock:
            return {**self._counts, "open": len(self._open)}

    def close_inherited(self) -> None:
        """See `Forked.close_inherited`; one that has not started may start in the child."""
        if self._started:
            self._lock = threading.Lock()
            self._open.clear()
            self._forget()
            if self._owns_listener:
                self._listener.close()

    @abstractmethod
    def _forget(self) -> None:
        """Forget, in the child, what the parent serves."""

    def _start_once(self) -> None:
        if self._started:
            raise RuntimeError("a server starts once; make a new one")
        self._started = True
        logger.debug("listening on %s", self.address)

    def _leave_behind(self, me: object, grace: float) -> None:
        """Say which handlers did not end, but not the one that stops the server, run by `me`."""
        for runs, connection in self._open.copy().items():
            if runs is not me and connection is not None:
                logger.warning(
                    "%s: its handler did not end within %.1f s and is left behind",
                    connection.peer, grace,
                )  # fmt: skip
        self._log.flush()

    def _stop_listening(self) -> None:
        if self._owns_listener and self._listener.fileno() != -1:
            unlink(self._listener)
            self._listener.close()

    def _pause(self) -> float:
        """Return for how long not to accept, so that a storm of garbage leaves others time."""
        with self._lock:
            vain, self._vain = self._vain, 0
        return min(vain, _PAUSES) * _PAUSE

    def _not_accepted(self, error: OSError) -> float | None:
        """Return how long to wait after accept() failed; None for ever."""
        delay = accept_delay(error, self._failures)
        if delay is None:
            logger.error("%s: cannot accept any more: %s", self.address, error)
            return None
        self._failures += 1
        self._log.warning("%s: cannot accept a connection: %s", self.address, error)
        return delay

    def _admit(self, sock: socket.socket, sockaddr: Any) -> tuple[str, str] | None:
        """Return an accepted peer's name and host, which is to leave; None if it was rejected."""
        self._failures = 0
        peer, host = peer_name(sock, sockaddr, self._shm), peer_host(sock, sockaddr)
        try:
            self._admission.enter(host)
        except LimitExceeded as error:
            self._count("rejected", vain=True)
            self._log.warning("%s: rejected, %s", peer, error)
            with sock:
                if self._tls is None and not self._shm:
                    sock.setblocking(False)
                    try:
                        sock.send(b"".join(self._make_session().refuse(error)))
                    except OSError:
                        pass  # gone, or it does not read
                    except Exception:
                        self._log.exception("%s: a session failed", peer)
            return None
        return peer, host

    def _session_for(self, host: str) -> StreamSession:
        session = self._make_session()
        guess: Any = getattr(session, "guess", None)
        if guess is not None:
            guess.caller = network_of(host)
        return session

    def _over(self, connection: _C, error: Exception | None) -> None:
        """Note why a connection is over, and tell a peer that is at fault."""
        peer, log, why = connection.peer, self._log, why_over(connection, error)
        if why == "invalid":
            log.warning("%s: closed, it sent what is not allowed: %s", peer, error)
        elif why == "late":
            log.warning("closed, too slow: %s", error)
        elif why == "failed":
            log.exception("%s: closed, its handler failed", peer, exc_info=error)
        elif error is None:
            log.debug("%s: closed after its handler ended", peer)
        else:
            # A clean end between two messages is how a client leaves; and one that never said a
            # word, such as a port scan, may do so as it likes. Whoever failed at TLS said one, as
            # did whom nobody shares memory with.
            cause = error.__cause__
            said = not connection.silent or isinstance(cause, ssl.SSLError) or refused(cause)
            log.log(logging.WARNING if why == "lost" and said else logging.DEBUG, "%s", error)
        self._count(why, vain=why == "invalid" or connection.silent)
        if why in ("invalid", "late"):
            assert isinstance(error, RlwireError)
            connection.refuse(error)

    def _count(self, why: str, *, vain: bool) -> None:
        with self._lock:
            self._counts[why] += 1
            self._vain += vain


def why_over(connection: Connection | AsyncConnection, error: BaseException | None) -> str:
    """Return why a connection is over, as the statistics have it."""
    if isinstance(error, (DecodeError, LimitExceeded, RemoteProtocolError)):
        return "invalid"
    if isinstance(error, DeadlineExceeded):
        return "late"
    if error is not None and not isinstance(error, ConnectionClosed):
        return "failed"
    return "lost" if connection.broken else "closed"


class ThreadServer(BaseServer[Connection]):
    """Listens, and serves each connection in a thread of its own; arguments as of `BaseServer`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._full = threading.Event()  # nobody is let in any more
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._wake, self._waker = socket.socketpair()
        self._acceptor = Worker(self._accept, f"rlwire accept {self.address}")
        self._monitor = Monitor(f"rlwire monitor {self.address}")

    def __enter__(self) -> ThreadServer:
        return self if self._started else self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> ThreadServer:
        """Begin to accept, in a thread of its own."""
        self._start_once()
        self._acceptor.start()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; returns whether it has."""
        return self._stopped.wait(timeout)

    def drain(self, seconds: float) -> None:
        """Stop accepting, and wait until nothing is under way; call `stop` afterwards.

        Peers are told where the protocol has words for that: those that say nothing meanwhile hear
        of it by `stop`. Other connections end when they are between two messages.
        """
        until = monotonic() + seconds
        self.stop_accepting(seconds)
        while self._open and (left := until - monotonic()) > 0:
            for connection in self.open_connections:
                connection.drain()
            if self._stopping.wait(min(left, DRAINING)):
                return

    def stop(self, grace: float = 5.0) -> None:
        """Stop accepting, end all connections and wait for their threads.

        A handler at work may still send its answer; half of the grace time later it cannot. A
        thread that the grace time does not end is logged and left behind.
        """
        self._on_stop()
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
        self._leave_behind(threading.current_thread(), grace)
        self._wake.close()
        self._waker.close()
        self._stopped.set()

    def stop_accepting(self, seconds: float) -> None:
        """Let nobody new in; give the thread that accepts so long to end."""
        self._full.set()
        with contextlib.suppress(OSError):  # it is stopped already
            self._waker.send(b"\0")
        self._acceptor.stop(seconds)
        self._stop_listening()

    def _forget(self) -> None:
        self._full.set()
        self._stopping.set()
        self._stopped.set()
        self._wake.close()
        self._waker.close()

    def _join(self, until: float) -> None:
        with self._lock:
            threads: list[threading.Thread] = list(self._open)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))

    def _accept(self, _: Worker) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            delay: float | None = 0.0
            while delay is not None and not self._full.wait(delay):
                selector.select()
                if not self._full.is_set():
                    delay = self._accept_one()

    def _accept_one(self) -> float | None:
        """Return how long to wait before the next one, None for ever."""
        try:
            sock, sockaddr = self._listener.accept()
        except BlockingIOError:
            return 0.0  # another process that shares the listener took it
        except OSError as error:
            return self._not_accepted(error)
        try:
            # Before 3.13 a socket may inherit that its listener does not block.
            sock.setblocking(True)
            names = self._admit(sock, sockaddr)
            if names is not None:
                self._attend(sock, *names)
        except Exception:
            self._log.exception("%s: a session failed", self.address)
            sock.close()
        return self._pause()

    def _attend(self, sock: socket.socket, peer: str, host: str) -> None:
        """Give an accepted connection its thread."""
        try:
            prepare(sock)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            elif self._shm:
                sock = ShmSocket(sock, server_side=True)
            session = self._session_for(host)
            connection = Connection(sock, session, peer, self._timeouts, accepted=True)
            self._begin(connection, host, None)
        except BaseException as error:
            self._admission.leave(host)
            if isinstance(error, OSError):
                # Some systems refuse socket options once the peer has hung up.
                self._log.debug("%s: gone before it was served: %s", peer, error)
            elif not isinstance(error, _NoThread):
                raise
            sock.close()  # last: whoever sees the end may look for why

    def _begin(self, connection: Connection, host: str, handler: Handler | None) -> None:
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
        except RuntimeError as error:
            with self._lock:
                del self._open[thread]
            self._log.error("%s: closed, no thread for it: %s", connection.peer, error)
            raise _NoThread from error

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
                self._over(connection, None)
        except Exception as error:
            if me in self._open:
                self._over(connection, error)
            else:  # the connection is another thread's now
                self._log.exception("%s: an answer failed", connection.peer)
        finally:
            if me in self._open:
                connection.close()
                with self._lock:
                    del self._open[me]
                self._admission.leave(host)

    def _answer(self, connection: Connection, host: str, handler: Handler | None) -> None:
        me = threading.current_thread()

        def take_over() -> None:
            """Give the connection another thread, as its own is at work for long."""
            assert handler is not None
            with self._lock:
                del self._open[me]
            try:
                self._begin(connection, host, handler)
            except _NoThread:
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
                    self._log.warning("%s: it sent what is not allowed: %s", connection.peer, error)
                    connection.refuse(error)
        finally:
            if me in self._open:
                handler.close()


class _NoThread(Exception):
    """There is none for a connection, as was logged."""
