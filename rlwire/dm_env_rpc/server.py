"""`Server`: serves worlds to agents."""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Request, Settings, Status, Step
from rlwire.dm_env_rpc.client import (
    METHOD,
    StatusError,
    authorization,
    http2_context,
    most_sent,
    warn_of_plain_token,
)
from rlwire.dm_env_rpc.environment_worlds import EnvironmentWorlds
from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.dm_env_rpc.properties import Properties, PropertyService
from rlwire.dm_env_rpc.spaces import WHOLE
from rlwire.dm_env_rpc.world import (
    Answer,
    Extension,
    JoinedAgent,
    ServedWorld,
    World,
    WorldFactory,
    is_world,
    report,
)
from rlwire.environments.driver import is_environment
from rlwire.errors import LimitExceeded, for_peer, on_error, quoted
from rlwire.limits import DEFAULT, Limits
from rlwire.serving.serving import Service, StreamOptions, StreamServer
from rlwire.sessions import dm_env_rpc
from rlwire.sessions.dm_env_rpc import REQUESTS, Code
from rlwire.sessions.grpc import CallStatus
from rlwire.sessions.grpc.server import GrpcServerSession, ServedCall
from rlwire.transports.address import AddressLike
from rlwire.transports.admission import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, Admission
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.threads import run_in_thread

if TYPE_CHECKING:
    from typing_extensions import Unpack

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

    Args:
        worlds: a `World` class or another `WorldFactory`, called with the settings of
            ``create_world``; or one `World`, which clients join by the name ``""``; or a dm_env,
            Gymnasium or PettingZoo environment, or its class. For a function that makes
            environments, and for options, pass `EnvironmentWorlds`.
        address: ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; port 0 chooses a free port.
        options: `rlwire.serving.serving.StreamOptions`; `max_connections` counts calls, and twice
            as many TCP connections may be open. Other arguments:
            `rlwire.dm_env_rpc.options.DmEnvRpcServerOptions`.

    Attributes:
        accepts: the settings that clients may give; None if `worlds` checks them itself.
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
        **options: Unpack[StreamOptions],
    ) -> None:
        if workers not in ("threads", "asyncio"):
            raise ValueError(f"workers must be 'threads' or 'asyncio', not {workers!r}")
        one = is_world(worlds) and not isinstance(worlds, type)
        if is_environment(worlds):
            worlds = EnvironmentWorlds(worlds)
        self.accepts: frozenset[str] | None = getattr(worlds, "accepts", None)
        self._sampled = getattr(worlds, "sampled", False)
        most = options.get("max_connections", MAX_CONNECTIONS)
        most_each = options.get("max_connections_per_address", MAX_CONNECTIONS_PER_ADDRESS)
        # A call over the limit needs an open connection to receive its status.
        options |= {"max_connections": 2 * most, "max_connections_per_address": 2 * most_each}
        tls = options["tls"] = http2_context(options.get("tls"))
        self._worlds = DmEnvRpcService(
            None if one else _factory(worlds),
            worlds if one else None,
            max_worlds=max_worlds,
            keep_abandoned=keep_abandoned,
            extensions={
                **(extensions or {}),
                codec.PROPERTY_REQUEST_URL: PropertyService(properties),
            },
            admission=Admission(most, most_each),
            auth=auth,
            limits=limits or DEFAULT,
            max_sent=max_sent,
            check_bounds=check_bounds,
        )
        super().__init__(address, self._worlds, workers=workers, **options)
        self._worlds.session()  # raises for invalid options
        if auth is not None:
            self._guarded = True
            if tls is None:
                warn_of_plain_token(self._where)

    @property
    def worlds(self) -> DmEnvRpcService:
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


