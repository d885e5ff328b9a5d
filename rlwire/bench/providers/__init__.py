"""The protocols that `rlwire bench` measures, a file each.

Not here: what a provider is (`rlwire.bench.provider`).
"""

from __future__ import annotations

import importlib

from rlwire.bench.provider import Provider

__all__ = ["PROVIDERS", "load"]

PROVIDERS: dict[str, str] = {
    "rlx": "rlwire.bench.providers.rlx:RLX",
    "dm_env_rpc": "rlwire.bench.providers.dm_env_rpc:DmEnvRpc",
    "perlert": "rlwire.bench.providers.perlert:Perlert",
    "rewarder": "rlwire.bench.providers.rewarder:Rewarder",
    "openpi": "rlwire.bench.providers.openpi:Openpi",
}
"""Name to ``module:class``; imported when it is asked for."""


def load(name: str) -> Provider:
    """Make the provider called `name`.

    Raises:
        MissingExtra: what its protocol needs is not installed.
    """
    module, _, kind = PROVIDERS[name].partition(":")
    provider: Provider = getattr(importlib.import_module(module), kind)()
    return provider
