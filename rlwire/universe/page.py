"""`PageServer`: a page on which a remote is watched and played in a browser, at one port.

The page's script is `rlwire/web/universe.js`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import re
import ssl
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from rlwire.codecs.websocket.handshake import (
    HeaderLines,
    UpgradeRequest,
    basic_credentials,
    basic_header,
    same_secret,
)
from rlwire.errors import ConnectionClosed, EncodeError, RlwireError
from rlwire.registry import URL, client_tls
from rlwire.serving.serving import Service, StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.guesses import Guess
from rlwire.sessions.raw import RawSession
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import StreamSession
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tcp_asyncio import connect
from rlwire.web import folder
from rlwire.websocket import connect_asyncio, url_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlwire.serving.serving import StreamOptions

logger = logging.getLogger(__name__)

PORT: Final = 6080
"""The port that such pages usually have."""

PagePlace: TypeAlias = AddressLike | int | bool | None
"""Where the page is: a port of the remote's host, True for `PORT`, an address, or None."""

_TIMEOUTS: Final = Timeouts(idle=None)  # silence is for the two sides to bound
_NOVNC: Final = "node_modules/@novnc/novnc"
_KINDS: Final = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_PORT: Final = re.compile(r":\d*$")
_SOURCES: Final = ("core", "vendor")
_FILES: Final = {"/": "universe.html", "/universe.js": "universe.js"}
_SAFE: Final = (
    ("Content-Security-Policy", "default-src 'self'; img-src 'self' data: blob:; "
     "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-cache"),
)  # fmt: skip


def novnc_files(place: str | os.PathLike[str] | None = None) -> dict[str, bytes]:
    """Return noVNC's sources by their names in npm's package, such as ``core/rfb.js``."""
    folder = Path(_NOVNC if place is None else place)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no noVNC at {folder}: get it by `npm install @novnc/novnc`, and say where "
            "it is by novnc="
        )
    files = {}
    for source in _SOURCES:
        for path in sorted((folder / source).rglob("*.js")):
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    if b"export default class RFB" not in files.get("core/rfb.js", b""):
        raise ValueError(
            f"{folder} has no core/rfb.js that a browser takes as it is: noVNC 1.7 or newer is "
            "needed, of npm's @novnc/novnc"
        )
    return files


