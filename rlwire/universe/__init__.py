"""OpenAI Universe: remotes, each with a rewarder and the pixels of one environment.

| task | names |
|---|---|
| step a vector of remotes | `UniverseEnv`, `Remote`, `PEEK`, `key`, `pointer` |
| wait for the vector's observations | `BlockingReset` |
| serve an environment as a remote | `rlwire.universe.server.UniverseServer` |
| use a rewarder without pixels | `rlwire.universe.rewarder` |
| use pixels without a rewarder | `rlwire.universe.rfb` |
"""

from __future__ import annotations

from rlwire.universe.environment import BlockingReset, UniverseEnv
from rlwire.universe.input import PEEK, key, pointer
from rlwire.universe.remotes import Remote

__all__ = ["PEEK", "BlockingReset", "Remote", "UniverseEnv", "key", "pointer"]
