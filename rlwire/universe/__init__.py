"""OpenAI Universe: the rewarder and the pixels of one environment, joined.

| | |
|---|---|
| many remotes, as the document has them | `UniverseEnv`, `Remote`, `PEEK`, `key`, `pointer` |
| a vector that waits for observations | `BlockingReset` |
| an environment as a remote | `rlwire.universe.served.UniverseServer` |
"""

from __future__ import annotations

from rlwire.universe.blocking_reset import BlockingReset
from rlwire.universe.env import UniverseEnv
from rlwire.universe.events import PEEK, key, pointer
from rlwire.universe.remotes import Remote

__all__ = ["PEEK", "BlockingReset", "Remote", "UniverseEnv", "key", "pointer"]
