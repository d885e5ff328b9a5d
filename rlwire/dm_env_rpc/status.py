"""Error statuses of dm_env_rpc as exceptions, and exceptions as statuses."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import Any

from rlwire.codecs.dm_env_rpc.values import AnyMessage, Status
from rlwire.codecs.grpc import Code
from rlwire.errors import (
    DecodeError,
    EncodeError,
    LimitExceeded,
    PeerError,
    RlwireError,
    for_peer,
)
from rlwire.transports.rate_limited_log import Log

_TEXT = 2000  # characters of an exception's text that a client is sent


class StatusError(PeerError):
    """A request is answered with an error.

    Clients raise it. Worlds, agents, properties and extensions may raise it too: the client is
    sent its code, message and details.

    Attributes:
        code: a `Code`, or the number of one that has no name.
        message: for a person; says what would be accepted.
        details: for a program.
    """

    def __init__(self, code: int, message: str, details: Iterable[AnyMessage] = ()) -> None:
        known = code in Code.__members__.values()
        self.code: Code | int = Code(code) if known else code
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


# The first that fits counts. The codec's own errors are ValueErrors, and not the client's fault.
_CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (LimitExceeded, Code.RESOURCE_EXHAUSTED),
    (EncodeError, Code.INTERNAL),
    (DecodeError, Code.INVALID_ARGUMENT),
    (ValueError, Code.INVALID_ARGUMENT),
    (NotImplementedError, Code.UNIMPLEMENTED),
    (PermissionError, Code.PERMISSION_DENIED),
    (TimeoutError, Code.DEADLINE_EXCEEDED),
    (MemoryError, Code.RESOURCE_EXHAUSTED),
)


def status_of(request: str, error: BaseException) -> Status:
    """Return the status that a client is sent for an exception."""
    if isinstance(error, StatusError):
        return Status(int(error.code), _fit(f"{request}: {error.message}"), error.details)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    if code == Code.INVALID_ARGUMENT:
        text = for_peer(error, "the server") or text
    return Status(code, _fit(f"{request}: {text}"))


def _fit(text: str) -> str:
    """Make a text fit to be sent: not too long, and with a UTF-8 form."""
    if len(text) > _TEXT:
        text = text[:_TEXT] + "..."
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def report(log: Log, peer: object, request: str, error: BaseException) -> Status:
    """Log an exception, with its traceback if it is of the world's code; return its status.

    Outside of steps, a type of exception with a `Code` of its own rejects the request.
    """
    status = status_of(request, error)
    meant = isinstance(error, StatusError)
    failed = status.code == Code.INTERNAL or (request == "step" and not meant)
    own = failed and (meant or not isinstance(error, RlwireError))
    level = logging.ERROR if own or status.code == Code.INTERNAL else logging.WARNING
    log.log(level, "%s: %s", peer, status.message, exc_info=error if own else None)
    if not own and not meant:
        log.debug("%s: traceback of the error", peer, exc_info=error)
    return status
