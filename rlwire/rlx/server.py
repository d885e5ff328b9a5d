"""`Server`: gives each environment that connects an agent of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rlwire.environments.loading import load
from rlwire.limits import DEFAULT, Limits
from rlwire.rlx.hosting import AgentFactory, AgentHandler, resolve_agent
from rlwire.rlx.metrics import LoggingMetrics, Metrics
from rlwire.serving.serving import Service, StreamOptions, StreamServer, WorkersOption
from rlwire.sessions import rlx
from rlwire.transports.address import AddressLike
from rlwire.transports.connection import Connection
from rlwire.transports.connection_asyncio import AsyncConnection

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Server(StreamServer):
    """An RLX server for one kind of agent.

    ::

        with Server(MyAgent, "localhost:7001") as server:      # or "my_agents:MyAgent"
            ...
        Server(MyAgent, "localhost:7001").serve_forever()      # until SIGINT or SIGTERM

    Each connection gets an agent of its own, made when its first command comes. An agent that
    raises gives an error reply, and the connection goes on; one that cannot be made gives an
    error reply, and the connection is closed. At its end, the agent's method `close` or
    `disconnected` is called, if it has one.

    Every 100 rewards of a connection, their average goes to the metrics as `average_reward`.

    Args:
        agent: a class, a callable or ``"module:name"``; called with the parameter server and, if
            it takes them, the metrics. An agent has ``init(exploit)`` and ``reset()``, which
            return something true, and ``update(reward, state, terminal)``, which returns the
            action.
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; with port
            0 the system chooses one.
        workers: ``"threads"``, a thread for each connection; ``"asyncio"``, all on one event loop,
            for thousands of connections and agents that answer at once, because each waits for
            the others; or a number of processes with threads, for agents that compute in Python.
            What is sent to processes has to be picklable, and a program that starts them needs
            the usual ``if __name__ == "__main__":``.
        limits: maxima for messages.
        parameter_server: given to every agent; ``"module:factory"`` is called once in each
            process. Agents in threads share it.
        metrics: a sink; by default each measurement is logged. It is closed when the server stops.
        dialect: of RLX; "readme" for clients that follow the table in RELAAX's README.
        dtype: of the arrays that clients of the readme dialect send, which do not tell it.
        images: what an image in a state becomes; RELAAX's agents expect "float32".
        options: `rlwire.serving.serving.StreamOptions`.
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
        dialect: Literal["relaax", "readme"] = "relaax",
        dtype: Any = None,
        images: Literal["array", "float32", "pil"] = "float32",
        **options: Unpack[StreamOptions],
    ) -> None:
        resolve_agent(agent)
        if isinstance(parameter_server, str):
            load(parameter_server)
        self._agents = _AgentService(
            agent,
            parameter_server,
            LoggingMetrics() if metrics is None else metrics,
            {"limits": limits, "dialect": dialect, "dtype": dtype, "images": images},
        )
        super().__init__(address, self._agents, workers=workers, **options)

    def check(self) -> None:
        """Make an agent, which is the first connection's; with worker processes it is closed."""
        factory = self._agents.prepare()
        if isinstance(self._workers, int):
            factory.close()
            self._agents.factory = None


@dataclass
class _AgentService(Service):
    """Makes the session and the handler of each connection; worker processes get a copy."""

    agent: Any
    parameter_server: Any
    metrics: Metrics
    session_options: dict[str, Any]
    factory: AgentFactory | None = None

    def make_factory(self) -> AgentFactory:
        return AgentFactory(self.agent, self.parameter_server, self.metrics)

    def session(self) -> rlx.RLXServerSession:
        return rlx.RLXServerSession(**self.session_options)

    def handler(self, connection: Connection | AsyncConnection) -> AgentHandler:
        assert self.factory is not None
        return AgentHandler(self.factory, connection.peer, partial(_hang_up, connection))

    def prepare(self) -> AgentFactory:
        factory = self.factory = self.make_factory()
        factory.prepare()
        return factory

    def begin(self) -> None:
        self.factory = self.factory or self.make_factory()

    def end(self) -> None:
        factory, self.factory = self.factory, None
        if factory is not None:
            factory.close()
        self.metrics.close()


def _hang_up(connection: Connection | AsyncConnection) -> None:
    """Close after the reply that is being made, which is sent as soon as it is there."""
    if isinstance(connection, AsyncConnection):
        asyncio.get_running_loop().call_soon(connection.close)
    else:
        connection.stop_receiving()
