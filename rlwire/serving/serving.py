"""Base classes of all servers: starting, running in the background, draining, stopping."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import EllipsisType
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from rlwire._options import SecretOptions, StreamServerOptions
from rlwire.errors import RlwireError, describe, on_error
from rlwire.serving.stopping import Stopping, stop_signals
from rlwire.serving.threads import LoopThread, run_in_thread
from rlwire.serving.workers import Stop, Workers
from rlwire.sessions.layer import Layer
from rlwire.transports.address import Address, parse
from rlwire.transports.connection import Connection
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import Handler, Recording
from rlwire.transports.server import BaseServer, ServerSettings, ThreadServer
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Timeouts, warn_if_exposed
from rlwire.transports.tls import context_of
from rlwire.urls import URL, served_at

__all__ = ["AnyConnection", "BackgroundServer", "Service", "StreamServer"]

logger = logging.getLogger(__name__)

AnyConnection: TypeAlias = Connection | AsyncConnection
"""A blocking connection or asyncio's."""

_Self = TypeVar("_Self", bound="BackgroundServer")
_C = TypeVar("_C", bound=AnyConnection)


class Running(Protocol):
    """A running server, in threads or processes."""

    @property
    def address(self) -> Address:
        """The address that it listens on, with the port that the system chose."""

    def drain(self, seconds: float) -> None:
        """Stop accepting, and wait up to `seconds` for connections to end."""

    def stop(self, grace: float) -> None:
        """Close all connections; running handlers have `grace` seconds to finish."""


