"""RLX for pages by URL: what the front door calls; see `rlwire.protocols`.

There is a server, in front of an RLX server; its clients are pages (`rlwire.web`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rlwire.protocols import URL, parse_url
from rlwire.rlx.proxy import RLXProxy
from rlwire.serving.doors import client_tls

__all__ = ["server"]


def server(rlx: str | URL, url: URL, *, origins: Collection[str] = (), **options: Any) -> RLXProxy:
    """Return a server for pages; not started."""
    behind = parse_url(rlx)
    if behind.scheme != "rlx":
        raise ValueError(f"pages reach an RLX server, by its URL rlx://host:port, not {behind}")
    if behind.tls and "rlx_tls" not in options:
        options["rlx_tls"] = client_tls(behind, None)
    return RLXProxy(behind.address, url.address, origins=origins, **options)
