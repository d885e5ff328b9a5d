"""`Push`: a rewarder's message for many connections, written once.

Each connection counts its messages, so the bytes differ in the message id alone.
"""

from __future__ import annotations

from typing import TypeAlias

from rlwire.codecs.rewarder import Message, encode
from rlwire.errors import LimitExceeded
from rlwire.limits import DEFAULT, Limits

__all__ = ["Push"]

Buffer: TypeAlias = bytes | bytearray | memoryview

_ID = b'"message_id":'
_LONGEST = 19  # digits of an id
_JOINED = 1024  # bytes that are rather copied than sent as a buffer of their own


class Push:
    """What a server pushes, as bytes with a gap for the message id.

    Args:
        message: with its episode id.
        sent_at: seconds since 1970.
        limits: maxima for what is written.

    Attributes:
        episode_id: that it is of.
        size: its bytes, with a message id of one digit.

    Raises:
        EncodeError, LimitExceeded: it cannot be written.
    """

    __slots__ = ("_head", "_tail", "episode_id", "size")

    def __init__(self, message: Message, sent_at: float, limits: Limits = DEFAULT) -> None:
        self.episode_id = message.episode_id
        data = encode(message, sent_at=sent_at, message_id=0, limits=limits)
        self.size = size = len(data)
        if size - 1 + _LONGEST > limits.message:
            raise LimitExceeded("message", limits.message, size - 1 + _LONGEST)
        # The first one is the header's: before it are the method, in which a quotation mark would
        # have a backslash before it, and `sent_at`, a number.
        gap = data.index(_ID) + len(_ID)
        self._head = data[:gap]
        self._tail = data[gap + 1 :]

    def numbered(self, number: int) -> list[Buffer]:
        """Return the message with this id, long ones in two buffers: the second is shared."""
        tail = self._tail
        if len(tail) <= _JOINED:
            return [b"%b%d%b" % (self._head, number, tail)]
        return [b"%b%d" % (self._head, number), tail]
