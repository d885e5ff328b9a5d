"""`StatusError`, and the status with which a server answers an exception."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Status
from rlwire.codecs.grpc import Code
from rlwire.errors import (
    DecodeError,
    EncodeError,
    LimitExceeded,
    PeerError,
    RlwireError,
    describe,
    encodable,
    for_peer,
)
from rlwire.transports.rate_limited_log import Log

_TEXT: Final = 2000  # characters of an error text sent to a client


class StatusError(PeerError):
    """The server replied to a request with an error status.

    Worlds, agents, properties and extensions may raise it too: the client receives its code,
    message and details.

    Attributes:
        code: a `Code`, or an int if the code is unknown.
        message: the error text.
        details: messages for programs.
    """

    def __init__(self, code: int, message: str, details: Iterable[codec.AnyMessage] = ()) -> None:
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
        """Return the error of a status message."""
        return cls(status.code, status.message, status.details)


# The first match counts: the codec's errors are ValueErrors too.
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
    details: tuple[codec.AnyMessage, ...] = ()
    if isinstance(error, StatusError):
        code, text, details = int(error.code), error.message, error.details
    else:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)
        text = describe(error)
        if code == Code.INVALID_ARGUMENT:
            text = for_peer(error, "the server") or text
    text = f"{request}: {text}"
    if len(text) > _TEXT:
        text = text[:_TEXT] + "..."
    return Status(code, encodable(text), details)


def report(log: Log, peer: object, request: str, error: BaseException) -> Status:
    """Log an exception and return its status; with a traceback if the world's code failed."""
    status = status_of(request, error)
    meant = isinstance(error, StatusError)
    failed = status.code == Code.INTERNAL or (request == "step" and not meant)
    own = failed and (meant or not isinstance(error, RlwireError))
    level = logging.ERROR if own or status.code == Code.INTERNAL else logging.WARNING
    log.log(level, "%s: %s", peer, status.message, exc_info=error if own else None)
    if not own and not meant:
        log.debug("%s: traceback of the error", peer, exc_info=error)
    return status
