"""RLlink: a simulator's episodes and a trainer's weights, to bytes and back.

A frame is eight ASCII digits (the body's length) and a body. The body is msgpack with arrays, as
Ray sends it since 2.44, or JSON, as RLlib documents it (with msgspec, from the extra `rllink`).

Source: RLlib's page on external environments, and Ray 2.60.0's ``rllib/env/external/rllink.py``.
"""

from rlwire.codecs.rllink.episodes import Episode
from rlwire.codecs.rllink.messages import (
    FRAME_MAXIMUM,
    Codec,
    Episodes,
    EpisodesAndGetState,
    Form,
    GetConfig,
    GetState,
    Message,
    Ping,
    Pong,
    SetConfig,
    SetState,
    frame_size,
)

__all__ = [
    "FRAME_MAXIMUM",
    "Codec",
    "Episode",
    "Episodes",
    "EpisodesAndGetState",
    "Form",
    "GetConfig",
    "GetState",
    "Message",
    "Ping",
    "Pong",
    "SetConfig",
    "SetState",
    "frame_size",
]
