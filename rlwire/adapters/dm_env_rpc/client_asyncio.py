"""`AsyncClient`: `Client` for the tasks of an event loop.

Needs grpcio (the extra ``grpc``). What the two share is in `rlwire.adapters.dm_env_rpc.client`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from rlwire.adapters.dm_env_rpc.client import (
    METHOD,
    RECONNECT,
    ClientBase,
    Way,
    is_passing,
    settings_of,
    step_of,
)
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
)
from rlwire.errors import ConnectionClosed, LimitExceeded, RlwireError
from rlwire.transports import grpc_asyncio
from rlwire.transports.sockets import Backoff

__all__ = ["AsyncClient", "AsyncPending"]

logger = logging.getLogger(__name__)


class AsyncPending:
    """The answer to a request that was submitted; `result` waits for it."""

    __slots__ = ("_client", "_error", "_reply", "request")

    def __init__(self, client: AsyncClient, request: Request | Step) -> None:
        self.request = request
        self._client = client
        self._reply: Response | StepResult | None = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self._reply is not None or self._error is not None

    async def result(self) -> Any:
        """Return the response, after waiting for it and for those before it.

        Raises:
            StatusError: the server answered with an error.
            ConnectionClosed, DeadlineExceeded: the answer is lost.
        """
        while self._reply is None and self._error is None:
            await self._client._receive_one(self)
        if self._error is not None:
            raise self._error
        if isinstance(self._reply, Status):
            raise StatusError.of(self._reply)
        return self._reply

    def _settle(self, reply: Any, error: BaseException | None = None) -> None:
        self._reply, self._error = reply, error
        if error is None and not isinstance(reply, Status):
            self._client._way.note(self.request, reply)


class AsyncClient(ClientBase):
    """`Client` with coroutines: the same methods, arguments and errors.

    Several tasks may use it; their requests are answered in the order in which they were sent. When
    a task is cancelled while it sends or waits for an answer, the connection is over: what gRPC has
    begun cannot be taken back.

    The arguments are `ClientBase`'s; `engine` is of no meaning here.
    """

    _connection: grpc_asyncio.AsyncGrpcConnection | None
    _pending: deque[AsyncPending]

    def _begin(self) -> None:
        self._sending = asyncio.Lock()
        self._receiving = asyncio.Lock()

    async def __aenter__(self) -> AsyncClient:
        if self._connection is None:
            await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect, after closing a connection that is open."""
        await self.close()
        await self._open(None)

    async def close(self) -> None:
        """Close the connection, and forget what was created and joined."""
        await self._drop()
        self._way = Way()

    def cancel(self) -> None:
        """Break the connection off: whatever waits raises ConnectionClosed."""
        if self._connection is not None:
            self._connection.cancel()

    # ---- requests ----------------------------------------------------------------------------

    async def create_world(self, settings: Mapping[str, Any] | None = None) -> str:
        """Create a world and return its name, as `Client.create_world`."""
        reply = await self.request(CreateWorldRequest(settings_of(settings)))
        name: str = reply.world_name
        return name

    async def join_world(
        self, world_name: str = "", settings: Mapping[str, Any] | None = None
    ) -> ActionObservationSpecs:
        """Become an agent of a world, as `Client.join_world`."""
        reply = await self.request(JoinWorldRequest(world_name, settings_of(settings)))
        specs: ActionObservationSpecs = reply.specs
        return specs

    async def step(
        self,
        actions: Mapping[str, Any] | None = None,
        requested: Iterable[str] | None = None,
    ) -> StepResult:
        """Take a step, as `Client.step`."""
        result: StepResult = await self.request(step_of(self._session, actions, requested))
        return result

    async def step_many(
        self,
        actions: Iterable[Mapping[str, Any]],
        requested: Iterable[str] | None = None,
    ) -> list[StepResult]:
        """Take steps without waiting for each one's result, as `Client.step_many`."""
        names = None if requested is None else tuple(requested)
        submitted: list[AsyncPending] = []
        try:
            for each in actions:
                submitted.append(await self.submit(step_of(self._session, each, names)))
        finally:
            for pending in submitted:
                while not pending.done:
                    await self._receive_one(pending)
        return [await each.result() for each in submitted]

    async def submit(self, request: Request | Step) -> AsyncPending:
        """Send a request without waiting for its answer, as `Client.submit`."""
        async with self._sending:
            connection = self._connected()
            while len(self._pending) >= self._ahead:
                await self._receive_one(self._pending[0])
            pending = AsyncPending(self, request)
            while True:
                # First in line, then sent: another task may receive the answer at once.
                self._pending.append(pending)
                try:
                    await connection.send(request)
                    return pending
                except BaseException as error:
                    if pending in self._pending:
                        self._pending.remove(pending)
                    if connection.closed:
                        self._lose(error)
                    full = isinstance(error, LimitExceeded) and error.limit == "backlog"
                    if not (full and self._pending):
                        raise
                await self._receive_one(self._pending[0])

    async def reset(self, settings: Mapping[str, Any] | None = None) -> ActionObservationSpecs:
        """End the sequence, as `Client.reset`."""
        specs: ActionObservationSpecs = (
            await self.request(ResetRequest(settings_of(settings)))
        ).specs
        return specs

    async def reset_world(
        self, world_name: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        """End the sequences of all agents in a world, as `Client.reset_world`."""
        if world_name is None:
            world_name = self.world_name or ""
        await self.request(ResetWorldRequest(world_name, settings_of(settings)))

    async def leave_world(self) -> None:
        """Stop being an agent, as `Client.leave_world`."""
        await self.request(LeaveWorldRequest())

    async def destroy_world(self, world_name: str) -> None:
        """Destroy a world, as `Client.destroy_world`."""
        await self.request(DestroyWorldRequest(world_name))

    async def extension(self, message: AnyMessage) -> AnyMessage:
        """Send an extension's request and return the response."""
        reply: AnyMessage = await self.request(message)
        return reply

    async def request(self, request: Request | Step) -> Any:
        """Send any request and return the response, as `Client.request`."""
        return await (await self.submit(request)).result()

    # ---- after a loss ------------------------------------------------------------------------

    async def reconnect(self, backoff: Backoff | None = None) -> ActionObservationSpecs | None:
        """Connect and join again, as `Client.reconnect`."""
        backoff = backoff or RECONNECT
        await self._drop()
        await self._open(backoff)
        if self._way.joined is None:
            logger.info("%s: connected again", self._address)
            return None
        delays = backoff.delays()
        loop = asyncio.get_running_loop()
        end = None if backoff.deadline is None else loop.time() + backoff.deadline
        while True:
            try:
                return await self._rejoin(*self._way.joined)
            except StatusError as error:
                delay = next(delays, None)
                late = delay is not None and end is not None and loop.time() + delay > end
                if not is_passing(error) or delay is None or late:
                    raise
                logger.info("%s: not joined yet: %s", self._address, error)
                await asyncio.sleep(delay)

    async def _rejoin(self, world: str, settings: Settings) -> ActionObservationSpecs:
        try:
            specs = await self.join_world(world, settings)
        except StatusError as error:
            again = self._way.forgotten(error)
            if again is None:
                raise
            name = await self.create_world(again)
            self._way.replace(world, name)
            logger.warning(
                "%s: connected again; the server has forgotten the world %r, created anew as %r",
                self._address, world, name,
            )  # fmt: skip
            return await self.join_world(name, settings)
        logger.info("%s: connected again, joined the world %r", self._address, world)
        return specs

    # ---- inside ------------------------------------------------------------------------------

    async def _open(self, backoff: Backoff | None) -> None:
        session = self._new_session()
        self._connection = await grpc_asyncio.connect(
            self._address, METHOD, session, **self._connecting(backoff)
        )
        self._session = session

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._session = None
        self._lose(ConnectionClosed(f"the connection to {self._address} was closed here"))
        if connection is not None:
            await connection.close()

    def _connected(self) -> grpc_asyncio.AsyncGrpcConnection:
        if self._connection is None:
            raise self._no_connection()
        return self._connection

    async def _receive_one(self, awaited: AsyncPending) -> None:
        """Receive the oldest answer under way, unless `awaited` comes while others receive."""
        async with self._receiving:
            if awaited.done:
                return
            connection = self._connected()
            try:
                reply = await connection.receive()
            except (RlwireError, OSError) as error:
                self._lose(error)
                return
            except BaseException:
                self._lose(
                    ConnectionClosed(
                        f"the connection to {connection.peer} is over: a task that waited for an "
                        f"answer was cancelled"
                    )
                )
                raise
            self._pending.popleft()._settle(reply)

    def _lose(self, error: BaseException) -> None:
        """All answers under way are lost."""
        if not isinstance(error, (RlwireError, OSError)):
            error = ConnectionClosed("the connection is over: a task that sent was cancelled")
        while self._pending:
            self._pending.popleft()._settle(None, error)
