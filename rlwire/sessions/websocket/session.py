"""An open WebSocket: messages, pings, keep-alive, closing. Source: RFC 6455."""

from __future__ import annotations

import enum
from typing import Any, Final, Literal, NoReturn, TypeAlias, cast

from rlwire.codecs.websocket import frames, handshake
from rlwire.codecs.websocket.frames import FrameDecoder, FrameEncoder, Utf8Checker
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, Layer, LayerPhase
from rlwire.sessions.raw import RawMessages

Buffers: TypeAlias = list[Buffer]
Kind: TypeAlias = Literal["any", "binary", "text"]

FRAGMENTS: Final = 131_072
"""Limit on the fragments of one message, including empty ones."""

MESSAGE_TIMEOUT: Final = 60.0
"""Seconds from a message's first fragment to its last."""

# Section 7.4.1.
NORMAL, GOING_AWAY, BAD_FRAME, BAD_KIND = 1000, 1001, 1002, 1003
BAD_TEXT, NOT_ALLOWED, TOO_LONG, INTERNAL = 1007, 1008, 1009, 1011


class WebSocketState(enum.Enum):
    """The state of a connection (section 7.1)."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSING = "closing"  # our close frame is sent, the peer's is missing
    CLOSED = "closed"


_CONNECTING, _OPEN, _CLOSING, _CLOSED = WebSocketState
_PHASES = dict(zip(WebSocketState, LayerPhase, strict=True))


class Closed(ConnectionClosed):
    """The peer closed the WebSocket with a close frame.

    Attributes:
        code: the peer's close code, 1005 for none; 1000 and 1001 are normal ends.
        reason: the peer's text.
    """

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"the peer closed with code {code}" + (f": {reason}" if reason else ""))
        self.code = code
        self.reason = reason


class _WrongKind(RemoteProtocolError):
    """A text message where binary ones are expected, or vice versa."""


class WebSocketSession(Layer):
    """Base of both sides.

    Args:
        client: whether this side is the client.
        kind: ``"text"`` and ``"binary"`` reject the other kind with code 1003, and messages are
            bytes (texts are checked to be UTF-8); with ``"any"`` a text is a str.
        limits: `header`, `received` (a message with all its fragments) and `message` apply.
        ping_interval: seconds of silence before a ping; None for never. A peer may answer only
            while it receives.
        ping_timeout: seconds after a ping in which the peer must send something; None for no limit.
    """

    _begins = b""
    active = True

    def __init__(
        self,
        client: bool,
        *,
        kind: Kind = "any",
        limits: Limits | None = None,
        ping_interval: float | None = None,
        ping_timeout: float | None = 20.0,
    ) -> None:
        limits = limits or DEFAULT
        self.client = client
        self.kind = kind
        self._decoder = FrameDecoder(not client, kind, limits)
        self._encoder = FrameEncoder(client, kind, limits)
        self._header = limits.header
        self._known = 0  # bytes of the head that were searched
        self._room = min(limits.received, limits.message)  # for a message in fragments
        self._outgoing: Buffers = []
        self._pong: bytes | None = None
        self._code = NORMAL  # of our close frame
        self._leave = ""  # and its reason
        self._over = False  # the inner session is closed, and `output` has its last buffers
        self._utf8 = Utf8Checker()
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        for name, seconds in (("ping_interval", ping_interval), ("ping_timeout", ping_timeout)):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name} must be positive or None, not {seconds!r}")
        self._heard_at: float | None = None
        self._pinged_at: float | None = None
        self.inner: Layer | None = None
        self._opcode = self._fragments = 0  # of the fragmented message
        self._data = bytearray()  # its payload so far
        self._due: float | None = None  # its deadline
        self._heard = False  # since the last `tick`
        self._read: Any = None  # of the inner session, as is `_write`; None if messages are events
        self._write: Any = None
        self._set_state(_CONNECTING)

    @property
    def state(self) -> WebSocketState:
        return self._state

    def frame_size(self, buffer: Any, start: int, end: int, room: int | None = None) -> int:
        try:
            if self._state is _CONNECTING:
                known, self._known = self._known, end - start
                size = handshake.head_size(buffer, start, end, self._header, self._begins, known)
                if size and self._waits(buffer[start : start + size]):
                    self._known = 0
                    return 0
                return size
            if self._fragments:
                room = self._room - len(self._data)
            return self._decoder.frame_size(buffer, start, end, room)
        except RlwireError as error:
            self._fail(error)
            raise

    def data_offset(self, buffer: Any, start: int, end: int) -> int:
        return 0 if self._state is _CONNECTING else self._decoder.data_offset(buffer, start, end)

    def send(self, event: Any) -> Buffers:
        """Return the buffers of one message; none if it is the last, which `output` returns."""
        if self._mute is not None:
            raise LocalProtocolError(self._mute)
        if self._write is None:
            return self._encoder.message(event)
        buffers = self._encoder.message(self._write(event))
        return self._last(buffers) if self._layer.phase is LayerPhase.CLOSED else buffers

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Receive the message of a frame that fills `buffer[:size]`; None for anything else."""
        if not self._listening:
            return None
        message = self._decoder.message(buffer, size)
        return None if message is None else self._events(message)

    def receive(self, frame: Buffer) -> list[Any]:
        """Receive one frame, or the HTTP head; return the events of the message that it completes.

        The session may keep and change the buffer.
        """
        message = self._decoder.message(frame, -1, True) if self._listening else None
        return self._receive_rest(frame) if message is None else self._events(message)

    def _events(self, message: Any) -> list[Any]:
        self._heard = True
        if self._read is None:
            return [message]
        try:
            return self._read(message)
        except RlwireError as error:
            self._inner_failed(error)
            raise

    def _receive_rest(self, frame: Buffer) -> list[Any]:
        """Receive anything but a whole message in an open connection."""
        if self._state is _CLOSED:
            return []
        try:
            if self._state is _CONNECTING:
                self._shake(frame)
                self._open()
                return []
            self._heard = True
            opcode, final, payload = self._decoder.frame(frame)
            if opcode >= frames.CLOSE:
                self._control(opcode, payload)
                return []
            if self._state is _CLOSING:
                return []  # ignored (section 5.5.1)
            whole = self._assemble(opcode, final, payload)
            self._listening = not self._fragments  # fragments need `_assemble`
        except Closed:
            raise
        except (PeerError, DecodeError, LimitExceeded, RemoteProtocolError) as error:
            self._fail(error)
            raise
        return [] if whole is None else self._events(whole)

    def _assemble(self, opcode: int, final: bool, payload: Buffer) -> Any:
        """Return the message that this frame ends; None if more fragments follow (section 5.4)."""
        if opcode == frames.CONTINUATION:
            if not self._opcode:
                raise RemoteProtocolError("a continuation frame outside a message")
        elif self._opcode:
            raise RemoteProtocolError("a new message between the fragments of another")
        else:
            name = "text" if opcode == frames.TEXT else "binary"
            if self.kind not in ("any", name):
                raise _WrongKind(f"got a {name} message, expected {self.kind}")
        first = self._opcode or opcode
        if first == frames.TEXT:  # section 8.1
            self._utf8.feed(payload)
            if final:
                self._utf8.end()
        whole = payload
        if opcode == frames.CONTINUATION or not final:
            self._fragments += 1
            if self._fragments > FRAGMENTS:
                raise LimitExceeded("fragments", FRAGMENTS, self._fragments)
            self._opcode = first
            self._data += payload
            if not final:
                return None
            whole = self._data
            self._forget()
        return self._decoder.text(whole) if first == frames.TEXT and self.kind == "any" else whole

    def _forget(self) -> None:
        self._opcode = self._fragments = 0
        self._data = bytearray()
        self._due = None

    def _control(self, opcode: int, payload: Buffer) -> None:
        if opcode == frames.PING:
            if self._state is _OPEN:
                # Only the last of several pings is answered (section 5.5.3).
                self._pong = self._encoder.frame(frames.PONG, payload)
            return
        if opcode == frames.PONG:
            return
        code, reason = frames.decode_close(payload)
        if self._state is _OPEN:
            self._pong = None
            self._outgoing.append(self._encoder.frame(frames.CLOSE, payload[:2]))
        self._end()
        raise Closed(code, reason)

    def redact(self, data: Buffer, sent: bool) -> Buffer:
        """Return a message without its secrets, for a recording."""
        if self._state in (_CONNECTING, _CLOSED):  # closed by an invalid handshake
            return handshake.blank(bytes(data))
        return self._layer.redact(data, sent)

    def output(self) -> Buffers:
        out, self._outgoing = self._outgoing, []
        if self._pong is not None:
            # Before a close frame.
            out.insert(0, self._pong)
            self._pong = None
        return out

    def tick(self, now: float) -> None:
        if self._heard or self._heard_at is None:
            self._heard = False
            self._heard_at, self._pinged_at = now, None
        if self._state is not _OPEN:
            return
        if self._fragments:
            if self._due is None:
                self._due = now + MESSAGE_TIMEOUT
            if now >= self._due:
                count = self._fragments
                self._late(
                    f"a message in {count} fragments was not complete within {MESSAGE_TIMEOUT:g} s"
                )
        if self._pinged_at is not None:
            if self._ping_timeout is not None and now - self._pinged_at >= self._ping_timeout:
                self._late(f"no reply to a ping within {self._ping_timeout} s")
        elif self._ping_interval is not None and now - self._heard_at >= self._ping_interval:
            self._outgoing.append(self._encoder.frame(frames.PING))
            self._pinged_at = now
        if self._layer.active:
            self._layer.tick(now)
            self._listen()

    def next_deadline(self) -> float | None:
        if self._state is not _OPEN or self._heard_at is None:
            return None
        due = [self._due, self._layer.next_deadline()]
        if self._pinged_at is None:
            due.append(self._ping_interval and self._heard_at + self._ping_interval)
        else:
            due.append(self._ping_timeout and self._pinged_at + self._ping_timeout)
        return min((at for at in due if at is not None), default=None)

    def reject(self, error: RlwireError) -> Buffers:
        if self._state is _CLOSED or self._state is _CLOSING:
            return []
        if self._state is _CONNECTING:
            self._fail(error)
            return self.output()
        words = self._layer.reject(error)
        said = [*self.output(), *(self._encoder.message(words) if words else ())]
        if isinstance(error, RemoteProtocolError) and not self._layer.closed:
            return said
        self._close(_code_of(error), self._reason(error))
        return [*said, *self.output()]

    def leave(self, code: int = 1000, reason: str = "") -> None:
        """Set code and reason of the close frame."""
        frames.encode_close(code, reason)
        self._code, self._leave = code, reason

    def close_message(self, stopping: bool = False) -> Buffers:
        """Return the close frame, if one is due; then only the peer's close frame is received."""
        if self._state is _CONNECTING:
            self._set_state(_CLOSED)
        if self._state is not _OPEN:
            return self.output()
        if self._code == NORMAL and not self._leave:
            if self._layer.closed:
                self._leave = self._layer.close_reason or ""
                self._code = self._layer.close_code
            elif stopping:
                self._code = GOING_AWAY
        self._close(self._code, self._leave)
        self._set_state(_CLOSING)
        return self.output()

    def stream_ended(self) -> str:
        before = self._state
        self._set_state(_CLOSED)
        if before is _CONNECTING:
            # No error: Universe's clients only measure how long it takes to connect.
            return "in the handshake" if self.client else ""
        return "" if before is _CLOSED else "without a close frame, code 1006"

    def _set_state(self, state: WebSocketState) -> None:
        self._state = state
        self.phase = _PHASES[state]
        self._listening = state is _OPEN
        self._mute = (
            None if state is _OPEN else f"cannot send a message: the session is {state.value}"
        )

    def _waits(self, head: Buffer) -> bool:
        """Whether to delay the handshake."""
        return False

    def _shake(self, head: Buffer) -> None:
        raise NotImplementedError

    def _open(self) -> None:
        self._layer = inner = cast("Layer", self.inner)
        self._set_state(_OPEN)
        if type(inner) is not RawMessages:
            self._read = self._receive_and_listen if inner.active else inner.receive
            self._write = inner.send
        self._listen()

    def _receive_and_listen(self, message: Any) -> list[Any]:
        events = self._layer.receive(message)
        if not self._layer.has_output:
            return events
        # None makes the transport call `output`.
        return [*events, None] if self._listen() and len(events) == 1 else events

    def _listen(self) -> bool:
        """Queue what the inner session sends by itself; record whether it is closed."""
        if not self._layer.active:
            return False
        said = [part for message in self._layer.output() for part in self._encoder.message(message)]
        self._outgoing += said
        self._set_over(self._layer.closed)
        return bool(said) or self._over

    def _last(self, buffers: Buffers) -> Buffers:
        """Queue the last buffers of a closed inner session; the close frame follows."""
        if self._over:
            return buffers
        self._outgoing += buffers
        self._set_over(True)
        return []

    def _set_over(self, over: bool) -> None:
        self._over = over
        if over and self._state is _OPEN:
            self.phase = LayerPhase.CLOSING

    def _inner_failed(self, error: RlwireError) -> None:
        if isinstance(error, RemoteProtocolError) and not self._layer.closed:
            return
        self._code, self._leave = _code_of(error), self._reason(error)
        if self.client:
            self._close(self._code, self._leave)

    def _fail(self, error: RlwireError) -> None:
        """Close after an error in the WebSocket protocol, with its code."""
        if self._state is _CONNECTING:
            self._set_state(_CLOSED)
            self._fail_handshake(error)
        elif self._state is _OPEN:
            self._close(_code_of_fault(error), self._reason(error))
        else:
            self._end()

    def _reason(self, error: RlwireError) -> str:
        return for_peer(error, "the client" if self.client else "the server")

    def _fail_handshake(self, error: RlwireError) -> None:
        """Put the error response into `output`."""

    def _late(self, text: str) -> NoReturn:
        self._close(INTERNAL, text)
        raise DeadlineExceeded(text)

    def _close(self, code: int, reason: str) -> None:
        self._outgoing.append(self._encoder.frame(frames.CLOSE, frames.encode_close(code, reason)))
        self._end()

    def _end(self) -> None:
        self._set_state(_CLOSED)
        self._forget()


def _code_of(error: RlwireError) -> int:
    """Return the code for an error of the inner session or the transport."""
    if isinstance(error, _WrongKind):
        return BAD_KIND
    if isinstance(error, LimitExceeded):
        return TOO_LONG
    if isinstance(error, DecodeError):
        return BAD_TEXT
    if isinstance(error, (DeadlineExceeded, RemoteProtocolError)):
        return NOT_ALLOWED
    return INTERNAL


def _code_of_fault(error: RlwireError) -> int:
    """Return the code for an error in the WebSocket protocol itself."""
    if isinstance(error, (LimitExceeded, _WrongKind)):
        return _code_of(error)
    return BAD_TEXT if isinstance(error, frames.NotText) else BAD_FRAME
