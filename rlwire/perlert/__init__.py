"""PERLERT: agents play environments in real time, over UDP.

| side | names |
|---|---|
| serve an environment of Gymnasium, dm_env or PettingZoo | `rlwire.serve`, `Server` |
| connect an agent | `Client`, `AsyncClient` |
| connect an agent that expects a `gymnasium.Env` | `rlwire.make`, over a `PerlertEndpoint` |
"""

from __future__ import annotations

from rlwire.perlert.cipher import load_key, new_key
from rlwire.perlert.client import AsyncClient, Client
from rlwire.perlert.environment import PerlertEndpoint
from rlwire.perlert.server import Server
from rlwire.perlert.spaces import SpaceText
from rlwire.sessions.perlert.client import Frame

__all__ = [
    "AsyncClient",
    "Client",
    "Frame",
    "PerlertEndpoint",
    "Server",
    "SpaceText",
    "load_key",
    "new_key",
]
