"""RLlink: a simulator that samples by itself (`RLlinkClient`), and who trains (`RLlinkServer`)."""

from rlwire.adapters.rllink.client import AsyncRLlinkClient, RLlinkClient
from rlwire.adapters.rllink.collector import EpisodeCollector
from rlwire.adapters.rllink.server import RLlinkServer, RLlinkStatistics
from rlwire.codecs.rllink import Episode, SetConfig, SetState

__all__ = [
    "AsyncRLlinkClient",
    "Episode",
    "EpisodeCollector",
    "RLlinkClient",
    "RLlinkServer",
    "RLlinkStatistics",
    "SetConfig",
    "SetState",
]
