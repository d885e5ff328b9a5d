"""RLX by URL, for the front door."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlwire.registry import URL
from rlwire.rlx.client import AgentProxy, AsyncAgentProxy
from rlwire.rlx.metrics import LoggingMetrics, Metrics, MultiMetrics, TensorBoardMetrics
from rlwire.rlx.options import OPTIONS as OPTIONS
from rlwire.rlx.server import Server
from rlwire.serving.fronts import clients, served
from rlwire.serving.serving import BackgroundServer

if TYPE_CHECKING:
    from rlwire.environments.callers import Callers


def server(
    agent: Any,
    url: URL,
    *,
    metrics: Metrics | Sequence[tuple[str, str]] | None = None,
    **options: Any,
) -> BackgroundServer:
    """Return a server of agents, not started."""
    options = {"metrics": _sink(metrics), **options}
    return served(agent, url, options) or Server(agent, str(url), **options)


client, async_client = clients(AgentProxy, AsyncAgentProxy)
play = "rlwire.rlx.environment:play"
dissector = "rlwire.rlx.dissector:RLXDissector"


def listen(
    url: URL,
    num_envs: int,
    *,
    metrics: Metrics | Sequence[tuple[str, str]] | None = None,
    **options: Any,
) -> Callers:
    from rlwire.rlx import environment as room  # needs Gymnasium

    return room.listen(str(url), num_envs, metrics=_sink(metrics), **options)


def _sink(metrics: Metrics | Sequence[tuple[str, str]] | None) -> Metrics | None:
    if metrics is None or isinstance(metrics, Metrics):
        return metrics
    sinks = [
        TensorBoardMetrics(where) if name == "tensorboard" else LoggingMetrics()
        for name, where in metrics
    ]
    return sinks[0] if len(sinks) == 1 else MultiMetrics(sinks)
