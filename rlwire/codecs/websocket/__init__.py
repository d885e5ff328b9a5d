"""WebSocket: frames to bytes and back (`frames`, compiled), and the two HTTP messages before them.

Those, URLs and Basic credentials are in `handshake`. Not here: which frame may follow which.

Source: RFC 6455.
"""

from rlwire.codecs.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Endpoint,
    Framer,
    NotText,
    Text,
    decode_close,
    encode_close,
    mask,
)

__all__ = [
    "BINARY",
    "CLOSE",
    "CONTINUATION",
    "PING",
    "PONG",
    "TEXT",
    "Endpoint",
    "Framer",
    "NotText",
    "Text",
    "decode_close",
    "encode_close",
    "mask",
]
