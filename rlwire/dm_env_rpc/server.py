"""`Server`: serves worlds to agents. `DmEnvRpcHandler` answers the requests of one call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from rlwire._options import with_options
from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Request, Status, Step
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc import channel
from rlwire.dm_env_rpc.environment_world import EnvironmentWorlds
from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.dm_env_rpc.options import DmEnvRpcServerOptions
from rlwire.dm_env_rpc.served_world import ServedAgent
from rlwire.dm_env_rpc.spaces import MULTIPLEXED, REQUEST_SPACES
from rlwire.dm_env_rpc.status import StatusError, report
from rlwire.dm_env_rpc.world import Reply, is_world
from rlwire.dm_env_rpc.world_registry import WorldRegistry
from rlwire.environments.driver import is_environment
from rlwire.errors import LimitExceeded, for_peer, on_error, quoted
from rlwire.limits import DEFAULT
from rlwire.serving.serving import AnyConnection, Service, StreamServer
from rlwire.sessions.dm_env_rpc import REQUESTS, DmEnvRpcServerSession
from rlwire.sessions.grpc import CallStatus
from rlwire.sessions.grpc.server import GrpcServerSession, ServedCall
from rlwire.transports.admission import Admission
from rlwire.transports.connection import Connection
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.deferred import DeferredReply

logger = logging.getLogger(__name__)

KEEP_ALIVE: Final = {"ping_interval": 120.0}
"""In seconds: pings clients that send nothing."""

_NAMES = {request: name for name, (request, _) in REQUESTS.items()} | {Step: "step"}


class Server(StreamServer):
    """A dm_env_rpc server.

    ::

        with Server(MyEnvironment, "localhost:9911") as server:
            ...
        Server(MyWorld, "localhost:9911").serve_forever()     # until SIGINT or SIGTERM

    If a request fails, the client receives an error status, whatever the environment raises, and
    the connection stays open.

    `worlds` is a `World` class or another `WorldFactory`, called with the settings of
    ``create_world``; or one `World`, which clients join by the name ``""``; or a dm_env, Gymnasium
    or PettingZoo environment, or its class. For a function that makes environments, and for
    options, pass `EnvironmentWorlds`.

    Attributes:
        accepts: the settings that clients may give; None if `worlds` checks them itself.
        worlds: the worlds that exist: `names`, ``len()``, and `add` for more.
    """

    scheme = "dm-env-rpc"
    handlers = "a world"

    @with_options(DmEnvRpcServerOptions)
    def __init__(self, worlds: Any, options: DmEnvRpcServerOptions) -> None:
        one = is_world(worlds) and not isinstance(worlds, type)
        if is_environment(worlds):
            worlds = EnvironmentWorlds(worlds)
        if not (one or callable(worlds)):
            raise TypeError(
                f"expected a factory of worlds or an environment, not a {type(worlds).__name__}"
            )
        self.accepts: frozenset[str] | None = getattr(worlds, "accepts", None)
        self.worlds = WorldRegistry(None if one else worlds, worlds if one else None, options)
        service = DmEnvRpcService(self.worlds, options)
        service.session()  # raises for invalid options
        # A call over the limit needs an open connection to receive its status.
        connections = replace(
            options,
            tls=channel.http2_context(options.tls),
            max_connections=2 * options.max_connections,
            max_connections_per_address=2 * options.max_connections_per_address,
        )
        super().__init__(service, connections, workers=options.workers)
        if options.auth is not None and options.tls is None:
            channel.warn_of_plain_token(self._where)

    def check(self) -> None:
        """Make a world without settings, and close it; a `StatusError` is only logged."""
        factory = self.worlds.factory
        if factory is None or getattr(factory, "sampled", False):
            return
        try:
            self.worlds.make({}).close()
        except StatusError as error:
            logger.info("no world can be made without settings, not checked: %s", error.message)

    def _details(self) -> str:
        if self.accepts is None:
            return f"workers: {self._workers}"
        return f"workers: {self._workers}, clients may set: {', '.join(sorted(self.accepts))}"

    def _after_stop(self) -> None:
        self.worlds.close()


class DmEnvRpcService(Service[AnyConnection]):
    """Makes the sessions and handlers of calls; counts and limits these."""

    def __init__(self, worlds: WorldRegistry, options: DmEnvRpcServerOptions) -> None:
        self.worlds = worlds
        self._admission = Admission(options.max_connections, options.max_connections_per_address)
        token = options.auth
        self._authorization = None if token is None else channel.authorization(token)
        limits = options.limits or DEFAULT
        self._max_sent = channel.most_sent(limits, options.max_sent)
        self._multiplexes = options.workers == "asyncio"
        self._calls = {"limits": limits, "max_sent": self._max_sent, **KEEP_ALIVE}
        self._sessions: dict[str, Any] = {"limits": limits, "check_bounds": options.check_bounds}

    def session(self) -> GrpcServerSession:
        return GrpcServerSession(**self._calls)

    def handler(self, connection: Connection | AsyncConnection) -> GrpcHandler:
        return GrpcHandler(connection, partial(self._admit, connection.peer), self.worlds.log)

    def set_up_process(self) -> None:
        self.worlds.open()

    def _admit(
        self, peer: str, call: ServedCall
    ) -> tuple[DmEnvRpcServerSession, DmEnvRpcHandler] | CallStatus:
        log = self.worlds.log
        if call.method != channel.METHOD:
            return CallStatus("UNIMPLEMENTED", f"there is no {call.method}, only {channel.METHOD}")
        token = self._authorization
        if token is not None and (why := channel.refusal(token, call.metadata)):
            log.warning("%s: rejected, %s", peer, why)
            return CallStatus("UNAUTHENTICATED", why)
        _, unix, user = peer.rpartition("#")
        address = user.partition(" ")[2] if unix else peer.rpartition(":")[0].strip("[]")
        try:
            self._admission.enter(address)
        except LimitExceeded as error:
            log.warning("%s: rejected, %s", peer, error)
            return CallStatus("RESOURCE_EXHAUSTED", for_peer(error, "the server"))
        ours = REQUEST_SPACES in call.metadata
        info_size = self._max_sent // 2 if ours else None
        if ours and self._multiplexes:
            call.reply_metadata = (MULTIPLEXED,)
        leave = partial(self._admission.leave, address)
        handler = DmEnvRpcHandler(self.worlds, peer, info_size, on_close=leave)
        return DmEnvRpcServerSession(**self._sessions), handler


class DmEnvRpcHandler:
    """Answers the requests of one call, in order; replies may be deferred."""

    by_reference = False  # whether replies may be sent from the agent's arrays; see `GrpcHandler`

    def __init__(
        self,
        worlds: WorldRegistry,
        peer: object = "",
        info_size: int | None = None,  # the most, for `rlwire.make`, which wants spaces too
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._worlds = worlds
        self._log = worlds.log
        self._peer = peer
        self._info_size = info_size
        self._agent: ServedAgent | None = None
        self._created: list[str] = []
        self._on_close = on_close

    def answer(self, event: Request | Step) -> Reply:
        """Return the reply; anything that a world raises, even `SystemExit`, becomes a `Status`."""
        try:
            if type(event) is Step:
                agent: Any = self._agent  # the session has checked that a world is joined
                return agent.served.step(agent, event)
            reply: Reply = getattr(self, f"_{_NAMES[type(event)]}")(event)
            return reply
        except BaseException as error:
            return self._failed(event, error)

    def failure(self, event: Request | Step, error: BaseException) -> Status:
        """Undo a request whose reply cannot be sent; return the status to send instead."""
        agent = self._agent
        if agent is not None and isinstance(event, (Step, codec.ResetRequest)):
            agent.served.undo(agent)
        elif agent is not None and isinstance(event, codec.JoinWorldRequest):
            self._leave()
        return self._failed(event, error)

    def close(self) -> None:
        self._leave()
        for name in self._created:
            self._worlds.abandon(name)
        if self._on_close is not None:
            self._on_close()

    def _failed(self, event: Request | Step, error: BaseException) -> Status:
        return report(self._log, self._peer, _NAMES[type(event)], error)

    def _create_world(self, request: codec.CreateWorldRequest) -> codec.CreateWorldResponse:
        name = self._worlds.create(request.settings).name
        self._log.info("%s: created world %r", self._peer, name)
        self._created.append(name)
        return codec.CreateWorldResponse(name)

    def _join_world(self, request: codec.JoinWorldRequest) -> codec.JoinWorldResponse:
        agent = self._worlds.join(request.world_name, request.settings, self._peer)
        send_spaces = getattr(agent.environment, "send_spaces", None)
        if self._info_size is not None and send_spaces is not None:
            with on_error(lambda: self._worlds.leave(agent)), agent.served.call_lock:
                send_spaces(self._info_size)
        self._log.info("%s: joined %s", self._peer, agent.served)
        self._agent = agent
        self.by_reference = getattr(agent.environment, "by_reference", False)
        return codec.JoinWorldResponse(agent.environment.specs)

    def _reset(self, request: codec.ResetRequest) -> codec.ResetResponse:
        agent: Any = self._agent
        agent.served.reset(agent, request.settings)
        return codec.ResetResponse(agent.environment.specs)

    def _reset_world(self, request: codec.ResetWorldRequest) -> Reply:
        agent = self._agent
        if agent is not None and request.world_name != agent.served.name:
            agent = None
        served = self._worlds.find(request.world_name) if agent is None else agent.served
        reply = served.reset_world(request.settings, agent, self._peer)
        waits = " waits for its agents" if isinstance(reply, DeferredReply) else ""
        self._log.info("%s: reset of %s%s", self._peer, served, waits)
        return reply

    def _leave_world(self, request: codec.LeaveWorldRequest) -> codec.LeaveWorldResponse:
        self._leave()
        return codec.LeaveWorldResponse()

    def _destroy_world(self, request: codec.DestroyWorldRequest) -> codec.DestroyWorldResponse:
        self._worlds.destroy(request.world_name)
        self._log.info("%s: destroyed world %r", self._peer, request.world_name)
        return codec.DestroyWorldResponse()

    def _extension(self, request: codec.AnyMessage) -> codec.AnyMessage:
        extensions = self._worlds.extensions
        extension = extensions.get(request.type_url.rpartition("/")[2])
        if extension is None:
            known = ", ".join(sorted(extensions))
            raise StatusError(
                Code.UNIMPLEMENTED, f"{quoted(request.type_url)} is not known here; known: {known}"
            )
        if self._agent is None:
            return extension(request, None)
        with self._agent.served.call_lock:
            return extension(request, self._agent.served.world)

    def _leave(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            self._worlds.leave(agent)
            self._log.info("%s: left %s", self._peer, agent.served)
