"""RLX by URL, for the front door."""

from __future__ import annotations

from typing import Any

from rlwire.rlx.client import AgentProxy, AsyncAgentProxy
from rlwire.rlx.options import OPTIONS as OPTIONS
from rlwire.rlx.server import Server
from rlwire.serving.fronts import served
from rlwire.serving.serving import BackgroundServer
from rlwire.urls import URL


def server(agent: Any, url: URL, **options: Any) -> BackgroundServer:
    """Return a server of agents, not started."""
    return served(agent, url, options) or Server(agent, url, **options)


client, async_client = AgentProxy, AsyncAgentProxy
listen, play = "rlwire.rlx.environment:listen", "rlwire.rlx.environment:play"
dissector = "rlwire.rlx.dissector:RLXDissector"
