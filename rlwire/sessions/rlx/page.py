"""RLX for pages: JSON inside a WebSocket, for many environments, each named by its `sid`."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from rlwire.errors import EncodeError, RemoteProtocolError, RlwireError, optional
from rlwire.limits import DEFAULT, Limits

Buffer: TypeAlias = bytes | bytearray | memoryview
Sid: TypeAlias = int | str
Arrays: TypeAlias = Literal["lists", "float32", "float64"]

SID = 64
"""Characters that a sid may have, all printable."""

_LARGE: Final = re.compile(rb"[0-9]{19}")
_JSON_NAMES: Final = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "a boolean",
    type(None): "null",
}


class PageCommand(NamedTuple):
    """A command of one environment, and the bytes of its text."""

    sid: Sid
    message: dict[str, Any]
    size: int


class PageReply(NamedTuple):
    """The reply to one environment's command."""

    sid: Sid
    message: dict[str, Any]


class PageSession:
    """Texts to `PageCommand` events, `PageReply` events to texts; `PageRules` checks the commands.

    A text without a valid sid closes the session, because no environment can be told.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.closed = False
        self._limits = limits
        with optional("msgspec", "relaax"):
            from rlwire.codecs import _json
        self._decode, self._encode = _json.decode, _json.encode

    def receive(self, message: Buffer) -> list[PageCommand]:
        """Return the command in a text."""
        value = self._decode(message, self._limits)
        if type(value) is not dict:
            raise self._refused(f"this is {_name(value)}")
        sid = value.pop("sid", None)
        # Not isinstance: True is an int to Python.
        if type(sid) is int:
            known = _fits(sid)
        else:
            # isprintable also refuses half of a surrogate pair, which no reply could repeat.
            known = type(sid) is str and len(sid) <= SID and sid.isprintable()
        if not known:
            raise self._refused(f"its sid is {_name(sid)}")
        if _LARGE.search(message):
            value = floats_of_large(value)
        return [PageCommand(cast(Sid, sid), value, len(message))]

    def send(self, event: PageReply) -> bytes:
        """Return the text of a reply."""
        return self._encode({"sid": event.sid, **event.message}, self._limits)

    def refuse(self, error: RlwireError) -> list[Buffer]:
        """Return nothing: the close frame gives the reason."""
        self.closed = True
        return []

    def next_deadline(self) -> float | None:
        """Return None."""
        return None

    def _refused(self, what: str) -> RemoteProtocolError:
        self.closed = True
        return RemoteProtocolError(
            "a message must be an object with a sid, a whole number or a text of at most "
            f"{SID} printable characters; {what}"
        )


def arrays_of(value: Any, dtype: Literal["float32", "float64"]) -> Any:
    """Return `value` with arrays in place of its lists of numbers, nested ones of equal lengths.

    Other lists stay as they are, as do lists that contain anything but numbers.
    """
    from rlwire.codecs import _json

    try:
        return _json.arrays_of(value, dtype)
    except (OverflowError, FloatingPointError):
        raise EncodeError(f"a number is too large for {dtype}") from None


def floats_of_large(value: Any) -> Any:
    """Return `value` with floats in place of integers over 64 bits, if a double can hold them.

    All numbers of JavaScript are doubles, and it writes 1e20 as ``100000000000000000000``.
    """
    if type(value) is dict:
        return {key: floats_of_large(item) for key, item in value.items()}
    if type(value) is list:
        return [floats_of_large(item) for item in value]
    if type(value) is not int or _fits(value):
        return value
    try:
        return float(value)
    except OverflowError:
        return value


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63


def _name(value: Any) -> str:
    return _JSON_NAMES.get(type(value), "a number")
