"""WebSocket: a `Client` and a `Server` around any session of whole messages.

The inner session says what messages mean: it has the methods of
`rlwire.transports.interface.Session`, and may have `outgoing` and `tick` (`TalkingSession` there),
and, to be asked for the former less often, `owes`: whether it has something to say, or is closed.
Without one (`RawMessages`), events are the messages themselves: a str is a text, bytes are binary.

Who may open one is in `opening`, who may say what when after that in `session`. Extensions,
compression among them, are not spoken: a client offers none, a server accepts none.

Source: RFC 6455.
"""

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
from rlwire.sessions.websocket.session import (
    FRAGMENTS,
    Closed,
    Kind,
    RawMessages,
    WebSocketOptions,
    WebSocketState,
)

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
    "WebSocketOptions",
    "WebSocketServerSession",
    "WebSocketState",
    "basic_authorization",
    "health",
]
