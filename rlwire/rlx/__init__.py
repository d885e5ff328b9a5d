"""RLX: RELAAX's interfaces for environments and agents, their server, and messages themselves.

| RELAAX | here |
|---|---|
| `relaax.environment.agent_proxy` | `AgentProxy`, `AgentProxyException`; `AsyncAgentProxy` |
| `relaax.environment.config` | `options` |
| `relaax.environment.training` | `TrainingBase` |
| `relaax.server.rlx_server` | `Server` |
| `relaax.server.wsproxy` | `RLXProxy` |
| `relaax.server.common.metrics` | `Metrics` and its kinds |
| `relaax.common.rlx_message` | `RLXMessage`, `RLXMessageImage` |

The learning side is in `rlwire.relaax`.
"""

from __future__ import annotations

from rlwire.rlx.agent_proxy import AgentProxy, AgentProxyException, AsyncAgentProxy
from rlwire.rlx.config import options
from rlwire.rlx.message import RLXMessage, RLXMessageImage
from rlwire.rlx.metrics import (
    LoggingMetrics,
    Metrics,
    MultiMetrics,
    StepMetrics,
    TensorBoardMetrics,
)
from rlwire.rlx.proxy import ProxyStatistics, RLXProxy
from rlwire.rlx.server import Server
from rlwire.rlx.training import TrainingBase

__all__ = [
    "AgentProxy",
    "AgentProxyException",
    "AsyncAgentProxy",
    "LoggingMetrics",
    "Metrics",
    "MultiMetrics",
    "ProxyStatistics",
    "RLXMessage",
    "RLXMessageImage",
    "RLXProxy",
    "Server",
    "StepMetrics",
    "TensorBoardMetrics",
    "TrainingBase",
    "options",
]
