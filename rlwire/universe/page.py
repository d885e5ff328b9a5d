"""`PageServer`: a page on which a remote is watched and played in a browser, at one port.

The page's script is `rlwire/web/universe.js`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import secrets
import ssl
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

from PIL import Image

from rlwire._options import StreamServerOptions
from rlwire.codecs.websocket.handshake import (
    HeaderLines,
    UpgradeRequest,
    basic_credentials,
    same_secret,
)
from rlwire.errors import ConnectionClosed, DeadlineExceeded, DecodeError, RlwireError, quoted
from rlwire.serving.serving import Service, StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.layer import Layer
from rlwire.sessions.passwords import PasswordCheck
from rlwire.sessions.rfb.client import around
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.sockets import Timeouts
from rlwire.universe.input import key, pointer
from rlwire.universe.rfb.client import AsyncRfbClient
from rlwire.urls import URL, client_tls
from rlwire.web import folder

logger = logging.getLogger(__name__)

PORT: Final = 6080
"""The port that such pages usually have."""

PageAddress: TypeAlias = AddressLike | int | bool
"""Where the page is: a port of the remote's host, True for `PORT`, or an address."""

_TIMEOUTS: Final = Timeouts(idle=None)  # silence is for the two sides to bound
_FILES: Final = {
    "/": ("universe.html", "text/html; charset=utf-8"),
    "/universe.js": ("universe.js", "text/javascript; charset=utf-8"),
    "/look.css": ("look.css", "text/css; charset=utf-8"),
}
_EXACT: Final = 1 << 18  # pixels of a screen that is sent as PNG; JPEG for larger ones
_NEWS: Final = 0.25  # seconds between two looks at what the page tells, without new pixels
_SAFE: Final = (
    ("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; "
     "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-cache"),
)  # fmt: skip


class PageServer(StreamServer):
    """Serves the page, and shows a remote's screen on it.

    Pictures of what has changed are sent over a WebSocket, each when the page has shown the last;
    keys and the pointer come back. A browser asks for the password, which counts in either field.
    The certificate of a remote with TLS is checked unless the remote is on this machine.
    `remote` returns where it is, since its ports may be known late, and `about` what the page
    tells of the environment, such as ``score``. A port as `address` is on `host`.
    """

    scheme = "universe"

    def __init__(
        self,
        remote: Callable[[], URL],
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
        service = _PageService(self, remote, auth, about, origins)
        super().__init__(
            service, StreamServerOptions(parse(address), **{"timeout": _TIMEOUTS, **options})
        )
        self._guarded = self._guarded or auth is not None

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
class _PageService(Service[AsyncConnection]):
    _server: PageServer  # knows its address once it listens
    _remote: Callable[[], URL]
    _secret: str | None
    _about: Callable[[], Mapping[str, Any]]
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

    async def _connect(self) -> AsyncRfbClient:
        remote, own = self._remote(), None
        if remote.pixels_address is None:
            raise ConnectionClosed(f"{remote} has no pixels")
        if remote.tls and remote.address.loopback:
            # A server of this very machine, whose certificate is for its other names.
            own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            own.check_hostname = False
            own.verify_mode = ssl.CERT_NONE
        where, tls = remote.pixels_address, client_tls(remote, own)
        return await AsyncRfbClient(where, auth=self._secret, tls=tls, timeout=_TIMEOUTS).connect()

    async def converse(self, connection: AsyncConnection) -> None:
        session: Any = connection.session
        try:
            screen = await self._connect()
        except (RlwireError, OSError) as error:
            logger.warning("%s: the remote cannot be reached: %s", connection.peer, error)
            session.leave(1013, "the remote cannot be reached")
            return
        async with screen:
            shown = asyncio.Event()
            show = asyncio.create_task(self._show(connection, screen, shown))
            show.add_done_callback(lambda _: connection.close())
            try:
                await _play(connection, screen, shown)
            finally:
                show.cancel()
                (why,) = await asyncio.gather(show, return_exceptions=True)
                if isinstance(why, Exception):
                    logger.info("%s: the pictures end: %s", connection.peer, why)

    async def _show(
        self, page: AsyncConnection, screen: AsyncRfbClient, shown: asyncio.Event
    ) -> NoReturn:
        """Send the environment's facts when they change, and the screen's changes."""
        sent = None
        while True:
            changes = []
            with contextlib.suppress(DeadlineExceeded):
                changes = await screen.update(_NEWS)
            about = self._about()
            if about != sent:
                sent = about
                await page.send(json.dumps(about, default=str))
            if changes:
                size, picture = (screen.width, screen.height), io.BytesIO()
                x, y, width, height = around(*changes)
                pixels = screen.framebuffer.pixels[y : y + height, x : x + width].copy()
                kind = "PNG" if size[0] * size[1] <= _EXACT else "JPEG"
                Image.fromarray(pixels).save(picture, kind, compress_level=1)
                shown.clear()
                await page.send(struct.pack(">4H", *size, x, y) + picture.getvalue())
                await shown.wait()


async def _play(page: AsyncConnection, screen: AsyncRfbClient, shown: asyncio.Event) -> NoReturn:
    """Do what the page sends."""
    while True:
        message = await page.receive()
        try:
            match json.loads(message):
                case "shown":
                    shown.set()
                case [str(name), bool(down)]:
                    with contextlib.suppress(ValueError):  # a key that X11 lacks
                        await screen.send(key(name, down))
                case [int(x), int(y), int(buttons)]:
                    await screen.send(pointer(x, y, buttons))
                case _:
                    raise ValueError
        except (ValueError, TypeError, RecursionError):
            raise DecodeError(
                f'expected "shown", [key, down] or [x, y, buttons], got {quoted(message)}'
            ) from None
