"""RLX: an environment sends commands, an agent's server replies, one at a time.

Client and server read the table `TRANSITIONS` from opposite sides. Messages are dictionaries with a
``command`` or a ``response``.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Literal, NoReturn

from rlwire.codecs import rlx
from rlwire.errors import (
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
    quoted,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.rlx.state_machine import StateMachine, StateNode

Buffer = bytes | bytearray | memoryview
Buffers = list[bytes | memoryview]
Message = dict[str, Any]


class RLXState(enum.Enum):
    """Where a conversation stands; the names ending in ING wait for an answer."""

    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    UPDATING = "updating"
    RESETTING = "resetting"
    REPORTING_NEW = "reporting, not initialized"
    REPORTING = "reporting"
    BROKEN = "broken"
    CLOSED = "closed"


ANSWERS = {"init": "ready", "update": "action", "reset": "done", "update_metrics": "done"}
"""Each command and the response that says it went well; ``error`` answers any."""

TRANSITIONS: dict[tuple[RLXState, str], RLXState] = {
    (RLXState.NEW, "init"): RLXState.INITIALIZING,
    (RLXState.NEW, "update_metrics"): RLXState.REPORTING_NEW,
    (RLXState.INITIALIZING, "ready"): RLXState.READY,
    (RLXState.INITIALIZING, "error"): RLXState.NEW,
    # RELAAX lets a client init again, for another exploit flag.
    (RLXState.READY, "init"): RLXState.INITIALIZING,
    (RLXState.READY, "update"): RLXState.UPDATING,
    (RLXState.READY, "reset"): RLXState.RESETTING,
    (RLXState.READY, "update_metrics"): RLXState.REPORTING,
    (RLXState.UPDATING, "action"): RLXState.READY,
    (RLXState.UPDATING, "error"): RLXState.READY,
    (RLXState.RESETTING, "done"): RLXState.READY,
    (RLXState.RESETTING, "error"): RLXState.READY,
    (RLXState.REPORTING, "done"): RLXState.READY,
    (RLXState.REPORTING, "error"): RLXState.READY,
    (RLXState.REPORTING_NEW, "done"): RLXState.NEW,
    (RLXState.REPORTING_NEW, "error"): RLXState.NEW,
    # The server cannot tell any more where a message begins; it may still say so.
    (RLXState.BROKEN, "error"): RLXState.CLOSED,
}
"""What may be said in which state, and the state after it."""

_TEXT = 1000  # characters of an error's text that a peer is told
_UNREADABLE = "the message cannot be read: "

_NODES = {
    state: StateNode(state, state in (RLXState.REPORTING, RLXState.REPORTING_NEW))
    for state in RLXState
}
for (_state, _name), _next in TRANSITIONS.items():
    _row = _NODES[_state].commands if _name in ANSWERS else _NODES[_state].replies
    _row[_name] = _NODES[_next]
_NEW, _BROKEN, _CLOSED = _NODES[RLXState.NEW], _NODES[RLXState.BROKEN], _NODES[RLXState.CLOSED]


class _RLXSession(StateMachine):
    """What both sides share; the path of every message is in `StateMachine`."""

    __slots__ = ("__weakref__", "_owed")

    _asks: ClassVar[bool]

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        dialect: Literal["relaax", "readme"] = "relaax",
        images: Literal["array", "float32", "pil"] = "float32",
        dtype: Any = None,
    ) -> None:
        limits = DEFAULT if limits is None else limits
        encoder = rlx.Encoder(framed=True, dialect=dialect, limits=limits)
        decoder = rlx.Decoder(
            copy=None, images=images, dialect=dialect, dtype=dtype, framed=True, limits=limits
        )
        super().__init__(_NEW, self._asks, encoder, decoder, limits.received)
        self._owed = False

    @property
    def state(self) -> RLXState:
        """Where the conversation stands."""
        state: RLXState = self._node.state
        return state

    @property
    def closed(self) -> bool:
        """Whether nothing more may be said."""
        return self._node is _CLOSED

    def next_deadline(self) -> float | None:
        """Return None: RLX has no timed rules."""
        return None

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return where, from `start`, the frame's first large array begins; 0 if unknown."""
        return rlx.data_offset(buffer, start, end)

    def _break(self) -> None:
        self._node = _CLOSED  # type: ignore[misc]  # a slot of the compiled base

    def _is_whole(self, frame: Buffer) -> bool:
        """Whether a frame that was refused is a netstring, so that only what is in it is wrong."""
        try:
            size = rlx.frame_size(frame, 0, len(frame), self._received)
        except RlwireError:
            return False
        return 0 < size == len(frame) and frame[-1] == ord(",")


