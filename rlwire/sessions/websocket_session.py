"""What both sides of a WebSocket share: messages, ping and pong, keep-alive, closing.

The two handshakes are in `rlwire.sessions.websocket`, fragments in
`rlwire.sessions.websocket_assembly`, codes in `rlwire.sessions.websocket_closing`.

Source: RFC 6455.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, TypeAlias

from rlwire.codecs import websocket as frames
from rlwire.codecs import websocket_handshake as handshake
from rlwire.errors import (
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.websocket_assembly import Assembly, Kind
from rlwire.sessions.websocket_closing import (
    GOING_AWAY,
    INTERNAL,
    NORMAL,
    Closed,
    code_of,
    code_of_fault,
)
from rlwire.sessions.websocket_permission import Refused

__all__ = ["Messages", "Session", "State"]

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = list[Buffer]


class State(enum.Enum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSING = "closing"  # our close frame is out, the peer's is awaited
    CLOSED = "closed"


_CONNECTING, _OPEN, _CLOSING, _CLOSED = State


class Messages:
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


class Session:
    """What both sides share; `Client` and `Server` add their handshakes."""

    __slots__ = (
        "__weakref__",
        "_assembly",
        "_client",
        "_code",
        "_frame",
        "_frame_size",
        "_framer",
        "_header",
        "_heard_at",
        "_inner_outgoing",
        "_inner_receive",
        "_inner_send",
        "_inner_tick",
        "_kind",
        "_known",
        "_leave",
        "_message",
        "_message_timeout",
        "_outgoing",
        "_over",
        "_ping_interval",
        "_ping_timeout",
        "_pinged_at",
        "_pong",
        "_received",
        "_state",
        "_take",
        "_whole",
        "inner",
        "protocol",
    )

    _begins: ClassVar[bytes]
    hangs_up: ClassVar[bool]
    """Whether this side ends the stream after both close frames (section 7.1.1: the server)."""

    def __init__(
        self,
        *,
        client: bool,
        kind: Kind,
        limits: Limits | None,
        ping_interval: float | None,
        ping_timeout: float | None,
        message_timeout: float | None,
    ) -> None:
        for name, seconds in (
            ("ping_interval", ping_interval),
            ("ping_timeout", ping_timeout),
            ("message_timeout", message_timeout),
        ):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name} must be positive or None, not {seconds!r}")
        limits = DEFAULT if limits is None else limits
        framer = self._framer = frames.Framer(client, kind, limits)
        self._client = client
        self._kind = kind
        self._header = limits.header
        self._known = 0  # bytes of the head that were looked at
        self._received = min(limits.received, limits.message)
        self._take = framer.take
        self._frame = framer.frame
        self._frame_size = framer.frame_size
        self._message = framer.message
        self._whole = framer.whole
        self._stand(_CONNECTING)
        self._outgoing: Buffers = []
        self._pong: bytes | None = None
        self._code = NORMAL  # of our close frame
        self._leave = ""  # and its reason
        self._over = False  # the inner session is closed, and all that it said is in `outgoing`
        self._assembly = Assembly(framer, message_timeout)
        self._message_timeout = message_timeout
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._heard_at: float | None = None
        self._pinged_at: float | None = None
        self.inner: Any = None
        self.protocol: str | None = None

    @property
    def state(self) -> State:
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

    # What every message takes.

    def send(self, event: Any) -> Buffers:
        """Return the buffers of one message.

        Raises:
            LocalProtocolError: before the handshake is over, after a close frame, or what the
                inner session does not allow.
            EncodeError, LimitExceeded: it cannot be written.
        """
        if self._state is not _OPEN:
            raise LocalProtocolError(
                f"no message can be sent now, the session is {self._state.value}"
            )
        inner_send, message = self._inner_send, self._message
        if inner_send is None:
            return message(event)
        buffers = message(inner_send(event))
        if self.inner.closed and not self._over:  # its last words; the farewell follows at once
            self._outgoing += buffers
            self._over = True
            return []
        return buffers

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Take the one message that fills `buffer[:size]`; None if that is not what is there.

        Raises:
            What the inner session raises.
        """
        whole = self._whole
        message = whole(buffer, size)
        if message is None:
            return None
        inner_receive = self._inner_receive
        if inner_receive is None:
            return [message]
        try:
            events: list[Any] = inner_receive(message)
        except RlwireError as error:
            self._inner_failed(error)
            raise
        return events

    def shortcuts(
        self,
    ) -> tuple[Callable[[Any], Buffers], Callable[[Buffer, int], list[Any] | None]]:
        """Return what does the work of `send` and `receive_whole`; ask when it has opened."""
        if type(self.inner) is Messages:
            return self._framer.send, self._framer.events
        return self.send, self.receive_whole

    # What the rest takes.

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the frame, or the HTTP head, that begins at `start`; 0 if unknown.

        Raises:
            DecodeError: it breaks a rule of framing.
            LimitExceeded: it is longer than the limits ``received`` or ``header``, with the
                fragments before it.
        """
        try:
            if self._state is _CONNECTING:
                known, self._known = self._known, end - start
                return handshake.head_size(buffer, start, end, self._header, self._begins, known)
            room = self._received - self._assembly.size if self._assembly.count else None
            return self._frame_size(buffer, start, end, room)
        except RlwireError as error:
            self._fail(error)
            raise

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return where a frame's payload begins; 0 if that is unknown."""
        if self._state is _CONNECTING:
            return 0
        # The bits behind 7 (or the two or eight bytes behind them) are the length, then comes a
        # mask; `frame_size` has checked what is there.
        if end - start < 2:
            return 0
        short = buffer[start + 1] & 0x7F
        return 2 + (0 if short < 126 else 2 if short == 126 else 8) + (0 if self._client else 4)

    def receive(self, message: Buffer) -> list[Any]:
        """Take one frame, or the HTTP head, and return the events of the message that it ends.

        Raises:
            DecodeError, LimitExceeded, RemoteProtocolError: the peer broke a rule; a close frame
                or an HTTP refusal is in `outgoing`, and the session is closed.
            Closed: the peer closed.
            Refused: the server does not want us.
        """
        if self._state is _CONNECTING:
            try:
                self._shake(message)
            except (Refused, DecodeError, LimitExceeded, RemoteProtocolError) as error:
                self._fail(error)
                raise
            self._open()
            return []
        if self._state is _CLOSED:
            return []
        self._framer.heard = True
        try:
            opcode, final, payload = self._take(message)
            if opcode >= frames.CLOSE:
                self._control(opcode, payload)
                return []
            if self._state is _CLOSING:
                return []  # section 5.5.1 does not ask us to look at it
            whole = self._assembly.take(opcode, final, payload)
            # Between the fragments of a message a frame needs a second look.
            self._framer.listening = not self._assembly.count
        except Closed:
            raise
        except RlwireError as error:
            self._fail(error)
            raise
        if whole is None:
            return []
        if self._inner_receive is None:
            return [whole]
        try:
            events: list[Any] = self._inner_receive(whole)
        except RlwireError as error:
            self._inner_failed(error)
            raise
        return events

    def outgoing(self) -> Buffers:
        """Return what the session has to say by itself now, once: its handshake, pongs, a close."""
        out, self._outgoing = self._outgoing, []
        if self._pong is not None:
            # Ahead of a close frame, after which nothing may follow.
            out.insert(0, self._pong)
            self._pong = None
        return out

    def tick(self, now: float) -> None:
        """Let time pass: a ping may fall due, or a peer be too late.

        Args:
            now: seconds, of one clock that only goes forward.

        Raises:
            DeadlineExceeded: no answer to a ping in time, or a message in fragments takes too
                long; a close frame is in `outgoing` and the session is closed.
            What the inner session's `tick` raises.
        """
        if self._framer.heard or self._heard_at is None:
            self._framer.heard = False
            self._heard_at, self._pinged_at = now, None
        if self._state is not _OPEN:
            return
        if self._assembly.tick(now):
            count, seconds = self._assembly.count, self._message_timeout
            self._late(f"{count} fragments made no message within {seconds} s")
        if self._pinged_at is not None:
            if self._ping_timeout is not None and now - self._pinged_at >= self._ping_timeout:
                self._late(f"no answer to a ping within {self._ping_timeout} s")
        elif self._ping_interval is not None and now - self._heard_at >= self._ping_interval:
            self._outgoing.append(self._frame(frames.PING))
            self._pinged_at = now
        if self._inner_tick is not None:
            self._inner_tick(now)
            self._listen()

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do, in the seconds of its clock; None if never."""
        due = []
        if self._state is _OPEN and self._heard_at is not None:
            if self._pinged_at is not None:
                if self._ping_timeout is not None:
                    due.append(self._pinged_at + self._ping_timeout)
            elif self._ping_interval is not None:
                due.append(self._heard_at + self._ping_interval)
            if self._assembly.due is not None:
                due.append(self._assembly.due)
            inner = self.inner.next_deadline()
            if inner is not None:
                due.append(inner)
        return min(due, default=None)

    def refuse(self, error: RlwireError) -> Buffers:
        """Return what tells the peer about `error`, and end the session.

        It goes on after an error that the inner session has words for and can go on after.
        """
        if self._state is _CLOSED or self._state is _CLOSING:
            return []
        if self._state is _CONNECTING:
            self._fail(error)
            return self.outgoing()
        said = [*self.outgoing(), *self._refused_by_inner(error)]
        if isinstance(error, RemoteProtocolError) and not self.inner.closed:
            return said
        self._close(code_of(error), self._told(error))
        return [*said, *self.outgoing()]

    def leave(self, code: int = 1000, reason: str = "") -> None:
        """Choose what the close frame will say when the connection is closed.

        Raises:
            EncodeError: the code is none that may be sent.
        """
        frames.encode_close(code, reason)
        self._code, self._leave = code, reason

    def farewell(self, ending: bool = False) -> Buffers:
        """Return the close frame, if one is to be sent; then only the peer's is awaited.

        Args:
            ending: whether the whole program ends, which code 1001 tells.
        """
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
            return "in the handshake" if self._client else ""
        return "" if before is _CLOSED else "without a close frame (1006)"

    def _shake(self, head: Buffer) -> None:
        raise NotImplementedError

    def _stand(self, state: State) -> None:
        self._state = state
        opened = state is _OPEN
        self._framer.listening = opened
        self._framer.mute = (
            None if opened else f"no message can be sent now, the session is {state.value}"
        )

    def _open(self) -> None:
        inner = self.inner
        self._stand(_OPEN)
        # None for `Messages`: two calls less for each message.
        bare = type(inner) is Messages
        self._inner_send = None if bare else inner.send
        self._inner_receive = None if bare else inner.receive
        self._inner_tick = getattr(inner, "tick", None)
        self._inner_outgoing = getattr(inner, "outgoing", None)
        if self._inner_outgoing is not None:
            self._inner_receive = self._receive_and_listen
        self._listen()

    def _receive_and_listen(self, message: Any) -> list[Any]:
        events: list[Any] = self.inner.receive(message)
        # None makes the transport ask for `outgoing` although there is one event.
        return [*events, None] if self._listen() and len(events) == 1 else events

    def _listen(self) -> bool:
        """Take over what the inner session has to say by itself, or that it is over.

        Returns:
            Whether the transport has to know.
        """
        if self._inner_outgoing is None:
            return False
        said = [part for message in self._inner_outgoing() for part in self._message(message)]
        self._outgoing += said
        self._over = self.inner.closed
        return bool(said) or self._over

    def _control(self, opcode: int, payload: Buffer) -> None:
        if opcode == frames.PING:
            if self._state is _OPEN:
                # An answer to the last of several pings is enough (section 5.5.3).
                self._pong = self._frame(frames.PONG, payload)
            return
        if opcode == frames.PONG:
            return
        code, reason = frames.decode_close(payload)
        if self._state is _OPEN:
            self._pong = None
            self._say_close(payload[:2])
        self._end()
        raise Closed(code, reason)

    def _refused_by_inner(self, error: RlwireError) -> Buffers:
        said = self.inner.refuse(error)
        return self._message(said) if said else []

    def _inner_failed(self, error: RlwireError) -> None:
        """After the inner session did not take a message."""
        if isinstance(error, RemoteProtocolError) and not self.inner.closed:
            return
        self._code, self._leave = code_of(error), self._told(error)
        if self._client:
            self._close(self._code, self._leave)

    def _fail(self, error: RlwireError) -> None:
        """After the peer broke a rule of WebSocket: say so, and be closed."""
        if self._state is _CONNECTING:
            self._stand(_CLOSED)
            self._fail_handshake(error)
        elif self._state is _OPEN:
            self._close(code_of_fault(error), self._told(error))
        else:
            self._end()

    def _told(self, error: RlwireError) -> str:
        return for_peer(error, "the client" if self._client else "the server")

    def _fail_handshake(self, error: RlwireError) -> None:
        """Put what the peer is told into `outgoing`."""

    def _late(self, text: str) -> NoReturn:
        self._close(INTERNAL, text)
        raise DeadlineExceeded(text)

    def _close(self, code: int, reason: str) -> None:
        self._say_close(frames.encode_close(code, reason))
        self._end()

    def _say_close(self, payload: Buffer) -> None:
        self._outgoing.append(self._frame(frames.CLOSE, payload))

    def _end(self) -> None:
        self._stand(_CLOSED)
        self._assembly.clear()
