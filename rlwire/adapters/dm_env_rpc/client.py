"""`Client`: an agent's connection to a dm_env_rpc server; blocking, for one thread.

Needs grpcio (the extra ``grpc``). Not here: who may say what (`rlwire.sessions.dm_env_rpc`), and
the stream itself (`rlwire.transports.grpc_client`). `AsyncClient` is in `client_asyncio`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final

from rlwire.adapters.dm_env_rpc.status import StatusError
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
from rlwire.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions import dm_env_rpc
from rlwire.sessions.dm_env_rpc import Code
from rlwire.transports import grpc_client
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.grpc_options import ClientTLS, Metadata, Options
from rlwire.transports.sockets import Backoff, Timeouts

__all__ = ["METHOD", "Client", "ClientBase", "Pending"]

logger = logging.getLogger(__name__)

METHOD: Final = "/dm_env_rpc.v1.Environment/Process"
"""The one method of the protocol's gRPC service."""

RECONNECT: Final = Backoff(attempts=20, deadline=60.0)
"""How `Client.reconnect` tries by default."""

# Refusals that may be over soon: a server learns later than its client that a connection is lost,
# and until then the agent's place in the world is taken.
_PASSING = (Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION, Code.UNAVAILABLE, Code.ABORTED)


def is_passing(error: StatusError) -> bool:
    """Whether a join that was refused so may go well later."""
    return error.code in _PASSING


class Way:
    """How a connection came to its world: what `reconnect` does again.

    Attributes:
        created: the settings of the worlds that this client has created, by name.
        joined: the name of the world that is joined, and the agent's settings.
    """

    def __init__(self) -> None:
        self.created: dict[str, Settings] = {}
        self.joined: tuple[str, Settings] | None = None

    def note(self, request: Request | Step, reply: Any) -> None:
        """Note what a request that went well has changed."""
        if isinstance(request, CreateWorldRequest):
            self.created[reply.world_name] = request.settings
        elif isinstance(request, JoinWorldRequest):
            self.joined = request.world_name, request.settings
        elif isinstance(request, LeaveWorldRequest):
            self.joined = None
        elif isinstance(request, DestroyWorldRequest):
            self.created.pop(request.world_name, None)

    def forgotten(self, error: StatusError) -> Settings | None:
        """Return the settings to create the world with again, if the server has forgotten it."""
        if error.code != Code.NOT_FOUND or self.joined is None:
            return None
        return self.created.get(self.joined[0])

    def replace(self, world: str, name: str) -> None:
        """Note that a world was created anew under another name."""
        self.created.pop(world, None)
        if self.joined is not None:
            self.joined = name, self.joined[1]


class ClientBase:
    """What `Client` and `AsyncClient` share: arguments, and what is known of the connection.

    Args:
        address: ``"host:port"``, ``"unix:/path"`` or ``(host, port)``.
        tls: files for a server with TLS.
        token: sent as a bearer token with the connection.
        metadata: more of it, names and values.
        timeouts: seconds to wait; `idle` is for an answer.
        backoff: attempts to connect, and the waits between them.
        limits: maxima for messages; ``received`` is for whole ones.
        max_sent: bytes of the longest message that is sent; by default as `limits` has it for
            those that are received.
        copy: whether observations own their memory; False makes read-only views of the message
            where the wire allows it, None where they are aligned besides.
        ahead: how many requests may be under way in `step_many` and `submit`.
        engine: how a `Client` waits for gRPC, see `rlwire.transports.grpc_client.connect`.
        options: channel arguments as gRPC names them.

    Raises:
        ValueError: an argument makes no sense.
    """

    def __init__(
        self,
        address: AddressLike,
        *,
        tls: ClientTLS | None = None,
        token: str | None = None,
        metadata: Metadata = (),
        timeouts: Timeouts | None = None,
        backoff: Backoff | None = None,
        limits: Limits | None = None,
        max_sent: int | None = None,
        copy: bool | None = True,
        ahead: int = 64,
        engine: grpc_client.Engine = "auto",
        options: Options = (),
    ) -> None:
        if ahead < 1:
            raise ValueError(f"ahead must be at least 1, not {ahead}")
        self._address = parse(address)
        self._ahead = ahead
        self._backoff = backoff or Backoff()
        self._limits = limits or DEFAULT
        self._copy = copy
        self._engine: grpc_client.Engine = engine
        self._connect_options: dict[str, Any] = {
            "tls": tls,
            "token": token,
            "metadata": metadata,
            "timeouts": timeouts,
            "limits": self._limits,
            "max_sent": max_sent,
            "options": options,
        }
        self._way = Way()
        self._session: dm_env_rpc.Client | None = None
        self._connection: Any = None
        self._pending: deque[Any] = deque()
        self._begin()

    def _begin(self) -> None:
        """Set up what differs between the two."""

    @property
    def address(self) -> Address:
        """The server's."""
        return self._address

    @property
    def closed(self) -> bool:
        """Whether there is no connection, or none of use."""
        return self._connection is None or bool(self._connection.closed)

    @property
    def state(self) -> dm_env_rpc.State:
        """Where the connection stands."""
        return dm_env_rpc.State.CLOSED if self._session is None else self._session.state

    @property
    def specs(self) -> ActionObservationSpecs | None:
        """What the joined agent may do and see, None if no world is joined."""
        return None if self._session is None else self._session.specs

    @property
    def world_name(self) -> str | None:
        """The name of the world that is joined, None if none is."""
        return None if self._way.joined is None else self._way.joined[0]

    def _new_session(self) -> dm_env_rpc.Client:
        return dm_env_rpc.Client(limits=self._limits, copy=self._copy)

    def _connecting(self, backoff: Backoff | None) -> dict[str, Any]:
        """Return the arguments for the transport."""
        return {**self._connect_options, "backoff": backoff or self._backoff}

    def _no_connection(self) -> ConnectionClosed:
        return ConnectionClosed(
            f"there is no connection to {self._address}: connect() or reconnect()"
        )


