"""PERLERT for those who have an environment, and for those who have an agent: play in real time.

| | |
|---|---|
| an environment of Gymnasium or PettingZoo, served | `rlwire.serve`, `PerlertServer` |
| texts of one's own instead of spaces | `Simulation`, `Outcome` |
| an agent | `Client`, `AsyncClient` |
| an agent that knows `gymnasium.Env` | `rlwire.make`, over a `PerlertEndpoint` |
"""

from __future__ import annotations

from rlwire.adapters.perlert.client import AsyncClient, Client
from rlwire.adapters.perlert.endpoint import PerlertEndpoint
from rlwire.adapters.perlert.environments import Outcome, Simulation, scalars
from rlwire.adapters.perlert.server import PerlertServer
from rlwire.adapters.perlert.spaces import SpaceText
from rlwire.sessions.perlert.client import Frame
from rlwire.transports.datagram_cipher import DatagramCipher, load_key, new_key

__all__ = [
    "AsyncClient",
    "Client",
    "DatagramCipher",
    "Frame",
    "Outcome",
    "PerlertEndpoint",
    "PerlertServer",
    "Simulation",
    "SpaceText",
    "load_key",
    "new_key",
    "scalars",
]
