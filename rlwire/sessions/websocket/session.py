"""A WebSocket: messages, pings, keep-alive, closing. Source: RFC 6455."""

from __future__ import annotations

from typing import Any, Final, Literal, NoReturn, TypeAlias

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

Buffers: TypeAlias = list[Buffer]
Kind: TypeAlias = Literal["any", "binary", "text"]

FRAGMENTS: Final = 131_072
"""Limit on the fragments of one message, including empty ones."""

MESSAGE_TIMEOUT: Final = 60.0
"""Seconds from a message's first fragment to its last."""

# Section 7.4.1.
NORMAL, GOING_AWAY, BAD_FRAME, BAD_KIND = 1000, 1001, 1002, 1003
BAD_TEXT, NOT_ALLOWED, TOO_LONG, INTERNAL = 1007, 1008, 1009, 1011


_OPENING, _OPEN, _CLOSING, _CLOSED = LayerPhase


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
    """Base of both sides. Its events are the messages: str for text, bytes for binary.

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
        self.close_code, self.close_reason = NORMAL, ""
        self._utf8 = Utf8Checker()
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        for name, seconds in (("ping_interval", ping_interval), ("ping_timeout", ping_timeout)):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name} must be positive or None, not {seconds!r}")
        self._received_at: float | None = None
        self._pinged_at: float | None = None
        self._opcode = self._fragments = 0  # of the fragmented message
        self._data = bytearray()  # its payload so far
        self._due: float | None = None  # its deadline
        self._received_any = False  # since the last `tick`
        self._set_phase(_OPENING)

    def frame_size(self, buffer: Any, start: int, end: int, room: int | None = None) -> int:
        try:
            if self.phase is _OPENING:
                known, self._known = self._known, end - start
                size = handshake.head_size(buffer, start, end, self._header, self._begins, known)
                if size and self._must_wait(buffer[start : start + size]):
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
        return 0 if self.phase is _OPENING else self._decoder.data_offset(buffer, start, end)

    def payload_part(self, buffer: Any, start: int, end: int) -> bytes:
        return self._decoder.payload_part(buffer, start, end)

    def send(self, event: Any) -> Buffers:
        if self.phase is not _OPEN:
            raise LocalProtocolError(f"cannot send a message: the session is {self.phase.value}")
        return self._encoder.message(event)

    def accept_binary(self) -> None:
        """Receive binary messages beside texts, as bytes."""
        self._decoder.binary = True

    def queue(self, event: Any) -> None:
        self._outgoing += self._encoder.message(event)

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        message = self._decoder.message(buffer, size) if self._whole_only else None
        if message is None:
            return None
        self._received_any = True
        return [message]

    def receive(self, frame: Buffer) -> list[Any]:
        """Receive one frame, or the HTTP head; return the message that it completes, if any."""
        message = self._decoder.message(frame, -1, True) if self._whole_only else None
        if message is None:
            return self._receive_rest(frame)
        self._received_any = True
        return [message]

    def _receive_rest(self, frame: Buffer) -> list[Any]:
        """Receive anything but a whole message in an open connection."""
        if self.phase is _CLOSED:
            return []
        try:
            if self.phase is _OPENING:
                self._handshake(frame)
                self._set_phase(_OPEN)
                return []
            self._received_any = True
            opcode, final, payload = self._decoder.frame(frame)
            if opcode >= frames.CLOSE:
                self._control(opcode, payload)
                return []
            if self.phase is _CLOSING:
                return []  # ignored (section 5.5.1)
            whole = self._assemble(opcode, final, payload)
            self._whole_only = not self._fragments  # fragments need `_assemble`
        except Closed:
            raise
        except (PeerError, DecodeError, LimitExceeded, RemoteProtocolError) as error:
            self._fail(error)
            raise
        return [] if whole is None else [whole]

    def _assemble(self, opcode: int, final: bool, payload: Buffer) -> Any:
        """Return the message that this frame ends; None if more fragments follow (section 5.4)."""
        if opcode == frames.CONTINUATION:
            if not self._opcode:
                raise RemoteProtocolError("a continuation frame outside a message")
        elif self._opcode:
            raise RemoteProtocolError("a new message between the fragments of another")
        else:
            name = "text" if opcode == frames.TEXT else "binary"
            binary = opcode == frames.BINARY and self._decoder.binary
            if not (self.kind in ("any", name) or binary):
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
            if self.phase is _OPEN:
                # Only the last of several pings is answered (section 5.5.3).
                self._pong = self._encoder.frame(frames.PONG, payload)
            return
        if opcode == frames.PONG:
            return
        code, reason = frames.decode_close(payload)
        if self.phase is _OPEN:
            self._pong = None
            self._outgoing.append(self._encoder.frame(frames.CLOSE, payload[:2]))
        self._end()
        raise Closed(code, reason)

    def redact(self, data: Buffer, sent: bool) -> Buffer:
        if self.phase is _OPENING or self.phase is _CLOSED:  # closed by an invalid handshake
            return handshake.blank(bytes(data))
        return data

    def output(self) -> Buffers:
        out, self._outgoing = self._outgoing, []
        if self._pong is not None:
            # Before a close frame.
            out.insert(0, self._pong)
            self._pong = None
        return out

    def tick(self, now: float) -> None:
        if self._received_any or self._received_at is None:
            self._received_any = False
            self._received_at, self._pinged_at = now, None
        if self.phase is not _OPEN:
            return
        if self._fragments:
            if self._due is None:
                self._due = now + MESSAGE_TIMEOUT
            if now >= self._due:
                count = self._fragments
                self._time_out(
                    f"a message in {count} fragments was not complete within {MESSAGE_TIMEOUT:g} s"
                )
        if self._pinged_at is not None:
            if self._ping_timeout is not None and now - self._pinged_at >= self._ping_timeout:
                self._time_out(f"no reply to a ping within {self._ping_timeout} s")
        elif self._ping_interval is not None and now - self._received_at >= self._ping_interval:
            self._outgoing.append(self._encoder.frame(frames.PING))
            self._pinged_at = now

    def next_deadline(self) -> float | None:
        if self.phase is not _OPEN or self._received_at is None:
            return None
        due = [self._due]
        if self._pinged_at is None:
            due.append(self._ping_interval and self._received_at + self._ping_interval)
        else:
            due.append(self._ping_timeout and self._pinged_at + self._ping_timeout)
        return min((at for at in due if at is not None), default=None)

    def reject(self, error: RlwireError) -> Buffers:
        if self.phase is _CLOSED or self.phase is _CLOSING:
            return []
        if self.phase is _OPENING:
            self._fail(error)
        elif not isinstance(error, RemoteProtocolError):
            self.fail(error, True)
        return self.output()

    def fail(self, error: RlwireError, now: bool = False) -> None:
        self.close_code, self.close_reason = _code_of(error), self._reason(error)
        if now or self.client:
            self._close(self.close_code, self.close_reason)

    def leave(self, code: int = 1000, reason: str = "") -> None:
        """Set code and reason of the close frame."""
        frames.encode_close(code, reason)
        self.close_code, self.close_reason = code, reason

    def close_message(self, stopping: bool = False) -> Buffers:
        if self.phase is _OPENING:
            self._set_phase(_CLOSED)
        if self.phase is not _OPEN:
            return self.output()
        if stopping and self.close_code == NORMAL and not self.close_reason:
            self.close_code = GOING_AWAY
        self._close(self.close_code, self.close_reason)
        self._set_phase(_CLOSING)
        return self.output()

    def stream_ended(self) -> str:
        before = self.phase
        self._set_phase(_CLOSED)
        if before is _OPENING:
            # No error: Universe's clients only measure how long it takes to connect.
            return "in the handshake" if self.client else ""
        return "" if before is _CLOSED else "without a close frame, code 1006"

    def _set_phase(self, phase: LayerPhase) -> None:
        self.phase = phase
        self._whole_only = phase is _OPEN

    def _must_wait(self, head: Buffer) -> bool:
        """Whether to delay the handshake."""
        return False

    def _handshake(self, head: Buffer) -> None:
        raise NotImplementedError

    def _fail(self, error: RlwireError) -> None:
        """Close after an error in the WebSocket protocol, with its code."""
        if self.phase is _OPENING:
            self._set_phase(_CLOSED)
            self._fail_handshake(error)
        elif self.phase is _OPEN:
            code = BAD_TEXT if isinstance(error, frames.NotText) else BAD_FRAME
            if isinstance(error, (LimitExceeded, _WrongKind)):
                code = _code_of(error)
            self._close(code, self._reason(error))
        else:
            self._end()

    def _reason(self, error: RlwireError) -> str:
        return for_peer(error, "the client" if self.client else "the server")

    def _fail_handshake(self, error: RlwireError) -> None:
        """Put the error response into `output`."""

    def _time_out(self, text: str) -> NoReturn:
        self._close(INTERNAL, text)
        raise DeadlineExceeded(text)

    def _close(self, code: int, reason: str) -> None:
        self._outgoing.append(self._encoder.frame(frames.CLOSE, frames.encode_close(code, reason)))
        self._end()

    def _end(self) -> None:
        self._set_phase(_CLOSED)
        self._forget()


def _code_of(error: RlwireError) -> int:
    """Return the code for an error of the inner layer or the transport."""
    if isinstance(error, _WrongKind):
        return BAD_KIND
    if isinstance(error, LimitExceeded):
        return TOO_LONG
    if isinstance(error, DecodeError):
        return BAD_TEXT
    if isinstance(error, (DeadlineExceeded, RemoteProtocolError)):
        return NOT_ALLOWED
    return INTERNAL
