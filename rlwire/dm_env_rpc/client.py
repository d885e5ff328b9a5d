"""`Client` and `AsyncClient`: an agent's connection to a dm_env_rpc server."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from rlwire.codecs.dm_env_rpc import (
    ActionObservationSpecs,
    AnyMessage,
    CreateWorldRequest,
    DestroyWorldRequest,
    JoinWorldRequest,
    LeaveWorldRequest,
    Request,
    ResetRequest,
    ResetWorldRequest,
    Response,
    Settings,
    Status,
    Step,
    StepResult,
    flatten,
)
from rlwire.dm_env_rpc.status import StatusError
from rlwire.errors import ConnectionClosed, LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.registry import located
from rlwire.sessions import dm_env_rpc, grpc
from rlwire.sessions.dm_env_rpc import Code
from rlwire.sessions.grpc import Metadata
from rlwire.transports import tcp, tcp_asyncio, waits
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.connecting import close_and_wait, retry
from rlwire.transports.server import TLS
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tls import ClientSide, context_of
from rlwire.transports.waits import Asyncio, Blocking, Waits, drive, drive_async, driven

logger = logging.getLogger(__name__)

METHOD: Final = "/dm_env_rpc.v1.Environment/Process"
"""The one method of the protocol's gRPC service."""

KEEP_ALIVE: Final = {"ping_interval": 310.0}
"""When a client pings its server. A server with gRPC's defaults closes a connection that is pinged
more often than each five minutes; a laptop may sleep meanwhile."""

RECONNECT: Final = Backoff(attempts=20, deadline=60.0)
"""How `Client.reconnect` tries by default."""

# Errors that may be over soon: a server learns later than its client that a connection is lost,
# and until then the agent's place in the world is taken.
_PASSING = (Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION, Code.UNAVAILABLE, Code.ABORTED)


def http2_context(tls: ClientSide | TLS) -> ssl.SSLContext | None:
    """Return the context, which offers HTTP/2."""
    context = context_of(tls)
    if context is not None:
        context.set_alpn_protocols(["h2"])
    return context


def authorization(token: str) -> tuple[str, str]:
    """Return the metadata that carries a bearer token."""
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError("a token has one or more printable ASCII characters and no spaces")
    return "authorization", f"Bearer {token}"


def warn_of_plain_token(where: Address) -> None:
    """Log that a token would cross a network readable by anybody."""
    if not where.loopback:
        logger.warning("%s: the token goes over the network without TLS", where)


def most_sent(limits: Limits, max_sent: int | None) -> int:
    """Return how long a message may be that is sent: by default, as long as a received one."""
    if max_sent is None:
        return min(limits.received, limits.message)
    if isinstance(max_sent, bool) or not 0 < max_sent < 2**31:
        raise ValueError(f"max_sent must be a positive int of less than 2**31, not {max_sent!r}")
    return max_sent


def _settings_of(settings: Mapping[str, Any] | None) -> Settings:
    """Return settings by name; nested ones are joined by periods."""
    return flatten(settings, strict=False) if settings else {}


class _PendingReply(waits.SharedClient):
    """What a `PendingReply` and an `AsyncPendingReply` are made of."""

    __slots__ = ("_client", "_error", "_reply", "request")

    def __init__(self, client: Any, request: Request | Step) -> None:
        self.request = request
        self._client = client
        self._reply: Response | StepResult | None = None
        self._error: RlwireError | OSError | None = None

    @property
    def done(self) -> bool:
        """Whether the reply, or an error instead of it, is there."""
        return self._reply is not None or self._error is not None

    @driven
    def result(self) -> Waits[Any]:
        """Return the response, after waiting for it and for those before it.

        Raises:
            StatusError: the server answered with an error.
            ConnectionClosed, DeadlineExceeded: the reply is lost.
        """
        while self._reply is None and self._error is None:
            yield from self._client._receive_one(self)
        return self._get()

    def _get(self) -> Any:
        if self._error is not None:
            raise self._error
        if isinstance(self._reply, Status):
            raise StatusError.of(self._reply)
        return self._reply

    def _set(self, reply: Any, error: RlwireError | OSError | None = None) -> None:
        self._reply, self._error = reply, error
        if type(reply) is not StepResult and error is None and not isinstance(reply, Status):
            self._client._note(self.request, reply)


