"""`Server`: serves an agent to each environment that connects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlwire._options import with_options
from rlwire.environments.loading import load
from rlwire.rlx.hosting import AgentFactory, AgentHandler, close_agent, resolve_agent
from rlwire.rlx.metrics import Metrics, sink_of
from rlwire.rlx.options import RLXServerOptions
from rlwire.serving.serving import AnyConnection, Service, StreamServer
from rlwire.sessions import rlx
from rlwire.sessions.layer import Layer


class Server(StreamServer):
    """An RLX server for one kind of agent.

    Each connection has its own agent, made at the first command. If the agent raises or cannot be
    made, the client receives an error reply. When a connection ends, the server calls the agent's
    `close` or `disconnected`, if it has one.

    The agent is a class, a callable or ``"module:name"``, called with the parameter server and, if
    it accepts them, the metrics. An agent has ``init(exploit)`` and ``reset()``, which return a
    true value, and ``update(reward, state, terminal)``, which returns the action.
    """

    scheme = "rlx"
    handlers = "an agent"

    @with_options(RLXServerOptions)
    def __init__(self, agent: Any, options: RLXServerOptions) -> None:
        resolve_agent(agent)
        server = options.parameter_server
        if isinstance(server, str):
            load(server)
        self._agents = _AgentService(agent, server, sink_of(options.metrics), options.session)
        self._agents.session()  # raises for invalid options, which would only be logged later
        super().__init__(self._agents, options, workers=options.workers)

    def check(self) -> None:
        self._agents.check()


@dataclass
class _AgentService(Service[AnyConnection]):
    agent: Any
    parameter_server: Any
    metrics: Metrics
    session_options: dict[str, Any]
    factory: AgentFactory | None = None

    def make_factory(self) -> AgentFactory:
        return AgentFactory(self.agent, self.parameter_server, self.metrics)

    def session(self) -> Layer:
        return rlx.RLXServerSession(**self.session_options)

    def handler(self, connection: AnyConnection) -> AgentHandler:
        assert self.factory is not None
        return AgentHandler(self.factory, connection.peer)

    def check(self) -> None:
        factory = self.make_factory()
        close_agent(factory.make(), "check", factory.log)

    def set_up_process(self) -> None:
        self.factory = self.make_factory()

    def tear_down_process(self) -> None:
        factory, self.factory = self.factory, None
        if factory is not None:
            factory.log.flush()
        self.metrics.close()
