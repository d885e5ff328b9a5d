from typing_extensions import Buffer

from rlwire.codecs.rewarder.values import Message
from rlwire.limits import Limits

__all__ = ["decode"]

def decode(buffer: Buffer, *, limits: Limits | None = ...) -> Message: ...
