"""Every exception that rlwire raises on purpose.

::

    RlwireError
    ├── EncodeError          (ValueError)       the caller's value cannot be sent
    ├── DecodeError          (ValueError)       the bytes are not what the protocol says
    ├── LimitExceeded        (ValueError)       a size passed one of the maxima of `rlwire.limits`
    ├── LocalProtocolError                      we spoke out of turn
    ├── RemoteProtocolError                     the peer spoke out of turn
    ├── PeerError                               the peer answered with its protocol's error message
    ├── DeadlineExceeded     (TimeoutError)     nothing, or too little, came or went in time
    ├── ConnectionClosed     (ConnectionError)  the peer or the network ended the connection
    └── MissingExtra         (ImportError)      an optional dependency is not installed

Not here: what the operating system reports (`OSError` stays what it is) and wrong
argument types (`TypeError`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "ConnectionClosed",
    "DeadlineExceeded",
    "DecodeError",
    "EncodeError",
    "LimitExceeded",
    "LocalProtocolError",
    "MissingExtra",
    "PeerError",
    "RemoteProtocolError",
    "RlwireError",
]

# Errors travel between worker processes; what pickle does by default forgets keyword arguments.
_Rebuilt = tuple[Callable[..., Any], tuple[Any, ...]]


def _rebuild(kind: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return kind(*arguments, **keywords)


class RlwireError(Exception):
    """Base of all exceptions that rlwire raises on purpose."""


class EncodeError(RlwireError, ValueError):
    """A value that the protocol cannot carry.

    Attributes:
        path: where in the message the value stands, such as ``$.state[3]``; empty when the
            message itself is meant.
    """

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"{reason} - at {path}" if path else reason)
        self.reason = reason
        self.path = path

    def __reduce__(self) -> _Rebuilt:
        return _rebuild, (type(self), (self.reason,), {"path": self.path})


class DecodeError(RlwireError, ValueError):
    """Bytes that are not what the protocol says.

    Attributes:
        offset: index, in the buffer that was handed in, of the first byte of the field at fault.
        path: where in the message the field stands, such as ``$.state[3]``; empty outside values.
    """

    def __init__(self, reason: str, *, offset: int = 0, path: str = "") -> None:
        where = f"byte {offset}" + (f", {path}" if path else "")
        super().__init__(f"{reason} - at {where}")
        self.reason = reason
        self.offset = offset
        self.path = path

    def __reduce__(self) -> _Rebuilt:
        return _rebuild, (type(self), (self.reason,), {"offset": self.offset, "path": self.path})


class LimitExceeded(RlwireError, ValueError):
    """A size passed a limit; nothing of that size has been allocated.

    Attributes:
        limit: the name of the limit, a field of `rlwire.limits.Limits` or an argument's name.
        maximum: its value.
        size: what was asked for.
        offset: index of the length field in the buffer, or None when encoding.
        path: where in the message, as in `DecodeError`.
        advice: what the caller can do about it, if there is something to say.
    """

    def __init__(
        self,
        limit: str,
        maximum: int,
        size: int,
        *,
        offset: int | None = None,
        path: str = "",
        advice: str = "",
    ) -> None:
        where = "" if offset is None else f" - at byte {offset}"
        if path:
            where += (", " if where else " - at ") + path
        tail = f": {advice}" if advice else ""
        super().__init__(f"{size} is over the limit {limit}={maximum}{where}{tail}")
        self.limit = limit
        self.maximum = maximum
        self.size = size
        self.offset = offset
        self.path = path
        self.advice = advice

    def __reduce__(self) -> _Rebuilt:
        arguments = (self.limit, self.maximum, self.size)
        keywords = {"offset": self.offset, "path": self.path, "advice": self.advice}
        return _rebuild, (type(self), arguments, keywords)


class LocalProtocolError(RlwireError):
    """Our side asked for something the protocol does not allow now; nothing was sent."""


class RemoteProtocolError(RlwireError):
    """The peer sent a well-formed message that the protocol does not allow now."""


class PeerError(RlwireError):
    """The peer answered with its protocol's error message, which is this exception's text."""


class DeadlineExceeded(RlwireError, TimeoutError):
    """A connect, a read or a write did not end in time."""


class ConnectionClosed(RlwireError, ConnectionError):
    """The peer or the network ended the connection."""


class MissingExtra(RlwireError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; it comes with the extra {extra!r}: "
            f"pip install 'rlwire[{extra}]'"
        )
        self.package = package
        self.extra = extra

    def __reduce__(self) -> _Rebuilt:
        return _rebuild, (type(self), (self.package, self.extra), {})
