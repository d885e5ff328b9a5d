"""Frames to messages: a message may come in fragments, within limits and in time.

Source: RFC 6455, sections 5.4 and 8.1.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from rlwire.codecs import websocket as frames
from rlwire.errors import LimitExceeded, RemoteProtocolError
from rlwire.sessions.websocket_closing import WrongKind

__all__ = ["FRAGMENTS", "Assembly", "Kind"]

Buffer: TypeAlias = bytes | bytearray | memoryview
Kind: TypeAlias = Literal["any", "binary", "text"]

FRAGMENTS = 131_072
"""Fragments that one message may come in; empty ones would otherwise be endless."""


class Assembly:
    """Puts the messages of one peer together.

    Args:
        framer: what it says of the kind of messages counts, the other is refused; and it makes
            texts, within its limits.
        seconds: that a message in fragments may take; None for no limit.

    Attributes:
        size: bytes of the message that has begun to arrive.
        count: its fragments so far, 0 while there is no such message.
        due: when it has to be whole, on `tick`'s clock; None while there is no such time.
    """

    __slots__ = ("_data", "_framer", "_opcode", "_seconds", "_text", "count", "due")

    def __init__(self, framer: frames.Framer, seconds: float | None) -> None:
        self._framer = framer
        self._seconds = seconds
        self._text = frames.Text()
        self.clear()

    @property
    def size(self) -> int:
        """Return the bytes of the message that has begun to arrive."""
        return len(self._data)

    def clear(self) -> None:
        """Forget the message that has begun to arrive."""
        self._opcode = self.count = 0
        self._data = bytearray()
        self.due: float | None = None

    def take(self, opcode: int, final: bool, payload: Buffer) -> Any:
        """Return the message that this frame ends, None if more fragments follow.

        Raises:
            RemoteProtocolError: the frame may not come now.
            WrongKind: its message is of the kind that is not spoken.
            NotText: no text can go on like this.
            LimitExceeded: it is one fragment too many, or a text that is too large as a str.
        """
        if opcode == frames.CONTINUATION:
            if not self._opcode:
                raise RemoteProtocolError("a continuation without a message before it")
        elif self._opcode:
            raise RemoteProtocolError("a new message inside another's fragments")
        else:
            name = "text" if opcode == frames.TEXT else "binary"
            if self._framer.kind not in ("any", name):
                raise WrongKind(f"a {name} message where all are {self._framer.kind}")
        first = self._opcode or opcode
        if first == frames.TEXT:
            self._text.feed(payload)
            if final:
                self._text.end()
        whole = payload
        if opcode == frames.CONTINUATION or not final:
            self.count += 1
            if self.count > FRAGMENTS:
                raise LimitExceeded("fragments", FRAGMENTS, self.count)
            self._opcode = first
            self._data += payload
            if not final:
                return None
            whole = self._data
            self.clear()
        if first == frames.TEXT and self._framer.kind == "any":
            return self._framer.text(whole)
        return whole

    def tick(self, now: float) -> bool:
        """Let time pass; returns whether the message is late."""
        if not self.count or self._seconds is None:
            return False
        if self.due is None:
            self.due = now + self._seconds
        return now >= self.due
