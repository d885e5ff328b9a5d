"""OpenAI Universe: remotes, each with a rewarder and the pixels of one environment.

| task | names |
|---|---|
| play remotes | `rlwire.make`, `rlwire.make_vec`, with events of `key` and `pointer` |
| serve an environment as a remote | `rlwire.universe.server.UniverseServer` |
| use a rewarder without pixels | `rlwire.universe.rewarder` |
| use pixels without a rewarder | `rlwire.universe.rfb` |
"""

from __future__ import annotations

from rlwire.universe.input import key, pointer

__all__ = ["key", "pointer"]
