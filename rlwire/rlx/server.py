"""`Server`: serves an agent to each environment that connects."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rlwire.environments.loading import load
from rlwire.limits import DEFAULT, Limits
from rlwire.rlx.hosting import AgentFactory, AgentHandler, close_agent, resolve_agent
from rlwire.rlx.metrics import LoggingMetrics, Metrics
from rlwire.serving.serving import Service, StreamOptions, StreamServer, WorkersOption
from rlwire.sessions import rlx
from rlwire.transports.address import AddressLike
from rlwire.transports.connection import Connection
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import StreamSession

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Server(StreamServer):
    """An RLX server for one kind of agent.

    Each connection has its own agent, made at the first command. If the agent raises, the client
    receives an error reply. If the agent cannot be made, the server also closes the connection.
    When a connection ends, the server calls the agent's `close` or `disconnected`, if it has one.
    The metric `average_reward` is the average of every 100 rewards of a connection.

    Args:
        agent: a class, a callable or ``"module:name"``, called with the parameter server and, if it
            accepts them, the metrics. An agent has ``init(exploit)`` and ``reset()``, which return
            a true value, and ``update(reward, state, terminal)``, which returns the action.
        address: ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; port 0 chooses a
            free port.
        workers: ``"threads"``, one for each connection; ``"asyncio"``, one event loop, for many
            connections and agents that reply at once; or a number of processes with threads, for
            agents that compute in Python. Processes receive pickled arguments.
        parameter_server: passed to every agent; ``"module:factory"`` is called once per process.
        metrics: a sink, by default the log; closed when the server stops.
        options: `rlwire.serving.serving.StreamOptions`. Other arguments:
            `rlwire.rlx.options.RLXServerOptions`.
    """

    scheme = "rlx"
    handlers = "an agent"

    def __init__(
        self,
        agent: Any,
        address: AddressLike = "localhost:7001",
        *,
        workers: WorkersOption = "threads",
        limits: Limits = DEFAULT,
        parameter_server: Any = None,
        metrics: Metrics | None = None,
        images: Literal["array", "float32"] = "float32",
        dialect: Literal["program", "readme"] = "program",
        dtype: Any = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        resolve_agent(agent)
        if isinstance(parameter_server, str):
            load(parameter_server)
        self._agents = _AgentService(
            agent,
            parameter_server,
            LoggingMetrics() if metrics is None else metrics,
            {"limits": limits, "images": images, "dialect": dialect, "dtype": dtype},
        )
        self._agents.session()  # raises for invalid options, which would only be logged later
        super().__init__(address, self._agents, workers=workers, **options)

    def check(self) -> None:
        self._agents.check()


@dataclass
class _AgentService(Service):
    agent: Any
    parameter_server: Any
    metrics: Metrics
    session_options: dict[str, Any]
    factory: AgentFactory | None = None

    def make_factory(self) -> AgentFactory:
        return AgentFactory(self.agent, self.parameter_server, self.metrics)

    def session(self) -> StreamSession:
        return rlx.RLXServerSession(**self.session_options)

    def handler(self, connection: Connection | AsyncConnection) -> AgentHandler:
        assert self.factory is not None
        return AgentHandler(self.factory, connection.peer, partial(_hang_up, connection))

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


def _hang_up(connection: Connection | AsyncConnection) -> None:
    if isinstance(connection, AsyncConnection):
        asyncio.get_running_loop().call_soon(connection.close)
    else:
        connection.stop_receiving()
