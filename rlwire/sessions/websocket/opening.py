"""WebSocket handshakes: origins, permissions, pages. Source: RFC 6455, section 4."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlwire.codecs.websocket import handshake
from rlwire.codecs.websocket.handshake import HeaderLines, UpgradeRequest, basic_credentials
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
from rlwire.sessions.layer import Buffer, Layer
from rlwire.sessions.passwords import PasswordCheck
from rlwire.sessions.websocket.session import WebSocketSession

__all__ = [
    "HEALTH",
    "Check",
    "HttpRefusal",
    "Page",
    "PageServed",
    "Pages",
    "Refused",
    "WebSocketClientSession",
    "WebSocketServerSession",
    "basic_authorization",
    "health",
]

HEALTH = "/healthz"
"""The path of `health`."""


class Refused(PeerError):
    """The server rejected the handshake, with an HTTP `status` and its `reason`."""

    def __init__(self, status: int, reason: str = "") -> None:
        text = f"the server rejected the WebSocket: {status} {reason}".rstrip()
        super().__init__(text + ": it speaks HTTP/2, as gRPC does" * (status == 505))
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class HttpRefusal:
    """The response to a rejected request; `status` is from 400 to 599."""

    status: int
    text: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not 400 <= self.status < 600:
            raise ValueError(f"status must be from 400 to 599, not {self.status}")


Check: TypeAlias = Callable[[UpgradeRequest], "HttpRefusal | None"]
"""Called with each valid request; None accepts it."""


@dataclass(frozen=True)
class Page:
    """The response to a request for a page: `kind` is its media type."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Pages: TypeAlias = Callable[[str, HeaderLines], "Page | None"]
"""Called with path and headers of each GET; returning None continues the WebSocket handshake."""


def health(path: str, headers: HeaderLines) -> Page | None:
    """Answer health checks at ``/healthz``."""
    return Page(b"OK\n") if path == HEALTH else None


class PageServed(ConnectionClosed):
    """The client requested a page, such as a health check; the response is sent."""


def basic_authorization(check: Callable[[str, str], bool], realm: str = "rlwire") -> Check:
    """Return a `Check` that requires Basic credentials."""

    def authorize(request: UpgradeRequest) -> HttpRefusal | None:
        given = basic_credentials(request.headers.get("Authorization"))
        if given is not None and check(*given):
            return None
        challenge = f'Basic realm="{realm}", charset="UTF-8"'
        why = "credentials are needed" if given is None else "the credentials are wrong"
        return HttpRefusal(401, why, (("WWW-Authenticate", challenge),))

    return authorize


class WebSocketClientSession(WebSocketSession):
    """A WebSocket client.

    Args:
        url: ``ws://host:port/path``; ``wss`` over TLS. A user name and a password in it become
            Basic credentials.
        headers: further header lines of the request, such as ``("Authorization", ...)``.
        origin: the Origin header, which browsers send.
        options: see `WebSocketSession`.

    Attributes:
        target: the parts of the URL.
        response: the server's response; None before it is received.
    """

    _begins = b"HTTP/1."

    def __init__(
        self,
        url: str,
        *,
        headers: Iterable[tuple[str, str]] = (),
        origin: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(True, **options)
        self.target = handshake.parse_url(url)
        self.response: handshake.Response | None = None
        self._key = handshake.new_key()
        request = handshake.write_request(self.target, self._key, origin=origin, headers=headers)
        self._outgoing = [request]

    def _handshake(self, head: Buffer) -> None:
        self.response = response = handshake.read_response(head)
        if response.status != 101:
            raise Refused(response.status, response.reason)
        headers = response.headers
        if headers.get("Sec-WebSocket-Accept") != handshake.accept_of(self._key):
            raise RemoteProtocolError("the server's Sec-WebSocket-Accept does not match the key")
        if "Sec-WebSocket-Extensions" in headers:
            raise RemoteProtocolError("the server uses an extension, but none was offered")
        if "Sec-WebSocket-Protocol" in headers:
            raise RemoteProtocolError("the server uses a subprotocol, but none was offered")


class WebSocketServerSession(WebSocketSession):
    """A WebSocket server.

    Args:
        origins: the origins whose web pages may connect, such as ``"https://example.org"``, or
            ``"*"`` for all. By default none: any page could reach a server on its reader's machine.
            Other programs than browsers send no Origin and are accepted.
        check: called with each valid request, for permissions; see `basic_authorization`.
        accept: called with each accepted request; makes the layer inside, see `accepted`.
        headers: further header lines of the response.
        pages: called first with each GET; a page ends the connection with `PageServed`.
        password_check: delays requests with an Authorization header; None for no delay. The
            password counts as right unless the response is 401 or `accepted` is not ``admitted``.
        options: see `WebSocketSession`.

    Attributes:
        accepted: the layer of ``accept``; before, and without one, a bare `Layer`.
        request: the client's request; None before it is received.
    """

    _begins = b"GET "
    closes_first = True  # section 7.1.1

    def __init__(
        self,
        *,
        origins: Collection[str] = (),
        check: Check | None = None,
        accept: Callable[[UpgradeRequest], Layer] | None = None,
        headers: Iterable[tuple[str, str]] = (),
        pages: Pages | None = None,
        password_check: PasswordCheck | None = None,
        **options: Any,
    ) -> None:
        super().__init__(False, **options)
        self.password_check = password_check
        self._accept = accept
        self.accepted = Layer()
        self._origins = (origins,) if isinstance(origins, str) else origins
        self._check = check
        self._headers = tuple(headers)
        self._pages = pages
        self._refusal: HttpRefusal | None = None
        self.request: UpgradeRequest | None = None

    def _must_wait(self, head: Buffer) -> bool:
        if self.password_check is None or b"\nauthorization:" not in bytes(head).lower():
            return False
        return self.password_check.must_wait()

    def _handshake(self, head: Buffer) -> None:
        asked = handshake.read_get(head) if self._pages else None
        page = self._pages(*asked) if asked and self._pages else None
        if asked and page is not None:
            self._count_password(page.status != 401)
            self._outgoing = [
                handshake.write_response(
                    page.status, page=page.body, kind=page.kind, headers=page.headers
                )
            ]
            self._end()
            raise PageServed(f"the client requested the page {quoted(asked[0])}, no WebSocket")
        self.request = request = handshake.read_request(head)
        origin = request.origin
        if origin is not None and "*" not in self._origins and origin not in self._origins:
            self._refusal = HttpRefusal(403, "this page may not connect")
            raise RemoteProtocolError(f"the WebSocket was rejected: origin {quoted(origin)}")
        refusal = self._refusal = None if self._check is None else self._check(request)
        if refusal is not None:
            why = f"{refusal.status} {refusal.text}"
            raise RemoteProtocolError(f"the WebSocket was rejected: {why}")
        if self._accept is not None:
            self.accepted = self._accept(request)
        self._count_password(self.accepted.admitted)
        self._outgoing = [handshake.write_response(101, key=request.key, headers=self._headers)]

    def _count_password(self, right: bool) -> None:
        if self.password_check is not None and right:
            self.password_check.succeeded()

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