def settings_of(settings: Mapping[str, Any] | None) -> Settings:
    """Return settings by name; nested ones are joined by periods."""
    return flatten(settings, strict=False) if settings else {}


def step_of(
    session: dm_env_rpc.Client | None,
    actions: Mapping[str, Any] | None,
    requested: Iterable[str] | None,
) -> Step:
    """Return a step; without `requested`, it asks for all observations."""
    if requested is None:
        manager = None if session is None else session.observations
        requested = () if manager is None else manager.names()
    return Step({} if actions is None else dict(actions), tuple(requested))


class Pending:
    """The answer to a request that was submitted; `result` waits for it."""

    __slots__ = ("_client", "_error", "_reply", "request")

    def __init__(self, client: Client, request: Request | Step) -> None:
        self.request = request
        self._client = client
        self._reply: Response | StepResult | None = None
        self._error: RlwireError | OSError | None = None

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self._reply is not None or self._error is not None

    def result(self) -> Any:
        """Return the response, after waiting for it and for those before it.

        Raises:
            StatusError: the server answered with an error.
            ConnectionClosed, DeadlineExceeded: the answer is lost.
        """
        while not self.done:
            self._client._receive_one()
        if self._error is not None:
            raise self._error
        if isinstance(self._reply, Status):
            raise StatusError.of(self._reply)
        return self._reply

    def _settle(self, reply: Any, error: RlwireError | OSError | None = None) -> None:
        self._reply, self._error = reply, error
        if error is None and not isinstance(reply, Status):
            self._client._way.note(self.request, reply)


