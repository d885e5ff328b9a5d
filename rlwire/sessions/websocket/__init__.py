"""WebSocket: client and server sessions around an inner session of whole messages.

The inner session is a `rlwire.transports.interface.Session`. It may have `outgoing` and `tick` as a
`TalkingSession`, and `owes`: whether `outgoing` has messages, or the session is closed. With
`RawMessages`, events are the messages: str for text, bytes for binary. Extensions, such as
compression, and subprotocols are not supported.

Source: RFC 6455.
"""

from rlwire.sessions.raw import RawMessages
from rlwire.sessions.websocket.opening import (
    HEALTH,
    Check,
    HttpRefusal,
    Page,
    Pages,
    PageServed,
    Refused,
    WebSocketClientSession,
    WebSocketServerSession,
    basic_authorization,
    health,
)
from rlwire.sessions.websocket.session import FRAGMENTS, Closed, Kind, WebSocketState

__all__ = [
    "FRAGMENTS",
    "HEALTH",
    "Check",
    "Closed",
    "HttpRefusal",
    "Kind",
    "Page",
    "PageServed",
    "Pages",
    "RawMessages",
    "Refused",
    "WebSocketClientSession",
    "WebSocketServerSession",
    "WebSocketState",
    "basic_authorization",
    "health",
]