class PageServer(StreamServer):
    """Serves the page, and relays its two WebSockets to a remote.

    A side that does not read holds up the other; nothing is stored. A browser asks for the page's
    password, which counts in either field; the page itself asks for VNC's. The certificate of a
    remote with TLS is checked unless the remote is on this machine.

    Args:
        remote: returns where the remote is; called each time, since its ports may be known late.
        place: where to listen; see `PagePlace`. A port is on `host`.
        auth: the password of the page and of the remote; None lets all load the page.
        about: returns what the page tells of the environment, as JSON has it.
        novnc: where noVNC is; see `novnc_files`.
        origins: other pages whose scripts may connect; by default those of this server.
        options: `rlwire.serving.serving.StreamOptions`.
    """

    scheme = "universe"
    handlers = "a relayed connection"

    def __init__(
        self,
        remote: Callable[[], URL],
        place: PagePlace = True,
        *,
        host: str = "localhost",
        auth: str | None = None,
        about: Callable[[], Mapping[str, Any]] | None = None,
        novnc: str | os.PathLike[str] | None = None,
        origins: Collection[str] = (),
        **options: Unpack[StreamOptions],
    ) -> None:
        if place is None or isinstance(place, int):
            place = Address(host, PORT if place is None or place is True else place)
        self._remote, self._secret, self._origins = remote, auth, origins
        self._headers = [("openai-observer", "true")]
        if auth is not None:
            self._headers.append(("Authorization", basic_header(auth, "")))
        self._about = about
        self._files = {f"/novnc/{name}": data for name, data in novnc_files(novnc).items()}
        for path, name in _FILES.items():
            self._files[path] = (folder() / name).read_bytes()
        options["timeout"] = Timeouts.of(options.get("timeout") or _TIMEOUTS)
        super().__init__(parse(place), _PageService(self), **options)
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

    def _own_origins(self) -> list[str]:
        """Return the page's origins; never by the Host header, since any name may lead here."""
        own, where = [self.origin], self.address
        if where.loopback:
            scheme = own[0].partition(":")[0]
            own += [f"{scheme}://{name}:{where.port}" for name in ("localhost", "127.0.0.1")]
        return [*own, *self._origins]

    def _is_own(self, host: str) -> bool:
        """Whether a Host header is an address, or a name that only this server has."""
        origins, name = self._own_origins(), _PORT.sub("", host).strip("[]").lower()
        own = {_PORT.sub("", each.rpartition("/")[2]).strip("[]").lower() for each in origins}
        if "*" in origins or name in {*own, "localhost"}:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _allowed(self, headers: HeaderLines) -> bool:
        given = basic_credentials(headers.get("Authorization")) or ()
        secret = self._secret
        return secret is None or any([same_secret(word, secret) for word in given])

    def _page(self, path: str, headers: HeaderLines) -> websocket.Page | None:
        if path == websocket.HEALTH:
            return websocket.health(path, headers)
        if path in ("/pixels", "/rewards"):
            return None
        if not self._allowed(headers):
            challenge = ("WWW-Authenticate", 'Basic realm="rlwire", charset="UTF-8"')
            return websocket.Page(b"a password is needed\n", status=401, headers=(challenge,))
        if path == "/about":
            if not self._is_own(headers.get("Host") or ""):
                return websocket.Page(b"this is no name of this page: see origins=\n", status=421)
            about: dict[str, Any] = {"rewards": not self._remote().only_pixels}
            about |= {} if self._about is None else self._about()
            text = json.dumps(about, default=str).encode()
            return websocket.Page(text, "application/json", headers=_SAFE)
        data = self._files.get(path)
        if data is None:
            return websocket.Page(b"there is no such page\n", status=404)
        kind = _KINDS[Path("universe.html" if path == "/" else path).suffix]
        return websocket.Page(data, kind, headers=_SAFE)

    async def _connect(self, path: str) -> AsyncConnection:
        """Connect to the remote's server that a WebSocket's path means."""
        remote, own = self._remote(), None
        if remote.tls and remote.address.loopback:
            # A server of this very machine, whose certificate is for its other names.
            own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            own.check_hostname = False
            own.verify_mode = ssl.CERT_NONE
        tls = client_tls(remote, own)
        if path == "/pixels" and remote.pixels_address is not None:
            return await connect(remote.pixels_address, RawSession(), timeout=_TIMEOUTS, tls=tls)
        if path == "/rewards" and not remote.only_pixels:
            return await connect_asyncio(
                url_of(remote.address, tls, f"/{remote.path}"),
                timeout=_TIMEOUTS,
                tls=tls,
                headers=self._headers,
                kind="any",
            )
        raise ConnectionClosed(f"{remote} has nothing at {path!r}")


class _PageService(Service):
    def __init__(self, server: PageServer) -> None:
        self._page_server = server

    def session(self) -> StreamSession:
        server = self._page_server
        return websocket.WebSocketServerSession(
            websocket.RawMessages(),
            origins=server._own_origins(),
            pages=server._page,
            check=self._check,
            guess=None if server._secret is None else Guess(),
            ping_interval=20.0,
        )

    def _check(self, request: UpgradeRequest) -> websocket.HttpRefusal | None:
        allowed = self._page_server._allowed(request.headers)
        return None if allowed else websocket.HttpRefusal(401, "no password")

    async def converse(self, connection: AsyncConnection) -> None:
        path = connection.session.request.path  # type: ignore[attr-defined]
        try:
            other = await self._page_server._connect(path)
        except (RlwireError, OSError) as error:
            logger.warning("%s: the remote cannot be reached: %s", connection.peer, error)
            _close_with(connection, 1013, "the remote cannot be reached")
            return
        async with other:
            ways = {
                asyncio.create_task(_relay(connection, other)): other,
                asyncio.create_task(_relay(other, connection)): connection,
            }
            try:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            for way in done:
                _report(way.exception(), ways[way])


async def _relay(source: AsyncConnection, target: AsyncConnection) -> NoReturn:
    while True:
        await target.send(await source.receive())


def _report(error: BaseException | None, to: AsyncConnection) -> None:
    """Have a WebSocket's close frame say why the other side is gone; log what failed."""
    if isinstance(error, websocket.Closed):
        _close_with(to, error.code, error.reason)
    elif isinstance(error, RlwireError):
        logger.info("%s: the other side is gone: %s", to.peer, error)
    elif error is not None:
        logger.error("%s: its relay failed", to.peer, exc_info=error)


def _close_with(connection: AsyncConnection, code: int, reason: str) -> None:
    session = connection.session
    if isinstance(session, websocket.WebSocketClientSession | websocket.WebSocketServerSession):
        with contextlib.suppress(EncodeError):  # such as 1005, which no close frame says
            session.leave(code, reason)
