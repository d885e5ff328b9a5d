"""``rllib:NAME`` by URL, for `rlwire.registry.LEARNERS`; without Ray until a server is made."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

from rlwire.errors import optional
from rlwire.urls import URL

if TYPE_CHECKING:
    from rlwire.rllib.serving import RLlibServer


def server(name: str, url: URL, **options: Any) -> RLlibServer:
    """Return an idle server; options that are not its own are those of its runners' listeners."""
    _keep_ray_here(options.get("ray_address"))
    with optional("ray", "rllib"):
        import ray  # noqa: F401 (the largest first, whose extra has the others)
    from rlwire.rllib.serving import RLlibServer, RLlibServerOptions

    fields = {field.name for field in dataclasses.fields(RLlibServerOptions)}
    own = {each: options.pop(each) for each in fields & options.keys()}
    return RLlibServer(name, url, listening=options, **own)


def _keep_ray_here(address: str | None) -> None:
    """Make a Ray instance that this process starts listen on 127.0.0.1 only.

    By default its ports are open to other machines. Ray reads the variable on import; 0 disables
    clusters, as on Windows and macOS.
    """
    if not (address or os.environ.get("RAY_ADDRESS") or "ray" in sys.modules):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
