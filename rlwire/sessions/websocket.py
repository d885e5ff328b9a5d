"""WebSocket: a `Client` and a `Server` around any session of whole messages.

The inner session says what messages mean: it has the methods of
`rlwire.transports.interface.Session`, and may have `outgoing` and `tick` (`TalkingSession` there).
Without one (`Messages`), events are the messages themselves: a str is a text, bytes are binary.

Here is who may say what when: the handshake with its Origin, subprotocol and permission; fragments;
ping and pong; closing; the close code that each fault gets. The bytes are in
`rlwire.codecs.websocket` and `rlwire.codecs.websocket_handshake`. Extensions, compression among
them, are not spoken: a client offers none, a server accepts none.

Source: RFC 6455.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias

from rlwire.codecs import websocket as frames
from rlwire.codecs import websocket_handshake as handshake
from rlwire.codecs.websocket_handshake import Request, Response
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.limits import DEFAULT, Limits

__all__ = [
    "FRAGMENTS",
    "Client",
    "Closed",
    "Messages",
    "Refusal",
    "Refused",
    "Server",
    "State",
    "basic_authorization",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = list[Buffer]
Kind: TypeAlias = Literal["any", "binary", "text"]

FRAGMENTS = 131_072
"""Fragments that one message may come in; empty ones would otherwise be endless."""


class State(enum.Enum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSING = "closing"  # our close frame is out, the peer's is awaited
    CLOSED = "closed"


_CONNECTING, _OPEN, _CLOSING, _CLOSED = State

# Section 7.4.1.
_NORMAL, _GOING_AWAY, _BAD_FRAME, _BAD_KIND = 1000, 1001, 1002, 1003
_BAD_TEXT, _NOT_ALLOWED, _TOO_LONG, _INTERNAL = 1007, 1008, 1009, 1011


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


class Refused(PeerError):
    """The server answered the handshake with something else than 101.

    Attributes:
        status: HTTP's status, such as 401 or 403.
        reason: the words behind it.
    """

    def __init__(self, status: int, reason: str = "") -> None:
        super().__init__(f"the server refused the WebSocket: {status} {reason}".rstrip())
        self.status = status
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.reason)


@dataclass(frozen=True)
class Refusal:
    """How a server answers a request that it does not accept.

    Attributes:
        status: HTTP's status, from 400 on.
        text: words for the peer.
        headers: further header lines.
    """

    status: int
    text: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not 400 <= self.status < 600:
            raise ValueError(f"a refusal has a status from 400 to 599, not {self.status}")


Check: TypeAlias = Callable[[Request], "Refusal | None"]
"""Looks at a request that is otherwise in order; None accepts it."""


def basic_authorization(check: Callable[[str, str], bool], realm: str = "rlwire") -> Check:
    """Return a `Check` that demands Basic credentials.

    Args:
        check: called with user name and password; compares with
            `rlwire.codecs.websocket_handshake.same_secret`.
        realm: what a browser shows when it asks for them.
    """

    def authorize(request: Request) -> Refusal | None:
        given = handshake.basic_credentials(request.headers.get("Authorization"))
        if given is not None and check(*given):
            return None
        challenge = f'Basic realm="{realm}", charset="UTF-8"'
        return Refusal(401, "credentials needed", (("WWW-Authenticate", challenge),))

    return authorize


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


def _nothing(buffer: Buffer, size: int) -> None:
    return None


class _Session:
    """What both sides share."""

    __slots__ = (
        "__weakref__",
        "_assembled",
        "_assembly",
        "_begun_at",
        "_client",
        "_code",
        "_fragments",
        "_frame",
        "_frame_size",
        "_header",
        "_heard",
        "_heard_at",
        "_inner_outgoing",
        "_inner_receive",
        "_inner_send",
        "_inner_tick",
        "_kind",
        "_leave",
        "_message",
        "_opcode",
        "_outgoing",
        "_over",
        "_ping_interval",
        "_ping_timeout",
        "_pinged_at",
        "_pong",
        "_read_whole",
        "_received",
        "_state",
        "_take",
        "_text",
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
        framer = frames.Framer(client, kind, limits)
        self._client = client
        self._kind = kind
        self._header = limits.header
        self._received = min(limits.received, limits.message)
        self._take = framer.take
        self._frame = framer.frame
        self._frame_size = framer.frame_size
        self._message = framer.message
        self._whole = framer.whole
        # Stays `_nothing` while a frame needs a second look: before and after the open state,
        # and between the fragments of a message.
        self._read_whole: Callable[[Buffer, int], Any] = _nothing
        self._state = _CONNECTING
        self._outgoing: Buffers = []
        self._pong: bytes | None = None
        self._code = _NORMAL  # of our close frame
        self._leave = ""  # and its reason
        self._over = False  # the inner session is closed, and all that it said is in `outgoing`
        # The message that arrives in fragments.
        self._opcode = 0
        self._assembled = bytearray()
        self._fragments = 0
        self._text = frames.Text()
        # What is timed.
        self._assembly = message_timeout
        self._begun_at: float | None = None
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._heard = False
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
        return message(event if inner_send is None else inner_send(event))

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Take the one message that fills `buffer[:size]`; None if that is not what is there.

        Raises:
            What the inner session raises.
        """
        read_whole = self._read_whole
        message = read_whole(buffer, size)
        if message is None:
            return None
        self._heard = True
        inner_receive = self._inner_receive
        if inner_receive is None:
            return [message]
        try:
            events: list[Any] = inner_receive(message)
        except RlwireError as error:
            self._inner_failed(error)
            raise
        return events

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
                return handshake.head_size(buffer, start, end, self._header, self._begins)
            room = self._received - len(self._assembled) if self._opcode else None
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
        self._heard = True
        try:
            opcode, final, payload = self._take(message)
            if opcode >= frames.CLOSE:
                self._control(opcode, payload)
                return []
            if self._state is _CLOSING:
                return []  # section 5.5.1 does not ask us to look at it
            whole = self._join(opcode, final, payload)
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
        if self._heard or self._heard_at is None:
            self._heard = False
            self._heard_at, self._pinged_at = now, None
        if self._state is not _OPEN:
            return
        if self._opcode and self._assembly is not None:
            if self._begun_at is None:
                self._begun_at = now
            elif now - self._begun_at >= self._assembly:
                self._late(f"{self._fragments} fragments made no message within {self._assembly} s")
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
            if self._begun_at is not None and self._assembly is not None:
                due.append(self._begun_at + self._assembly)
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
        self._close(_code_of(error), str(error))
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
            self._state = _CLOSED
        if self._state is not _OPEN:
            return self.outgoing()
        if self._code == _NORMAL and not self._leave:
            if self.inner.closed:
                self._leave = getattr(self.inner, "closing", None) or ""
            elif ending:
                self._code = _GOING_AWAY
        self._close(self._code, self._leave)
        self._state = _CLOSING
        return self.outgoing()

    def lost(self) -> str:
        """Say that the stream has ended; returns what is wrong with that, empty if nothing is."""
        before, self._state = self._state, _CLOSED
        self._read_whole = _nothing
        if before is _CONNECTING:
            return "in the handshake"
        return "" if before is _CLOSED else "without a close frame (1006)"

    def _shake(self, head: Buffer) -> None:
        raise NotImplementedError

    def _open(self) -> None:
        inner = self.inner
        self._state = _OPEN
        # None for `Messages`: two calls less for each message.
        bare = type(inner) is Messages
        self._inner_send = None if bare else inner.send
        self._inner_receive = None if bare else inner.receive
        self._inner_tick = getattr(inner, "tick", None)
        self._inner_outgoing = getattr(inner, "outgoing", None)
        if self._inner_outgoing is not None:
            self._inner_receive = self._receive_and_listen
        self._read_whole = self._whole
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

    def _join(self, opcode: int, final: bool, payload: Buffer) -> Any:
        """Return the message that this frame ends, None if more fragments follow (section 5.4)."""
        if opcode == frames.CONTINUATION:
            if not self._opcode:
                raise RemoteProtocolError("a continuation without a message before it")
        elif self._opcode:
            raise RemoteProtocolError("a new message inside another's fragments")
        else:
            self._check_kind(opcode)
        first = self._opcode or opcode
        if first == frames.TEXT:
            self._text.feed(payload)
            if final:
                self._text.end()
        if opcode != frames.CONTINUATION and final:
            whole = payload
        else:
            self._fragments += 1
            if self._fragments > FRAGMENTS:
                raise LimitExceeded("fragments", FRAGMENTS, self._fragments)
            self._opcode = first
            self._assembled += payload
            self._read_whole = _nothing
            if not final:
                return None
            whole = self._assembled
            self._assembled = bytearray()
            self._opcode = self._fragments = 0
            self._begun_at = None
            self._read_whole = self._whole
        return str(whole, "utf-8") if first == frames.TEXT and self._kind == "any" else whole

    def _check_kind(self, opcode: int) -> None:
        name = "text" if opcode == frames.TEXT else "binary"
        if self._kind not in ("any", name):
            raise _WrongKind(f"a {name} message where all are {self._kind}")

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
        self._code, self._leave = _code_of(error), str(error)
        if self._client:
            self._close(self._code, self._leave)

    def _fail(self, error: RlwireError) -> None:
        """After the peer broke a rule of WebSocket: say so, and be closed."""
        if self._state is _CONNECTING:
            self._state = _CLOSED
            self._fail_handshake(error)
        elif self._state is _OPEN:
            code = _BAD_FRAME
            if isinstance(error, LimitExceeded):
                code = _TOO_LONG
            elif isinstance(error, _WrongKind):
                code = _BAD_KIND
            elif isinstance(error, frames.NotText):
                code = _BAD_TEXT
            self._close(code, str(error))
        else:
            self._end()

    def _fail_handshake(self, error: RlwireError) -> None:
        """Put what the peer is told into `outgoing`."""

    def _late(self, text: str) -> NoReturn:
        self._close(_INTERNAL, text)
        raise DeadlineExceeded(text)

    def _close(self, code: int, reason: str) -> None:
        self._say_close(frames.encode_close(code, reason))
        self._end()

    def _say_close(self, payload: Buffer) -> None:
        self._outgoing.append(self._frame(frames.CLOSE, payload))

    def _end(self) -> None:
        self._state = _CLOSED
        self._read_whole = _nothing
        self._assembled = bytearray()
        self._opcode = self._fragments = 0


