"""RLX: RELAAX's interfaces for environments and agents, and their servers.

| RELAAX | here |
|---|---|
| `relaax.environment.agent_proxy` | `AgentProxy`, `AgentProxyException`; `AsyncAgentProxy` |
| `relaax.environment.config` | `options` |
| `relaax.environment.training` | `TrainingBase` |
| `relaax.server.rlx_server` | `Server` |
| `relaax.server.wsproxy` | `RLXPageServer` |
| `relaax.server.common.metrics` | `Metrics` and its subclasses |
| `relaax.common.rlx_message` | `RLXMessageImage`; `rlwire.codecs.rlx` has `encode` and `decode` |

`rlwire.relaax` has the learner: algorithms and parameter servers.
"""

from __future__ import annotations

import rlwire.rlx.options  # noqa: F401 (before RELAAX's `options` takes its name)
from rlwire.rlx.client import (
    AgentProxy,
    AgentProxyException,
    AsyncAgentProxy,
    RLXMessageImage,
    TrainingBase,
)
from rlwire.rlx.config import options
from rlwire.rlx.metrics import LoggingMetrics, Metrics, MultiMetrics, TensorBoardMetrics
from rlwire.rlx.page import RLXPageServer
from rlwire.rlx.server import Server

__all__ = [
    "AgentProxy",
    "AgentProxyException",
    "AsyncAgentProxy",
    "LoggingMetrics",
    "Metrics",
    "MultiMetrics",
    "RLXMessageImage",
    "RLXPageServer",
    "Server",
    "TensorBoardMetrics",
    "TrainingBase",
    "options",
]
