"""What servers of all protocols do to start, to run in the background and to stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import EllipsisType
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypedDict, TypeVar

from rlwire.errors import on_error
from rlwire.registry import URL, served_at
from rlwire.serving.stopping import Stopping, stop_signals
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.admission import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, capacity
from rlwire.transports.interface import Handler, StreamSession
from rlwire.transports.server import TLS, BaseServer, ThreadServer
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Timeouts, listen, local_address, unlink, warn_if_exposed
from rlwire.transports.threads import LoopThread, run_in_thread
from rlwire.transports.workers import Stop, Workers

__all__ = ["BackgroundServer", "ServerOptions", "Service", "StreamOptions", "StreamServer"]

WorkersOption: TypeAlias = Literal["threads", "asyncio"] | int
"""A thread for each connection; one event loop for all of them; or a number of processes."""

logger = logging.getLogger(__name__)

_Self = TypeVar("_Self", bound="BackgroundServer")


class Running(Protocol):
    """A server at work, in whatever threads or processes."""

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose."""

    def drain(self, seconds: float) -> None:
        """Let nobody new in, and wait until nothing is under way, or for so long."""

    def stop(self, grace: float) -> None:
        """End it; what is at work may end within the grace time."""


class BackgroundServer(ABC):
    """Base of servers: ``with``, `start`, `drain`, `stop`, `wait` and `serve_forever`.

    One that has neither TLS nor a secret, so has not set `_guarded`, warns if others than this
    machine can reach it.
    """

    scheme: str
    """Of its URL; see `rlwire.registry`."""
    guards: ClassVar[str] = "TLS"
    """What can be given to the server so that not everybody may speak to it, for a log."""

    def __init__(self, where: Address) -> None:
        self._where = where
        self._last = where  # of the run before this one
        self._level = logging.INFO  # of the lines that say that it serves
        self._running: Running | None = None
        self._stopping: Stopping | None = None
        self._stopped = threading.Event()
        self._guarded = False
        self._encrypted = False
        self.initializer: Callable[[], None] | None = None

    def __enter__(self: _Self) -> _Self:
        return self if self._running is not None else self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self._running else "not running"
        return f"<{type(self).__name__} {self.url}, {state}>"

    @property
    def address(self) -> Address:
        """Where the server listens, or last did, with the port that the system chose."""
        running = self._running
        return self._last if running is None else running.address

    @property
    def url(self) -> str:
        """Where clients find it: for `rlwire.connect`, and `rlwire.make` or whatever calls."""
        where = self._where  # by the name that a certificate may have
        return str(
            URL(
                self.scheme,
                where.host,
                self.address.port,
                tls=self._encrypted,
                unix=where.path or None,
                shm=where.shm,
                path=self._path(),
            )
        )

    def _path(self) -> str:
        """Return what stands in the URL's path."""
        return ""

    def check(self) -> None:
        """Make what each client would be given, so that what is wrong with it raises here and now.

        `rlwire serve` calls it before it listens. What was made is for the first client, or closed.

        Raises:
            Exception: whatever making it raises.
        """
        return

    def start(self: _Self) -> _Self:
        """Listen, and serve in the background.

        Raises:
            OSError: the address cannot be listened on, or a file cannot be read.
            RuntimeError: the server runs already.
        """
        if self._running is not None:
            raise RuntimeError("the server runs already")
        self._stopped.clear()
        self._running = self._run()
        logger.log(self._level, "serving %s, %s", self.url, self._details())
        if not self._guarded:
            warn_if_exposed(self.address, self.guards)
        return self

    def stop(self, grace: float = 5.0) -> None:
        """Stop listening, and end whatever is going on; `serve_forever` returns.

        What is at work may end within the grace time. The server can be started again.
        """
        url, self._last = self.url, self.address
        running, self._running = self._running, None
        if running is not None:
            try:
                running.stop(grace)
            finally:
                self._after_stop()
                self._stopped.set()
            logger.log(self._level, "stopped serving %s", url)
        stopping = self._stopping
        if stopping is not None:
            stopping.ask()

    def stop_soon(self) -> None:
        """Stop in another thread, which may wait for the one that asks for it."""
        run_in_thread("rlwire stop", self.stop)

    def drain(self, seconds: float, grace: float = 5.0) -> None:
        """Let nobody new in, and `stop` when nothing is under way any more.

        Peers are told where the protocol has words for that. Connections end between two messages;
        where peers begin something that takes longer, such as a call of gRPC or a run of PERLERT,
        with that.

        Args:
            seconds: the longest time for that.
            grace: as of `stop`.
        """
        running = self._running
        if running is not None:
            logger.info("draining %s", self.url)
            running.drain(seconds)
        self.stop(grace)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has been stopped; return whether it has."""
        return self._stopped.wait(timeout)

    def serve_forever(self, drain: float | None = None) -> None:
        """Start if need be, and serve until SIGINT, SIGTERM or `stop`.

        In another than the main thread, where Python handles no signals, until `stop`.

        Args:
            drain: seconds to `drain` after the first signal, which a second one cuts short.

        Raises:
            OSError: the address cannot be listened on.
        """
        try:
            with stop_signals() as self._stopping:
                if self._running is None:
                    self.start()
                reason = self._stopping.wait()
                logger.info("stopping: %s", reason or "stop() was called")
                if reason and drain:
                    run_in_thread("rlwire drain", self.drain, drain)
                    self._stopping.wait()
        finally:
            # The signals' former handlers are back: a second Ctrl-C waits for nothing.
            self._stopping = None
            self.stop()

    @abstractmethod
    def _run(self) -> Running:
        """Listen, and return what serves."""

    @abstractmethod
    def _details(self) -> str:
        """Return what the log says about a server that starts."""

    @abstractmethod
    def _after_stop(self) -> None:
        """Tidy up when nothing is served any more."""


class ServerOptions(TypedDict, total=False):
    """What each server of streams takes by name.

    Attributes:
        tls: an SSL context, or a callable that returns one, which worker processes need, such as
            `rlwire.transports.tls.ServerTLS`; None, by default, for no encryption.
        timeout: the times of connections.
        max_connections: further ones are refused, with a line in the log; counted in each process.
        max_connections_per_address: the same for those from one address, of IPv6 from one network
            of 64 bits; over unix sockets and shared memory for each user but the process's own.
        loop_factory: makes the event loop, where there is one, such as ``uvloop.new_event_loop``.
    """

    tls: TLS
    timeout: Timeouts | float | None
    max_connections: int
    max_connections_per_address: int
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None


class StreamOptions(ServerOptions, total=False):
    """`ServerOptions`, of servers whose clients have to say something now and then.

    Attributes:
        idle_timeout: seconds that a connection may stay silent between two messages before it is
            closed, with a line in the log; None for no end. By default `idle` of `timeout`, which
            is an hour.
    """

    idle_timeout: float | None


class Service:
    """What a `StreamServer` serves. With worker processes it is sent to each, so picklable."""

    converse: Callable[[Any], Any] | None = None
    """Instead of `handler`: what serves a whole connection; on an event loop a coroutine function.
    """

    def session(self) -> StreamSession:
        """Return a new session of the server's side."""
        raise NotImplementedError

    def handler(self, connection: Any) -> Handler:
        """Return what answers a connection's events."""
        raise NotImplementedError

    def begin(self) -> None:
        """Get ready; called in the process that serves, before its first connection."""

    def end(self) -> None:
        """Tidy up once nothing is served any more; called beside worker processes as well."""

    def start(self) -> None:
        """Begin on an event loop, which runs; called before its first connection."""

    def stop(self) -> None:
        """Say good-bye before connections end; on an event loop, in it."""

    def _parts(self) -> dict[str, Any]:
        """Return what a transport's server wants to know of it."""
        handled = {} if self.converse is not None else {"make_handler": self.handler}
        return {
            "make_session": self.session,
            "converse": self.converse,
            "on_stop": self.stop,
            **handled,
        }


