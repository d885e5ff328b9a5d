"""`DmEnvRpcHandler`: answers the requests of one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlwire.codecs.dm_env_rpc.values import (
    AnyMessage,
    CreateWorldRequest,
    CreateWorldResponse,
    DestroyWorldRequest,
    DestroyWorldResponse,
    JoinWorldRequest,
    JoinWorldResponse,
    LeaveWorldRequest,
    LeaveWorldResponse,
    Request,
    ResetRequest,
    ResetResponse,
    ResetWorldRequest,
    Status,
    Step,
    StepRequest,
)
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.status import StatusError, report
from rlwire.dm_env_rpc.world import Answer, Extension, JoinedAgent, World
from rlwire.dm_env_rpc.worlds import Worlds
from rlwire.errors import on_error, quoted
from rlwire.sessions.dm_env_rpc.states import REQUESTS
from rlwire.transports.deferred import DeferredReply

_NAMES: dict[type, str] = {asked: name for name, (asked, _told) in REQUESTS.items()}
del _NAMES[StepRequest]  # sessions make Steps of them
_NAMES[Step] = "step"


class DmEnvRpcHandler:
    """Answers the requests of one connection, for any transport.

    `answer` is called for one request after the other, each when the answer before it is there. An
    answer is a value, or a `DeferredReply` if other connections must act first.
    """

    def __init__(
        self,
        worlds: Worlds,
        peer: object = "",
        extensions: Mapping[str, Extension] | None = None,
        whole: bool = False,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._worlds = worlds
        self._log = worlds.log
        self._peer = peer
        self._whole = whole
        self._extensions = {
            url.rpartition("/")[2]: extension for url, extension in (extensions or {}).items()
        }
        self._agent: JoinedAgent | None = None
        self._name: str | None = None  # by which the world was joined
        self._created: list[str] = []
        self._closed = False
        self._on_close = on_close

    @property
    def world(self) -> World | None:
        """The world that is joined."""
        return None if self._agent is None else self._agent.served.world

    def answer(self, event: Request | Step) -> Answer:
        """Carry out one request, as the session returned it.

        Whatever a world raises, `SystemExit` and `KeyboardInterrupt` included, becomes a `Status`:
        a world must not be able to end the server or another's connection.
        """
        try:
            if type(event) is Step:
                agent = self._agent or self._joined()
                return agent.served.step(agent, event)
            name = _NAMES.get(type(event))
            if name is None:
                raise StatusError(Code.UNIMPLEMENTED, "worlds do not know this request")
            answer: Answer = getattr(self, f"_{name}")(event)
            return answer
        except BaseException as error:
            return self._failed(event, error)

    def failure(self, event: Request | Step, error: BaseException) -> Status:
        """Return the status that the client is sent instead of an answer that cannot be sent.

        The client's state is then as before the request: it has not joined, and has not begun a
        sequence. A step cannot be taken back; if it has ended the sequence, the next one says so.
        """
        agent = self._agent
        if agent is not None and isinstance(event, (Step, ResetRequest)):
            agent.served.undo(agent)
        elif agent is not None and isinstance(event, JoinWorldRequest):
            self._leave()
        return self._failed(event, error)

    def close(self) -> None:
        """Leave the world: the connection has ended."""
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

    def _joined(self) -> JoinedAgent:
        if self._agent is None:
            raise StatusError(Code.FAILED_PRECONDITION, "no world is joined; join_world first")
        return self._agent

    def _create_world(self, request: CreateWorldRequest) -> CreateWorldResponse:
        name = self._worlds.create(request.settings)
        self._log.info("%s: created world %r", self._peer, name)
        self._created.append(name)
        if self._closed:  # while the world was made
            self.close()
        return CreateWorldResponse(name)

    def _join_world(self, request: JoinWorldRequest) -> JoinWorldResponse:
        if self._agent is not None:
            raise StatusError(
                Code.FAILED_PRECONDITION, f"already joined to {self._agent.served}; leave it first"
            )
        agent = self._worlds._join(request.world_name, request.settings, self._peer)
        whole = getattr(agent.environment, "whole", None)
        if self._whole and whole is not None:
            with on_error(lambda: self._worlds._leave(agent)), agent.lock:
                whole()
        self._log.info("%s: joined %s", self._peer, agent.served)
        self._agent, self._name = agent, request.world_name
        if self._closed:
            self._leave()
        return JoinWorldResponse(agent.environment.specs)

    def _reset(self, request: ResetRequest) -> ResetResponse:
        agent = self._joined()
        agent.served.reset(agent, request.settings)
        return ResetResponse(agent.environment.specs)

    def _reset_world(self, request: ResetWorldRequest) -> Answer:
        agent = self._agent
        if agent is not None and request.world_name == self._name:
            served = agent.served
        else:
            served = self._worlds._find(request.world_name)
        caller = agent if agent is not None and agent.served is served else None
        answer = served.reset_world(request.settings, caller, self._peer)
        waits = " waits for its agents" if isinstance(answer, DeferredReply) else ""
        self._log.info("%s: reset of %s%s", self._peer, served, waits)
        return answer

    def _leave_world(self, request: LeaveWorldRequest) -> LeaveWorldResponse:
        self._leave()
        return LeaveWorldResponse()

    def _destroy_world(self, request: DestroyWorldRequest) -> DestroyWorldResponse:
        agent = self._agent
        if agent is not None and request.world_name in (self._name, agent.served.name):
            raise StatusError(
                Code.FAILED_PRECONDITION, f"this connection is joined to {agent.served}; leave it"
            )
        self._worlds.destroy(request.world_name)
        self._log.info("%s: destroyed world %r", self._peer, request.world_name)
        return DestroyWorldResponse()

    def _extension(self, request: AnyMessage) -> AnyMessage:
        extension = self._extensions.get(request.type_url.rpartition("/")[2])
        if extension is None:
            known = ", ".join(sorted(self._extensions)) or "none"
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
            self._worlds._leave(agent)
            self._log.info("%s: left %s", self._peer, agent.served)
