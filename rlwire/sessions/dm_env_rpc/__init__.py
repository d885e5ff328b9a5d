"""dm_env_rpc: who may say what when. The table is in `states`, both sides of it in `session`."""

from rlwire.sessions.dm_env_rpc.session import (
    REQUESTS,
    TOLERATED,
    TRANSITIONS,
    Client,
    Code,
    Server,
    State,
    without_spec,
)

__all__ = [
    "REQUESTS",
    "TOLERATED",
    "TRANSITIONS",
    "Client",
    "Code",
    "Server",
    "State",
    "without_spec",
]