class StreamServer(BackgroundServer):
    """Serves a stream protocol in threads, on an event loop or in worker processes.

    Args:
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; with port 0
            the system chooses one.
        service: what is served.
        workers: what carries connections; processes have a thread for each.
        initializer: called first in each worker process; picklable.
        tls: this and what follows: `StreamOptions`.

    Raises:
        TypeError, ValueError: an argument makes no sense.
    """

    handlers: ClassVar[str] = "a handler"
    """What may not end in time on an event loop, for a log."""

    def __init__(
        self,
        address: AddressLike,
        service: Service,
        *,
        workers: WorkersOption = "asyncio",
        initializer: Callable[[], None] | None = None,
        tls: TLS = None,
        timeout: Timeouts | float | None = None,
        idle_timeout: float | EllipsisType | None = ...,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        if workers not in ("threads", "asyncio") and not (type(workers) is int and workers > 0):
            raise ValueError(
                f"workers must be 'threads', 'asyncio' or a number of processes, not {workers!r}"
            )
        if isinstance(workers, int) and isinstance(tls, ssl.SSLContext):
            raise TypeError(
                "an SSL context cannot be sent to worker processes; give a callable that makes "
                "one, such as rlwire.transports.tls.ServerTLS('cert.pem', 'key.pem')"
            )
        super().__init__(parse(served_at(self.scheme, address, tls)))
        timeout = Timeouts.of(timeout)
        if not isinstance(idle_timeout, EllipsisType):
            timeout = dataclasses.replace(timeout, idle=idle_timeout)
        self._service = service
        self._workers = workers
        self.initializer = initializer
        self._loop_factory = loop_factory
        self._guarded = self._encrypted = tls is not None
        self._options: dict[str, Any] = {
            "timeout": timeout,
            "tls": tls,
            **capacity(max_connections, max_connections_per_address),
        }
        self._server: BaseServer[Any] | None = None

    def statistics(self) -> Any:
        """Return counts since the start, from any thread; {} with worker processes.

        Of connections: how many are ``open``, and were ``rejected`` because there were too many;
        and how those that are over have ended: ``closed`` (by either side, between two messages),
        ``lost`` (broken, or ended inside a message), ``invalid`` (the peer sent what is not
        allowed), ``late`` (a time was over) or ``failed`` (the handler raised).
        """
        return {} if self._server is None else self._server.statistics()

    def _run(self) -> Running:
        service = self._service
        if isinstance(self._workers, int):
            return _Processes(self._where, self._workers, service, self._options, self.initializer)
        service.begin()
        with on_error(service.end):
            if self._workers == "asyncio":
                return LoopThread(self._on_a_loop, self._loop_factory, self.handlers)
            server = self._server = ThreadServer(self._where, **service._parts(), **self._options)
            return server.start()

    def _on_a_loop(self) -> LoopServer:
        server = LoopServer(self._where, **self._service._parts(), **self._options)
        self._server = server
        self._service.start()
        return server

    def _details(self) -> str:
        return f"workers: {self._workers}"

    def _after_stop(self) -> None:
        self._service.end()


class _Processes:
    """Worker processes, each with a server of threads, on one listening socket."""

    def __init__(
        self,
        where: Address,
        count: int,
        service: Service,
        options: dict[str, Any],
        initializer: Callable[[], None] | None,
    ) -> None:
        if options["tls"] is not None:
            options["tls"]()  # a missing file shows here, not in a log of dying workers
        self._listener = listen(where)
        self.address = dataclasses.replace(local_address(self._listener), shm=where.shm)
        options = {**options, "shm": where.shm}  # the socket, which is all they get, has it not
        self._workers = Workers(_work, count, self._listener, [service, options, initializer])
        with on_error(self._close):
            self._workers.start()

    def drain(self, seconds: float) -> None:
        self._close()
        # A worker takes its grace time for its own connections afterwards, and a moment to end.
        self._workers.stop(10.0, seconds)

    def stop(self, grace: float) -> None:
        self._workers.stop(grace + 5.0)
        self._close()

    def _close(self) -> None:
        if self._listener.fileno() != -1:
            unlink(self._listener)
            self._listener.close()


def _work(
    listener: socket.socket,
    stop: Stop,
    service: Service,
    options: dict[str, Any],
    initializer: Callable[[], None] | None,
) -> None:
    """Run in each worker process."""
    if initializer is not None:
        initializer()
    service.begin()
    try:
        with ThreadServer(listener, **service._parts(), **options) as server:
            stop.wait()
            if stop.drain:
                server.stop_accepting(stop.drain)
                listener.close()  # that of this process: whoever comes shall see that nobody is in
                server.drain(stop.drain)
    finally:
        service.end()
