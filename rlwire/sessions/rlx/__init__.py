"""RLX's sessions, client and server, and its JSON for pages (`page`)."""

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
