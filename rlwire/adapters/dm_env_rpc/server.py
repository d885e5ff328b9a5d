"""`DmEnvRpcServer`: listens for agents and lets them into worlds.

Needs grpcio (the extra ``grpc``). Not here: what a world is and who is in it
(`rlwire.adapters.dm_env_rpc.worlds`), who may say what (`rlwire.sessions.dm_env_rpc`), streams,
threads and the event loop (`rlwire.transports`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from rlwire.adapters.dm_env_rpc.client import METHOD
from rlwire.adapters.dm_env_rpc.drivers import is_environment, is_world
from rlwire.adapters.dm_env_rpc.environments import EnvironmentWorlds, Names
from rlwire.adapters.dm_env_rpc.properties import (
    PROPERTY_REQUEST_URL,
    Properties,
    PropertyService,
)
from rlwire.adapters.dm_env_rpc.protocols import Refusal
from rlwire.adapters.dm_env_rpc.worlds import Extension, Host, World, WorldFactory, Worlds
from rlwire.adapters.serving import BackgroundServer, LoopThread, Running
from rlwire.codecs.dm_env_rpc import Settings
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions import dm_env_rpc
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    capacity,
)
from rlwire.transports.grpc_asyncio_server import AsyncGrpcServer
from rlwire.transports.grpc_client import Engine
from rlwire.transports.grpc_options import Options, ServerTLS, load
from rlwire.transports.grpc_server import GrpcCaller, GrpcServer
from rlwire.transports.sockets import Timeouts

__all__ = ["DmEnvRpcServer", "serve_environment"]

logger = logging.getLogger(__name__)


class DmEnvRpcServer(BackgroundServer):
    """A dm_env_rpc server.

    ::

        with DmEnvRpcServer(MyEnvironment, "localhost:9911") as server:
            ...
        DmEnvRpcServer(MyWorld, "localhost:9911").serve_forever()     # until SIGINT or SIGTERM

    A request that cannot be carried out is answered with an error that says why, whatever the
    environment raises, and the connection goes on. The bounds of actions are checked.

    Args:
        worlds: what makes a world from the settings of ``create_world``: a class of worlds, or any
            callable, which looks at all settings itself; see `World`. Or the one `World`, which all
            join by the name ``""``. Or a class of environments, or an environment, of dm_env or
            Gymnasium, which `EnvironmentWorlds` makes worlds of without any settings; for its
            options, or a function that makes environments, give it an `EnvironmentWorlds`.
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; with port
            0 the system chooses one.
        workers: ``"threads"``, a thread for each connection; ``"asyncio"``, all on one event loop,
            for many connections and worlds that answer at once, because each waits for the others.
        allow_default: whether joining the name ``""`` without creating a world gives a connection
            a world of its own.
        max_connections: further ones are refused.
        max_connections_per_address: the same for those from one address, of IPv6 from one network
            of 64 bits; unix sockets have no such maximum.
        max_worlds: further ones are refused.
        keep_abandoned: False destroys a world once the connection that created it has ended and
            nobody is in it.
        properties: the server's own, for the properties extension; a world's are its attribute
            ``properties``.
        extensions: what answers other extensions' requests, by type URL.
        check_bounds: False lets actions through that are outside their spec's range.
        timeouts: seconds to wait; `idle` is for a client's next request.
        tls: files for TLS, and for mutual TLS.
        token: the bearer token that clients must send; None for any client.
        limits: maxima for messages; ``received`` is for whole ones.
        max_sent: bytes of the longest message that is sent; by default as many as may be received.
        copy: whether actions own their memory; as in `Client`.
        engine: how gRPC is waited for, see `rlwire.transports.grpc_client.connect`.
        options: channel arguments as gRPC names them.
        loop_factory: makes the event loop of ``workers="asyncio"``.

    Attributes:
        accepts: the settings that clients may give, as the attribute of `worlds` says; None if that
            has no such attribute, and takes or refuses them itself.

    Raises:
        MissingExtra: grpcio is not installed.
        TypeError, ValueError: an argument makes no sense.
    """

    protocol = "dm_env_rpc"
    guards = "TLS or a token"

    def __init__(
        self,
        worlds: Any,
        address: AddressLike = "localhost:0",
        *,
        workers: Literal["threads", "asyncio"] = "threads",
        allow_default: bool = True,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        max_worlds: int = 1000,
        keep_abandoned: bool = True,
        properties: Properties | None = None,
        extensions: Mapping[str, Extension] | None = None,
        check_bounds: bool = True,
        timeouts: Timeouts | None = None,
        tls: ServerTLS | None = None,
        token: str | None = None,
        limits: Limits | None = None,
        max_sent: int | None = None,
        copy: bool | None = True,
        engine: Engine = "auto",
        options: Options = (),
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        load()
        if workers not in ("threads", "asyncio"):
            raise ValueError(f"workers must be 'threads' or 'asyncio', not {workers!r}")
        super().__init__(parse(address))
        self._workers = workers
        one = is_world(worlds) and not isinstance(worlds, type)
        self._world: World | None = worlds if one else None
        if is_environment(worlds):
            worlds = EnvironmentWorlds(worlds)
        self.accepts: frozenset[str] | None = getattr(worlds, "accepts", None)
        self._make_world = None if one else _factory(worlds)
        self._world_options: dict[str, Any] = {
            "allow_default": allow_default,
            "max_worlds": max_worlds,
            "keep_abandoned": keep_abandoned,
        }
        self._worlds = self._new_worlds()
        self._extensions: dict[str, Extension] = {
            **(extensions or {}),
            PROPERTY_REQUEST_URL: PropertyService(properties),
        }
        limits = limits or DEFAULT
        self._session_options: dict[str, Any] = {
            "limits": limits,
            "copy": copy,
            "check_bounds": check_bounds,
            "accepts": None if isinstance(worlds, type) else getattr(worlds, "is_accepted", None),
        }
        self._transport_options: dict[str, Any] = {
            "limits": limits,
            "max_sent": max_sent,
            "timeouts": timeouts,
            "tls": tls,
            "token": token,
            **capacity(max_connections, max_connections_per_address),
            "options": options,
        }
        self._guarded = tls is not None or token is not None
        self._engine: Engine = engine
        self._loop_factory = loop_factory

    @property
    def worlds(self) -> Worlds:
        """The worlds that exist; more can be added."""
        return self._worlds

    def check(self) -> None:
        """Make a world without settings, and close it.

        A `Refusal` is no error: it says that clients must give settings.
        """
        if self._make_world is None:
            return
        try:
            world = self._make_world({})
        except Refusal as refusal:
            logger.info("no world can be made before a client asks for one: %s", refusal.message)
        else:
            world.close()

    def _run(self) -> Running:
        if self._workers == "asyncio":
            return LoopThread(
                lambda: AsyncGrpcServer(*self._served(), **self._transport_options),
                self._loop_factory,
                "a world",
            )
        return _Threads(GrpcServer(*self._served(), engine=self._engine, **self._transport_options))

    def _details(self) -> str:
        if self.accepts is None:
            return f"workers: {self._workers}"
        return f"workers: {self._workers}, clients may set: {', '.join(sorted(self.accepts))}"

    def _after_stop(self) -> None:
        worlds, self._worlds = self._worlds, self._new_worlds()
        worlds.close()

    def _new_worlds(self) -> Worlds:
        worlds = Worlds(self._make_world, **self._world_options)
        if self._world is not None:
            worlds.add(self._world)
        return worlds

    def _served(
        self,
    ) -> tuple[Address, str, Callable[[], dm_env_rpc.Server], Callable[[GrpcCaller], Host]]:
        return self._where, METHOD, self._session, self._host

    def _session(self) -> dm_env_rpc.Server:
        return dm_env_rpc.Server(**self._session_options)

    def _host(self, caller: GrpcCaller) -> Host:
        return Host(self._worlds, caller.peer, self._extensions)


def serve_environment(
    environment: Any,
    address: AddressLike = "localhost:0",
    *,
    agents: int = 1,
    names: Names | None = None,
    default_actions: Mapping[str, Any] | None = None,
    accepts: Collection[str] = (),
    **options: Any,
) -> DmEnvRpcServer:
    """Serve an environment of dm_env or Gymnasium; return the running server.

    ::

        with serve_environment(MyEnvironment, "localhost:9911") as server:
            server.wait()

    Args:
        environment: a class or function that makes one; or an environment, for one agent at a
            time.
        address: as in `DmEnvRpcServer`.
        agents: as in `EnvironmentWorld`, and the next three.
        names: what observations, actions, reward and discount are called.
        default_actions: what is done when a step leaves an action out.
        accepts: the settings of clients that become keyword arguments of the class or function; by
            default none.
        options: `DmEnvRpcServer`'s. Worlds that their creators have left are destroyed, unless
            `keep_abandoned` is given.

    Raises:
        OSError: the address cannot be listened on.
        TypeError, ValueError: an argument makes no sense.
    """
    worlds = EnvironmentWorlds(
        environment, agents=agents, names=names, default_actions=default_actions, accepts=accepts
    )
    return DmEnvRpcServer(worlds, address, **{"keep_abandoned": False, **options}).start()


def _factory(worlds: Any) -> WorldFactory:
    if not callable(worlds):
        raise TypeError(
            f"expected what makes worlds, or an environment, not a {type(worlds).__name__}"
        )

    def make(settings: Settings) -> World:
        world: World = worlds(settings)
        if not is_world(world):
            hint = "; give EnvironmentWorlds(...) to the server" if is_environment(world) else ""
            raise TypeError(
                f"a {type(world).__name__} is no world: it has no join(), reset() and close(){hint}"
            )
        return world

    return make


class _Threads:
    def __init__(self, server: GrpcServer) -> None:
        self._server = server.start()
        self.address = server.address

    def stop(self, grace: float) -> None:
        self._server.stop(grace)
