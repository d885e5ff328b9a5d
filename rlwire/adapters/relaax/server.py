"""`RLXServer`: listens for environments and gives each connection an agent of its own.

Not here: what is done with an agent and what it is told (`rlwire.adapters.relaax.hosting`), who
may say what (`rlwire.sessions.rlx`), sockets, threads and processes (`rlwire.transports`).

RELAAX forks a process for each connection. Here the choice is the user's, by `workers`: a thread
for each connection, one event loop for all of them, or a number of processes with threads.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from rlwire.adapters.relaax.hosting import AgentFactory, AgentHost, load, resolve_agent
from rlwire.adapters.relaax.metrics import LoggingMetrics, Metrics
from rlwire.adapters.serving import BackgroundServer, LoopThread, Running
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions import rlx
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    capacity,
)
from rlwire.transports.sockets import Timeouts, listen, local_address, unlink
from rlwire.transports.workers import Workers

__all__ = ["RLXServer"]

logger = logging.getLogger(__name__)

TLS: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext] | None


class RLXServer(BackgroundServer):
    """An RLX server for one kind of agent.

    ::

        with RLXServer(MyAgent, "localhost:7001") as server:      # or "my_agents:MyAgent"
            ...
        RLXServer(MyAgent, "localhost:7001").serve_forever()      # until SIGINT or SIGTERM

    Each connection gets an agent of its own, made when its first command comes. An agent that
    raises gives an error reply, and the connection goes on; one that cannot be made gives an
    error reply, and the connection is closed. At its end, the agent's method `close` or
    `disconnected` is called, if it has one.

    Every 100 rewards of a connection, their average goes to the metrics as `average_reward`.

    Args:
        agent: a class, a callable or ``"module:name"``; called with the parameter server and, if
            it takes them, the metrics. An agent has ``init(exploit)`` and ``reset()``, which
            return something true, and ``update(reward, state, terminal)``, which returns the
            action.
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; with port
            0 the system chooses one.
        parameter_server: given to every agent; ``"module:factory"`` is called once in each
            process. Agents in threads share it.
        metrics: a sink; by default each measurement is logged. It is closed when the server stops.
        workers: ``"threads"``, a thread for each connection; ``"asyncio"``, all on one event loop,
            for thousands of connections and agents that answer at once, because each waits for
            the others; or a number of processes with threads, for agents that compute in Python.
            What is sent to processes has to be picklable, and a program that starts them needs
            the usual ``if __name__ == "__main__":``.
        max_connections: further ones are refused, with a line in the log; counted in each process.
        max_connections_per_address: the same for those from one address, of IPv6 from one network
            of 64 bits; unix sockets have no such maximum.
        idle_timeout: seconds that a connection may stay silent between commands before it is
            closed, with a line in the log; None for no end. An hour by default.
        timeouts: the other times; its `idle` is not used.
        tls: an SSL context, as `rlwire.transports.tls.server_context` makes it, or a callable
            that returns one, which worker processes need.
        limits: maxima for messages.
        dialect: of RLX; "readme" for clients that follow the table in RELAAX's README.
        dtype: of the arrays that clients of the readme dialect send, which do not tell it.
        images: what an image in a state becomes; RELAAX's agents expect "float32".
        loop_factory: makes the event loop of ``"asyncio"``, such as ``uvloop.new_event_loop``.
        worker_initializer: called first in each worker process, such as to set up its log.

    Raises:
        TypeError, ValueError, ImportError, AttributeError: the agent cannot be found or is none,
            or another argument makes no sense.
    """

    protocol = "RLX"

    def __init__(
        self,
        agent: Any,
        address: AddressLike = "localhost:7001",
        *,
        parameter_server: Any = None,
        metrics: Metrics | None = None,
        workers: Literal["threads", "asyncio"] | int = "threads",
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        idle_timeout: float | None = 3600.0,
        timeouts: Timeouts | None = None,
        tls: TLS = None,
        limits: Limits = DEFAULT,
        dialect: Literal["relaax", "readme"] = "relaax",
        dtype: Any = None,
        images: Literal["array", "float32", "pil"] = "float32",
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        worker_initializer: Callable[[], None] | None = None,
    ) -> None:
        if workers not in ("threads", "asyncio") and not _is_positive(workers):
            raise ValueError(
                f"workers must be 'threads', 'asyncio' or a number of processes, not {workers!r}"
            )
        if isinstance(workers, int) and isinstance(tls, ssl.SSLContext):
            raise TypeError(
                "an SSL context cannot be sent to worker processes; give a callable that makes "
                "one, such as functools.partial(server_context, 'cert.pem', 'key.pem')"
            )
        resolve_agent(agent)
        if isinstance(parameter_server, str):
            load(parameter_server)
        super().__init__(parse(address))
        self._workers = workers
        self._loop_factory = loop_factory
        self._guarded = tls is not None
        self._factory: AgentFactory | None = None
        self._service = _Service(
            agent=agent,
            parameter_server=parameter_server,
            metrics=LoggingMetrics() if metrics is None else metrics,
            timeouts=dataclasses.replace(timeouts or Timeouts(), idle=idle_timeout),
            tls=tls,
            capacity=capacity(max_connections, max_connections_per_address),
            session_options={
                "limits": limits,
                "dialect": dialect,
                "dtype": dtype,
                "images": images,
            },
            initializer=worker_initializer,
        )

    def check(self) -> None:
        """Make an agent, which is the first connection's; with worker processes it is closed."""
        factory = self._service.factory()
        factory.prepare()
        if isinstance(self._workers, int):
            factory.close()
        else:
            self._factory = factory

    def _run(self) -> Running:
        if isinstance(self._workers, int):
            return _Processes(self._where, self._service, self._workers)
        factory = self._factory = self._factory or self._service.factory()
        try:
            if self._workers == "asyncio":
                return LoopThread(
                    lambda: self._service.on_a_loop(self._where, factory),
                    self._loop_factory,
                    "an agent",
                )
            return _Threads(self._where, self._service, factory)
        except BaseException:
            factory.close()
            raise

    def _details(self) -> str:
        return f"workers: {self._workers}"

    def _after_stop(self) -> None:
        factory, self._factory = self._factory, None
        if factory is not None:
            factory.close()
        self._service.metrics.close()