class _WrongKind(RemoteProtocolError):
    """A text where messages are binary, or the other way round."""


def _code_of(error: RlwireError) -> int:
    """The close code for what the inner session, or the transport, finds wrong."""
    if isinstance(error, _WrongKind):
        return _BAD_KIND
    if isinstance(error, LimitExceeded):
        return _TOO_LONG
    if isinstance(error, DecodeError):
        return _BAD_TEXT
    if isinstance(error, (DeadlineExceeded, RemoteProtocolError)):
        return _NOT_ALLOWED
    return _INTERNAL


class Client(_Session):
    """The side that asks for the connection.

    Args:
        inner: what the messages mean.
        url: ``ws://host:port/path``; ``wss`` if the transport speaks TLS. A user name and a
            password in it become Basic credentials.
        protocols: the subprotocols to offer, best first.
        headers: further header lines of the request, such as ``("Authorization", ...)``.
        origin: the Origin header; programs other than browsers send none.
        kind: what messages are. ``"text"`` and ``"binary"`` refuse the other with code 1003 and
            give the inner session bytes, texts checked; with ``"any"`` a text is a str.
        limits: `header`, `received` (a message, all its fragments together) and `message` count.
        ping_interval: seconds of silence from the peer after which it is pinged; None for never.
            Only a peer whose program is in a call that receives can answer.
        ping_timeout: seconds within which anything must come after a ping; None for no limit.
        message_timeout: seconds that a message in fragments may take; None for no limit.

    Attributes:
        inner: the inner session.
        leaving: whether it is closed, with code 1000 and its ``closing``, if it has that, as the
            reason; a transport then closes the connection.
        target: where the URL leads.
        protocol: the subprotocol that the server chose, None for none.
        response: the server's answer, once there is one.
    """

    __slots__ = ("_key", "_offered", "response", "target")

    _begins = b"HTTP/1."
    hangs_up = False

    def __init__(
        self,
        inner: Any,
        url: str,
        *,
        protocols: Sequence[str] = (),
        headers: Iterable[tuple[str, str]] = (),
        origin: str | None = None,
        kind: Kind = "any",
        limits: Limits | None = None,
        ping_interval: float | None = None,
        ping_timeout: float | None = 20.0,
        message_timeout: float | None = 60.0,
    ) -> None:
        super().__init__(
            client=True,
            kind=kind,
            limits=limits,
            ping_interval=ping_interval,
            ping_timeout=ping_timeout,
            message_timeout=message_timeout,
        )
        self.inner = inner
        self.target = handshake.parse_url(url)
        self.response: Response | None = None
        self._offered = tuple(protocols)
        self._key = handshake.new_key()
        self._outgoing = [
            handshake.write_request(
                self.target, self._key, protocols=self._offered, origin=origin, headers=headers
            )
        ]

    def _shake(self, head: Buffer) -> None:
        self.response = response = handshake.read_response(head)
        if response.status != 101:
            raise Refused(response.status, response.reason)
        headers = response.headers
        if headers.get("Sec-WebSocket-Accept") != handshake.accept_of(self._key):
            raise RemoteProtocolError("the server's Sec-WebSocket-Accept does not answer our key")
        if "Sec-WebSocket-Extensions" in headers:
            raise RemoteProtocolError("the server uses an extension, none was offered")
        self.protocol = headers.get("Sec-WebSocket-Protocol")
        if self.protocol is not None and self.protocol not in self._offered:
            raise RemoteProtocolError("the server chose a subprotocol that was not offered")


