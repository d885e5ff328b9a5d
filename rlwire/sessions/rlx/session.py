"""RLX: an environment sends commands, an agent's server replies, one at a time.

Messages are dictionaries with a ``command`` or a ``response``. For web pages they are JSON inside a
WebSocket, for many environments, each named by its `sid` (`PageSession`).
"""

from __future__ import annotations

import enum
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
from rlwire.sessions.rlx.state_machine import StateMachine, StateNode

__all__ = [
    "ANSWERS",
    "TRANSITIONS",
    "PageRules",
    "RLXClientSession",
    "RLXServerSession",
    "RLXState",
]

Buffers = list[bytes | memoryview]
Message = dict[str, Any]
Sid: TypeAlias = int | str
Arrays: TypeAlias = Literal["lists", "float32", "float64"]

SID: Final = 64  # characters


class RLXState(enum.Enum):
    """The state of a session; those that end in ING wait for a reply."""

    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    UPDATING = "updating"
    RESETTING = "resetting"
    REPORTING_NEW = "reporting, not initialized"
    REPORTING = "reporting"
    CLOSED = "closed"


ANSWERS = {"init": "ready", "update": "action", "reset": "done", "update_metrics": "done"}
"""The response to each command; ``error`` may answer any."""

_S = RLXState

TRANSITIONS: Final = {
    _S.NEW: {"init": _S.INITIALIZING, "update_metrics": _S.REPORTING_NEW},
    _S.INITIALIZING: {"ready": _S.READY, "error": _S.NEW},
    _S.READY: {
        "init": _S.INITIALIZING,  # RELAAX allows a second one, with another exploit flag
        "update": _S.UPDATING,
        "reset": _S.RESETTING,
        "update_metrics": _S.REPORTING,
    },
    _S.UPDATING: {"action": _S.READY, "error": _S.READY},
    _S.RESETTING: {"done": _S.READY, "error": _S.READY},
    _S.REPORTING: {"done": _S.READY, "error": _S.READY},
    _S.REPORTING_NEW: {"done": _S.NEW, "error": _S.NEW},
    _S.CLOSED: {},
}
"""The commands and responses that are allowed in each state, and the state after them."""

_ERROR_TEXT = 1000  # characters of an error reply

_NODES = {
    state: StateNode(
        state,
        LayerPhase.CLOSED if state is RLXState.CLOSED else LayerPhase.OPEN,
        state in (RLXState.REPORTING, RLXState.REPORTING_NEW),
    )
    for state in RLXState
}
for _state, _nexts in TRANSITIONS.items():
    for _name, _next in _nexts.items():
        _row = _NODES[_state].commands if _name in ANSWERS else _NODES[_state].replies
        _row[_name] = _NODES[_next]
_NEW, _CLOSED = _NODES[RLXState.NEW], _NODES[RLXState.CLOSED]


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
        super().__init__(_NEW, self._client, encoder, decoder, limits.received)

    @property
    def state(self) -> RLXState:
        """The state of the session."""
        state: RLXState = self._node.state
        return state

    @property
    def pending(self) -> int:
        return int(bool(self._node.replies))

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        return rlx.data_offset(buffer, start, end)

    def _cannot_send(self, event: Message) -> Buffers:
        called = _called(event, "command" if self._client else "response")
        raise LocalProtocolError(f"{called} cannot be sent now; {_allowed(self._node, 'send')}")


class RLXClientSession(_RLXSession):
    """The environment's side: sends commands, receives replies, ``error`` replies included.

    A reply to another command (RemoteProtocolError) closes the session.
    """

    __slots__ = ()

    _client = True

    def reject(self, error: RlwireError) -> Buffers:
        """Close the session; an RLX client cannot send errors."""
        self._enter(_CLOSED)
        return []

    def _unexpected(self, reply: Message) -> NoReturn:
        before = self._node
        self._enter(_CLOSED)
        raise RemoteProtocolError(
            f"the server sent {_called(reply, 'response')}; {_allowed(before, 'be sent')}"
        ) from None


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
        if self._node is _CLOSED:
            return []
        text = for_peer(error, "the server")
        buffers = self._encode({"response": "error", "message": text[:_ERROR_TEXT]})
        if not isinstance(error, CommandRefused):
            self._enter(_CLOSED)
        return buffers

    def _check_reply(self, event: Message) -> None:
        if event["response"] == "action" and "data" not in event:
            raise LocalProtocolError("an 'action' response needs 'data', the action itself")

    def _unexpected(self, command: Message) -> NoReturn:
        raise _refusal(self._node, command) from None

    def _normalize_metrics(self, command: Message) -> None:
        _normalize_metrics(command)


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


class PageRules:
    """Checks the commands of one environment of a `PageSession`."""

    def __init__(self) -> None:
        self._node = _NEW
        self._after = _NEW

    def check(self, command: Message) -> None:
        """Raise RemoteProtocolError if a command is not allowed now; normalize metrics."""
        name = command.get("command")
        after = self._node.commands.get(name) if isinstance(name, str) else None
        if after is None:
            raise _refusal(self._node, command)
        if after.reports:
            _normalize_metrics(command)
        self._after = after

    def replied(self, reply: Message) -> None:
        """Record the reply to the last command."""
        self._node = self._after.replies[reply["response"]]


def _refusal(node: StateNode, command: Message) -> RemoteProtocolError:
    called, name = _called(command, "command"), command.get("command")
    if not isinstance(name, str) or name not in ANSWERS:
        text = f"unknown {called}, expected one of {', '.join(ANSWERS)}"
    else:
        text = f"{called} is not allowed now; {_allowed(node, 'be sent')}"
    return CommandRefused(text) if node.commands else RemoteProtocolError(text)


def _normalize_metrics(command: Message) -> None:
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


def _allowed(node: StateNode, verb: str) -> str:
    names = [repr(name) for name in (*node.commands, *node.replies)]
    if not names:
        return f"the session is {node.state.value}"
    return f"in the state {node.state.name} can {verb}: {', '.join(names)}"
