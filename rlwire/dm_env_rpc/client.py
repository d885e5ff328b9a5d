"""`Client` and `AsyncClient`: an agent's connection to a dm_env_rpc server."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from rlwire._options import with_options
from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Settings, Status, Step, StepResult
from rlwire.dm_env_rpc import channel
from rlwire.dm_env_rpc.options import DmEnvRpcClientOptions
from rlwire.dm_env_rpc.shared_connections import SharedConnections
from rlwire.dm_env_rpc.status import StatusError
from rlwire.errors import ConnectionClosed, LocalProtocolError
from rlwire.limits import DEFAULT
from rlwire.sessions import dm_env_rpc, grpc
from rlwire.sessions.dm_env_rpc import Code, EncodedStep
from rlwire.transports import tcp, tcp_asyncio, waits
from rlwire.transports.address import Address, parse
from rlwire.transports.sockets import Backoff
from rlwire.transports.waits import Asyncio, Blocking, Waits, driven, retry
from rlwire.urls import located

logger = logging.getLogger(__name__)

KEEP_ALIVE: Final = {"ping_interval": 310.0}
"""In seconds. By default gRPC servers close connections with pings less than 300 s apart."""

# Retried: the server may detect a lost connection later than the client. Until then the old agent
# stays in the world.
_PASSING = (Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION, Code.UNAVAILABLE, Code.ABORTED)


def _settings_of(settings: Mapping[str, Any] | None) -> Settings:
    return codec.flatten(settings, strict=False) if settings else {}


class _DmEnvRpcClient(waits.ClientBase):
    @with_options(DmEnvRpcClientOptions)
    def __init__(self, options: DmEnvRpcClientOptions) -> None:
        address, tls, self._world = located("dm-env-rpc", options.address, options.tls)
        self.address: Address = parse(address)
        self._backoff = options.backoff or Backoff()
        self.limits = options.limits or DEFAULT
        self._session_options: dict[str, Any] = {
            "limits": self.limits, "copy": options.copy, "check_bounds": options.check_bounds,
        }  # fmt: skip
        self._max_pending = options.max_pending
        # Requests whose replies `receive` returns; always the same object.
        self.sent: deque[codec.Request | Step | EncodedStep] = deque()
        metadata = tuple(map(tuple, options.metadata))
        if options.auth is not None:
            metadata += (channel.authorization(options.auth),)
            if tls is None:
                channel.warn_of_plain_token(self.address)
        self._call_options: dict[str, Any] = {
            "authority": "localhost" if self.address.path else str(self.address),
            "secure": tls is not None,
            "metadata": metadata,
            "limits": self.limits,
            "max_sent": channel.most_sent(self.limits, options.max_sent),
            **KEEP_ALIVE,
        }
        self._connect_options: dict[str, Any] = {
            "timeout": options.timeout, "record": options.recording("dm-env-rpc")
        }  # fmt: skip
        if tls is not None:
            self._connect_options["tls"] = channel.http2_context(tls)
            self._connect_options["server_hostname"] = getattr(tls, "server_hostname", None)
        # Given before `connect`: `send` then queues requests for their `flush`.
        self.shared: SharedConnections | None = None
        self._shared_by = (self.address, options.tls, options.timeout, *self._call_options.values())
        self._created: dict[str, Settings] = {}  # by name, for `reconnect`
        self._joined: tuple[str, Settings] | None = None
        self._session: dm_env_rpc.DmEnvRpcClientSession | None = None

    @property
    def state(self) -> dm_env_rpc.DmEnvRpcState:
        return dm_env_rpc.DmEnvRpcState.CLOSED if self._session is None else self._session.state

    @property
    def pending(self) -> int:
        """The number of requests that were sent with `send`, and whose replies are not received."""
        return len(self.sent)

    @property
    def specs(self) -> codec.ActionObservationSpecs | None:
        """The joined agent's specs, or None."""
        return None if self._session is None else self._session.specs

    @property
    def world_name(self) -> str | None:
        return None if self._joined is None else self._joined[0]

    @driven
    def connect(self) -> Waits[None]:
        """Connect; closes an open connection first.

        Raises:
            ConnectionClosed, DeadlineExceeded, OSError: the server cannot be reached.
        """
        yield self.close()
        yield from self._open(self._backoff)

    def enter(self) -> Waits[None]:
        """Connect unless connected, and join the URL's world, if any."""
        if self._connection is not None:
            return
        yield self.connect()
        if self._world:
            try:
                yield self.join_world(self._world)
            except BaseException:
                yield self.close()
                raise

    @driven
    def close(self) -> Waits[None]:
        """Close the connection; `reconnect` will not join the world again."""
        yield from self._drop()
        self._created, self._joined = {}, None

    def cancel(self) -> None:
        """Abort the connection, from any thread: a call in progress raises ConnectionClosed."""
        connection = self._connection
        if connection is not None:
            connection.close()

    @driven
    def create_world(self, settings: Mapping[str, Any] | None = None) -> Waits[str]:
        """Create a world and return its name; names of nested settings are joined by periods."""
        reply = yield self.request(codec.CreateWorldRequest(_settings_of(settings)))
        return cast(str, reply.world_name)

    @driven
    def join_world(
        self, world_name: str = "", settings: Mapping[str, Any] | None = None
    ) -> Waits[codec.ActionObservationSpecs]:
        """Join a world as an agent and return its specs."""
        request = codec.JoinWorldRequest(world_name, _settings_of(settings))
        return cast(codec.ActionObservationSpecs, (yield self.request(request)).specs)

    @driven
    def reset(
        self, settings: Mapping[str, Any] | None = None
    ) -> Waits[codec.ActionObservationSpecs]:
        """End the sequence; return the specs, which the settings may have changed."""
        reply = yield self.request(codec.ResetRequest(_settings_of(settings)))
        return cast(codec.ActionObservationSpecs, reply.specs)

    @driven
    def reset_world(
        self, world_name: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Waits[None]:
        """End the sequences of all agents in a world, by default the joined one.

        The reply waits until each other agent has received INTERRUPTED from its next step.
        """
        if world_name is None:
            world_name = self.world_name or ""
        yield self.request(codec.ResetWorldRequest(world_name, _settings_of(settings)))

    @driven
    def leave_world(self) -> Waits[None]:
        """Leave the joined world, if there is one."""
        yield self.request(codec.LeaveWorldRequest())

    @driven
    def destroy_world(self, world_name: str) -> Waits[None]:
        """Destroy a world without agents."""
        yield self.request(codec.DestroyWorldRequest(world_name))

    @driven
    def extension(self, message: codec.AnyMessage) -> Waits[codec.AnyMessage]:
        """Send an extension's request and return the response."""
        return cast(codec.AnyMessage, (yield self.request(message)))

    @driven
    def request(self, request: codec.Request | Step) -> Waits[Any]:
        """Send any request and return the response.

        Raises:
            StatusError: the server answers with an error.
            EncodeError, LocalProtocolError: nothing was sent; the connection stays open.
            ConnectionClosed, DeadlineExceeded: the connection is lost.
        """
        return self._checked(request, (yield self.exchange(request)))

    @driven
    def reconnect(
        self, backoff: Backoff | None = None
    ) -> Waits[codec.ActionObservationSpecs | None]:
        """Reconnect, join the last world with the same settings, and return its specs, if any.

        If the server has lost a world that this client created, the client creates it again. The
        default is 20 attempts in 60 seconds. Raises the errors of `connect` and `join_world`.
        """
        backoff = backoff or Backoff(attempts=20, deadline=60.0)
        yield from self._drop()
        yield from self._open(backoff)
        if self._joined is None:
            logger.info("%s: reconnected", self.address)
            return None
        return (
            yield from retry(
                self._rejoin,
                backoff,
                self._sleep,
                what=f"{self.address}: rejoining",
                errors=StatusError,
                passing=lambda error: error.code in _PASSING,
            )
        )

    def _rejoin(self, _until: float) -> Waits[codec.ActionObservationSpecs]:
        assert self._joined is not None
        world, settings = self._joined
        try:
            specs: codec.ActionObservationSpecs = yield self.join_world(world, settings)
        except StatusError as error:
            if error.code != Code.NOT_FOUND or world not in self._created:
                raise
            name = yield self.create_world(self._created[world])
            self._joined = name, settings
            logger.warning(
                "%s: reconnected; the server no longer has world %r, created it again as %r",
                self.address, world, name,
            )  # fmt: skip
            return (yield self.join_world(name, settings))
        logger.info("%s: reconnected, joined world %r", self.address, world)
        return specs

    def _checked(self, request: codec.Request | Step | EncodedStep, reply: Any) -> Any:
        """Return a reply; note the worlds that `reconnect` creates or joins again."""
        if isinstance(reply, Status):
            raise StatusError.of(reply)
        if isinstance(request, codec.CreateWorldRequest):
            self._created[reply.world_name] = request.settings
        elif isinstance(request, codec.JoinWorldRequest):
            self._joined = request.world_name, request.settings
        elif isinstance(request, codec.LeaveWorldRequest):
            self._joined = None
        elif isinstance(request, codec.DestroyWorldRequest):
            self._created.pop(request.world_name, None)
        return reply

    _dial: Any
    exchange: Any
    _sleep: Any

    def _open(self, backoff: Backoff) -> Waits[None]:
        session = dm_env_rpc.DmEnvRpcClientSession(**self._session_options)
        options = {"backoff": backoff, **self._connect_options}
        connection: Any = None
        if self.shared is not None:
            connection = self.shared.begin(
                self._shared_by, self.address, session, self._call_options, options
            )
        if connection is None:
            call = grpc.GrpcClientSession(session, channel.METHOD, **self._call_options)
            connection = yield self._dial(self.address, call, **options)
        self._connection = self._count(connection)
        self._session = session

    def _drop(self) -> Waits[None]:
        self._session = None
        self.sent.clear()
        yield super().close()

    def _connected(self, least: int = 0, most: int = 0) -> Any:
        """Return the connection, if `least` to `most` replies are pending."""
        pending = len(self.sent)
        if pending < least:
            raise LocalProtocolError("no request is pending: send() one first")
        if pending > most:
            allowed = ", as many as max_pending allows" if most else ""
            raise LocalProtocolError(
                f"{pending} replies are pending{allowed}: receive() them first"
            )
        if self._connection is None:
            raise ConnectionClosed(
                f"not connected to {self.address}: call connect() or reconnect()"
            )
        return self._connection

    def _count_sent(self, request: codec.Request | Step | EncodedStep) -> None:
        """Note a request that the session has accepted, also if an exception interrupts `send`."""
        session = self._session
        if session is not None and session.pending > len(self.sent):
            self.sent.append(request)

    def _step(self, actions: Mapping[str, Any] | None, requested: Iterable[str] | None) -> Step:
        if requested is None:
            manager = None if self._session is None else self._session.observations
            requested = () if manager is None else manager.names()
        return Step(dict(actions or ()), tuple(requested))

    def on_failure(self, error: BaseException) -> None:
        """Close a connection with a pending reply: the next request would receive it."""
        session = self._session
        if session and session.pending and not isinstance(error, LocalProtocolError):
            self.cancel()


class Client(Blocking, _DmEnvRpcClient):
    """An agent's connection to a dm_env_rpc server.

    ::

        with Client("localhost:9999") as client:
            world = client.create_world({"level": 3})
            specs = client.join_world(world)
            result = client.step()                       # begins a sequence
            while result.state == EnvironmentStateType.RUNNING:
                result = client.step({"move": 1}, ("board", "reward"))

    It connects on entry, or with `connect`. A request that the server rejects raises `StatusError`
    and changes nothing. If the connection is lost, calls raise `ConnectionClosed`; `reconnect`
    joins the world again.

    The first thread that sends a request owns the client. Any thread may call `cancel` and `close`.
    """

    _dial = staticmethod(tcp.connect)

    def step(
        self, actions: Mapping[str, Any] | None = None, requested: Iterable[str] | None = None
    ) -> StepResult:
        """Take a step.

        Args:
            actions: by name; those of a sequence's first step are ignored.
            requested: names of the observations to return; None for all, ``()`` for none.

        Errors are those of `request`; EncodeError if a value does not fit its spec.
        """
        reply = self.exchange(self._step(actions, requested))  # hot path: no generator
        if type(reply) is StepResult:
            return reply
        raise StatusError.of(reply)

    def exchange(self, request: codec.Request | Step) -> Any:
        """Send a request and return its reply, which may be an error `Status`."""
        connection = None if self.sent else self._connection
        try:
            return (connection or self._connected()).exchange(request)
        except BaseException as error:
            self.on_failure(error)
            raise

    # Hot paths of vectors: no generators.

    def send(self, request: codec.Request | Step | EncodedStep) -> None:
        """Send a request without waiting for its reply, which `receive` returns, in order.

        ::

            for move in moves:
                client.send(Step({"move": move}, ("reward",)))
            rewards = [client.receive().observations["reward"] for _ in moves]

        At most `max_pending` requests are pending. Until all replies are received, other methods
        raise LocalProtocolError. Errors of this request are raised by its `receive`, except those
        of `request` that say that nothing was sent.
        """
        connection = self._connection
        if connection is None or len(self.sent) >= self._max_pending:
            connection = self._connected(most=self._max_pending - 1)
        try:
            connection.send(request)
        finally:
            self._count_sent(request)

    def encode(self, step: Step) -> Step | EncodedStep:
        """Encode a step for a later `send`, which raises the errors of a lost connection."""
        try:
            session = self._session
            return step if session is None else session.encode(step)
        except LocalProtocolError:
            if self.closed:
                return step
            raise

    def receive(self) -> Any:
        """Wait for the reply to the first pending request, and return it.

        Raises:
            StatusError: the server answers that request with an error; others are still pending.
            LocalProtocolError: no request is pending.
            DeadlineExceeded: no reply within `Timeouts.idle`; `receive` may be called again.
            ConnectionClosed: the connection is lost, with all pending requests.
        """
        connection = self._connection if self.sent else None
        reply = (connection or self._connected(1, self._max_pending)).receive()
        request = self.sent.popleft()
        return reply if type(reply) is StepResult else self._checked(request, reply)

    def watched(self, wanted: bool) -> Any:
        """Return a connection without pending requests for an event loop; else count its step."""
        self._count_sent(Step())
        return None if self.sent and wanted else self._connection


class AsyncClient(Asyncio, _DmEnvRpcClient):
    """`Client` with coroutines: the same methods, arguments and errors.

    Several tasks may share a client: one request at a time. Cancelling a task that waits for a
    reply closes the connection; in `receive` the reply stays pending.
    """

    _lock = functools.cached_property(lambda self: waits.TaskLock())

    _dial = staticmethod(tcp_asyncio.connect)

    async def step(
        self, actions: Mapping[str, Any] | None = None, requested: Iterable[str] | None = None
    ) -> StepResult:
        """Take a step, as `Client.step`."""
        reply = await self.exchange(self._step(actions, requested))
        if type(reply) is StepResult:
            return reply
        raise StatusError.of(reply)

    async def exchange(self, request: codec.Request | Step) -> Any:
        """Send a request and return its reply, as `Client.exchange`."""
        lock = self._lock
        if lock.locked:
            await lock.wait()
        lock.locked = True
        try:
            connection = (None if self.sent else self._connection) or self._connected()
            await connection.begin_exchange(request)
            return connection.end_exchange()
        except asyncio.CancelledError:
            connection.cancel_exchange()
            raise
        except BaseException as error:
            self.on_failure(error)
            raise
        finally:
            lock.release()

    async def send(self, request: codec.Request | Step) -> None:
        """Send a request without waiting for its reply, as `Client.send`."""
        if self._lock.locked:
            await self._lock.wait()
        self._lock.locked = True
        try:
            await self._connected(most=self._max_pending - 1).send(request)
        finally:
            self._count_sent(request)
            self._lock.release()

    async def receive(self) -> Any:
        """Return the reply to the first pending request, as `Client.receive`."""
        reply = await self._connected(1, self._max_pending).receive()
        return self._checked(self.sent.popleft(), reply)