class BackgroundServer(ABC):
    """Base of servers: ``with``, `start`, `drain`, `stop`, `wait` and `serve_forever`."""

    scheme: str
    """The scheme of its URL; see `rlwire.registry`."""
    guards = "TLS"  # what the warning suggests

    def __init__(self, where: Address) -> None:
        self._where = where
        self._last = where  # of the last run
        self.log_level = logging.INFO  # of the start and stop lines
        self._running: Running | None = None
        self._stopping: Stopping | None = None
        self._stopped = threading.Event()
        self._taking = threading.RLock()  # held by the one call of `stop` that ends a run
        self._ending = threading.RLock()  # held while a run ends: the next one waits, no signal
        self.fatal: BaseException | None = None  # which ended the last run
        self._guarded = False  # by TLS or a secret; else `start` warns of other machines
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
    def running(self) -> bool:
        """Whether the server is started, and `stop` was not called yet."""
        return self._running is not None

    @property
    def address(self) -> Address:
        """The address of the current or last run, with the port that the system chose."""
        return self._last if (running := self._running) is None else running.address

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        where = self._where  # keeps the host's name, which a certificate may be for
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
        return ""

    def check(self) -> None:
        """Create what the first client needs, so that errors are raised before listening."""
        return

    def start(self: _Self) -> _Self:
        """Listen, and serve in the background.

        Raises:
            OSError: the server cannot listen on the address, or cannot read a file.
            RuntimeError: the server is already running.
        """
        with self._ending:
            if self._running is not None:
                raise RuntimeError(f"the server {self.url} is already running")
            self._stopped.clear()
            self.fatal = None
            self._running = self._run()
        with on_error(self.stop):  # a Ctrl-C
            logger.log(self.log_level, "serving %s, %s", self.url, self._details())
            if not self._guarded:
                warn_if_exposed(self.address, self.guards)
        return self

    def stop(self, grace: float = 5.0) -> None:
        """Stop listening and close all connections; `serve_forever` then returns.

        Running handlers have `grace` seconds to finish. The server can be started again.
        """
        url, self._last = self.url, self.address
        with contextlib.ExitStack() as ending:
            with self._taking:
                if self._running is not None:
                    ending.enter_context(self._ending)  # first, or `start` could come between
                running, self._running = self._running, None
            if running is not None:
                ending.callback(self._stopped.set)
                ending.callback(self._after_stop)  # the first that is called
                running.stop(grace)
        if running is not None:
            logger.log(self.log_level, "stopped serving %s", url)
        if (stopping := self._stopping) is not None:
            stopping.ask()

    def stop_soon(self, error: BaseException | None = None) -> None:
        """Call `stop` in a new thread, for a caller that `stop` would wait for.

        An `error` that ends the server is raised by `serve_forever`.
        """
        self.fatal = error
        run_in_thread("rlwire stop", self.stop)

    def drain(self, seconds: float, grace: float = 5.0) -> None:
        """Stop accepting, wait up to `seconds` for connections to end, and `stop`.

        Peers are notified if the protocol has a message for it. Connections close between two
        messages, or after a gRPC call or a PERLERT rollout.
        """
        if (running := self._running) is not None:
            logger.info("draining %s", self.url)
            running.drain(seconds)
        self.stop(grace)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds until the server has stopped; return whether it has."""
        return self._stopped.wait(timeout)

    def serve_forever(self, drain: float | None = None) -> None:
        """Start if necessary, and serve until SIGINT, SIGTERM or `stop`.

        Signals are handled in the main thread only.

        Args:
            drain: seconds to `drain` after the first signal; a second signal stops at once.

        Raises:
            OSError: the server cannot listen on the address.
            RlwireError: an error stopped the server, now or before this call.
        """
        try:
            with stop_signals() as self._stopping:
                if self._running is None:
                    self._raise_fatal()
                    with contextlib.suppress(KeyboardInterrupt):  # the wait below returns at once
                        self.start()
                reason = self._stopping.wait()
                logger.info("stopping: %s", reason or "stop() was called")
                if reason and drain:
                    run_in_thread("rlwire drain", self.drain, drain)
                    self._stopping.wait()
        finally:
            # The previous signal handlers are restored: a second Ctrl-C interrupts.
            self._stopping = None
            self.stop()
        self._raise_fatal()

    def _raise_fatal(self) -> None:
        if self.fatal is not None:
            raise RlwireError(f"{self.url} stopped: {describe(self.fatal)}") from self.fatal

    @abstractmethod
    def _run(self) -> Running:
        """Listen, and return the running server."""

    @abstractmethod
    def _details(self) -> str:
        """Return details for the log line at the start."""

    @abstractmethod
    def _after_stop(self) -> None:
        """Clean up after the server has stopped."""


class Service(Generic[_C]):
    """Makes the sessions and handlers of a `StreamServer`; picklable for worker processes."""

    converse: Callable[[_C], Any] | None = None
    """Instead of `handler`: serves a whole connection; on an event loop a coroutine function."""

    def session(self) -> Layer:
        """Return a new server session."""
        raise NotImplementedError

    def handler(self, connection: _C) -> Handler:
        """Return the handler of a connection."""
        raise NotImplementedError

    def set_up_process(self) -> None:
        """Set up before the first connection, in the serving process."""

    def tear_down_process(self) -> None:
        """Clean up after the last connection; called in the parent of worker processes too."""

    def set_up_loop(self) -> None:
        """Set up before the first connection, on the running event loop."""

    def tear_down_loop(self) -> None:
        """Prepare to stop, on the event loop, before connections are closed."""

    def callbacks(self) -> dict[str, Any]:
        """Return arguments of a `BaseServer`."""
        return {
            "make_session": self.session,
            "converse": self.converse,
            "make_handler": self.handler if self.converse is None else None,
            "on_stop": self.tear_down_loop,
        }


class StreamServer(BackgroundServer):
    """Serves a stream protocol in threads, on an event loop or in worker processes.

    Args:
        service: makes sessions and handlers.
        options: address, TLS, timeouts and maxima.
        workers: ``"threads"`` (one per connection), ``"asyncio"``, or a number of processes, each
            with a thread per connection.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """

    def __init__(
        self,
        service: Service[Any],
        options: StreamServerOptions,
        workers: Literal["threads", "asyncio"] | int = "asyncio",
    ) -> None:
        tls = options.tls
        if isinstance(workers, int) and isinstance(tls, ssl.SSLContext):
            raise TypeError(
                "an SSL context cannot be sent to worker processes; pass a callable that makes "
                "one, such as rlwire.transports.tls.ServerTLS('cert.pem', 'key.pem')"
            )
        super().__init__(parse(served_at(self.scheme, options.address, tls)))
        timeout = Timeouts.of(options.timeout)
        if not isinstance(options.idle_timeout, EllipsisType):
            timeout = dataclasses.replace(timeout, idle=options.idle_timeout)
        self._service = service
        self._workers = workers
        self._loop_factory = options.loop_factory
        self._encrypted = tls is not None
        self._guarded = self._encrypted
        if isinstance(options, SecretOptions):
            self.guards = "TLS or a secret (auth=)"
            self._guarded = self._encrypted or options.auth is not None
        self._settings = ServerSettings(
            tls, timeout, options.max_connections, options.max_connections_per_address,
            self._where.shm, self._recording(options),
        )  # fmt: skip
        self._server: BaseServer[Any] | None = None

    def _recording(self, options: StreamServerOptions) -> Recording | None:
        return options.recording(self.scheme)

    def statistics(self) -> dict[str, Any]:
        """Return counts of connections since the start, from any thread; {} with worker processes.

        ``open``, ``rejected`` (over a limit), and by the reason of the end: ``closed`` (by either
        side between messages), ``lost`` (broken, or ended inside a message), ``invalid`` (an
        invalid message from the peer), ``late`` (a timeout), ``failed`` (the handler raised).
        """
        return {} if self._server is None else self._server.statistics()

    def _run(self) -> Running:
        service = self._service
        if isinstance(self._workers, int):
            context_of(self._settings.tls)  # raises for a missing file before workers start
            arguments = (service, self._settings, self.initializer)
            return Workers(_work, self._workers, self._where, arguments)
        service.set_up_process()
        with on_error(service.tear_down_process):
            if self._workers == "asyncio":
                return LoopThread(self._on_a_loop, self._loop_factory)
            server = self._server = ThreadServer(
                self._where, **service.callbacks(), settings=self._settings
            )
            with on_error(server.stop):
                return server.start()

    def _on_a_loop(self) -> LoopServer:
        server = LoopServer(self._where, **self._service.callbacks(), settings=self._settings)
        self._server = server
        with on_error(server.close_listener):
            self._service.set_up_loop()
        return server

    def _details(self) -> str:
        return f"workers: {self._workers}"

    def _after_stop(self) -> None:
        self._service.tear_down_process()


def _work(
    listener: socket.socket,
    stop: Stop,
    service: Service[Any],
    settings: ServerSettings,
    initializer: Callable[[], None] | None,
) -> None:
    """Serve in a worker process."""
    if initializer is not None:
        initializer()
    service.set_up_process()
    try:
        with ThreadServer(listener, **service.callbacks(), settings=settings) as server:
            stop.at_once = server.stop
            stop.wait()
            if stop.drain:
                server.stop_accepting(stop.drain)
                listener.close()  # this process's copy, so that new clients are refused
                server.drain(stop.drain)
    finally:
        service.tear_down_process()
