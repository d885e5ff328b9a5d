"""`PageServer`: a page on which a display is watched and played in a browser, at one port.

The page's script is `rlwire/web/universe.js`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import secrets
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from PIL import Image

from rlwire._options import StreamServerOptions
from rlwire.codecs.rfb.messages import encode
from rlwire.codecs.websocket.handshake import (
    HeaderLines,
    UpgradeRequest,
    basic_credentials,
    same_secret,
)
from rlwire.errors import DecodeError, quoted
from rlwire.serving.serving import StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.layer import Layer
from rlwire.sessions.passwords import PasswordCheck
from rlwire.sessions.rfb.client import around
from rlwire.sessions.rfb.server import NumberedFrame, differing
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.sockets import Timeouts
from rlwire.universe.input import key, pointer
from rlwire.universe.rfb.server import Display, Viewer, ViewerService
from rlwire.web import folder

logger = logging.getLogger(__name__)

PORT: Final = 6080
"""The port that such pages usually have."""

PageAddress: TypeAlias = AddressLike | int | bool
"""Where the page is: a port of the remote's host, True for `PORT`, or an address."""

_TIMEOUTS: Final = Timeouts(idle=None)  # pages are pinged
_FILES: Final = {
    "/": ("universe.html", "text/html; charset=utf-8"),
    "/universe.js": ("universe.js", "text/javascript; charset=utf-8"),
    "/look.css": ("look.css", "text/css; charset=utf-8"),
}
_EXACT: Final = 1 << 18  # pixels of a screen that is sent as PNG; JPEG for larger ones
_SAFE: Final = (
    ("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; "
     "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-cache"),
)  # fmt: skip


class PageServer(StreamServer):
    """Serves the page, and shows a display on it.

    Pictures of what has changed are sent over a WebSocket, each when the page has shown the last;
    keys and the pointer come back. A browser asks for the password, which counts in either field.
    `about` returns what the page tells of the environment, such as ``score``; call `update` when
    that changes without the display. A port as `address` is on `host`.
    """

    scheme = "universe"

    def __init__(
        self,
        display: Display,
        address: PageAddress = True,
        *,
        host: str = "localhost",
        auth: str | None = None,
        about: Callable[[], Mapping[str, Any]] = dict,
        origins: Collection[str] = (),
        **options: Any,
    ) -> None:
        if isinstance(address, int):
            address = Address(host, PORT if address is True else address)
        self._pages = _PageService(display, self, auth, about, origins)
        self.counts = self._pages.counts
        super().__init__(
            self._pages, StreamServerOptions(parse(address), **{"timeout": _TIMEOUTS, **options})
        )
        self._guarded = self._guarded or auth is not None

    def update(self) -> None:
        """Send what has changed to all pages; from any thread."""
        self._pages.wake()

    @property
    def url(self) -> str:
        return self.origin + "/"

    @property
    def origin(self) -> str:
        """The page's origin, as browsers send it."""
        host = self._where.host or "localhost"
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self._encrypted else 'http'}://{host}:{self.address.port}"

    def _details(self) -> str:
        return "a page for browsers"


