"""WebSocket: frames to bytes and back (`frames`, compiled), and the two HTTP messages before them.

Those, URLs and Basic credentials are in `handshake`. Not here: which frame may follow which.

Source: RFC 6455.
"""

from rlwire.codecs.websocket import frames
from rlwire.codecs.websocket.frames import *

__all__: list[str] = []
__all__ += frames.__all__
