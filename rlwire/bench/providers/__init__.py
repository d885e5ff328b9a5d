"""The protocols that `rlwire bench` measures, a file each.

Not here: what a provider is (`rlwire.bench.provider`).
"""

from __future__ import annotations

import importlib

from rlwire.bench.provider import Provider

__all__ = ["PROVIDERS", "load"]

PROVIDERS: dict[str, str] = {
    "rlx": "rlwire.bench.providers.rlx:RLX",
}
"""Name to ``module:class``; imported when it is asked for."""


def load(name: str) -> Provider:
    """Make the provider called `name`."""
    module, _, kind = PROVIDERS[name].partition(":")
    provider: Provider = getattr(importlib.import_module(module), kind)()
    return provider