@dataclass(eq=False)
class _PageService(ViewerService):
    _server: PageServer  # knows its address once it listens
    _secret: str | None
    about: Callable[[], Mapping[str, Any]]
    _origins: Collection[str]
    _ticket: str = field(default_factory=secrets.token_urlsafe)

    def session(self) -> Layer:
        return websocket.WebSocketServerSession(
            origins=self._allowed_origins(),
            pages=self._page,
            check=self._check,
            password_check=None if self._secret is None else PasswordCheck(),
            ping_interval=20.0,
        )

    def _check(self, request: UpgradeRequest) -> websocket.HttpRefusal | None:
        allowed = self._is_allowed(request.headers)
        return None if allowed else websocket.HttpRefusal(401, "no password")

    def _allowed_origins(self) -> list[str]:
        """Return the page's origins; never by the Host header, since any name may lead here."""
        own, where = [self._server.origin], self._server.address
        if where.loopback:
            scheme = own[0].partition(":")[0]
            own += [f"{scheme}://{name}:{where.port}" for name in ("localhost", "127.0.0.1")]
        return [*own, *self._origins]

    @property
    def _cookie(self) -> str:
        """What a browser with the password sends: Safari sends WebSockets no credentials."""
        return f"rlwire{self._server.address.port}={self._ticket}"

    def _is_allowed(self, headers: HeaderLines) -> bool:
        secret = self._secret
        if secret is None:
            return True
        given = [(word, secret) for word in basic_credentials(headers.get("Authorization")) or ()]
        given += [(word, self._cookie) for word in "; ".join(headers.all("Cookie")).split("; ")]
        return any([same_secret(word, right) for word, right in given])

    def _page(self, path: str, headers: HeaderLines) -> websocket.Page | None:
        if path == websocket.HEALTH:
            return websocket.health(path, headers)
        if path == "/pixels":
            return None
        if not self._is_allowed(headers):
            challenge = ("WWW-Authenticate", 'Basic realm="rlwire", charset="UTF-8"')
            return websocket.Page(b"a password is needed\n", status=401, headers=(challenge,))
        if path not in _FILES:
            return websocket.Page(b"there is no such page\n", status=404)
        more = []
        if self._secret is not None:
            flags = "; HttpOnly; SameSite=Strict" + "; Secure" * self._server.origin.startswith(
                "https"
            )
            more.append(("Set-Cookie", self._cookie + flags))
        name, kind = _FILES[path]
        return websocket.Page((folder() / name).read_bytes(), kind, headers=(*_SAFE, *more))

    def viewer(self, connection: AsyncConnection) -> Viewer:
        page = _Page(connection, self)
        page.update()
        return page

    def receive(self, viewer: Any, message: Any) -> None:
        try:
            match json.loads(message):
                case "shown":
                    viewer.shown()
                case [str(name), bool(down)]:
                    with contextlib.suppress(ValueError):  # a key that X11 lacks
                        super().receive(viewer, key(name, down))
                case [int(x), int(y), int(buttons)]:
                    event = pointer(x, y, buttons)
                    encode(event)  # checks the numbers
                    super().receive(viewer, event)
                case _:
                    raise ValueError
        except (ValueError, TypeError, RecursionError):
            raise DecodeError(
                f'expected "shown", [key, down] or [x, y, buttons], got {quoted(message)}'
            ) from None


class _Page(Viewer):
    def __init__(self, connection: AsyncConnection, service: _PageService) -> None:
        super().__init__(connection)
        self._service = service
        self.showing = False  # whether the page has not shown the last picture yet
        self._about: Mapping[str, Any] | None = None  # what was sent
        self._last: NumberedFrame | None = None

    def shown(self) -> None:
        self.showing = False
        self.update()

    def update(self) -> None:
        """Send the environment's facts when they change, and the display's changes."""
        if self.showing or self.connection.closed:
            return
        if self.connection.blocked:
            self.showing = True  # until the next try
            asyncio.get_running_loop().call_later(0.1, self.shown)
            return
        try:
            about = self._service.about()
            if about != self._about:
                self._about = about
                self.connection.post(json.dumps(about, default=str))
            before, self._last = self._last, self._service.display.newest()
            frame = self._last.frame
            if areas := differing(before, self._last):
                x, y, width, height = around(*areas)
                size, picture = (frame.shape[1], frame.shape[0]), io.BytesIO()
                kind = "PNG" if size[0] * size[1] <= _EXACT else "JPEG"
                part = frame[y : y + height, x : x + width]
                Image.fromarray(part).save(picture, kind, compress_level=1)
                self.showing = True
                message = struct.pack(">4H", *size, x, y) + picture.getvalue()
                self._service.counts.update(updates=1, bytes=len(message))
                self.connection.post(message)
        except Exception as error:
            logger.info("%s: the pictures end: %s", self.peer, error)
            self.connection.close()