class DmEnvRpcService(Service):
    """The worlds of a server by name, and its handlers of calls; thread-safe.

    Args:
        factory: makes worlds; None if clients cannot create worlds. Joining the name ``""``, if no
            world has it, creates a world without settings, which is destroyed when its agent
            leaves.
        world: a world to serve under the name ``""``, also after a restart.
        admission: counts and limits calls.

    Other arguments: `Server`.
    """

    def __init__(
        self,
        factory: WorldFactory | None = None,
        world: World | None = None,
        *,
        max_worlds: int = 1000,
        keep_abandoned: bool = True,
        extensions: Mapping[str, Extension] | None = None,
        admission: Admission | None = None,
        auth: str | None = None,
        limits: Limits = DEFAULT,
        max_sent: int | None = None,
        check_bounds: bool = True,
    ) -> None:
        if max_worlds < 1:
            raise ValueError(f"max_worlds must be at least 1, not {max_worlds}")
        self.factory = factory
        self.log = RateLimitedLog(logger)
        self.extensions = {
            url.rpartition("/")[2]: extension for url, extension in (extensions or {}).items()
        }
        self._world = world
        self._max_worlds = max_worlds
        self._keep_abandoned = keep_abandoned
        self._admission = admission or Admission(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS)
        self._authorization = None if auth is None else authorization(auth)
        self._sessions: dict[str, Any] = {"limits": limits, "check_bounds": check_bounds}
        self.max_sent = most_sent(limits, max_sent)
        self._calls = {"limits": limits, "max_sent": self.max_sent, **KEEP_ALIVE}
        self._lock = threading.Lock()
        self._named: dict[str, ServedWorld] = {}
        self._all: dict[ServedWorld, None] = {}
        self._making = 0
        self._number = 0
        # A client that reconnects after a restart must not find another's world by its old name.
        self._mark = secrets.token_hex(4)
        self._closed = False
        self._runs = 0  # how often `close` was called
        if world is not None:
            self.add(world)

    def session(self) -> GrpcServerSession:
        return GrpcServerSession(**self._calls)

    def handler(self, connection: Any) -> GrpcHandler:
        return GrpcHandler(connection, partial(self._admit, connection.peer), self.log)

    def set_up_process(self) -> None:
        self._closed = False

    def _admit(
        self, peer: str, call: ServedCall
    ) -> tuple[dm_env_rpc.DmEnvRpcServerSession, DmEnvRpcHandler] | CallStatus:
        if call.method != METHOD:
            return CallStatus("UNIMPLEMENTED", f"there is no {call.method}, only {METHOD}")
        if self._authorization is not None and not authorized(self._authorization, call.metadata):
            sent = any(key == self._authorization[0] for key, _ in call.metadata)
            why = "the token is wrong" if sent else "a token is needed, and none was sent"
            self.log.warning("%s: rejected, %s", peer, why)
            return CallStatus("UNAUTHENTICATED", why)
        _, unix, user = peer.rpartition("#")
        address = user.partition(" ")[2] if unix else peer.rpartition(":")[0].strip("[]")
        try:
            self._admission.enter(address)
        except LimitExceeded as error:
            self.log.warning("%s: rejected, %s", peer, error)
            return CallStatus("RESOURCE_EXHAUSTED", for_peer(error, "the server"))
        whole = WHOLE in call.metadata
        leave = partial(self._admission.leave, address)
        handler = DmEnvRpcHandler(self, peer, whole, on_close=leave)
        return dm_env_rpc.DmEnvRpcServerSession(**self._sessions), handler

    def __len__(self) -> int:
        with self._lock:
            return len(self._all)

    @property
    def names(self) -> list[str]:
        """The names of the worlds."""
        with self._lock:
            return list(self._named)

    def add(self, world: World, name: str = "") -> None:
        """Serve `world` under `name` until it is destroyed; ValueError if the name is in use."""
        with self._lock:
            if name in self._named:
                raise ValueError(f"there is a world {name!r} already")
            self._keep(ServedWorld(name, world, False, self.log), named=True)

    def create(self, settings: Settings) -> str:
        """Create a world with a request's settings; return its name."""
        return self._create(settings, named=True).name

    def destroy(self, name: str) -> None:
        """Destroy a world that has no agents."""
        served = self.find(name)
        inside = self._destroy(served, only_if_empty=True)
        if inside:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"{inside} {'agent is' if inside == 1 else 'agents are'} joined to {served}; "
                "they must leave it first",
            )

    def close(self) -> None:
        """Destroy all worlds and remove their agents; pending requests get UNAVAILABLE."""
        with self._lock:
            self._closed = True
            self._runs += 1
            worlds = list(self._all)
        until = time.monotonic() + 1.0  # after the grace of `stop`
        for served in worlds:
            if served.call_lock.acquire(timeout=max(0.0, until - time.monotonic())):
                served.call_lock.release()
                self._destroy_now(served)
            else:
                self.log.warning("%s: a call did not end; the world is closed when it does", served)
                run_in_thread(f"rlwire {served}", self._destroy_now, served)
        if self._world is not None:
            with self._lock:
                self._keep(ServedWorld("", self._world, False, self.log), named=True)

    def _destroy_now(self, served: ServedWorld) -> None:
        with contextlib.suppress(StatusError):  # another thread was faster
            self._destroy(served, only_if_empty=False)

    def abandon(self, name: str) -> None:
        """Record that the creator of a world has disconnected."""
        with self._lock:
            served = None if self._keep_abandoned else self._named.get(name)
        if served is not None:
            served.fleeting = True
            self._sweep(served)

    def join(self, name: str, settings: Settings, peer: object) -> JoinedAgent:
        """Add an agent to a world; for ``""``, if no world has that name, to a new one."""
        with self._lock:
            served = self._named.get(name)
        if served is None:
            served = self.find(name) if name else self._create({}, named=False)
        with on_error(lambda: self._sweep(served)):
            return served.join(settings, peer)

    def leave(self, agent: JoinedAgent) -> None:
        agent.served.leave(agent)
        self._sweep(agent.served)

    def find(self, name: str) -> ServedWorld:
        with self._lock:
            served = self._named.get(name)
        if served is None:
            raise StatusError(
                Code.NOT_FOUND,
                f"there is no world {quoted(name)}; create_world returns the name of a new one",
            )
        return served

    def _keep(self, served: ServedWorld, named: bool) -> None:
        self._all[served] = None
        if named:
            self._named[served.name] = served

    def _create(self, settings: Settings, named: bool) -> ServedWorld:
        if self.factory is None:
            raise StatusError(Code.UNIMPLEMENTED, "this server creates no worlds; join one it has")
        with self._lock:
            if self._closed:
                raise StatusError(Code.UNAVAILABLE, "the server is closing")
            exist = len(self._all) + self._making
            if exist >= self._max_worlds:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED,
                    f"there are {exist} worlds, as many as this server allows; destroy one",
                )
            run = self._runs
            self._making += 1
            self._number += 1
            name = f"world-{self._mark}-{self._number}" if named else ""
        try:
            served = ServedWorld(name, self.factory(settings), not named, self.log)
        except BaseException:
            with self._lock:
                self._making -= 1
            raise
        with self._lock:
            self._making -= 1
            if run == self._runs:
                self._keep(served, named)
                return served
        served.close_world()
        raise StatusError(Code.UNAVAILABLE, "the server is closing")

    def _sweep(self, served: ServedWorld) -> None:
        """Destroy a fleeting world if it has no agents."""
        if served.fleeting:
            with contextlib.suppress(StatusError):
                self._destroy(served, only_if_empty=True)

    def _destroy(self, served: ServedWorld, only_if_empty: bool) -> int:
        """Destroy a world; or, if `only_if_empty`, return the number of its agents."""
        inside = served.shut(only_if_empty)
        if not inside:
            with self._lock:
                self._all.pop(served, None)
                if self._named.get(served.name) is served:
                    del self._named[served.name]
            served.close_world()
            self.log.info("%s is destroyed", served)
        return inside


