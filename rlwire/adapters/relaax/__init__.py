"""RELAAX's interfaces over rlwire: for environments, for agents, and for messages themselves.

| RELAAX | here |
|---|---|
| `relaax.environment.agent_proxy` | `AgentProxy`, `AgentProxyException`; `AsyncAgentProxy` |
| `relaax.environment.config` | `options` |
| `relaax.environment.training` | `TrainingBase` |
| `relaax.server.rlx_server` | `RLXServer` |
| `relaax.server.wsproxy` | `RLXProxy` |
| `relaax.server.parameter_server` | `ParameterServer`; `open_parameter_server`, `AlgorithmServer` |
| `relaax.server.common.session` | `Session` |
| `relaax.server.common.algorithm_loader` | `load_algorithm` |
| `relaax.server.common.metrics` | `Metrics` and its kinds |
| `relaax.common.rlx_message` | `RLXMessage`, `RLXMessageImage` |
"""

from __future__ import annotations

from rlwire.adapters.relaax.agent_proxy import AgentProxy, AgentProxyException, AsyncAgentProxy
from rlwire.adapters.relaax.algorithm import Algorithm, AlgorithmServer, load_algorithm
from rlwire.adapters.relaax.config import options
from rlwire.adapters.relaax.homes import open_parameter_server
from rlwire.adapters.relaax.message import RLXMessage, RLXMessageImage
from rlwire.adapters.relaax.metrics import (
    LoggingMetrics,
    Metrics,
    MultiMetrics,
    StepMetrics,
    TensorBoardMetrics,
)
from rlwire.adapters.relaax.parameter_server import (
    Handle,
    ParameterServer,
    ParameterServerError,
    Session,
)
from rlwire.adapters.relaax.proxy import ProxyStatistics, RLXProxy
from rlwire.adapters.relaax.server import RLXServer
from rlwire.adapters.relaax.training import TrainingBase

__all__ = [
    "AgentProxy",
    "AgentProxyException",
    "Algorithm",
    "AlgorithmServer",
    "AsyncAgentProxy",
    "Handle",
    "LoggingMetrics",
    "Metrics",
    "MultiMetrics",
    "ParameterServer",
    "ParameterServerError",
    "ProxyStatistics",
    "RLXMessage",
    "RLXMessageImage",
    "RLXProxy",
    "RLXServer",
    "Session",
    "StepMetrics",
    "TensorBoardMetrics",
    "TrainingBase",
    "load_algorithm",
    "open_parameter_server",
    "options",
]
