"""`Server`: listens for agents and lets them join worlds."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from rlwire.codecs.dm_env_rpc import PROPERTY_REQUEST_URL, Settings
from rlwire.dm_env_rpc.client import (
    METHOD,
    authorization,
    http2_context,
    most_sent,
    warn_of_plain_token,
)
from rlwire.dm_env_rpc.environment_worlds import EnvironmentWorlds
from rlwire.dm_env_rpc.grpc_handler import GrpcHandler, RejectedCall
from rlwire.dm_env_rpc.handler import DmEnvRpcHandler
from rlwire.dm_env_rpc.properties import Properties, PropertyService
from rlwire.dm_env_rpc.spaces import WHOLE
from rlwire.dm_env_rpc.status import StatusError
from rlwire.dm_env_rpc.world import Extension, World, WorldFactory, is_world
from rlwire.dm_env_rpc.worlds import Worlds
from rlwire.environments.driver import is_environment
from rlwire.errors import LimitExceeded, for_peer
from rlwire.limits import DEFAULT, Limits
from rlwire.serving.serving import Service, StreamOptions, StreamServer
from rlwire.sessions import dm_env_rpc
from rlwire.sessions.grpc import CallStatus
from rlwire.sessions.grpc.server import GrpcServerSession, ServedCall
from rlwire.transports.address import AddressLike
from rlwire.transports.admission import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, Admission
from rlwire.transports.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)
log = RateLimitedLog(logger)

KEEP_ALIVE: Final = {"ping_interval": 120.0}
"""When a server asks a client that says nothing for a sign of life."""


class Server(StreamServer):
    """A dm_env_rpc server.

    ::

        with Server(MyEnvironment, "localhost:9911") as server:
            ...
        Server(MyWorld, "localhost:9911").serve_forever()     # until SIGINT or SIGTERM

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
        auth: the bearer token that clients must send; None for any client.
        limits: maxima for messages; ``received`` is for whole ones.
        max_sent: bytes of the longest message that is sent; by default as many as may be received.
        max_worlds: further ones are refused.
        keep_abandoned: False destroys a world once the connection that created it has ended and
            nobody is in it.
        properties: the server's own, for the properties extension; a world's are its attribute
            ``properties``.
        extensions: what answers other extensions' requests, by type URL.
        check_bounds: False lets actions through that are outside their spec's range.
        copy: whether actions own their memory; as in `Client`.
        options: `rlwire.serving.serving.StreamOptions`; the maxima are of calls, and of TCP
            connections there may be twice as many.

    Attributes:
        accepts: the settings that clients may give, as the attribute of `worlds` says; None if that
            has no such attribute, and takes or refuses them itself.

    Raises:
        MissingExtra: hpack is not installed.
        TypeError, ValueError: an argument makes no sense.
    """

    scheme = "dm-env-rpc"
    guards = "TLS or a token"
    handlers = "a world"

    def __init__(
        self,
        worlds: Any,
        address: AddressLike = "localhost:0",
        *,
        workers: Literal["threads", "asyncio"] = "threads",
        auth: str | None = None,
        limits: Limits | None = None,
        max_sent: int | None = None,
        max_worlds: int = 1000,
        keep_abandoned: bool = True,
        properties: Properties | None = None,
        extensions: Mapping[str, Extension] | None = None,
        check_bounds: bool = True,
        copy: bool | None = True,
        **options: Unpack[StreamOptions],
    ) -> None:
        if workers not in ("threads", "asyncio"):
            raise ValueError(f"workers must be 'threads' or 'asyncio', not {workers!r}")
        one = is_world(worlds) and not isinstance(worlds, type)
        self._world: World | None = worlds if one else None
        if is_environment(worlds):
            worlds = EnvironmentWorlds(worlds)
        self.accepts: frozenset[str] | None = getattr(worlds, "accepts", None)
        self._make_world = None if one else _factory(worlds)
        self._world_options: dict[str, Any] = {
            "max_worlds": max_worlds,
            "keep_abandoned": keep_abandoned,
        }
        self._worlds = self._new_worlds()
        self._extensions: dict[str, Extension] = {
            **(extensions or {}),
            PROPERTY_REQUEST_URL: PropertyService(properties),
        }
        limits = limits or DEFAULT
        most = options.get("max_connections", MAX_CONNECTIONS)
        most_each = options.get("max_connections_per_address", MAX_CONNECTIONS_PER_ADDRESS)
        # Calls are what counts: who calls too much is told why, on a connection that is open.
        options |= {"max_connections": 2 * most, "max_connections_per_address": 2 * most_each}
        tls = options["tls"] = http2_context(options.get("tls"))
        service = _DmEnvRpcService(
            self,
            auth,
            Admission(most, most_each),
            self._extensions,
            {
                "limits": limits,
                "copy": copy,
                "check_bounds": check_bounds,
                "accepts": None
                if isinstance(worlds, type)
                else getattr(worlds, "is_accepted", None),
            },
            {"limits": limits, "max_sent": most_sent(limits, max_sent), **KEEP_ALIVE},
        )
        super().__init__(address, service, workers=workers, **options)
        service.session()  # says now what is wrong with its options
        if auth is not None:
            self._guarded = True
            if tls is None:
                warn_of_plain_token(self._where)

    @property
    def worlds(self) -> Worlds:
        """The worlds that exist; more can be added."""
        return self._worlds

    def check(self) -> None:
        """Make a world without settings, and close it.

        A `StatusError` is no failure: it says that clients must give settings.
        """
        if self._make_world is None:
            return
        try:
            world = self._make_world({})
        except StatusError as error:
            logger.info("no world can be made before a client asks for one: %s", error.message)
        else:
            world.close()

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


@dataclass
class _DmEnvRpcService(Service):
    """Makes a session and a handler for each connection, and for each call on it."""

    server: Server
    token: str | None
    admission: Admission
    extensions: Mapping[str, Extension]
    session_options: dict[str, Any]
    call_options: dict[str, Any]

    def __post_init__(self) -> None:
        self.authorization = None if self.token is None else authorization(self.token)

    def session(self) -> GrpcServerSession:
        return GrpcServerSession(**self.call_options)

    def handler(self, connection: Any) -> GrpcHandler:
        return GrpcHandler(connection, partial(self._admit, connection.peer), log)

    def _admit(
        self, peer: str, call: ServedCall
    ) -> tuple[dm_env_rpc.DmEnvRpcServerSession, DmEnvRpcHandler]:
        """Return the session and the handler of a call."""
        if call.method != METHOD:
            raise RejectedCall(
                CallStatus("UNIMPLEMENTED", f"there is no {call.method}, only {METHOD}")
            )
        if self.authorization is not None and not authorized(self.authorization, call.metadata):
            sent = any(key == self.authorization[0] for key, _ in call.metadata)
            why = "the token is wrong" if sent else "a token is needed, and none was sent"
            log.warning("%s: rejected, %s", peer, why)
            raise RejectedCall(CallStatus("UNAUTHENTICATED", why))
        _, unix, user = peer.rpartition("#")
        address = user.partition(" ")[2] if unix else peer.rpartition(":")[0].strip("[]")
        try:
            self.admission.enter(address)
        except LimitExceeded as error:
            log.warning("%s: rejected, %s", peer, error)
            status = CallStatus("RESOURCE_EXHAUSTED", for_peer(error, "the server"))
            raise RejectedCall(status) from None
        whole = WHOLE in call.metadata
        handler = DmEnvRpcHandler(
            self.server.worlds,
            peer,
            self.extensions,
            whole,
            on_close=partial(self.admission.leave, address),
        )
        return dm_env_rpc.DmEnvRpcServerSession(**self.session_options), handler


def authorized(expected: tuple[str, str], metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Return whether a call's metadata carries the expected token."""
    name, value = expected
    right = False
    for key, given in metadata:
        if key == name:
            data = given.encode() if isinstance(given, str) else given
            # In constant time; and all are compared, for the same reason.
            right |= hmac.compare_digest(data, value.encode())
    return right


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
