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

What a peer wrote gets into their texts, and these into logs: each is one line of printable
characters, and not too long (`shown`, `quoted`).

Not here: what the operating system reports (`OSError` stays what it is) and wrong
argument types (`TypeError`).
"""

from __future__ import annotations

import contextlib
import reprlib
import traceback
from collections.abc import Callable, Iterator
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
    "describe",
    "for_peer",
    "quoted",
    "shown",
]

_PATH = 200  # characters
_TEXT = 2000

# Errors travel between worker processes; what pickle does by default forgets keyword arguments.
_Rebuilt = tuple[Callable[..., Any], tuple[Any, ...]]


def _rebuild(kind: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return kind(*arguments, **keywords)


def shown(text: str, most: int = _PATH) -> str:
    """Return a text as it may stand in an error or a log: on one line, printable, not too long.

    What cannot be printed is escaped, as `repr` does it. Of a longer text the beginning is
    returned, and how long it is; no more than that is looked at.
    """
    mark = ""
    total = len(text)
    if total > most:
        mark = f"... ({total} characters)"
        text = text[: max(0, most - len(mark))]
    if not text.isprintable():
        # Each on its own: repr() of all would escape backslashes and quotes as well.
        text = "".join([c if c.isprintable() else repr(c)[1:-1] for c in text])
        if len(text) + len(mark) > most:
            mark = mark or f"... ({total} characters)"
            text = text[: max(0, most - len(mark))]
    return text + mark


_brief = reprlib.Repr()
_brief.maxother = _brief.maxstring = _brief.maxlong = 100


def quoted(value: object, most: int = 100) -> str:
    """Return a value as `repr` writes it, cut as by `shown`; a text or bytes before that."""
    if isinstance(value, (str, bytes)):
        total = len(value)
        if total <= most:
            return shown(repr(value), 10 * most)
        kind = "bytes" if isinstance(value, bytes) else "characters"
        return shown(repr(value[:most]), 10 * most) + f"... ({total} {kind})"
    try:
        text = _brief.repr(value)
    except Exception:  # such as an int of more digits than Python prints
        return f"<{type(value).__qualname__}>"
    return shown(text, most)


class RlwireError(Exception):
    """Base of all exceptions that rlwire raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*[shown(arg, _TEXT) if isinstance(arg, str) else arg for arg in args])


class EncodeError(RlwireError, ValueError):
    """A value that the protocol cannot carry.

    Attributes:
        path: where in the message the value stands, such as ``$.state[3]``; empty when the
            message itself is meant.
    """

    def __init__(self, reason: str, *, path: str = "") -> None:
        reason, path = shown(reason, _TEXT), shown(path)
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
        reason, path = shown(reason, _TEXT), shown(path)
        where = f"byte {offset}" + (f", {path}" if path else "")
        super().__init__(f"{reason} - at {where}")
        self.reason = reason
        self.offset = offset
        self.path = path

    def __reduce__(self) -> _Rebuilt:
        return _rebuild, (type(self), (self.reason,), {"offset": self.offset, "path": self.path})


# The fields of `rlwire.limits.Limits`, and those that cannot be raised beyond some value.
_LIMITS = frozenset(
    [
        *("message", "received", "depth", "items", "dims", "string", "pixels", "expanded"),
        *("datagram", "header", "unsent", "keys"),
    ]
)
_CEILINGS = {"depth": 500, "dims": 32}
_DATAGRAM = 65_507  # bytes, what UDP over IPv4 carries
_SEAL = 64  # and more than a cipher takes of them


