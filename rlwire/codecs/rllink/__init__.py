"""RLlink: a simulator's episodes and a trainer's weights, to bytes and back.

A frame is eight ASCII digits (the body's length) and a body. The body is msgpack with arrays, as
Ray sends it since 2.44, or JSON, as RLlib documents it (with msgspec, from the extra `gym`).

Source: RLlib's page on external environments, and Ray 2.60.0's ``rllib/env/external/rllink.py``.
"""

from rlwire.codecs.rllink import messages
from rlwire.codecs.rllink.episodes import Episode
from rlwire.codecs.rllink.messages import *

__all__ = ["Episode", *messages.__all__]
