"""RLX: who may say what when. The table is in `session`, a step's way through it in `turns`."""

from rlwire.sessions.rlx.session import (
    ANSWERS,
    TRANSITIONS,
    PageRules,
    RLXClientSession,
    RLXServerSession,
    RLXState,
)

__all__ = [
    "ANSWERS",
    "TRANSITIONS",
    "PageRules",
    "RLXClientSession",
    "RLXServerSession",
    "RLXState",
]
