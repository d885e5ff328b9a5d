"""RLX's sessions; `page` has its JSON for pages."""

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