class RLXClientSession(_RLXSession):
    """The environment's side: sends commands, receives replies.

    `receive` returns an ``error`` reply like others. DecodeError and LimitExceeded, for a wrong
    frame, close the session, as does RemoteProtocolError for a reply that does not answer the
    command. After a reply that cannot be read the session is in the state of an error reply.
    """

    __slots__ = ()

    _asks = True

    def refuse(self, error: RlwireError) -> Buffers:
        """Close the session; RLX has no words for a client that refuses."""
        self._node = _CLOSED
        return []

    def _unreadable(self, error: RlwireError, whole: bool) -> NoReturn:
        after = self._node.replies.get("error")
        if whole and after is not None:
            self._node = after
            raise RemoteProtocolError(f"the server's answer cannot be read: {error}") from error
        self._node = _CLOSED
        raise error

    def _cannot_send(self, event: Message) -> NoReturn:
        raise LocalProtocolError(
            f"{_called(event, 'command')} cannot be sent now; {_allowed(self._node, 'send')}"
        ) from None

    def _unexpected(self, reply: Message) -> NoReturn:
        before, self._node = self._node, _CLOSED
        raise RemoteProtocolError(
            f"the server sent {_called(reply, 'response')}; {_allowed(before, 'be sent')}"
        ) from None


class RLXServerSession(_RLXSession):
    """The agent's side: receives commands, sends replies.

    A command out of turn changes nothing, nor does an unreadable message in a whole netstring:
    `receive` raises RemoteProtocolError, and one error reply may be sent for it. If the command
    before has no reply yet, that error reply closes the session, because replies carry no number.
    DecodeError and LimitExceeded are for a wrong frame; one error reply may still be sent.

    `receive` brings the older form of ``update_metrics`` into the one with ``data``.
    """

    __slots__ = ()

    _asks = False

    def refuse(self, error: RlwireError) -> Buffers:
        """Return the error reply for `error`; close the session unless a reply was owed for it."""
        if self._node is _CLOSED:
            return []
        text = for_peer(error, "the server")
        if self._owed and isinstance(error.__cause__, LimitExceeded):
            text = _UNREADABLE + for_peer(error.__cause__, "the server")
        text = text[:_TEXT]
        buffers = self._encode({"response": "error", "message": text})
        if isinstance(error, RemoteProtocolError) and self._owed:
            self._owed = False
        else:
            self._node = _CLOSED
        return buffers

    def _break(self) -> None:
        if self._node is not _CLOSED:
            self._node = _BROKEN

    def _unreadable(self, error: RlwireError, whole: bool) -> NoReturn:
        if not whole or self._node.replies or self._node is _CLOSED:
            self._break()
            raise error
        self._owed = True
        raise RemoteProtocolError(f"{_UNREADABLE}{error}") from error

    def _check_reply(self, event: Message) -> None:
        if event["response"] == "action" and "data" not in event:
            raise LocalProtocolError("an 'action' needs its 'data', the action itself")

    def _cannot_send(self, event: Message) -> Buffers:
        """Allow one error reply to a command out of turn."""
        if self._owed and type(event) is dict and event.get("response") == "error":
            buffers = self._encode(event)
            self._owed = False
            return buffers
        raise LocalProtocolError(
            f"{_called(event, 'response')} cannot be sent now; {_allowed(self._node, 'send')}"
        ) from None

    def _unexpected(self, command: Message) -> NoReturn:
        node = self._node
        if node.replies:
            self._break()
        else:
            self._owed = node is not _CLOSED
        raise _refusal(node, command) from None

    def _gather(self, command: Message) -> None:
        try:
            _normalize_metrics(command)
        except RemoteProtocolError:
            self._owed = True
            raise


class PageRules:
    """The table of commands for one environment whose messages another session carries."""

    def __init__(self) -> None:
        self._node = _NEW
        self._after = _NEW

    def check(self, command: Message) -> None:
        """Raise RemoteProtocolError if a command is not allowed now; normalize its metrics."""
        name = command.get("command")
        after = self._node.commands.get(name) if isinstance(name, str) else None
        if after is None:
            raise _refusal(self._node, command)
        if after.reports:
            _normalize_metrics(command)
        self._after = after

    def replied(self, reply: Message) -> None:
        """Note the reply to the command that was checked last."""
        self._node = self._after.replies[reply["response"]]


def _refusal(node: StateNode, command: Message) -> RemoteProtocolError:
    name = command.get("command")
    if "command" not in command:
        return RemoteProtocolError("the message has no 'command'")
    if not isinstance(name, str) or name not in ANSWERS:
        return RemoteProtocolError(
            f"unknown {_called(command, 'command')}; known are {', '.join(ANSWERS)}"
        )
    return RemoteProtocolError(
        f"{_called(command, 'command')} is not allowed now; {_allowed(node, 'be sent')}"
    )


def _normalize_metrics(command: Message) -> None:
    given = command.get("data", [command])
    try:
        if not isinstance(given, list):
            raise TypeError
        entries = [_metric(entry) for entry in given]
    except (KeyError, TypeError):
        raise RemoteProtocolError(
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
    """Name a message for an error's text, without repeating all that a peer wrote."""
    if not isinstance(message, dict):
        return f"a {type(message).__name__} instead of a dictionary with a {kind!r}"
    if kind not in message:
        return f"a message without {kind!r}"
    value = message[kind]
    if not isinstance(value, str):
        return f"{kind} of type {type(value).__name__}"
    return f"{kind} {quoted(value)}"


def _allowed(node: StateNode, verb: str) -> str:
    names = [repr(name) for name in (*node.commands, *node.replies)]
    if not names:
        return f"the session is {node.state.value}"
    return f"in the state {node.state.name} can {verb}: {', '.join(names)}"
