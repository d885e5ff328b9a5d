"""The handshakes of both sides of a WebSocket: Origin, subprotocol, permission, who may open one.

Source: RFC 6455, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from rlwire.codecs.websocket import handshake
from rlwire.codecs.websocket.handshake import (
    HeaderLines,
    Response,
    UpgradeRequest,
    basic_credentials,
)
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LimitExceeded,
    PeerError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
    quoted,
)
from rlwire.sessions.guesses import Guess
from rlwire.sessions.websocket.session import (
    Buffer,
    WebSocketOptions,
    WebSocketSession,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

HEALTH = "/healthz"
"""Where `health` answers a GET, with a WebSocket's headers or without."""


class Refused(PeerError):
    """The server answered the handshake with something else than 101.

    Attributes:
        status: HTTP's status, such as 401 or 403.
        reason: the words behind it, the server's own or those of HTTP.
    """

    def __init__(self, status: int, reason: str = "") -> None:
        super().__init__(f"the server refused the WebSocket: {status} {reason}".rstrip())
        self.status = status
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.reason)


@dataclass(frozen=True)
class HttpRefusal:
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


Check: TypeAlias = Callable[[UpgradeRequest], "HttpRefusal | None"]
"""Looks at a request that is otherwise in order; None accepts it."""


@dataclass(frozen=True)
class Page:
    """What a request is answered with that is for no WebSocket.

    Attributes:
        body: as it goes over the wire.
        kind: its media type.
        status: HTTP's.
        headers: further header lines.
    """

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Pages: TypeAlias = Callable[[str, HeaderLines], "Page | None"]
"""Looks at a GET's path and headers; None for what is a WebSocket's affair."""


def health(path: str, headers: HeaderLines) -> Page | None:
    """Answer whoever starts and watches servers: `Pages` that have nothing but ``/healthz``."""
    return Page(b"OK\n") if path == HEALTH else None


class PageServed(ConnectionClosed):
    """Who connected asked for a page only, such as a health check, and has been given it."""


def basic_authorization(check: Callable[[str, str], bool], realm: str = "rlwire") -> Check:
    """Return a `Check` that demands Basic credentials."""

    def authorize(request: UpgradeRequest) -> HttpRefusal | None:
        given = basic_credentials(request.headers.get("Authorization"))
        if given is not None and check(*given):
            return None
        challenge = f'Basic realm="{realm}", charset="UTF-8"'
        why = "credentials are needed" if given is None else "the credentials are wrong"
        return HttpRefusal(401, why, (("WWW-Authenticate", challenge),))

    return authorize


class WebSocketClientSession(WebSocketSession):
    """The side that asks for the connection.

    Args:
        inner: what the messages mean.
        url: ``ws://host:port/path``; ``wss`` if the transport speaks TLS. A user name and a
            password in it become Basic credentials.
        protocols: the subprotocols to offer, best first.
        headers: further header lines of the request, such as ``("Authorization", ...)``.
        origin: the Origin header; programs other than browsers send none.
        options: see `Options`.

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
        **options: Unpack[WebSocketOptions],
    ) -> None:
        super().__init__(True, **options)
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


class WebSocketServerSession(WebSocketSession):
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
        pages: what is answered to a GET of a page instead, before anything else is looked at;
            the connection then ends with `PageServed`.
        guess: when a request with an Authorization header is looked at; None for at once. It was
            right if the answer is neither a status of 401 nor an inner session that is not
            ``admitted``.
        options: see `Options`.

    Attributes:
        inner: the inner session; None until there is one.
        protocol: the subprotocol chosen, None for none.
        request: what the client asked for, once that is known.
    """

    __slots__ = (
        "_check",
        "_headers",
        "_make_inner",
        "_origins",
        "_pages",
        "_refusal",
        "_spoken",
        "guess",
        "request",
    )

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
        pages: Pages | None = None,
        guess: Guess | None = None,
        **options: Unpack[WebSocketOptions],
    ) -> None:
        super().__init__(False, **options)
        self.guess = guess
        self._make_inner = inner if callable(inner) else lambda request: inner
        self._origins = (origins,) if isinstance(origins, str) else origins
        self._spoken = tuple(protocols)
        self._check = check
        self._headers = tuple(headers)
        self._pages = pages
        self._refusal: HttpRefusal | None = None
        self.request: UpgradeRequest | None = None

    def _waits(self, head: Buffer) -> bool:
        guess = self.guess
        return guess is not None and b"\nauthorization:" in bytes(head).lower() and guess.waits()

    def _shake(self, head: Buffer) -> None:
        asked = None if self._pages is None else handshake.read_get(head)
        if asked is not None and self._pages is not None:
            page = self._pages(*asked)
            if page is not None:
                self._tried(page.status != 401)
                self._outgoing = [
                    handshake.write_response(
                        page.status, page=page.body, kind=page.kind, headers=page.headers
                    )
                ]
                self._end()
                raise PageServed(f"it asked for {quoted(asked[0])} only")
        self.request = request = handshake.read_request(head)
        origin = request.origin
        if origin is not None and "*" not in self._origins and origin not in self._origins:
            self._turn_down(
                HttpRefusal(403, "this page may not connect"), f"its origin is {quoted(origin)}"
            )
        refusal = None if self._check is None else self._check(request)
        if refusal is not None:
            self._turn_down(refusal, f"{refusal.status} {refusal.text}")
        self.protocol = next((name for name in self._spoken if name in request.protocols), None)
        self.inner = self._make_inner(request)
        self._tried(getattr(self.inner, "admitted", True))
        self._outgoing = [
            handshake.write_response(
                101, key=request.key, protocol=self.protocol, headers=self._headers
            )
        ]

    def _tried(self, right: bool) -> None:
        if self.guess is not None and right:
            self.guess.right()

    def _turn_down(self, refusal: HttpRefusal, why: str) -> NoReturn:
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
            refusal = HttpRefusal(status, for_peer(error, "the server"))
        self._outgoing = [
            handshake.write_response(refusal.status, headers=refusal.headers, text=refusal.text)
        ]
