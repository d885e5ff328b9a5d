"""rlwire's exceptions.

::

    RlwireError
    ├── EncodeError          (ValueError)       the caller's value cannot be sent
    ├── DecodeError          (ValueError)       the bytes violate the protocol
    ├── LimitExceeded        (ValueError)       a size exceeds one of `rlwire.limits`
    ├── LocalProtocolError                      the protocol does not allow this call now
    ├── RemoteProtocolError                     the protocol does not allow the peer's message now
    ├── PeerError                               the peer sent its protocol's error message
    ├── DeadlineExceeded     (TimeoutError)     a connect, read or write timed out
    ├── ConnectionClosed     (ConnectionError)  the peer or the network ended the connection
    └── MissingExtra         (ImportError)      an optional dependency is not installed

A message may quote the peer and appear in logs, so it is one line of printable characters, of
limited length (`shown`, `quoted`). Wrong argument types are `TypeError`.

`OSError` is all that the network does: it is a base of `ConnectionClosed` and `DeadlineExceeded`,
and what a failed connect raises.
"""

from __future__ import annotations

import contextlib
import re
import reprlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from rlwire import _imports
from rlwire.limits import MAXIMA, Limits

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
    "encodable",
    "for_peer",
    "quoted",
    "shown",
    "text_of",
    "without_secret",
]

_PATH = 200  # characters
_TEXT = 2000


def shown(text: str, most: int = _PATH) -> str:
    """Return `text` for an error or a log: one line, printable, at most `most` characters.

    Escapes other characters as `repr` does. Truncates a longer text and appends its length.
    """
    line = text[:most]
    if not line.isprintable():
        # One by one: repr() of the whole would escape backslashes and quotes as well.
        line = "".join([c if c.isprintable() else repr(c)[1:-1] for c in line])
    if max(len(text), len(line)) <= most:
        return line
    mark = f"... ({len(text)} characters)"
    return line[: max(0, most - len(mark))] + mark


_SECRET_NAME = re.compile("authorization|cookie|token|secret|password|key")


def is_secret(header: str) -> bool:
    """Return whether a header with this name has a secret. Sec-WebSocket-Key has none."""
    return bool(_SECRET_NAME.search(header.lower().removeprefix("sec-websocket-key")))


_IN_URL = re.compile(
    r"^([\w.+-]*://)?(?!/).*@|(?<=[?&])((?:view_)?auth|password|token|secret|(?:api_)?key)=[^&#]*"
)


def without_secret(url: object) -> str:
    """Return a URL or address for an error or a log: without user, password and secret options."""
    return _IN_URL.sub(lambda at: f"{at[2]}=***" if at[2] else f"{at[1] or ''}***@", str(url))


_brief = reprlib.Repr()
_brief.maxother = _brief.maxstring = _brief.maxlong = 100


def quoted(value: object, most: int = 100) -> str:
    """Return a value's `repr`, shortened by `shown`; str and bytes are truncated before."""
    if isinstance(value, (str, bytes)):
        kind = "bytes" if isinstance(value, bytes) else "characters"
        rest = f"... ({len(value)} {kind})" if len(value) > most else ""
        return shown(repr(value[:most]), 10 * most) + rest
    try:
        text = _brief.repr(value)
    except Exception:  # such as an int with too many digits
        return f"<{type(value).__qualname__}>"
    return shown(_ADDRESS.sub("", text), most)


class RlwireError(Exception):
    """Base class of rlwire's exceptions."""

    def __init__(self, *args: object) -> None:
        super().__init__(*[shown(arg, _TEXT) if isinstance(arg, str) else arg for arg in args])

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle calls the class with `args`, which are not those of subclasses.
        state = {**vars(self), "args": self.args}
        return type(self).__new__, (type(self),), state


class EncodeError(RlwireError, ValueError):
    """The protocol cannot carry a value.

    Attributes:
        path: where the value is in the message, such as ``$.state[3]``; empty for the message
            itself.
    """

    def __init__(self, reason: str, *, path: str = "") -> None:
        reason, path = shown(reason, _TEXT), shown(path)
        super().__init__(f"{reason} - at {path}" if path else reason)
        self.reason = reason
        self.path = path


class DecodeError(RlwireError, ValueError):
    """The received bytes violate the protocol.

    Attributes:
        offset: byte offset, in the given buffer, of the invalid field.
        path: where the field is in the message, such as ``$.state[3]``; empty outside values.
    """

    def __init__(self, reason: str, *, offset: int = 0, path: str = "") -> None:
        reason, path = shown(reason, _TEXT), shown(path)
        where = f"byte {offset}" + (f", {path}" if path else "")
        super().__init__(f"{reason} - at {where}")
        self.reason = reason
        self.offset = offset
        self.path = path


