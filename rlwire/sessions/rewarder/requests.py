"""Which reply is to which request: those that wait, and when each is given up.

What a client does about it is in `rlwire.sessions.rewarder.client`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from rlwire.codecs.rewarder import Message
from rlwire.errors import RemoteProtocolError
from rlwire.sessions.rewarder.rules import plain_id

__all__ = ["NEVER", "Request", "Requests"]

NEVER: Final = math.inf
_REMEMBERED: Final = 256  # requests answered or given up


@dataclass(slots=True)
class Request:
    """One that waits for its reply.

    Attributes:
        number: its message id.
        what: ``"reset"`` or ``"ping"``.
        sent: when.
        due: when it is given up.
    """

    number: int
    what: str
    sent: float
    due: float


class Requests:
    """Those that wait, and the last ones that do not any more.

    Attributes:
        due: when the next one is given up, `NEVER` if none waits.
        late: replies to requests that were given up.
    """

    __slots__ = ("_gone", "_waiting", "due", "late")

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, Request] = OrderedDict()
        self._gone: OrderedDict[int, bool] = OrderedDict()  # given up: True; answered: False
        self.due = NEVER
        self.late = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, number: int) -> bool:
        return number in self._waiting

    def add(self, number: int, what: str, now: float, timeout: float) -> None:
        """Wait for a reply."""
        self._waiting[number] = Request(number, what, now, now + timeout)
        self.due = min(self.due, now + timeout)

    def give_up(self, now: float) -> list[Request]:
        """Return those whose time is over, and wait for them no more."""
        if now < self.due:
            return []
        over = [request for request in self._waiting.values() if now >= request.due]
        for request in over:
            self._forget(request, given_up=True)
        return over

    def forgo(self, number: int) -> bool:
        """Wait for this one no more; returns whether it waited."""
        request = self._waiting.get(number)
        if request is not None:
            self._forget(request, given_up=True)
        return request is not None

    def clear(self) -> None:
        """Wait for none."""
        self._waiting.clear()
        self.due = NEVER

    def answered(self, reply: Message, what: str) -> Request | None:
        """Return the request that a reply is to; None, and it is counted, if that was given up.

        Raises:
            RemoteProtocolError: it is to nothing, to something else, or the second one.
        """
        parent, request = self._find(reply)
        if request is None:
            self._late(reply, parent)
        elif request.what != what:
            raise RemoteProtocolError(f"{reply.method} to message {parent}, a {request.what}")
        return request

    def failed(self, reply: Message, last: int) -> tuple[int | None, str] | None:
        """Return the id of what an error is about, and what that was.

        Args:
            reply: the error.
            last: the last message id that was sent.

        Returns:
            ``"message"`` for what is no request, without an id if it does not say; None, and it is
            counted, for a request that was given up.

        Raises:
            RemoteProtocolError: it is to nothing, or a second reply.
        """
        parent, request = self._find(reply)
        if request is not None:
            return request.number, request.what
        if parent is None:
            return None, "message"
        if isinstance(parent, int) and parent not in self._gone and parent <= last:
            return parent, "message"
        self._late(reply, parent)
        return None

    def _find(self, reply: Message) -> tuple[int | str | None, Request | None]:
        parent = plain_id(reply.parent_message_id, "parent_message_id")
        request = self._waiting.get(parent) if isinstance(parent, int) else None
        if request is not None:
            self._forget(request, given_up=False)
        return parent, request

    def _late(self, reply: Message, parent: int | str | None) -> None:
        if parent is None:
            raise RemoteProtocolError(f"{reply.method} without a parent_message_id")
        given_up = self._gone.get(parent) if isinstance(parent, int) else None
        if given_up is None:
            raise RemoteProtocolError(
                f"{reply.method} to {parent!r}, no message that it can answer"
            )
        if not given_up:
            raise RemoteProtocolError(f"{reply.method} is a second reply to message {parent}")
        assert isinstance(parent, int)
        self._gone[parent] = False
        self.late += 1

    def _forget(self, request: Request, *, given_up: bool) -> None:
        del self._waiting[request.number]
        self._gone[request.number] = given_up
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
        if request.due <= self.due:
            self.due = min((one.due for one in self._waiting.values()), default=NEVER)
