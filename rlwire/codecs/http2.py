"""HTTP/2 frames, and gRPC messages in them: bytes to messages and back, for many streams at once.

The work is done in compiled modules: `http2_sending` for what goes, `http2_receiving` for what
comes and for `Endpoint`, which is both. Not here: header fields (`http2_headers`).
"""
# ruff: noqa: F403
# What each module offers, its __all__ says.

from rlwire.codecs import http2_receiving, http2_sending
from rlwire.codecs.http2_receiving import *
from rlwire.codecs.http2_sending import *

__all__: list[str] = []
__all__ += http2_receiving.__all__
__all__ += http2_sending.__all__
