"""RLX for web pages: JSON inside a WebSocket, for many environments, each named by its `sid`."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeAlias

from rlwire.errors import EncodeError, RemoteProtocolError, optional
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, Layer, LayerPhase

Sid: TypeAlias = int | str
Arrays: TypeAlias = Literal["lists", "float32", "float64"]

SID: Final = 64  # characters


class PageCommand(NamedTuple):
    """A command of one environment; `size` is its text's size in bytes."""

    sid: Sid
    message: dict[str, Any]
    size: int


class PageReply(NamedTuple):
    """The reply to one environment's command."""

    sid: Sid
    message: dict[str, Any]


class PageSession(Layer):
    """Decodes texts to `PageCommand`, encodes `PageReply`; `PageRules` checks the commands.

    A text without a valid sid closes the session, because no reply could name its environment.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        with optional("msgspec", "relaax"):
            from rlwire.codecs import _json
        self._decode, self._encode = _json.decode, _json.encode

    def receive(self, message: Buffer) -> list[PageCommand]:
        value = self._decode(message, self._limits)
        if type(value) is not dict:
            raise self._refused(f"got {type(value).__name__}")
        sid = value.pop("sid", None)
        # type(), because True is an int. isprintable() rejects lone surrogates, which a reply could
        # not repeat.
        if not (
            (type(sid) is int and -(2**63) <= sid < 2**63)
            or (type(sid) is str and len(sid) <= SID and sid.isprintable())
        ):
            raise self._refused(f"its sid is {type(sid).__name__}")
        return [PageCommand(sid, value, len(message))]

    def send(self, event: PageReply) -> bytes:
        return self._encode({"sid": event.sid, **event.message}, self._limits)

    def _refused(self, what: str) -> RemoteProtocolError:
        self.phase = LayerPhase.CLOSED
        return RemoteProtocolError(
            "a message must be an object with a sid, an integer or a string of at most "
            f"{SID} printable characters; {what}"
        )


def arrays_of(value: Any, dtype: Literal["float32", "float64"]) -> Any:
    """Return `value` with arrays instead of lists of numbers; nested lists need equal lengths."""
    from rlwire.codecs import _json

    try:
        return _json.arrays_of(value, dtype)
    except (OverflowError, FloatingPointError):
        raise EncodeError(f"a number is too large for {dtype}") from None
