"""What a rewarder's client is told besides messages; `ClientSession.receive` returns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rlwire.codecs.rewarder import Message

__all__ = ["Answered", "Began", "Event", "Failed", "TimedOut"]


@dataclass(frozen=True)
class Began:
    """An episode is open from now on: `ClientSession.take` gives what comes of it.

    Also when the server begins one by itself, and the one before has been taken to its end.
    """

    episode_id: str


@dataclass(frozen=True)
class Answered:
    """A reply came.

    Attributes:
        request: the message id of what it answers.
        what: ``"reset"`` or ``"ping"``.
        seconds: since the request was sent.
    """

    request: int
    what: str
    seconds: float


@dataclass(frozen=True)
class Failed:
    """``v0.reply.error``.

    Attributes:
        request: the message id of what it answers, None if it does not say.
        what: ``"reset"``, ``"ping"`` or ``"message"``, which is anything else.
        message: the server's words.
    """

    request: int | None
    what: str
    message: str


@dataclass(frozen=True)
class TimedOut:
    """No reply came in time; one that still comes is dropped.

    Attributes:
        request: the message id.
        what: ``"reset"`` or ``"ping"``.
        seconds: how long was waited.
    """

    request: int
    what: str
    seconds: float


Event: TypeAlias = (
    Message | Began | Answered | Failed | TimedOut
)  # messages: those that `ClientSession.receive` names
