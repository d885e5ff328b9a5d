"""WebSocket: client and server sessions around an inner session of whole messages.

The inner session is a `rlwire.sessions.layer.Layer`. With `RawMessages`, events are the messages:
str for text, bytes for binary. Extensions, such as compression, and subprotocols are not supported.

Source: RFC 6455.
"""

from rlwire.sessions.raw import RawMessages
from rlwire.sessions.websocket import opening
from rlwire.sessions.websocket.opening import *
from rlwire.sessions.websocket.session import FRAGMENTS, Closed, Kind, WebSocketState

__all__ = ["FRAGMENTS", "Closed", "Kind", "RawMessages", "WebSocketState", *opening.__all__]
