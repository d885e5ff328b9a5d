"""PERLERT by URL, for `rlwire.registry`."""

from __future__ import annotations

from typing import Any

from rlwire.perlert.client import AsyncClient, Client
from rlwire.perlert.environment import PerlertEndpoint
from rlwire.perlert.options import OPTIONS as OPTIONS
from rlwire.perlert.server import Server
from rlwire.urls import URL

server = Server
client, async_client = Client, AsyncClient
dissector = "rlwire.perlert.dissector:PerlertDissector"


def endpoint(url: URL, *, copy: bool = True, **options: Any) -> PerlertEndpoint:
    """Return an endpoint for the instance in the URL's path; `copy` is ignored."""
    return PerlertEndpoint(url, **options)