class LimitExceeded(RlwireError, ValueError):
    """A size passed a limit; nothing of that size has been allocated.

    Attributes:
        limit: the name of the limit, a field of `rlwire.limits.Limits` or an argument's name.
        maximum: its value.
        size: what was asked for.
        offset: index of the length field in the buffer, or None when encoding.
        path: where in the message, as in `DecodeError`.
        advice: what the caller can do about it, beside raising the limit.
        whose: who has the limit, such as ``"the server"``; empty for this side.
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
        whose: str = "",
    ) -> None:
        path = shown(path)
        where = "" if offset is None else f" - at byte {offset}"
        if path:
            where += (", " if where else " - at ") + path
        text = f"{size} is over the limit {limit}={maximum}"
        text += f" of {whose}" if whose else ""
        way = _way(limit, maximum, size, "raise it there" if whose else "raise this side's limit")
        if whose:  # who has the limit hears it cut, and knows where
            text += (f": {way}" if way else "") + where + (f": {advice}" if advice else "")
        else:
            text += where + "".join(f": {words}" for words in (advice, way) if words)
        super().__init__(text)
        self.limit = limit
        self.maximum = maximum
        self.size = size
        self.offset = offset
        self.path = path
        self.advice = advice
        self.whose = whose

    def __reduce__(self) -> _Rebuilt:
        arguments = (self.limit, self.maximum, self.size)
        names = ("offset", "path", "advice", "whose")
        return _rebuild, (type(self), arguments, {name: getattr(self, name) for name in names})


def _way(limit: str, maximum: int, size: int, raise_it: str) -> str:
    """Return how to raise a limit, empty if that is not for the user to do."""
    if limit == "datagram":
        if max(size, maximum + _SEAL) > _DATAGRAM:
            return (
                f"no datagram holds more than {_DATAGRAM} bytes: scale or crop the observation, "
                "round it (--decimals), or serve it over a stream, such as dm_env_rpc or RLX"
            )
        return (
            "send less (fewer decimals, a smaller observation), or raise it at both ends, with "
            f"limits=Limits(datagram=N) and --limits.datagram N, up to {_DATAGRAM}"
        )
    if limit in _LIMITS and maximum < _CEILINGS.get(limit, 2**31 - 1):
        return f"{raise_it}: limits=Limits({limit}=N), --limits.{limit}"
    if limit in ("max_sent", "backlog"):
        return f"{raise_it}: {limit}=N"
    if limit.startswith("max_") and limit != "max_buffer_size":
        return f"{raise_it}: {limit}=N, --{limit.replace('_', '-')} N"
    return ""


def for_peer(error: BaseException, side: str) -> str:
    """Return an error's text for the peer of `side`, such as ``"the server"``, which met it."""
    if isinstance(error, LimitExceeded) and not error.whose:
        function, (kind, arguments, keywords) = error.__reduce__()
        return str(function(kind, arguments, {**keywords, "whose": side}))
    return str(error)


def describe(error: BaseException) -> str:
    """Return the type and text of what user code raised at a server, fit to be sent to a client."""
    if isinstance(error, LimitExceeded):
        return f"LimitExceeded: {for_peer(error, 'the server')}"
    text = "".join(traceback.format_exception_only(error)).strip()
    if len(text) > _TEXT:
        text = text[:_TEXT] + "..."
    # A lone surrogate, as in an undecodable file name, has no UTF-8 form.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class LocalProtocolError(RlwireError):
    """Our side asked for something the protocol does not allow now; nothing was sent."""


class RemoteProtocolError(RlwireError):
    """The peer sent a well-formed message that the protocol does not allow now."""


class PeerError(RlwireError):
    """The peer answered with its protocol's error message.

    Attributes:
        text: the message as it came; the exception's own text is cut and escaped.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __reduce__(self) -> _Rebuilt:
        return _rebuild, (type(self), (self.text,), {})


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


@contextlib.contextmanager
def on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Call something if the block fails, whatever with, and let the error pass."""
    try:
        yield
    except BaseException:
        undo()
        raise


@contextlib.contextmanager
def optional(package: str, extra: str, module: str | None = None) -> Iterator[None]:
    """Around imports of an optional dependency.

    ::

        with optional("dm-env", "dm", "dm_env"):
            import dm_env

    Args:
        package: as it is installed.
        extra: what it comes with.
        module: as it is imported, if that is not the package's name.

    Raises:
        MissingExtra: it is not installed. That it lacks a module itself stays what it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != (module or package):
            raise
        raise MissingExtra(package, extra) from None
