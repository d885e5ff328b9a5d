"""What both sides of a WebSocket share once it is open: messages, pings, keep-alive, closing.

Source: RFC 6455.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeAlias, TypedDict

from rlwire.codecs.websocket import frames, handshake
from rlwire.codecs.websocket.frames import WebSocketEndpoint
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    PeerError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
)
from rlwire.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from typing_extensions import Unpack

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = list[Buffer]
Kind: TypeAlias = Literal["any", "binary", "text"]

FRAGMENTS = 131_072
"""Fragments that one message may come in; empty ones would otherwise be endless."""

# Section 7.4.1.
NORMAL, GOING_AWAY, BAD_FRAME, BAD_KIND = 1000, 1001, 1002, 1003
BAD_TEXT, NOT_ALLOWED, TOO_LONG, INTERNAL = 1007, 1008, 1009, 1011


class WebSocketState(enum.Enum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSING = "closing"  # our close frame is out, the peer's is awaited
    CLOSED = "closed"


_CONNECTING, _OPEN, _CLOSING, _CLOSED = WebSocketState


class WebSocketOptions(TypedDict, total=False):
    """What both sides may be told.

    Attributes:
        kind: what messages are. ``"text"`` and ``"binary"`` refuse the other with code 1003 and
            give the inner session bytes, texts checked; with ``"any"``, the default, a text is a
            str.
        limits: `header`, `received` (a message, all its fragments together) and `message` count.
        ping_interval: seconds of silence from the peer after which it is pinged; None, the default,
            for never. Only a peer whose program is in a call that receives can answer.
        ping_timeout: seconds, 20 by default, within which anything must come after a ping; None for
            no limit.
        message_timeout: seconds, 60 by default, that a message in fragments may take; None for no
            limit.
    """

    kind: Kind
    limits: Limits | None
    ping_interval: float | None
    ping_timeout: float | None
    message_timeout: float | None


class Closed(ConnectionClosed):
    """The peer closed the WebSocket with a close frame.

    Attributes:
        code: the peer's close code, 1005 if it gave none. 1000 and 1001 are good ends.
        reason: the peer's words.
    """

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"the peer closed with code {code}" + (f": {reason}" if reason else ""))
        self.code = code
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.reason)


class _WrongKind(RemoteProtocolError):
    """A text where messages are binary, or the other way round."""


class RawMessages:
    """The inner session that adds nothing: events are messages, messages are events."""

    closed: ClassVar[bool] = False

    def receive(self, message: Any) -> list[Any]:
        """Return the message."""
        return [message]

    def send(self, event: Any) -> Any:
        """Return the event."""
        return event

    def refuse(self, error: RlwireError) -> Buffers:
        """Return nothing: there are no words for it."""
        return []

    def next_deadline(self) -> float | None:
        """Return None."""
        return None


class WebSocketSession(WebSocketEndpoint):
    """What both sides share; `Client` and `Server` add their handshakes."""

    _begins = b""
    hangs_up = False
    """Whether this side ends the stream after both close frames (section 7.1.1: the server)."""

    def __init__(self, client: bool, **options: Unpack[WebSocketOptions]) -> None:
        limits = options.get("limits") or DEFAULT
        super().__init__(client, options.get("kind", "any"), limits)
        self._header = limits.header
        self._known = 0  # bytes of the head that were looked at
        self._room = min(limits.received, limits.message)  # for a message in fragments
        self._outgoing: Buffers = []
        self._pong: bytes | None = None
        self._code = NORMAL  # of our close frame
        self._leave = ""  # and its reason
        self._over = False  # the inner session is closed, and all that it said is in `outgoing`
        self._utf8 = frames.Text()
        self._ping_interval = options.get("ping_interval")
        self._ping_timeout = options.get("ping_timeout", 20.0)
        self._message_timeout = options.get("message_timeout", 60.0)
        for name, seconds in (
            ("ping_interval", self._ping_interval),
            ("ping_timeout", self._ping_timeout),
            ("message_timeout", self._message_timeout),
        ):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name} must be positive or None, not {seconds!r}")
        self._heard_at: float | None = None
        self._pinged_at: float | None = None
        self.inner: Any = None
        self.protocol: str | None = None
        self._opcode = self._fragments = 0  # of the message that comes in fragments
        self._data = bytearray()  # its payload so far
        self._due: float | None = None  # when it has to be whole
        self._stand(_CONNECTING)

    @property
    def state(self) -> WebSocketState:
        """Where the connection stands."""
        return self._state

    @property
    def opened(self) -> bool:
        """Whether the handshake is over and messages may be sent and received."""
        return self._state is not _CONNECTING

    @property
    def closed(self) -> bool:
        """Whether nothing more may be sent or received."""
        return self._state is _CLOSED

    @property
    def leaving(self) -> bool:
        """Whether the inner session is over: after what `outgoing` has, `farewell` is due."""
        return self._over and self._state is _OPEN

    # What comes.

    def frame_size(self, buffer: Any, start: int, end: int, room: int | None = None) -> int:
        """Return the size of the frame, or the HTTP head, that begins at `start`; 0 if unknown."""
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
            return WebSocketEndpoint.frame_size(self, buffer, start, end, room)
        except RlwireError as error:
            self._fail(error)
            raise

    def data_offset(self, buffer: Any, start: int, end: int) -> int:
        """Return where a frame's payload begins; 0 if that is unknown."""
        return 0 if self._state is _CONNECTING else super().data_offset(buffer, start, end)

    def _receive_rest(self, frame: Buffer) -> list[Any]:
        """Do the work of `receive` for all but a whole message in an open connection."""
        if self._state is _CLOSED:
            return []
        try:
            if self._state is _CONNECTING:
                self._shake(frame)
                self._open()
                return []
            self.heard = True
            opcode, final, payload = self.take(frame)
            if opcode >= frames.CLOSE:
                self._control(opcode, payload)
                return []
            if self._state is _CLOSING:
                return []  # section 5.5.1 does not ask us to look at it
            whole = self._assemble(opcode, final, payload)
            # Between the fragments of a message a frame needs a second look.
            self.listening = not self._fragments
        except Closed:
            raise
        except (PeerError, DecodeError, LimitExceeded, RemoteProtocolError) as error:
            self._fail(error)
            raise
        return [] if whole is None else self._take_in(whole)

    def _assemble(self, opcode: int, final: bool, payload: Buffer) -> Any:
        """Return the message that this frame ends, None if more fragments follow (section 5.4)."""
        if opcode == frames.CONTINUATION:
            if not self._opcode:
                raise RemoteProtocolError("a continuation without a message before it")
        elif self._opcode:
            raise RemoteProtocolError("a new message inside another's fragments")
        else:
            name = "text" if opcode == frames.TEXT else "binary"
            if self.kind not in ("any", name):
                raise _WrongKind(f"a {name} message where all are {self.kind}")
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
        return self.text(whole) if first == frames.TEXT and self.kind == "any" else whole

    def _forget(self) -> None:
        """Forget the fragments that have come."""
        self._opcode = self._fragments = 0
        self._data = bytearray()
        self._due = None

    def _control(self, opcode: int, payload: Buffer) -> None:
        if opcode == frames.PING:
            if self._state is _OPEN:
                # An answer to the last of several pings is enough (section 5.5.3).
                self._pong = self.frame(frames.PONG, payload)
            return
        if opcode == frames.PONG:
            return
        code, reason = frames.decode_close(payload)
        if self._state is _OPEN:
            self._pong = None
            self._outgoing.append(self.frame(frames.CLOSE, payload[:2]))
        self._end()
        raise Closed(code, reason)

    # What this side says by itself.

    def outgoing(self) -> Buffers:
        """Return what the session has to say by itself now, once: its handshake, pongs, a close."""
        out, self._outgoing = self._outgoing, []
        if self._pong is not None:
            # Ahead of a close frame, after which nothing may follow.
            out.insert(0, self._pong)
            self._pong = None
        return out

    def tick(self, now: float) -> None:
        """Let time pass: a ping may fall due, or a peer be too late."""
        if self.heard or self._heard_at is None:
            self.heard = False
            self._heard_at, self._pinged_at = now, None
        if self._state is not _OPEN:
            return
        if self._fragments and self._message_timeout is not None:
            if self._due is None:
                self._due = now + self._message_timeout
            if now >= self._due:
                count, seconds = self._fragments, self._message_timeout
                self._late(f"{count} fragments made no message within {seconds} s")
        if self._pinged_at is not None:
            if self._ping_timeout is not None and now - self._pinged_at >= self._ping_timeout:
                self._late(f"no answer to a ping within {self._ping_timeout} s")
        elif self._ping_interval is not None and now - self._heard_at >= self._ping_interval:
            self._outgoing.append(self.frame(frames.PING))
            self._pinged_at = now
        if self._inner_tick is not None:
            self._inner_tick(now)
            self._listen()

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do, in the seconds of its clock; None if never."""
        if self._state is not _OPEN or self._heard_at is None:
            return None
        due = [self._due, self.inner.next_deadline()]
        if self._pinged_at is None:
            due.append(self._ping_interval and self._heard_at + self._ping_interval)
        else:
            due.append(self._ping_timeout and self._pinged_at + self._ping_timeout)
        return min((at for at in due if at is not None), default=None)

    def refuse(self, error: RlwireError) -> Buffers:
        """Return what tells the peer about `error`, and end the session."""
        if self._state is _CLOSED or self._state is _CLOSING:
            return []
        if self._state is _CONNECTING:
            self._fail(error)
            return self.outgoing()
        words = self.inner.refuse(error)
        said = [*self.outgoing(), *(self.message(words) if words else ())]
        if isinstance(error, RemoteProtocolError) and not self.inner.closed:
            return said
        self._close(_code_of(error), self._told(error))
        return [*said, *self.outgoing()]

    def leave(self, code: int = 1000, reason: str = "") -> None:
        """Choose what the close frame will say when the connection is closed."""
        frames.encode_close(code, reason)
        self._code, self._leave = code, reason

    def farewell(self, ending: bool = False) -> Buffers:
        """Return the close frame, if one is to be sent; then only the peer's is awaited."""
        if self._state is _CONNECTING:
            self._stand(_CLOSED)
        if self._state is not _OPEN:
            return self.outgoing()
        if self._code == NORMAL and not self._leave:
            if self.inner.closed:
                self._leave = getattr(self.inner, "closing", None) or ""
                self._code = getattr(self.inner, "closing_code", NORMAL)
            elif ending:
                self._code = GOING_AWAY
        self._close(self._code, self._leave)
        self._stand(_CLOSING)
        return self.outgoing()

    def lost(self) -> str:
        """Say that the stream has ended; returns what is wrong with that, empty if nothing is."""
        before = self._state
        self._stand(_CLOSED)
        if before is _CONNECTING:
            # Who connects to a server, says nothing and goes has measured how long that takes:
            # Universe's clients do, ten times every five minutes.
            return "in the handshake" if self.client else ""
        return "" if before is _CLOSED else "without a close frame (1006)"

    # Where the connection stands.

    def _stand(self, state: WebSocketState) -> None:
        self._state = state
        self.listening = state is _OPEN
        self.mute = (
            None if state is _OPEN else f"no message can be sent now, the session is {state.value}"
        )

    def _waits(self, head: Buffer) -> bool:
        """Whether a whole head is not to be looked at yet."""
        return False

    def _shake(self, head: Buffer) -> None:
        raise NotImplementedError

    def _open(self) -> None:
        inner = self.inner
        self._stand(_OPEN)
        self._inner_tick = getattr(inner, "tick", None)
        self._inner_outgoing = getattr(inner, "outgoing", None)
        if type(inner) is not RawMessages:
            talks = self._inner_outgoing is not None
            self._attach(inner, self._receive_and_listen if talks else inner.receive, inner.send)
        self._listen()

    def _receive_and_listen(self, message: Any) -> list[Any]:
        inner = self.inner
        events: list[Any] = inner.receive(message)
        if not getattr(inner, "owes", True):
            return events
        # None makes the transport ask for `outgoing` although there is one event.
        return [*events, None] if self._listen() and len(events) == 1 else events

    def _listen(self) -> bool:
        """Take over what the inner session has to say by itself, or that it is over."""
        if self._inner_outgoing is None:
            return False
        said = [part for message in self._inner_outgoing() for part in self.message(message)]
        self._outgoing += said
        self._over = self.inner.closed
        return bool(said) or self._over

    def _last(self, buffers: Buffers) -> Buffers:
        """After the inner session has closed with these: the farewell follows at once."""
        if self._over:
            return buffers
        self._outgoing += buffers
        self._over = True
        return []

    def _inner_failed(self, error: RlwireError) -> None:
        """After the inner session did not take a message."""
        if isinstance(error, RemoteProtocolError) and not self.inner.closed:
            return
        self._code, self._leave = _code_of(error), self._told(error)
        if self.client:
            self._close(self._code, self._leave)

    def _fail(self, error: RlwireError) -> None:
        """After the peer broke a rule of WebSocket: say so, and be closed."""
        if self._state is _CONNECTING:
            self._stand(_CLOSED)
            self._fail_handshake(error)
        elif self._state is _OPEN:
            self._close(_code_of_fault(error), self._told(error))
        else:
            self._end()

    def _told(self, error: RlwireError) -> str:
        return for_peer(error, "the client" if self.client else "the server")

    def _fail_handshake(self, error: RlwireError) -> None:
        """Put what the peer is told into `outgoing`."""

    def _late(self, text: str) -> NoReturn:
        self._close(INTERNAL, text)
        raise DeadlineExceeded(text)

    def _close(self, code: int, reason: str) -> None:
        self._outgoing.append(self.frame(frames.CLOSE, frames.encode_close(code, reason)))
        self._end()

    def _end(self) -> None:
        self._stand(_CLOSED)
        self._forget()


def _code_of(error: RlwireError) -> int:
    """Return the code for what the inner session, or the transport, finds wrong."""
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
    """Return the code for a rule of WebSocket itself that the peer broke."""
    if isinstance(error, (LimitExceeded, _WrongKind)):
        return _code_of(error)
    return BAD_TEXT if isinstance(error, frames.NotText) else BAD_FRAME
