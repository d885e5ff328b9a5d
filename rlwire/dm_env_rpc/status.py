"""A server's error `Status` as an exception."""

from __future__ import annotations

from typing import Any

from rlwire.codecs.dm_env_rpc.values import AnyMessage, Status
from rlwire.errors import PeerError
from rlwire.sessions.dm_env_rpc.states import Code


class StatusError(PeerError):
    """The server answered a request with an error.

    Attributes:
        code: a `Code`, or the number of one that has no name.
        message: for a person.
        details: for a program.
    """

    def __init__(self, code: int, message: str, details: tuple[AnyMessage, ...] = ()) -> None:
        self.code = _code(code)
        self.message = message
        self.details = tuple(details)
        name = self.code.name if isinstance(self.code, Code) else str(code)
        super().__init__(f"{message} ({name})" if message else name)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message, self.details)

    @classmethod
    def of(cls, status: Status) -> StatusError:
        """Return the exception for a status."""
        return cls(status.code, status.message, status.details)


def _code(number: int) -> Code | int:
    try:
        return Code(number)
    except ValueError:
        return number
