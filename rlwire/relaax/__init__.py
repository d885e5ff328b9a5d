"""RELAAX's learning side: algorithms, their parameter server, checkpoints, whole applications.

| RELAAX | here |
|---|---|
| `relaax.server.parameter_server` | `ParameterServer`; `open_parameter_server`, `AlgorithmServer` |
| `relaax.server.common.session` | `Session` |
| `relaax.server.common.algorithm_loader` | `load_algorithm` |

What environments and agents use is in `rlwire.rlx`.
"""

from __future__ import annotations

from rlwire.relaax.algorithm import Algorithm, AlgorithmServer, load_algorithm
from rlwire.relaax.parameter_server import (
    ParameterServer,
    ParameterServerError,
    ParameterServerHandle,
    Session,
    open_parameter_server,
)

__all__ = [
    "Algorithm",
    "AlgorithmServer",
    "ParameterServer",
    "ParameterServerError",
    "ParameterServerHandle",
    "Session",
    "load_algorithm",
    "open_parameter_server",
]
