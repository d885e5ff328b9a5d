"""RLX: an environment sends commands, an agent's server replies, one at a time.

Messages are dictionaries with a ``command`` or a ``response``. For web pages they are JSON inside a
WebSocket, for many environments, each named by its `sid` (`PageSession`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, NamedTuple, NoReturn, TypeAlias

from rlwire.codecs import rlx
from rlwire.errors import (
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
    optional,
    quoted,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, Layer, LayerPhase
from rlwire.sessions.rlx.state_machine import ANSWERS, StateMachine

__all__ = ["ANSWERS", "RLXClientSession", "RLXServerSession"]

Buffers = list[bytes | memoryview]
Message = dict[str, Any]
Sid: TypeAlias = int | str
Arrays: TypeAlias = Literal["lists", "float32", "float64"]

SID: Final = 64  # characters

_ERROR_TEXT = 1000  # characters of an error reply


class CommandRefused(RemoteProtocolError):
    """A command that is not allowed now; after an error reply the session continues."""


class _RLXSession(StateMachine):
    __slots__ = ("__weakref__",)

    _client: ClassVar[bool]

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        images: Literal["array", "float32"] = "float32",
        dialect: Literal["program", "readme"] = "program",
        dtype: Any = None,
    ) -> None:
        limits = DEFAULT if limits is None else limits
        options: Any = {"dialect": dialect, "dtype": dtype, "framed": True, "limits": limits}
        encoder = rlx.RLXEncoder(**options)
        decoder = rlx.RLXDecoder(copy=None, images=images, **options)
        super().__init__(self._client, encoder, decoder, limits.received)

    @property
    def pending(self) -> int:
        return int(self.command is not None)

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        return rlx.data_offset(buffer, start, end)

    def _cannot_send(self, event: Message) -> NoReturn:
        called = _called(event, "command" if self._client else "response")
        raise LocalProtocolError(f"{called} cannot be sent now; {self._expected()}")

    def _expected(self) -> str:
        if self.closed:
            return "the session is closed"
        return f"expected {', '.join(map(repr, self.allowed))}"


class RLXClientSession(_RLXSession):
    """The environment's side: sends commands, receives replies, ``error`` replies included.

    A reply to another command (RemoteProtocolError) closes the session.
    """

    __slots__ = ()

    _client = True

    def _unexpected(self, reply: Message) -> NoReturn:
        expected = self._expected()
        self._close()
        raise RemoteProtocolError(f"the server sent {_called(reply, 'response')}; {expected}")


class RLXServerSession(_RLXSession):
    """The agent's side: receives commands, sends replies.

    `receive` raises RemoteProtocolError for a command that is not allowed now. The state stays, and
    `reject` returns an error reply. If an earlier command has no reply yet, that one closes the
    session, because replies carry no number.

    `receive` converts the flat form of ``update_metrics`` to the one with ``data``.
    """

    __slots__ = ()

    _client = False

    def reject(self, error: RlwireError) -> Buffers:
        """Return the error reply for `error`; close the session unless a command was refused."""
        if self.closed:
            return []
        text = for_peer(error, "the server")
        buffers = self._encode({"response": "error", "message": text[:_ERROR_TEXT]})
        if not isinstance(error, CommandRefused):
            self._close()
        return buffers

    def _unexpected(self, command: Message) -> NoReturn:
        called, name = _called(command, "command"), command.get("command")
        if not isinstance(name, str) or name not in ANSWERS:
            text = f"unknown {called}, expected one of {', '.join(ANSWERS)}"
        else:
            text = f"{called} is not allowed now; {self._expected()}"
        refused = self.command is None and not self.closed
        raise (CommandRefused if refused else RemoteProtocolError)(text)

    def _normalize_metrics(self, command: Message) -> None:
        given = command.get("data", [command])
        try:
            if not isinstance(given, list):
                raise TypeError
            entries = [_metric(entry) for entry in given]
        except (KeyError, TypeError):
            raise CommandRefused(
                "can't update metrics: 'data' must be a list of dictionaries with 'name' (a "
                "string), 'y', and maybe 'method' (a string) and 'x'; or these keys themselves"
            ) from None
        command.clear()
        command["command"] = "update_metrics"
        command["data"] = entries


class PageCommand(NamedTuple):
    """A command of one environment; `size` is its text's size in bytes."""

    sid: Sid
    message: dict[str, Any]
    size: int


class PageSession(Layer):
    """Decodes texts to `PageCommand`, and encodes replies with their sid.

    A text without a valid sid closes the session, because no reply could name its environment.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        with optional("msgspec", "gym"):
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

    def send(self, event: Message) -> bytes:
        return self._encode(event, self._limits)

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


def _metric(entry: Any) -> Message:
    if not isinstance(entry, dict):
        raise TypeError
    name, method = entry["name"], entry.get("method", "scalar")
    if not (isinstance(name, str) and isinstance(method, str)):
        raise TypeError
    return {"method": method, "name": name, "y": entry["y"], "x": entry.get("x")}


def _called(message: Any, kind: str) -> str:
    if not isinstance(message, dict):
        return f"a {type(message).__name__} instead of a dictionary with a {kind!r}"
    return f"{kind} {quoted(message.get(kind))}"