@dataclasses.dataclass(frozen=True)
class _Service:
    """What a process needs to serve connections; it is sent to worker processes."""

    agent: Any
    parameter_server: Any
    metrics: Metrics
    timeouts: Timeouts
    tls: TLS
    capacity: dict[str, Any]
    session_options: dict[str, Any]
    initializer: Callable[[], None] | None

    def factory(self) -> AgentFactory:
        return AgentFactory(self.agent, self.parameter_server, self.metrics)

    def session(self) -> rlx.Server:
        return rlx.Server(**self.session_options)

    def ssl_context(self) -> ssl.SSLContext | None:
        return self.tls() if callable(self.tls) else self.tls

    def threaded(self, listener: AddressLike | socket.socket, factory: AgentFactory) -> tcp.Server:
        return tcp.Server(
            listener,
            self.session,
            lambda connection: _converse(connection, factory),
            timeouts=self.timeouts,
            tls=self.ssl_context(),
            **self.capacity,
        )

    def on_a_loop(self, listener: AddressLike, factory: AgentFactory) -> tcp_asyncio.AsyncServer:
        return tcp_asyncio.AsyncServer(
            listener,
            self.session,
            make_responder=lambda connection: _Responder(connection, factory),
            timeouts=self.timeouts,
            tls=self.ssl_context(),
            **self.capacity,
        )


def _converse(connection: tcp.Connection, factory: AgentFactory) -> None:
    """Serve one connection, in a thread of its own."""
    host = AgentHost(factory, connection.peer)
    command = ""

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        nonlocal command
        command = message["command"]
        reply = host.answer(message)
        if host.failed:
            connection.stop_receiving()  # after this reply, nothing more
        return reply

    try:
        while True:
            try:
                connection.serve(answer)
            except RemoteProtocolError as error:
                factory.log.warning("%s: command refused: %s", connection.peer, error)
                connection.refuse(error)
                if connection.closed:
                    return
            except (ConnectionClosed, DeadlineExceeded, DecodeError, LocalProtocolError):
                raise
            except Exception as error:
                # The action cannot be written (EncodeError, or what its own __array__ raised).
                session = connection.session
                if not (isinstance(session, rlx.Server) and session.pending):
                    raise
                connection.send(host.failure(command, error))
    finally:
        host.close()


class _Responder:
    """Serves one connection on an event loop."""

    def __init__(self, connection: tcp_asyncio.AsyncConnection, factory: AgentFactory) -> None:
        self._connection = connection
        self._host = AgentHost(factory, connection.peer)

    def answer(self, event: dict[str, Any]) -> dict[str, Any]:
        reply = self._host.answer(event)
        if self._host.failed:
            # After the reply, which is sent as soon as this returns.
            asyncio.get_running_loop().call_soon(self._connection.close)
        return reply

    def failure(self, event: dict[str, Any], error: Exception) -> dict[str, Any]:
        return self._host.failure(event["command"], error)

    def close(self) -> None:
        self._host.close()


class _Threads:
    def __init__(self, where: Address, service: _Service, factory: AgentFactory) -> None:
        self._server = service.threaded(where, factory).start()
        self.address = self._server.address

    def stop(self, grace: float) -> None:
        self._server.stop(grace)


class _Processes:
    def __init__(self, where: Address, service: _Service, count: int) -> None:
        service.ssl_context()  # a missing file shows here, not in a log of dying workers
        self._listener = listen(where)
        self.address = local_address(self._listener)
        self._workers = Workers(_work, count, self._listener, [service])
        try:
            self._workers.start()
        except BaseException:
            self._close()
            raise

    def stop(self, grace: float) -> None:
        # A worker takes the grace time for its own agents, and a moment to end.
        self._workers.stop(grace + 5.0)
        self._close()

    def _close(self) -> None:
        unlink(self._listener)
        self._listener.close()


def _work(listener: socket.socket, stop: threading.Event, service: _Service) -> None:
    """Run in each worker process."""
    if service.initializer is not None:
        service.initializer()
    try:
        with service.threaded(listener, service.factory()):
            stop.wait()
    finally:
        service.metrics.close()


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
