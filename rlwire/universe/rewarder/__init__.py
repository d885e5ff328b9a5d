"""Universe's rewarder protocol for those who have an environment, and for those who have an agent.

| | |
|---|---|
| an environment of Gymnasium, served in real time | `EnvironmentRewarder`; by URL, `rlwire.serve` |
| any environment that pushes what happens | `RewarderServer`, `ResetRequest` |
| an agent, or an observer | `RewarderClient`, `AsyncRewarderClient`, `Step` |
"""

from __future__ import annotations

from rlwire.codecs.rewarder import AgentAction, UnknownMessage
from rlwire.sessions.rewarder.client import ClientSettings
from rlwire.sessions.rewarder.steps import Step
from rlwire.universe.rewarder.client import AsyncRewarderClient, RewarderClient
from rlwire.universe.rewarder.environment import EnvironmentRewarder
from rlwire.universe.rewarder.server import PORT, ResetRequest, RewarderServer

__all__ = [
    "PORT",
    "AgentAction",
    "AsyncRewarderClient",
    "ClientSettings",
    "EnvironmentRewarder",
    "ResetRequest",
    "RewarderClient",
    "RewarderServer",
    "Step",
    "UnknownMessage",
]
