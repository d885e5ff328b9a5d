"""Universe's rewarder protocol for those who have an environment, and for those who have an agent.

| | |
|---|---|
| an environment of Gymnasium, served in real time | `EnvironmentRewarder`; by URL, `rlwire.serve` |
| any environment that pushes what happens | `RewarderServer`, `EnvResetRequest` |
| an agent, or an observer | `RewarderClient`, `AsyncRewarderClient`, `RewarderStep` |
"""

from __future__ import annotations

from rlwire.codecs.rewarder import AgentAction, UnknownMessage
from rlwire.sessions.rewarder.client import ClientSettings
from rlwire.sessions.rewarder.steps import RewarderStep
from rlwire.universe.rewarder.client import AsyncRewarderClient, RewarderClient
from rlwire.universe.rewarder.environment import EnvironmentRewarder
from rlwire.universe.rewarder.server import PORT, EnvResetRequest, RewarderServer

__all__ = [
    "PORT",
    "AgentAction",
    "AsyncRewarderClient",
    "ClientSettings",
    "EnvResetRequest",
    "EnvironmentRewarder",
    "RewarderClient",
    "RewarderServer",
    "RewarderStep",
    "UnknownMessage",
]
