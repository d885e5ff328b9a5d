"""PERLERT by URL, for `rlwire.registry`."""

from __future__ import annotations

from typing import Any

from rlwire.perlert.client import AsyncClient, Client
from rlwire.perlert.environment import PerlertEndpoint
from rlwire.perlert.options import OPTIONS as OPTIONS
from rlwire.perlert.server import Server
from rlwire.serving.fronts import clients
from rlwire.urls import URL


def server(environment: Any, url: URL, **options: Any) -> Server:
    """Return a real-time server of an environment; the URL's path names the instance."""
    return Server(environment, url, **options)


client, async_client = clients(Client, AsyncClient)
dissector = "rlwire.perlert.dissector:PerlertDissector"


def endpoint(url: URL, *, copy: bool = True, **options: Any) -> PerlertEndpoint:
    """Return an endpoint for the instance in the URL's path; `copy` is ignored."""
    return PerlertEndpoint(url, **options)
