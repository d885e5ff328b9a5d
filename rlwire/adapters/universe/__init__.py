"""OpenAI Universe: the rewarder and the pixels of one environment, joined.

| | |
|---|---|
| many remotes, as the document has them | `UniverseEnv`, `Remote`, `PEEK`, `key`, `pointer` |
| around that | `BlockingReset`, `Throttle`, `SafeActionSpace`, `SoftmaxClickMouse`, \
`CropObservations`, `Joint`; `rlwire.adapters.universe.core` for remotes of Gymnasium's |
| what `info` says of lags | `Lags`, `Span` |
| an environment as a remote | `rlwire.adapters.universe.served.UniverseServer` |
| recordings | `rlwire.adapters.universe.recording` |

Not here: either connection by itself (`rlwire.adapters.rewarder`, `rlwire.adapters.rfb`).
"""

from __future__ import annotations

from rlwire.adapters.universe.diagnostics import Lags, Span
from rlwire.adapters.universe.env import UniverseEnv
from rlwire.adapters.universe.events import PEEK, key, pointer
from rlwire.adapters.universe.remotes import Remote
from rlwire.adapters.universe.wrappers import (
    BlockingReset,
    CropObservations,
    Joint,
    SafeActionSpace,
    SoftmaxClickMouse,
    Throttle,
)

__all__ = [
    "PEEK",
    "BlockingReset",
    "CropObservations",
    "Joint",
    "Lags",
    "Remote",
    "SafeActionSpace",
    "SoftmaxClickMouse",
    "Span",
    "Throttle",
    "UniverseEnv",
    "key",
    "pointer",
]
