"""RLlink by URL; see `rlwire.registry`."""

from __future__ import annotations

from typing import Any

from rlwire.rllink.client import AsyncClient, Client
from rlwire.rllink.options import OPTIONS as OPTIONS
from rlwire.rllink.server import LearnerServer
from rlwire.serving.fronts import check_no_environment, load_instance
from rlwire.urls import URL


def server(learner: Any, url: URL, **options: Any) -> LearnerServer:
    check_no_environment(learner, url)
    return LearnerServer(load_instance(learner, "'module:learner'"), url, **options)


client, async_client = Client, AsyncClient
play = "rlwire.rllink.environment:play"
dissector = "rlwire.rllink.dissector:RLlinkDissector"