def authorized(expected: tuple[str, str], metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Whether a call's metadata has the expected token, compared in constant time."""
    name, value = expected
    right = False
    for key, given in metadata:
        if key == name:
            data = given.encode() if isinstance(given, str) else given
            right |= hmac.compare_digest(data, value.encode())
    return right


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


_NAMES: dict[type, str] = {asked: name for name, (asked, _told) in REQUESTS.items()}
del _NAMES[codec.StepRequest]  # sessions make Steps of them
_NAMES[Step] = "step"


class DmEnvRpcHandler:
    """Answers the requests of one call, in order; replies may be deferred."""

    def __init__(
        self,
        service: DmEnvRpcService,
        peer: object = "",
        whole: bool = False,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._service = service
        self._log = service.log
        self._peer = peer
        self._whole = whole
        self._agent: JoinedAgent | None = None
        self._name: str | None = None  # under which the world was joined
        self._created: list[str] = []
        self._closed = False
        self._on_close = on_close

    def answer(self, event: Request | Step) -> Answer:
        """Return the reply; anything that a world raises, even `SystemExit`, becomes a `Status`."""
        try:
            if type(event) is Step:
                agent = self._agent or self._joined()
                return agent.served.step(agent, event)
            name = _NAMES.get(type(event))
            if name is None:
                raise StatusError(Code.UNIMPLEMENTED, "this request is not supported")
            answer: Answer = getattr(self, f"_{name}")(event)
            return answer
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
        self._closed = True
        self._leave()
        created, self._created = self._created, []
        for name in created:
            self._service.abandon(name)
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _failed(self, event: object, error: BaseException) -> Status:
        name = _NAMES.get(type(event), type(event).__name__)
        return report(self._log, self._peer, name, error)

    def _joined(self) -> JoinedAgent:
        if self._agent is None:
            raise StatusError(Code.FAILED_PRECONDITION, "no world is joined; join_world first")
        return self._agent

    def _create_world(self, request: codec.CreateWorldRequest) -> codec.CreateWorldResponse:
        name = self._service.create(request.settings)
        self._log.info("%s: created world %r", self._peer, name)
        self._created.append(name)
        if self._closed:  # while the world was being made
            self.close()
        return codec.CreateWorldResponse(name)

    def _join_world(self, request: codec.JoinWorldRequest) -> codec.JoinWorldResponse:
        if self._agent is not None:
            raise StatusError(
                Code.FAILED_PRECONDITION, f"already joined to {self._agent.served}; leave it first"
            )
        agent = self._service.join(request.world_name, request.settings, self._peer)
        whole = getattr(agent.environment, "whole", None)
        if self._whole and whole is not None:
            with on_error(lambda: self._service.leave(agent)), agent.served.call_lock:
                whole(self._service.max_sent)
        self._log.info("%s: joined %s", self._peer, agent.served)
        self._agent, self._name = agent, request.world_name
        if self._closed:
            self._leave()
        return codec.JoinWorldResponse(agent.environment.specs)

    def _reset(self, request: codec.ResetRequest) -> codec.ResetResponse:
        agent = self._joined()
        agent.served.reset(agent, request.settings)
        return codec.ResetResponse(agent.environment.specs)

    def _reset_world(self, request: codec.ResetWorldRequest) -> Answer:
        agent = self._agent
        if agent is not None and request.world_name == self._name:
            served = agent.served
        else:
            served = self._service.find(request.world_name)
        caller = agent if agent is not None and agent.served is served else None
        answer = served.reset_world(request.settings, caller, self._peer)
        waits = " waits for its agents" if isinstance(answer, DeferredReply) else ""
        self._log.info("%s: reset of %s%s", self._peer, served, waits)
        return answer

    def _leave_world(self, request: codec.LeaveWorldRequest) -> codec.LeaveWorldResponse:
        self._leave()
        return codec.LeaveWorldResponse()

    def _destroy_world(self, request: codec.DestroyWorldRequest) -> codec.DestroyWorldResponse:
        agent = self._agent
        if agent is not None and request.world_name in (self._name, agent.served.name):
            raise StatusError(
                Code.FAILED_PRECONDITION, f"this connection is joined to {agent.served}; leave it"
            )
        self._service.destroy(request.world_name)
        self._log.info("%s: destroyed world %r", self._peer, request.world_name)
        return codec.DestroyWorldResponse()

    def _extension(self, request: codec.AnyMessage) -> codec.AnyMessage:
        extensions = self._service.extensions
        extension = extensions.get(request.type_url.rpartition("/")[2])
        if extension is None:
            known = ", ".join(sorted(extensions)) or "none"
            raise StatusError(
                Code.UNIMPLEMENTED, f"{quoted(request.type_url)} is not known here; known: {known}"
            )
        if self._agent is None:
            return extension(request, None)
        with self._agent.served.call_lock:
            return extension(request, self._agent.served.world)

    def _leave(self) -> None:
        agent, self._agent, self._name = self._agent, None, None
        if agent is not None:
            self._service.leave(agent)
            self._log.info("%s: left %s", self._peer, agent.served)