class Client(ClientBase):
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

    One thread uses it, the first that sends something; `cancel` and `close` are for any. The
    arguments are `ClientBase`'s.
    """

    _connection: grpc_client.GrpcConnection | None
    _pending: deque[Pending]

    def __enter__(self) -> Client:
        if self._connection is None:
            self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Connect, after closing a connection that is open.

        Raises:
            ConnectionClosed, DeadlineExceeded, OSError: the server cannot be reached.
        """
        self.close()
        self._open(None)

    def close(self) -> None:
        """Close the connection, and forget what was created and joined."""
        self._drop()
        self._way = Way()

    def cancel(self) -> None:
        """Break the connection off, from any thread: whatever waits raises ConnectionClosed."""
        connection = self._connection
        if connection is not None:
            connection.cancel()

    # ---- requests ----------------------------------------------------------------------------

    def create_world(self, settings: Mapping[str, Any] | None = None) -> str:
        """Create a world and return its name; nested settings are flattened at periods."""
        name: str = self.request(CreateWorldRequest(settings_of(settings))).world_name
        return name

    def join_world(
        self, world_name: str = "", settings: Mapping[str, Any] | None = None
    ) -> ActionObservationSpecs:
        """Become an agent of a world and return what it may do and see."""
        specs: ActionObservationSpecs = self.request(
            JoinWorldRequest(world_name, settings_of(settings))
        ).specs
        return specs

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
            StatusError: the server refuses; nothing has happened.
            EncodeError: there is no such action or observation, or a value does not fit.
            LocalProtocolError: no world is joined.
            ConnectionClosed, DeadlineExceeded: the connection is lost.
        """
        event = step_of(self._session, actions, requested)
        if self._pending or self._connection is None:
            result: StepResult = self.submit(event).result()
            return result
        reply = self._connection.exchange(event)
        if type(reply) is StepResult:
            return reply
        raise StatusError.of(reply)

    def step_many(
        self,
        actions: Iterable[Mapping[str, Any]],
        requested: Iterable[str] | None = None,
    ) -> list[StepResult]:
        """Take steps without waiting for each one's result: one round trip for all of them.

        When a sequence ends on the way, the next step begins another and its actions are ignored.

        Raises:
            StatusError: the server refused a step. Those after it that were sent already have
                been taken; their results are lost. Where that matters, `submit` them.
            EncodeError, LocalProtocolError, ConnectionClosed, DeadlineExceeded: as `step`.
        """
        names = None if requested is None else tuple(requested)
        submitted: list[Pending] = []
        try:
            for each in actions:
                submitted.append(self.submit(step_of(self._session, each, names)))
        finally:
            while self._pending:
                self._receive_one()
        return [each.result() for each in submitted]

    def submit(self, request: Request | Step) -> Pending:
        """Send a request without waiting for its answer, which comes after those before it.

        When `ahead` requests are under way, it waits for the oldest one's answer.

        Raises:
            EncodeError, LocalProtocolError: it cannot be sent now; nothing was.
            ConnectionClosed, DeadlineExceeded: the connection is lost.
        """
        connection = self._connected()
        while len(self._pending) >= self._ahead:
            self._receive_one()
        while True:
            try:
                connection.send(request)
                break
            except LimitExceeded as error:
                if error.limit != "backlog" or not self._pending:
                    raise
            self._receive_one()
        pending = Pending(self, request)
        self._pending.append(pending)
        return pending

    def reset(self, settings: Mapping[str, Any] | None = None) -> ActionObservationSpecs:
        """End the sequence; return the specs, which the settings may have changed."""
        specs: ActionObservationSpecs = self.request(ResetRequest(settings_of(settings))).specs
        return specs

    def reset_world(
        self, world_name: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        """End the sequences of all agents in a world, by default the joined one.

        It waits until each of the others has been told by its next step.
        """
        if world_name is None:
            world_name = self.world_name or ""
        self.request(ResetWorldRequest(world_name, settings_of(settings)))

    def leave_world(self) -> None:
        """Stop being an agent; nothing happens if no world is joined."""
        self.request(LeaveWorldRequest())

    def destroy_world(self, world_name: str) -> None:
        """Destroy a world, which nobody may be joined to."""
        self.request(DestroyWorldRequest(world_name))

    def extension(self, message: AnyMessage) -> AnyMessage:
        """Send an extension's request and return the response."""
        reply: AnyMessage = self.request(message)
        return reply

    def request(self, request: Request | Step) -> Any:
        """Send any request and return the response.

        Raises:
            StatusError: the server answers with an error.
            EncodeError, LocalProtocolError: it cannot be sent now; nothing was.
            ConnectionClosed, DeadlineExceeded: the connection is lost.
        """
        return self.submit(request).result()

    # ---- after a loss ------------------------------------------------------------------------

    def reconnect(self, backoff: Backoff | None = None) -> ActionObservationSpecs | None:
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
        self._drop()
        self._open(backoff)
        if self._way.joined is None:
            logger.info("%s: connected again", self._address)
            return None
        delays = backoff.delays()
        end = None if backoff.deadline is None else time.monotonic() + backoff.deadline
        while True:
            try:
                return self._rejoin(*self._way.joined)
            except StatusError as error:
                delay = next(delays, None)
                late = delay is not None and end is not None and time.monotonic() + delay > end
                if not is_passing(error) or delay is None or late:
                    raise
                logger.info("%s: not joined yet: %s", self._address, error)
                time.sleep(delay)

    def _rejoin(self, world: str, settings: Settings) -> ActionObservationSpecs:
        where = self._address
        try:
            specs = self.join_world(world, settings)
        except StatusError as error:
            again = self._way.forgotten(error)
            if again is None:
                raise
            name = self.create_world(again)
            self._way.replace(world, name)
            logger.warning(
                "%s: connected again; the server has forgotten the world %r, created anew as %r",
                where, world, name,
            )  # fmt: skip
            return self.join_world(name, settings)
        logger.info("%s: connected again, joined the world %r", where, world)
        return specs

    # ---- inside ------------------------------------------------------------------------------

    def _open(self, backoff: Backoff | None) -> None:
        session = self._new_session()
        self._connection = grpc_client.connect(
            self._address,
            METHOD,
            session,
            engine=self._engine,
            **self._connecting(backoff),
        )
        self._session = session

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._session = None
        lost = ConnectionClosed(f"the connection to {self._address} was closed here")
        while self._pending:
            self._pending.popleft()._settle(None, lost)
        if connection is not None:
            connection.close()

    def _connected(self) -> grpc_client.GrpcConnection:
        if self._connection is None:
            raise self._no_connection()
        return self._connection

    def _receive_one(self) -> None:
        """Receive the oldest answer under way."""
        connection = self._connected()
        try:
            reply = connection.receive()
        except LocalProtocolError:  # another thread's connection
            raise
        except (RlwireError, OSError) as error:
            while self._pending:
                self._pending.popleft()._settle(None, error)
            raise
        self._pending.popleft()._settle(reply)