_ENCRYPTION = 64  # bytes that encryption adds at most


class LimitExceeded(RlwireError, ValueError):
    """A size exceeds a limit. Nothing of that size has been allocated.

    Attributes:
        limit: a field of `rlwire.limits.Limits`, or an argument's name.
        maximum: the limit's value.
        size: the size that exceeds it.
        offset: byte offset of the length field in the buffer; None when encoding.
        path: as in `DecodeError`.
        advice: what to do instead of raising the limit.
        whose: the side that set the limit, such as ``"the server"``; empty for this side.
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
        way = _how_to_raise(
            limit, maximum, size, "raise it there" if whose else "raise this side's limit"
        )
        if whose:  # a WebSocket close frame truncates the end
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


def _how_to_raise(limit: str, maximum: int, size: int, raise_it: str) -> str:
    """Return how to raise a limit; empty if users cannot."""
    if limit == "datagram":
        most = MAXIMA["datagram"]
        if max(size, maximum + _ENCRYPTION) > most:
            return (
                f"UDP datagrams hold at most {most} bytes: scale, crop or round (--decimals) "
                "the observation, or use a stream protocol, such as dm_env_rpc or RLX"
            )
        return (
            "send less (fewer decimals, a smaller observation), or raise it at both ends, with "
            f"limits=Limits(datagram=N) and --limits.datagram N, up to {most}"
        )
    if limit in Limits.__dataclass_fields__ and maximum < MAXIMA.get(limit, 2**31 - 1):
        return f"{raise_it}: limits=Limits({limit}=N), --limits.{limit}"
    if limit in ("max_sent", "backlog"):
        return f"{raise_it}: {limit}=N"
    if limit.startswith("max_") and limit != "max_buffer_size":
        return f"{raise_it}: {limit}=N, --{limit.replace('_', '-')} N"
    return ""


def for_peer(error: BaseException, side: str) -> str:
    """Return an error's text to send to a peer; `side` is this end, such as ``"the server"``."""
    if isinstance(error, LimitExceeded) and not error.whose:
        names = ("limit", "maximum", "size", "offset", "path", "advice")
        return str(LimitExceeded(**{name: getattr(error, name) for name in names}, whose=side))
    return text_of(error)


def describe(error: BaseException) -> str:
    """Return the type and text of an exception from user code, to send to a client."""
    if isinstance(error, LimitExceeded):
        return f"LimitExceeded: {for_peer(error, 'the server')}"
    text = "".join(traceback.format_exception_only(error)).strip()
    if len(text) > _TEXT:
        text = text[:_TEXT] + "..."
    return encodable(text)


def text_of(error: BaseException) -> str:
    """Return an exception's text as `encodable` does, also if its `__str__` fails."""
    try:
        return encodable(str(error))
    except Exception:
        return f"<{type(error).__name__} without text>"


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")  # in the default repr of objects


def encodable(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode, and leave out addresses of memory."""
    return _ADDRESS.sub("", text.encode("utf-8", "backslashreplace").decode("utf-8"))


class LocalProtocolError(RlwireError):
    """The protocol does not allow this call now. Nothing was sent."""


class RemoteProtocolError(RlwireError):
    """The peer sent a well-formed message that the protocol does not allow now."""


class PeerError(RlwireError):
    """The peer sent its protocol's error message; `text` is its original text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class DeadlineExceeded(RlwireError, TimeoutError):
    """A connect, read or write timed out."""


class ConnectionClosed(RlwireError, ConnectionError):
    """The peer closed the connection, or the network lost it."""


class WouldWait(Exception):
    """A call cannot continue in an event loop's thread: another thread does; users never see it."""


class MissingExtra(RlwireError, ImportError):
    """An optional dependency is not installed. The message has the command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: {_imports.install_command(extra)}")
        self.package = package
        self.extra = extra


@contextlib.contextmanager
def on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the block raises anything."""
    try:
        yield
    except BaseException:
        undo()
        raise


@contextlib.contextmanager
def optional(package: str, extra: str, module: str | None = None) -> Iterator[None]:
    """Raise `MissingExtra` if an import of a package inside the block fails, or of its `module`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != (module or package):
            raise
        raise MissingExtra(package, extra) from None
