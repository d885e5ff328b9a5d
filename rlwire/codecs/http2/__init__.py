"""HTTP/2 frames, and gRPC messages in them: bytes to messages and back, for many streams."""
# What each module offers, its __all__ says.

from rlwire.codecs.http2 import receiving, sending
from rlwire.codecs.http2.receiving import *
from rlwire.codecs.http2.sending import *

__all__: list[str] = []
__all__ += receiving.__all__
__all__ += sending.__all__
