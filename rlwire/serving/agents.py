"""Things that are served by a name with a prefix, such as ``rllib:PPO``: whole algorithms."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from rlwire import protocol_options
from rlwire.protocols import URL
from rlwire.serving.doors import check_no_environment
from rlwire.serving.serving import BackgroundServer

__all__ = ["RLLIB", "SERVED", "served"]

SERVED: Final[dict[str, str]] = {
    "algorithm": "rlwire.relaax.algorithm",
    "rllib": "rlwire.rllib.serving",
}
"""Prefixes, and modules whose ``server(name, url, **options)`` returns a server, not started."""

RLLIB: Final = (*(option.name for option in protocol_options.RLLIB), "save_every")
"""Options of RLlib's algorithms that are no settings by RLlib's names."""

_OWN: Final = (*RLLIB, "checkpoints", "config")


def served(thing: Any, url: URL, options: Mapping[str, Any]) -> BackgroundServer | None:
    """Return the server of a thing with a prefix, not started; None if it has none."""
    prefix, colon, name = thing.partition(":") if isinstance(thing, str) else ("", "", "")
    if not colon or prefix not in SERVED:
        check_no_environment(thing, url)
        if misplaced := [name for name in _OWN if name in options]:
            raise TypeError(
                f"{misplaced[0]} is an option of {', '.join(f'{each}:NAME' for each in SERVED)}, "
                f"not of {thing!r}"
            )
        return None
    if prefix == "rllib":
        _keep_ray_here(options.get("ray_address"))
    found: BackgroundServer = importlib.import_module(SERVED[prefix]).server(name, url, **options)
    return found


def _keep_ray_here(address: str | None) -> None:
    """Have a Ray that this process begins listen to this machine alone, if it joins no cluster.

    By default its ports are open to others, whatever address its node is given. What keeps it at
    127.0.0.1 is the variable by which Ray has no clusters, as on Windows and macOS; it is read when
    Ray is imported, so this does nothing where it was.
    """
    if not (address or os.environ.get("RAY_ADDRESS") or "ray" in sys.modules):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
