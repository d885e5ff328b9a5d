"""dm_env_rpc: environments served to agents, and agents' clients.

| | |
|---|---|
| an environment of dm_env or Gymnasium, served | `rlwire.serve` |
| worlds of your own, served | `Server`, `World`, `AgentEnvironment`, `StatusError` |
| an agent | `Client`, `AsyncClient` |
| an agent for code that uses `dm_env.Environment` | `rlwire.environments.dm_env.DmEnvironment` |
| properties | `Properties`; `PropertiesExtension`, `AsyncPropertiesExtension` |
| programs that use the dm_env_rpc package | `rlwire.install("dm_env_rpc")` |

Servers and clients need hpack, the extra ``gym``.
"""

from __future__ import annotations

from rlwire.dm_env_rpc.client import AsyncClient, Client
from rlwire.dm_env_rpc.environment_world import EnvironmentWorlds
from rlwire.dm_env_rpc.properties import AsyncPropertiesExtension, Properties, PropertiesExtension
from rlwire.dm_env_rpc.server import Server
from rlwire.dm_env_rpc.status import StatusError
from rlwire.dm_env_rpc.world import AgentEnvironment, World, WorldFactory
from rlwire.transports.tls import ClientTLS, ServerTLS

__all__ = [
    "AgentEnvironment",
    "AsyncClient",
    "AsyncPropertiesExtension",
    "Client",
    "ClientTLS",
    "EnvironmentWorlds",
    "Properties",
    "PropertiesExtension",
    "Server",
    "ServerTLS",
    "StatusError",
    "World",
    "WorldFactory",
]
