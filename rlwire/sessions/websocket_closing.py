"""How a WebSocket ends: the codes of close frames, and which fault has which.

Source: RFC 6455, section 7.4.1.
"""

from __future__ import annotations

from typing import Any

from rlwire.codecs.websocket import NotText
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    RemoteProtocolError,
    RlwireError,
)

__all__ = ["Closed", "WrongKind", "code_of", "code_of_fault"]

NORMAL, GOING_AWAY, BAD_FRAME, BAD_KIND = 1000, 1001, 1002, 1003
BAD_TEXT, NOT_ALLOWED, TOO_LONG, INTERNAL = 1007, 1008, 1009, 1011


class Closed(ConnectionClosed):
    """The peer closed the WebSocket with a close frame.

    Attributes:
        code: the peer's close code, 1005 if it gave none. 1000 and 1001 are good ends.
        reason: the peer's words.
    """

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"the peer closed with code {code}" + (f": {reason}" if reason else ""))
        self.code = code
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.reason)


class WrongKind(RemoteProtocolError):
    """A text where messages are binary, or the other way round."""


def code_of(error: RlwireError) -> int:
    """Return the code for what the inner session, or the transport, finds wrong."""
    if isinstance(error, WrongKind):
        return BAD_KIND
    if isinstance(error, LimitExceeded):
        return TOO_LONG
    if isinstance(error, DecodeError):
        return BAD_TEXT
    if isinstance(error, (DeadlineExceeded, RemoteProtocolError)):
        return NOT_ALLOWED
    return INTERNAL


def code_of_fault(error: RlwireError) -> int:
    """Return the code for a rule of WebSocket itself that the peer broke."""
    if isinstance(error, LimitExceeded):
        return TOO_LONG
    if isinstance(error, WrongKind):
        return BAD_KIND
    if isinstance(error, NotText):
        return BAD_TEXT
    return BAD_FRAME
