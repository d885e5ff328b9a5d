"""PERLERT for those who have an environment, and for those who have an agent: play in real time.

| | |
|---|---|
| an environment of Gymnasium or PettingZoo, served | `rlwire.serve`, `Server` |
| texts of one's own instead of spaces | `Simulation`, `Outcome` |
| an agent | `Client`, `AsyncClient` |
| an agent that knows `gymnasium.Env` | `rlwire.make`, over a `PerlertEndpoint` |
"""

from __future__ import annotations

from rlwire.perlert.client import AsyncClient, Client
from rlwire.perlert.environment import Outcome, PerlertEndpoint, Simulation, scalars
from rlwire.perlert.server import Server
from rlwire.perlert.spaces import SpaceText
from rlwire.sessions.perlert.client import Frame
from rlwire.transports.datagram_cipher import DatagramCipher, load_key, new_key

__all__ = [
    "AsyncClient",
    "Client",
    "DatagramCipher",
    "Frame",
    "Outcome",
    "PerlertEndpoint",
    "Server",
    "Simulation",
    "SpaceText",
    "load_key",
    "new_key",
    "scalars",
]
