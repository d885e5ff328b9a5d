"""WebSocket: a `Client` and a `Server` around any session of whole messages.

The inner session says what messages mean: it has the methods of
`rlwire.transports.interface.Session`, and may have `outgoing` and `tick` (`TalkingSession` there).
Without one (`Messages`), events are the messages themselves: a str is a text, bytes are binary.

Who may say what when: here is the handshake with its Origin, subprotocol and permission
(`rlwire.sessions.websocket_permission`); the rest is in `rlwire.sessions.websocket_session`. The
bytes are in `rlwire.codecs.websocket` and `rlwire.codecs.websocket_handshake`. Extensions,
compression among them, are not spoken: a client offers none, a server accepts none.

Source: RFC 6455.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from rlwire.codecs import websocket_handshake as handshake
from rlwire.codecs.websocket_handshake import Request, Response
from rlwire.errors import (
    DeadlineExceeded,
    LimitExceeded,
    RemoteProtocolError,
    RlwireError,
    for_peer,
    quoted,
)
from rlwire.limits import Limits
from rlwire.sessions.websocket_assembly import FRAGMENTS, Kind
from rlwire.sessions.websocket_closing import Closed
from rlwire.sessions.websocket_permission import Check, Refusal, Refused, basic_authorization
from rlwire.sessions.websocket_session import Messages, Session, State

__all__ = [
    "FRAGMENTS",
    "Check",
    "Client",
    "Closed",
    "Kind",
    "Messages",
    "Refusal",
    "Refused",
    "Server",
    "State",
    "basic_authorization",
]

Buffer: TypeAlias = bytes | bytearray | memoryview


class Client(Session):
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
        leaving: whether it is closed, with its ``closing_code`` or 1000 and its ``closing``, if it
            has that, as the reason; a transport then closes the connection.
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


class Server(Session):
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
            self._turn_down(
                Refusal(403, "this page may not connect"), f"its origin is {quoted(origin)}"
            )
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
            refusal = Refusal(status, for_peer(error, "the server"))
        self._outgoing = [
            handshake.write_response(refusal.status, headers=refusal.headers, text=refusal.text)
        ]