class PendingReply(Blocking, _PendingReply):
    """The reply to a request that was submitted; `result` waits for it."""

    __slots__ = ()

    def result(self) -> Any:
        """Return the response, as `AsyncPendingReply.result`."""
        # The hot path, therefore without a generator.
        client = self._client
        while self._reply is None and self._error is None:
            try:
                reply = client._connected().receive()
            except BaseException as error:
                client._not_received(error)
            else:
                client._pending.popleft()._set(reply)
        return self._get()


class AsyncPendingReply(Asyncio, _PendingReply):
    """`PendingReply`, for tasks of an event loop."""

    __slots__ = ()


class _DmEnvRpcClient(waits.Counting):
    """What `Client` and `AsyncClient` share."""

    def __init__(
        self,
        address: AddressLike,
        *,
        auth: str | None = None,
        tls: ClientSide = None,
        timeout: Timeouts | float | None = None,
        backoff: Backoff | None = None,
        limits: Limits | None = None,
        max_sent: int | None = None,
        metadata: Metadata = (),
        copy: bool | None = True,
        ahead: int = 64,
    ) -> None:
        if ahead < 1:
            raise ValueError(f"ahead must be at least 1, not {ahead}")
        address, tls, self._world = located("dm-env-rpc", address, tls)
        self._address = parse(address)
        self._ahead = ahead
        self._backoff = backoff or Backoff()
        self._limits = limits or DEFAULT
        self._copy = copy
        metadata = tuple(metadata)
        if auth is not None:
            metadata += (authorization(auth),)
            if tls is None:
                warn_of_plain_token(self._address)
        self._call_options: dict[str, Any] = {
            "authority": "localhost" if self._address.path else str(self._address),
            "secure": tls is not None,
            "metadata": metadata,
            "limits": self._limits,
            "max_sent": most_sent(self._limits, max_sent),
            **KEEP_ALIVE,
        }
        self._connect_options: dict[str, Any] = {"timeout": timeout}
        if tls is not None:
            self._connect_options["tls"] = http2_context(tls)
            self._connect_options["server_hostname"] = getattr(tls, "server_hostname", None)
        self._created: dict[str, Settings] = {}  # by name, for `reconnect`
        self._joined: tuple[str, Settings] | None = None
        self._session: dm_env_rpc.DmEnvRpcClientSession | None = None
        self._pending: deque[_PendingReply] = deque()
        # Requests are sent one at a time, and so are answers received, in the same order.
        self._sending, self._receiving = self._make_lock(), self._make_lock()

    @property
    def address(self) -> Address:
        """The server's."""
        return self._address

    @property
    def limits(self) -> Limits:
        """The maxima for messages."""
        return self._limits

    @property
    def closed(self) -> bool:
        """Whether there is no connection, or none of use."""
        return self._connection is None or bool(self._connection.closed)

    @property
    def state(self) -> dm_env_rpc.DmEnvRpcState:
        """Where the connection stands."""
        return dm_env_rpc.DmEnvRpcState.CLOSED if self._session is None else self._session.state

    @property
    def specs(self) -> ActionObservationSpecs | None:
        """What the joined agent may do and see, None if no world is joined."""
        return None if self._session is None else self._session.specs

    @property
    def world_name(self) -> str | None:
        """The name of the world that is joined, None if none is."""
        return None if self._joined is None else self._joined[0]

    @driven
    def connect(self) -> Waits[None]:
        """Connect, after closing a connection that is open.

        Raises:
            ConnectionClosed, DeadlineExceeded, OSError: the server cannot be reached.
        """
        yield self.close()
        yield from self._open(self._backoff)

    def _enter(self) -> Waits[None]:
        """Connect, unless that was done, and join the world that a URL names."""
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
        """Close the connection, and forget what was created and joined."""
        yield from self._drop()
        self._created, self._joined = {}, None

    def cancel(self) -> None:
        """Break the connection off: whatever waits raises ConnectionClosed.

        A blocking client's may be broken off from any thread.
        """
        connection = self._connection
        if connection is not None:
            connection.close()

    @driven
    def create_world(self, settings: Mapping[str, Any] | None = None) -> Waits[str]:
        """Create a world and return its name; nested settings are flattened at periods."""
        reply = yield self.request(CreateWorldRequest(_settings_of(settings)))
        return cast(str, reply.world_name)

    @driven
    def join_world(
        self, world_name: str = "", settings: Mapping[str, Any] | None = None
    ) -> Waits[ActionObservationSpecs]:
        """Become an agent of a world and return what it may do and see."""
        request = JoinWorldRequest(world_name, _settings_of(settings))
        return cast(ActionObservationSpecs, (yield self.request(request)).specs)

    @driven
    def step_many(
        self,
        actions: Iterable[Mapping[str, Any]],
        requested: Iterable[str] | None = None,
    ) -> Waits[list[StepResult]]:
        """Take steps without waiting for each one's result: one round trip for all of them.

        When a sequence ends on the way, the next step begins another and its actions are ignored.

        Raises:
            StatusError: the server refused a step. Those after it that were sent already have
                been taken; their results are lost. Where that matters, `submit` them.
            EncodeError, LocalProtocolError, ConnectionClosed, DeadlineExceeded: as `step`.
        """
        names = None if requested is None else tuple(requested)
        submitted: list[_PendingReply] = []
        try:
            for each in actions:
                submitted.append((yield from self._submit(self._step(each, names))))
        finally:
            for pending in submitted:
                while not pending.done:
                    yield from self._receive_one(pending)
        return [pending._get() for pending in submitted]

    @driven
    def reset(self, settings: Mapping[str, Any] | None = None) -> Waits[ActionObservationSpecs]:
        """End the sequence; return the specs, which the settings may have changed."""
        reply = yield self.request(ResetRequest(_settings_of(settings)))
        return cast(ActionObservationSpecs, reply.specs)

    @driven
    def reset_world(
        self, world_name: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Waits[None]:
        """End the sequences of all agents in a world, by default the joined one.

        It waits until each of the others has been told by its next step.
        """
        if world_name is None:
            world_name = self.world_name or ""
        yield self.request(ResetWorldRequest(world_name, _settings_of(settings)))

    @driven
    def leave_world(self) -> Waits[None]:
        """Stop being an agent; nothing happens if no world is joined."""
        yield self.request(LeaveWorldRequest())

    @driven
    def destroy_world(self, world_name: str) -> Waits[None]:
        """Destroy a world, which nobody may be joined to."""
        yield self.request(DestroyWorldRequest(world_name))

    @driven
    def extension(self, message: AnyMessage) -> Waits[AnyMessage]:
        """Send an extension's request and return the response."""
        return cast(AnyMessage, (yield self.request(message)))

    @driven
    def request(self, request: Request | Step) -> Waits[Any]:
        """Send any request and return the response.

        Raises:
            StatusError: the server answers with an error.
            EncodeError, LocalProtocolError: it cannot be sent now; nothing was.
            ConnectionClosed, DeadlineExceeded: the connection is lost.
        """
        pending = yield from self._submit(request)
        return (yield pending.result())

    @driven
    def reconnect(self, backoff: Backoff | None = None) -> Waits[ActionObservationSpecs | None]:
        """Connect again, and join the world again that was joined, with the same settings.

        A world that this client created and the server has forgotten is created anew. The agent
        stands before its first step then, as after every join. Answers under way are lost.

        Args:
            backoff: attempts and waits; by default up to a minute.

        Returns:
            The specs, or None if no world was joined.

        Raises:
            StatusError: the server refuses; the connection stays.
            ConnectionClosed, DeadlineExceeded, OSError: the server cannot be reached.
        """
        backoff = backoff or RECONNECT
        yield from self._drop()
        yield from self._open(backoff)
        if self._joined is None:
            logger.info("%s: connected again", self._address)
            return None
        return (
            yield from retry(
                self._rejoin,
                backoff,
                self._sleep,
                what=f"{self._address}: joining again",
                errors=StatusError,
                passing=lambda error: error.code in _PASSING,
            )
        )

    def _rejoin(self, _until: float) -> Waits[ActionObservationSpecs]:
        assert self._joined is not None
        world, settings = self._joined
        try:
            specs: ActionObservationSpecs = yield self.join_world(world, settings)
        except StatusError as error:
            if error.code != Code.NOT_FOUND or world not in self._created:
                raise
            name = yield self.create_world(self._created.pop(world))
            self._joined = name, settings
            logger.warning(
                "%s: connected again; the server has forgotten the world %r, created anew as %r",
                self._address, world, name,
            )  # fmt: skip
            specs = yield self.join_world(name, settings)
            return specs
        logger.info("%s: connected again, joined the world %r", self._address, world)
        return specs

    def _note(self, request: Request | Step, reply: Any) -> None:
        """Note what `reconnect` does again, after a request that was carried out."""
        if isinstance(request, CreateWorldRequest):
            self._created[reply.world_name] = request.settings
        elif isinstance(request, JoinWorldRequest):
            self._joined = request.world_name, request.settings
        elif isinstance(request, LeaveWorldRequest):
            self._joined = None
        elif isinstance(request, DestroyWorldRequest):
            self._created.pop(request.world_name, None)

    @staticmethod
    def _make_lock() -> Any:
        """Return what keeps tasks in order; one thread needs nothing."""

    _dial: Any
    _reply_kind: type[_PendingReply]
    _sleep: Any

    def _open(self, backoff: Backoff) -> Waits[None]:
        session = dm_env_rpc.DmEnvRpcClientSession(limits=self._limits, copy=self._copy)
        call = grpc.GrpcClientSession(session, METHOD, **self._call_options)
        connection = yield self._dial(self._address, call, backoff=backoff, **self._connect_options)
        self._connection = self._count(connection)
        self._session = session

    def _drop(self) -> Waits[None]:
        connection, self._connection = self._connection, None
        self._session = None
        self._lose(ConnectionClosed(f"the connection to {self._address} was closed here"))
        if connection is not None:
            yield from close_and_wait(connection)

    def _connected(self) -> Any:
        if self._connection is None:
            raise ConnectionClosed(
                f"there is no connection to {self._address}: connect() or reconnect()"
            )
        return self._connection

    def _step(self, actions: Mapping[str, Any] | None, requested: Iterable[str] | None) -> Step:
        """Return a step; without `requested`, it asks for all observations."""
        if requested is None:
            manager = None if self._session is None else self._session.observations
            requested = () if manager is None else manager.names()
        return Step({} if actions is None else dict(actions), tuple(requested))

    @staticmethod
    def _locked(lock: Any, steps: Waits[Any]) -> Waits[Any]:
        if lock is None:
            return (yield from steps)
        yield lock.acquire()
        try:
            return (yield from steps)
        finally:
            lock.release()

    def _submit(self, request: Request | Step) -> Waits[_PendingReply]:
        return (yield from self._locked(self._sending, self._send(request)))

    def _send(self, request: Request | Step) -> Waits[_PendingReply]:
        connection = self._connected()
        # What more is sent while the server's windows let nothing go would only lie here.
        while self._pending and (len(self._pending) >= self._ahead or connection.session.crowded):
            yield from self._receive_one(self._pending[0])
        pending = self._reply_kind(self, request)
        # First in line, then sent: another task may receive the answer at once.
        self._pending.append(pending)
        try:
            yield connection.send(request)
        except BaseException as error:
            self._not_sent(pending, error)
            raise
        return pending

    def _receive_one(self, awaited: _PendingReply) -> Waits[None]:
        """Receive the oldest answer under way, unless `awaited` comes while others receive."""
        yield from self._locked(self._receiving, self._receive(awaited))

    def _receive(self, awaited: _PendingReply) -> Waits[None]:
        if awaited.done:
            return
        try:
            reply = yield self._connected().receive()
        except BaseException as error:
            self._not_received(error)
        else:
            self._pending.popleft()._set(reply)

    def _not_sent(self, pending: _PendingReply, error: BaseException) -> None:
        if pending in self._pending:
            self._pending.remove(pending)
        self._failed(error, len(self._pending))

    def _not_received(self, error: BaseException) -> None:
        if isinstance(error, LocalProtocolError):  # such as another thread's connection
            raise error
        self._failed(error, -1)
        if not isinstance(error, (RlwireError, OSError)):
            raise error

    def _failed(self, error: BaseException, owed: int) -> None:
        """Close the connection if more answers may come than are `owed`: they would be mixed up."""
        connection, session = self._connection, self._session
        if isinstance(error, LocalProtocolError) or connection is None or session is None:
            return
        if session.pending > owed:
            connection.close()
        if connection.closed:
            self._lose(error)

    def _lose(self, error: BaseException) -> None:
        """All answers under way are lost."""
        if not isinstance(error, (RlwireError, OSError)):
            error = ConnectionClosed(
                f"the connection to {self._address} is over: a request or the wait for an answer "
                f"was cancelled"
            )
        while self._pending:
            self._pending.popleft()._set(None, error)


class Client(Blocking, _DmEnvRpcClient):
    """An agent's connection to a dm_env_rpc server.

    ::

        with Client("localhost:9999") as client:
            world = client.create_world({"level": 3})
            specs = client.join_world(world)
            result = client.step()                       # begins a sequence
            while result.state == EnvironmentStateType.RUNNING:
                result = client.step({"move": 1}, ("board", "reward"))

    It connects on entry, or with `connect`. Requests that the server refuses raise `StatusError`
    and change nothing. When the connection is lost, whatever waits raises `ConnectionClosed` at
    once; `reconnect` makes a new one and joins the world again.

    One thread uses it, the first that sends something; `cancel` and `close` are for any.

    Args:
        address: ``"host:port"``, ``"unix:/path"`` or ``(host, port)``.
        auth: sent as a bearer token with the connection.
        tls: an SSL context, or what makes one: `rlwire.transports.tls.ClientTLS` names files.
        timeout: seconds to wait; `idle` is for an answer.
        backoff: attempts to connect, and the waits between them.
        limits: maxima for messages; ``received`` is for whole ones.
        max_sent: bytes of the longest message that is sent; by default as `limits` has it for
            those that are received.
        metadata: names and values that are sent with the connection.
        copy: whether observations own their memory; False makes read-only views of the message
            where the wire allows it, None where they are aligned besides.
        ahead: how many requests may be under way in `step_many` and `submit`.

    Raises:
        ValueError: an argument is invalid.
    """

    _reply_kind = PendingReply

    _dial = staticmethod(tcp.connect)

    def step(
        self,
        actions: Mapping[str, Any] | None = None,
        requested: Iterable[str] | None = None,
    ) -> StepResult:
        """Take a step.

        Args:
            actions: by name; those of a sequence's first step are ignored.
            requested: names of the observations to return; None for all, ``()`` for none.

        Raises:
            StatusError: the server rejects it; nothing has happened.
            EncodeError: there is no such action or observation, or a value does not fit.
            LocalProtocolError: no world is joined.
            ConnectionClosed, DeadlineExceeded: the connection is lost.
        """
        step = self._step(actions, requested)
        if self._pending or self._connection is None:
            return cast(StepResult, self.request(step))
        try:  # the hot path, therefore without a generator
            reply = self._connection.exchange(step)
        except BaseException as error:
            self._failed(error, 0)
            raise
        if type(reply) is StepResult:
            return reply
        raise StatusError.of(reply)

    def release(self) -> None:
        """Let the next thread that uses it be its thread, from now on."""
        connection = self._connection
        if connection is not None:
            connection.release()

    def submit(self, request: Request | Step) -> PendingReply:
        """Send a request without waiting for its answer, which comes after those before it.

        When `ahead` requests are under way, or more than `Limits.unsent` bytes of them wait for the
        server's windows, it waits for the oldest one's answer. Errors are those of `request`, but
        `StatusError`.
        """
        connection = self._connection
        if connection is None or len(self._pending) >= self._ahead or connection.session.crowded:
            return cast(PendingReply, drive(self._submit(request)))
        pending = PendingReply(self, request)
        self._pending.append(pending)
        try:
            connection.send(request)
        except BaseException as error:
            self._not_sent(pending, error)
            raise
        return pending


class AsyncClient(Asyncio, _DmEnvRpcClient):
    """`Client` with coroutines: the same methods, arguments and errors.

    Several tasks may use it; their requests are answered in the order in which they were sent. When
    a task is cancelled while it sends or waits for an answer, the connection is over: what gRPC has
    begun cannot be taken back.
    """

    _reply_kind = AsyncPendingReply
    _make_lock = asyncio.Lock

    _dial = staticmethod(tcp_asyncio.connect)

    async def step(
        self,
        actions: Mapping[str, Any] | None = None,
        requested: Iterable[str] | None = None,
    ) -> StepResult:
        """Take a step, as `Client.step`."""
        sending, receiving, connection = self._sending, self._receiving, self._connection
        step = self._step(actions, requested)
        if self._pending or connection is None or sending.locked() or receiving.locked():
            return cast(StepResult, await self.request(step))
        # Both are free, so neither waits. The hot path, therefore without a generator.
        await sending.acquire()
        await receiving.acquire()
        try:
            reply = await connection.exchange(step)
        except BaseException as error:
            self._failed(error, 0)
            raise
        finally:
            receiving.release()
            sending.release()
        if type(reply) is StepResult:
            return reply
        raise StatusError.of(reply)

    async def submit(self, request: Request | Step) -> AsyncPendingReply:
        """Send a request without waiting for its answer, as `Client.submit`."""
        return cast(AsyncPendingReply, await drive_async(self._submit(request)))
