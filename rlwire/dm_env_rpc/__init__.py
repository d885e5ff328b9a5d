"""dm_env_rpc for those who have an environment, and for those who have an agent.

| | |
|---|---|
| an environment of dm_env or Gymnasium, served | `rlwire.serve` |
| worlds of one's own, served | `Server`, `World`, `AgentEnvironment`, `Refusal` |
| an agent | `Client`, `AsyncClient` |
| an agent that knows `dm_env.Environment` | `rlwire.environments.dm_env.DmEnvironment` |
| properties | `Properties`; `PropertiesExtension`, `AsyncPropertiesExtension` |
| programs that use the dm_env_rpc package | `rlwire.install("dm_env_rpc")` |

Servers and clients need hpack, the extra ``grpc``.
"""

from __future__ import annotations

from rlwire.dm_env_rpc.client import AsyncClient, Client
from rlwire.dm_env_rpc.environments import EnvironmentWorld, EnvironmentWorlds, Names
from rlwire.dm_env_rpc.pending import AsyncPending, Pending
from rlwire.dm_env_rpc.properties import (
    AsyncPropertiesExtension,
    Properties,
    PropertiesExtension,
    Property,
)
from rlwire.dm_env_rpc.protocols import AgentEnvironment, Refusal, World, WorldFactory
from rlwire.dm_env_rpc.server import Server
from rlwire.dm_env_rpc.status import StatusError
from rlwire.dm_env_rpc.worlds import Worlds
from rlwire.transports.tls import ClientTLS, ServerTLS

__all__ = [
    "AgentEnvironment",
    "AsyncClient",
    "AsyncPending",
    "AsyncPropertiesExtension",
    "Client",
    "ClientTLS",
    "EnvironmentWorld",
    "EnvironmentWorlds",
    "Names",
    "Pending",
    "Properties",
    "PropertiesExtension",
    "Property",
    "Refusal",
    "Server",
    "ServerTLS",
    "StatusError",
    "World",
    "WorldFactory",
    "Worlds",
]
