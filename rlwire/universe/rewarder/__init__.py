"""Universe's rewarder protocol.

| task | names |
|---|---|
| serve an environment in real time | `EnvironmentRewarder`; by URL, `rlwire.serve` |
| push rewards from any program | `RewarderServer`, `EnvResetRequest` |
| connect an agent or an observer | `RewarderClient`, `AsyncRewarderClient`, `RewarderStep` |
"""

from __future__ import annotations

from rlwire.codecs.rewarder import AgentAction, UnknownMessage
from rlwire.sessions.rewarder.steps import RewarderStep
from rlwire.universe.rewarder.client import AsyncRewarderClient, RewarderClient
from rlwire.universe.rewarder.player import EnvironmentRewarder
from rlwire.universe.rewarder.server import EnvResetRequest, RewarderServer

__all__ = [
    "AgentAction",
    "AsyncRewarderClient",
    "EnvResetRequest",
    "EnvironmentRewarder",
    "RewarderClient",
    "RewarderServer",
    "RewarderStep",
    "UnknownMessage",
]
