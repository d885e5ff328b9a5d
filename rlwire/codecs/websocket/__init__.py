"""WebSocket: frames to bytes and back, and the two HTTP messages before them.

Source: RFC 6455.
"""

from rlwire.codecs.websocket import frames
from rlwire.codecs.websocket.frames import *

__all__: list[str] = []
__all__ += frames.__all__
