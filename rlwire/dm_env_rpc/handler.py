"""`DmEnvRpcHandler`: answers the requests of one call."""

from __future__ import annotations

from collections.abc import Callable

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Request, Status, Step
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.served_world import ServedAgent
from rlwire.dm_env_rpc.status import StatusError, report
from rlwire.dm_env_rpc.world import Reply
from rlwire.dm_env_rpc.world_registry import WorldRegistry
from rlwire.errors import on_error, quoted
from rlwire.sessions.dm_env_rpc import REQUESTS
from rlwire.transports.deferred import DeferredReply

_NAMES: dict[type, str] = {asked: name for name, (asked, _response) in REQUESTS.items()}
del _NAMES[codec.StepRequest]  # sessions make Steps of them
_NAMES[Step] = "step"


class DmEnvRpcHandler:
    """Answers the requests of one call, in order; replies may be deferred.

    Args:
        worlds: the server's.
        peer: the client, for the log.
        info_size: maximum size of an info, if the client is `rlwire.make`, which wants spaces too.
        on_close: called when the call has ended.

    Attributes:
        by_reference: whether replies may be sent from the agent's arrays; see `GrpcHandler`.
    """

    by_reference = False

    def __init__(
        self,
        worlds: WorldRegistry,
        peer: object = "",
        info_size: int | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._worlds = worlds
        self._log = worlds.log
        self._peer = peer
        self._info_size = info_size
        self._agent: ServedAgent | None = None
        self._created: list[str] = []
        self._closed = False
        self._on_close = on_close

    def answer(self, event: Request | Step) -> Reply:
        """Return the reply; anything that a world raises, even `SystemExit`, becomes a `Status`."""
        try:
            if type(event) is Step:
                agent = self._agent or self._joined()
                return agent.served.step(agent, event)
            name = _NAMES.get(type(event))
            if name is None:
                raise StatusError(Code.UNIMPLEMENTED, "this request is not supported")
            reply: Reply = getattr(self, f"_{name}")(event)
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
        self._closed = True
        self._leave()
        created, self._created = self._created, []
        for name in created:
            self._worlds.abandon(name)
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _failed(self, event: object, error: BaseException) -> Status:
        name = _NAMES.get(type(event), type(event).__name__)
        return report(self._log, self._peer, name, error)

    def _joined(self) -> ServedAgent:
        if self._agent is None:
            raise StatusError(Code.FAILED_PRECONDITION, "no world is joined; join_world first")
        return self._agent

    def _create_world(self, request: codec.CreateWorldRequest) -> codec.CreateWorldResponse:
        name = self._worlds.create(request.settings)
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
        agent = self._worlds.join(request.world_name, request.settings, self._peer)
        send_spaces = getattr(agent.environment, "send_spaces", None)
        if self._info_size is not None and send_spaces is not None:
            with on_error(lambda: self._worlds.leave(agent)), agent.served.call_lock:
                send_spaces(self._info_size)
        self._log.info("%s: joined %s", self._peer, agent.served)
        self._agent = agent
        self.by_reference = getattr(agent.environment, "by_reference", False)
        if self._closed:
            self._leave()
        return codec.JoinWorldResponse(agent.environment.specs)

    def _reset(self, request: codec.ResetRequest) -> codec.ResetResponse:
        agent = self._joined()
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
        agent = self._agent
        if agent is not None and request.world_name == agent.served.name:
            raise StatusError(
                Code.FAILED_PRECONDITION, f"this connection is joined to {agent.served}; leave it"
            )
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
