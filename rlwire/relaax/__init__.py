"""RELAAX's learning side: algorithms, parameter server, checkpoints, applications.

`rlwire.rlx` has the protocol between environments and agents.
"""

from __future__ import annotations

from rlwire.relaax.algorithm import Algorithm, AlgorithmError, load_algorithm
from rlwire.relaax.parameter_server import (
    ParameterServer,
    ParameterServerError,
    ParameterServerHandle,
    Session,
)
from rlwire.relaax.server import AlgorithmServer, open_parameter_server

__all__ = [
    "Algorithm",
    "AlgorithmError",
    "AlgorithmServer",
    "ParameterServer",
    "ParameterServerError",
    "ParameterServerHandle",
    "Session",
    "load_algorithm",
    "open_parameter_server",
]
