"""dm_env_rpc's sessions; `states` has the table of transitions."""

from rlwire.codecs.grpc import Code
from rlwire.sessions.dm_env_rpc.session import (
    DmEnvRpcClientSession,
    DmEnvRpcServerSession,
    without_spec,
)
from rlwire.sessions.dm_env_rpc.states import REQUESTS, TOLERATED, TRANSITIONS, DmEnvRpcState

__all__ = [
    "REQUESTS",
    "TOLERATED",
    "TRANSITIONS",
    "Code",
    "DmEnvRpcClientSession",
    "DmEnvRpcServerSession",
    "DmEnvRpcState",
    "without_spec",
]
