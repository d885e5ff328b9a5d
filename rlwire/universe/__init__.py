"""OpenAI Universe: the rewarder and the pixels of one environment, joined.

| | |
|---|---|
| many remotes, as the document has them | `UniverseEnv`, `Remote`, `PEEK`, `key`, `pointer` |
| a vector that waits for observations | `BlockingReset` |
| an environment as a remote | `rlwire.universe.server.UniverseServer` |
| the rewarder alone | `rlwire.universe.rewarder` |
| the pixels alone | `rlwire.universe.rfb` |
"""

from __future__ import annotations

from rlwire.universe.environment import BlockingReset, UniverseEnv
from rlwire.universe.input import PEEK, key, pointer
from rlwire.universe.remotes import Remote

__all__ = ["PEEK", "BlockingReset", "Remote", "UniverseEnv", "key", "pointer"]
