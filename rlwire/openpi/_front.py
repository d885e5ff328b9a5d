"""openpi's policies by URL; see `rlwire.registry`."""

from __future__ import annotations

from typing import Any

from rlwire.openpi.client import AsyncClient, Client
from rlwire.openpi.options import OPTIONS as OPTIONS
from rlwire.openpi.server import Server
from rlwire.serving.fronts import load_instance, served
from rlwire.serving.serving import BackgroundServer
from rlwire.urls import URL


def server(policy: Any, url: URL, **options: Any) -> BackgroundServer:
    whole = served(policy, url, options)
    return whole or Server(load_instance(policy, "'module:policy'"), url, **options)


client, async_client = Client, AsyncClient
listen, play = "rlwire.openpi.environment:listen", "rlwire.openpi.environment:play"
dissector = "rlwire.openpi.dissector:OpenPIDissector"
