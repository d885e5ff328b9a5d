"""What all servers of streams do alike: who is let in, why connections ended, what the log says."""

from __future__ import annotations

import dataclasses
import logging
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from rlwire.transports.forking import of_this_process
from rlwire.transports.interface import Responder, StreamSession
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.shm import check_carrier, refused
from rlwire.transports.sockets import (
    Timeouts,
    accept_delay,
    adopt,
    local_address,
    peer_host,
    peer_name,
    unlink,
)

if TYPE_CHECKING:
    from rlwire.transports.connection import Connection
    from rlwire.transports.connection_asyncio import AsyncConnection

__all__ = ["TLS", "Reception", "Statistics", "why_over"]

logger = logging.getLogger(__name__)

TLS: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext] | None
"""A server's context, what makes one, or no encryption."""

_C = TypeVar("_C", "Connection", "AsyncConnection")

DRAINING = 0.02
"""Seconds after which a server that drains looks again at what is still under way."""

_BREATH = 0.001  # seconds without accepting for each connection that came to nothing
_BREATHS = 20  # of them at once, at most


@dataclass(frozen=True)
class Statistics:
    """What connections came to a server.

    Attributes:
        open: now.
        refused: because there were too many.
        ended: how many, by why: ``"left"`` (either side closed, between two messages), ``"lost"``
            (it broke, or ended inside a message), ``"fault"`` (it sent what is not allowed),
            ``"late"`` (a time was over), ``"failed"`` (what serves it raised).
    """

    open: int
    refused: int
    ended: Mapping[str, int]


class Reception(ABC, Generic[_C]):
    """What all servers of streams do alike; arguments and errors are theirs.

    Args:
        listener: an address, or a listening socket (`listen`) that several servers share.
        make_session: called once a connection, for a new session of the server's side.
        handler: called with each connection; when it returns, the connection is closed. What it
            raises is logged and ends that connection only. An error of the peer's (DecodeError,
            LimitExceeded, RemoteProtocolError) that it lets out is told to the peer first.
        tls: a context, or what makes one, such as `rlwire.transports.tls.ServerTLS`; None for no
            encryption.
        timeouts: by default `Timeouts()`.
        max_connections: further ones are refused, with a line in the log.
        max_connections_per_address: the same for those from one address; see `Admission`.
        make_responder: instead of a handler: called with each connection, for an object that
            answers its events one by one. Commands out of turn are refused without it, and logged.
        backlog: connections that the system keeps until they are accepted.
        shm: whether what is said goes through shared memory; None: if the address says so, which a
            socket cannot.

    Raises:
        OSError: the address cannot be listened on.
        TypeError: neither `handler` nor `make_responder` is given, or both are.
    """

    def __init__(
        self,
        listener: AddressLike | socket.socket,
        make_session: Callable[[], StreamSession],
        handler: Callable[[_C], Any] | None = None,
        *,
        tls: TLS = None,
        timeouts: Timeouts | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        make_responder: Callable[[_C], Responder] | None = None,
        backlog: int = 1024,
        shm: bool | None = None,
    ) -> None:
        if (handler is None) == (make_responder is None):
            raise TypeError("a server needs either handler or make_responder")
        self._make_session = make_session
        self._handler: Callable[[_C], Any] | None = handler
        self._make_responder: Callable[[_C], Responder] | None = make_responder
        self._timeouts = timeouts or Timeouts()
        self._tls = tls() if callable(tls) else tls
        self._admission = Admission(max_connections, max_connections_per_address)
        self._log = SeldomLog(logger)
        where = None if isinstance(listener, socket.socket) else parse(listener)
        self._shm = bool(where and where.shm) if shm is None else shm
        if where is not None:
            check_carrier(where, self._tls)
        self._listener, self._owns_listener = adopt(listener if where is None else where, backlog)
        self._address = dataclasses.replace(local_address(self._listener), shm=self._shm)
        self._lock = threading.Lock()
        self._refused = 0
        self._ended: Counter[str] = Counter()
        self._vain = 0  # connections that came to nothing, since the last one was accepted
        self._failures = 0  # of accept(), one after another
        self._started = False
        self._open: dict[Any, _C | None] = {}  # by the thread or task; None while TLS begins
        self._prepare()
        of_this_process(self)

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose."""
        return self._address

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    @property
    def open_connections(self) -> tuple[_C, ...]:
        """The connections that are open."""
        return tuple(found for found in list(self._open.values()) if found is not None)

    def statistics(self) -> Statistics:
        """Return what connections came so far; from any thread."""
        with self._lock:
            return Statistics(len(self._open), self._refused, dict(self._ended))

    def disown(self) -> None:
        """See `Forked.disown`; one that has not started may start in the child."""
        if self._started:
            self._lock = threading.Lock()
            self._open.clear()
            self._let_go()
            if self._owns_listener:
                self._listener.close()

    @abstractmethod
    def _prepare(self) -> None:
        """Make what else the server has."""

    @abstractmethod
    def _let_go(self) -> None:
        """Forget, in the child, what the parent serves."""

    def _start_once(self) -> None:
        if self._started:
            raise RuntimeError("a server starts once; make a new one")
        self._started = True
        logger.debug("listening on %s", self._address)

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

    def _breath(self) -> float:
        """Return for how long to leave others the turn, instead of accepting the next connection.

        A storm of connections that send garbage, or nothing, is taken in at this pace: whoever is
        served goes on as if it was quiet.
        """
        with self._lock:
            vain, self._vain = self._vain, 0
        return min(vain, _BREATHS) * _BREATH

    def _not_accepted(self, error: OSError) -> float | None:
        """Return how long to wait after accept() failed; None for ever."""
        delay = accept_delay(error, self._failures)
        if delay is None:
            logger.error("%s: cannot accept any more: %s", self._address, error)
            return None
        self._failures += 1
        self._log.warning("%s: cannot accept a connection: %s", self._address, error)
        return delay

    def _admit(self, sock: socket.socket, sockaddr: Any) -> tuple[str, str] | None:
        """Return an accepted peer's name and host, which is to leave; None if it was refused."""
        self._failures = 0
        peer, host = peer_name(sock, sockaddr, self._shm), peer_host(sock, sockaddr)
        try:
            self._admission.enter(host)
        except LimitExceeded as error:
            with self._lock:
                self._refused += 1
                self._vain += 1
            self._log.warning("%s: refused, %s", peer, error)
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
        """Return a new session, for a connection from `host`."""
        session = self._make_session()
        guess: Any = getattr(session, "guess", None)
        if guess is not None:
            guess.caller = network_of(host)
        return session

    def _over(self, connection: _C, error: Exception | None) -> None:
        """Take note of why a connection is over; a peer that is at fault is told."""
        peer, log, why = connection.peer, self._log, why_over(connection, error)
        if why == "fault":
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
            lost = why == "lost" and said
            log.log(logging.WARNING if lost else logging.DEBUG, "%s", error)
        self._count(why, vain=why == "fault" or connection.silent)
        if why in ("fault", "late"):
            assert isinstance(error, RlwireError)
            connection.refuse(error)

    def _count(self, why: str, *, vain: bool) -> None:
        with self._lock:
            self._ended[why] += 1
            self._vain += vain


def why_over(connection: Connection | AsyncConnection, error: BaseException | None) -> str:
    """Return why a connection is over, as `Statistics` says it."""
    if isinstance(error, (DecodeError, LimitExceeded, RemoteProtocolError)):
        return "fault"
    if isinstance(error, DeadlineExceeded):
        return "late"
    if error is not None and not isinstance(error, ConnectionClosed):
        return "failed"
    return "lost" if connection.broken else "left"