class Server(_Session):
    """The side that is asked.

    Args:
        inner: what the messages mean: a session, or a function that makes one for a `Request`.
        origins: the pages whose scripts may connect, such as ``"https://example.org"``, or
            ``"*"`` for all. By default none may, since any page could reach a server on its
            reader's own machine. Programs that are no browsers send no Origin and are let in.
        protocols: the subprotocols that are spoken here, best first.
        check: called with each request that is otherwise in order, for permissions;
            see `basic_authorization`.
        headers: further header lines of the answer.
        kind: as for `Client`.
        limits: as for `Client`.
        ping_interval: as for `Client`.
        ping_timeout: as for `Client`.
        message_timeout: as for `Client`.

    Attributes:
        inner: the inner session; None until there is one.
        protocol: the subprotocol chosen, None for none.
        request: what the client asked for, once that is known.
    """

    __slots__ = ("_check", "_headers", "_make_inner", "_origins", "_refusal", "_spoken", "request")

    _begins = b"GET "
    hangs_up = True

    def __init__(
        self,
        inner: Any,
        *,
        origins: Collection[str] = (),
        protocols: Sequence[str] = (),
        check: Check | None = None,
        headers: Iterable[tuple[str, str]] = (),
        kind: Kind = "any",
        limits: Limits | None = None,
        ping_interval: float | None = None,
        ping_timeout: float | None = 20.0,
        message_timeout: float | None = 60.0,
    ) -> None:
        super().__init__(
            client=False,
            kind=kind,
            limits=limits,
            ping_interval=ping_interval,
            ping_timeout=ping_timeout,
            message_timeout=message_timeout,
        )
        self._make_inner = inner if callable(inner) else lambda request: inner
        self._origins = (origins,) if isinstance(origins, str) else origins
        self._spoken = tuple(protocols)
        self._check = check
        self._headers = tuple(headers)
        self._refusal: Refusal | None = None
        self.request: Request | None = None

    def _shake(self, head: Buffer) -> None:
        self.request = request = handshake.read_request(head)
        origin = request.origin
        if origin is not None and "*" not in self._origins and origin not in self._origins:
            self._turn_down(Refusal(403, "this page may not connect"), f"its origin is {origin!r}")
        refusal = None if self._check is None else self._check(request)
        if refusal is not None:
            self._turn_down(refusal, f"{refusal.status} {refusal.text}")
        self.protocol = next((name for name in self._spoken if name in request.protocols), None)
        self.inner = self._make_inner(request)
        self._outgoing = [
            handshake.write_response(
                101, key=request.key, protocol=self.protocol, headers=self._headers
            )
        ]

    def _turn_down(self, refusal: Refusal, why: str) -> NoReturn:
        self._refusal = refusal
        raise RemoteProtocolError(f"the WebSocket was refused: {why}")

    def _fail_handshake(self, error: RlwireError) -> None:
        refusal = self._refusal
        if refusal is None:
            status = 400
            if isinstance(error, handshake.WrongVersion):
                status = 426
            elif isinstance(error, DeadlineExceeded):
                status = 408
            elif isinstance(error, LimitExceeded):
                status = 431 if error.limit.startswith("header") else 503
            refusal = Refusal(status, str(error))
        self._outgoing = [
            handshake.write_response(refusal.status, headers=refusal.headers, text=refusal.text)
        ]
