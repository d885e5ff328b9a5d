"""`Server`: serves worlds to agents."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any, Final

from rlwire._options import with_options
from rlwire.codecs.dm_env_rpc import Settings
from rlwire.dm_env_rpc.channel import (
    METHOD,
    authorization,
    authorized,
    http2_context,
    most_sent,
    warn_of_plain_token,
)
from rlwire.dm_env_rpc.environment_worlds import EnvironmentWorlds
from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.dm_env_rpc.handler import DmEnvRpcHandler
from rlwire.dm_env_rpc.options import DmEnvRpcServerOptions
from rlwire.dm_env_rpc.spaces import REQUEST_SPACES
from rlwire.dm_env_rpc.status import StatusError
from rlwire.dm_env_rpc.world import World, WorldFactory, is_world
from rlwire.dm_env_rpc.world_registry import WorldRegistry
from rlwire.environments.driver import is_environment
from rlwire.errors import LimitExceeded, for_peer
from rlwire.limits import DEFAULT
from rlwire.serving.serving import AnyConnection, Service, StreamServer
from rlwire.sessions.dm_env_rpc import DmEnvRpcServerSession
from rlwire.sessions.grpc import CallStatus
from rlwire.sessions.grpc.server import GrpcServerSession, ServedCall
from rlwire.transports.admission import Admission
from rlwire.transports.connection import Connection
from rlwire.transports.connection_asyncio import AsyncConnection

logger = logging.getLogger(__name__)

KEEP_ALIVE: Final = {"ping_interval": 120.0}
"""In seconds: pings clients that send nothing."""


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
    """

    scheme = "dm-env-rpc"
    guards = "TLS or a token"
    handlers = "a world"

    @with_options(DmEnvRpcServerOptions)
    def __init__(self, worlds: Any, options: DmEnvRpcServerOptions) -> None:
        one = is_world(worlds) and not isinstance(worlds, type)
        if is_environment(worlds):
            worlds = EnvironmentWorlds(worlds)
        self.accepts: frozenset[str] | None = getattr(worlds, "accepts", None)
        self._sampled = getattr(worlds, "sampled", False)
        factory, world = (None, worlds) if one else (_factory(worlds), None)
        self._worlds = WorldRegistry(factory, world, options)
        service = DmEnvRpcService(self._worlds, options)
        service.session()  # raises for invalid options
        # A call over the limit needs an open connection to receive its status.
        connections = replace(
            options,
            tls=http2_context(options.tls),
            max_connections=2 * options.max_connections,
            max_connections_per_address=2 * options.max_connections_per_address,
        )
        super().__init__(service, connections, workers=options.workers)
        if options.auth is not None:
            self._guarded = True
            if options.tls is None:
                warn_of_plain_token(self._where)

    @property
    def worlds(self) -> WorldRegistry:
        """The worlds that exist: `names`, ``len()``, and `add` for more."""
        return self._worlds

    def check(self) -> None:
        """Make a world without settings, and close it; a `StatusError` is only logged."""
        if self._worlds.factory is None or self._sampled:
            return
        try:
            world = self._worlds.factory({})
        except StatusError as error:
            logger.info("no world can be made without settings, not checked: %s", error.message)
        else:
            world.close()

    def _details(self) -> str:
        if self.accepts is None:
            return f"workers: {self._workers}"
        return f"workers: {self._workers}, clients may set: {', '.join(sorted(self.accepts))}"

    def _after_stop(self) -> None:
        self._worlds.close()


class DmEnvRpcService(Service[AnyConnection]):
    """Makes the sessions and handlers of calls; counts and limits these."""

    def __init__(self, worlds: WorldRegistry, options: DmEnvRpcServerOptions) -> None:
        self.worlds = worlds
        self._admission = Admission(options.max_connections, options.max_connections_per_address)
        self._authorization = None if options.auth is None else authorization(options.auth)
        limits = options.limits or DEFAULT
        self._max_sent = most_sent(limits, options.max_sent)
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
        if call.method != METHOD:
            return CallStatus("UNIMPLEMENTED", f"there is no {call.method}, only {METHOD}")
        if self._authorization is not None and not authorized(self._authorization, call.metadata):
            sent = any(key == self._authorization[0] for key, _ in call.metadata)
            why = "the token is wrong" if sent else "a token is needed, and none was sent"
            log.warning("%s: rejected, %s", peer, why)
            return CallStatus("UNAUTHENTICATED", why)
        _, unix, user = peer.rpartition("#")
        address = user.partition(" ")[2] if unix else peer.rpartition(":")[0].strip("[]")
        try:
            self._admission.enter(address)
        except LimitExceeded as error:
            log.warning("%s: rejected, %s", peer, error)
            return CallStatus("RESOURCE_EXHAUSTED", for_peer(error, "the server"))
        info_size = self._max_sent // 2 if REQUEST_SPACES in call.metadata else None
        leave = partial(self._admission.leave, address)
        handler = DmEnvRpcHandler(self.worlds, peer, info_size, on_close=leave)
        return DmEnvRpcServerSession(**self._sessions), handler


def _factory(worlds: Any) -> WorldFactory:
    if not callable(worlds):
        raise TypeError(
            f"expected a factory of worlds or an environment, not a {type(worlds).__name__}"
        )

    def make(settings: Settings) -> World:
        world: World = worlds(settings)
        if not is_world(world):
            hint = ": pass EnvironmentWorlds(...) to Server" if is_environment(world) else ""
            raise TypeError(
                f"expected a World (join, reset, close), not a {type(world).__name__}{hint}"
            )
        return world

    return make
