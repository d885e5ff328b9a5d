"""What is served by a name with a prefix, such as ``rllib:PPO``: whole algorithms, with servers.

Not here: agents and policies by ``module:name`` (`rlwire.environments.loading`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from rlwire import protocol_options
from rlwire.adapters.serving import BackgroundServer
from rlwire.protocols import URL

__all__ = ["RLLIB", "SERVED", "served"]

SERVED: Final[dict[str, str]] = {
    "algorithm": "rlwire.adapters.relaax.algorithm",
    "rllib": "rlwire.adapters.rllib.serving",
}
"""Prefixes, and modules whose ``server(name, url, **options)`` returns a server, not started."""

RLLIB: Final = (*(option.name for option in protocol_options.RLLIB), "save_every")
"""Options of RLlib's algorithms that are no settings by RLlib's names."""

_OWN: Final = (*RLLIB, "checkpoints", "config")


def served(thing: Any, url: URL, options: Mapping[str, Any]) -> BackgroundServer | None:
    """Return the server of a thing with a prefix, not started; None if it has none.

    Raises:
        TypeError: it has none, and an option that only such things have.
        Exception: whatever making it raises.
    """
    prefix, colon, name = thing.partition(":") if isinstance(thing, str) else ("", "", "")
    if not colon or prefix not in SERVED:
        if misplaced := [name for name in _OWN if name in options]:
            raise TypeError(
                f"{misplaced[0]} is an option of {', '.join(f'{each}:NAME' for each in SERVED)}, "
                f"not of {thing!r}"
            )
        return None
    found: BackgroundServer = importlib.import_module(SERVED[prefix]).server(name, url, **options)
    return found
