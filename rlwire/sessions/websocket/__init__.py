"""WebSocket: client and server sessions, whose events are messages: str for text, bytes for binary.

`rlwire.sessions.stack.Stack` puts another protocol inside. Extensions, such as compression, and
subprotocols are not supported.

Source: RFC 6455.
"""

from rlwire.sessions.websocket import opening
from rlwire.sessions.websocket.opening import *
from rlwire.sessions.websocket.session import FRAGMENTS, Closed, Kind

__all__ = ["FRAGMENTS", "Closed", "Kind", *opening.__all__]
