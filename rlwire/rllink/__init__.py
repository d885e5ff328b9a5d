"""RLlink: simulators sample with a trainer's weights (`Client`), trainers learn (`Server`)."""

from rlwire.codecs.rllink import Episode, SetConfig, SetState
from rlwire.rllink.client import AsyncClient, Client
from rlwire.rllink.collector import EpisodeCollector
from rlwire.rllink.server import Server

__all__ = [
    "AsyncClient",
    "Client",
    "Episode",
    "EpisodeCollector",
    "Server",
    "SetConfig",
    "SetState",
]
