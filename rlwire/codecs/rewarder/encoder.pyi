from typing import SupportsIndex

from typing_extensions import Buffer

from rlwire.codecs.rewarder.values import Message
from rlwire.limits import Limits

__all__ = ["encode", "encode_into"]

def encode(
    message: Message,
    *,
    sent_at: float | None = None,
    message_id: int | str | None = None,
    limits: Limits | None = ...,
) -> bytes: ...
def encode_into(
    message: Message,
    buffer: Buffer,
    offset: SupportsIndex = 0,
    *,
    sent_at: float | None = None,
    message_id: int | str | None = None,
    limits: Limits | None = ...,
) -> int: ...
