"""`PageServer`: a page on which a remote is watched and played in a browser, at one port.

The page's two WebSockets, to the pixels and to the rewarder, are relayed to the remote, so it may
be any. What the page does is in `rlwire/web/universe.js`.
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
    Headers,
    Request,
    basic_credentials,
    basic_header,
    same_secret,
)
from rlwire.errors import ConnectionClosed, EncodeError, RlwireError
from rlwire.registry import URL, client_tls
from rlwire.serving.fronts import websocket_url
from rlwire.serving.serving import Service, StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.guesses import Guess
from rlwire.sessions.passing import Passing
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import StreamSession
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tcp_asyncio import connect
from rlwire.transports.tls import ClientSide
from rlwire.web import folder
from rlwire.websocket import connect_asyncio

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlwire.serving.serving import StreamOptions

logger = logging.getLogger(__name__)

PORT: Final = 6080
"""Where pages of this kind are served by custom."""

PagePlace: TypeAlias = AddressLike | int | bool | None
"""Where the page is: a port of the remote's host, True for `PORT`, an address, or None."""

_TIMEOUTS: Final = Timeouts(idle=None)  # how long it may be silent is for the two sides to say
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
    """Return noVNC's sources by their names within its package, such as ``core/rfb.js``.

    `place` is the package's folder, by default where npm puts it in the current folder.
    """
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

    What is relayed is not stored up: a side that does not read holds up the other. A browser asks
    for the page's password, which counts in either field; the page itself asks for VNC's.

    Args:
        remote: where it is; asked for each time, since its ports may be known late.
        place: where to listen; see `PagePlace`.
        host: the host of a place that is a port.
        auth: the password; None lets all load the page.
        rewarder_auth: what the rewarder is told.
        about: what the page tells of the environment, as JSON has it.
        novnc: where noVNC is; see `novnc_files`.
        origins: further pages whose scripts may connect; by default those of this server.
        remote_tls: for a remote with TLS. By default what answers at this machine's own addresses
            is not asked for a certificate; others are, for one of the system's authorities.
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
        rewarder_auth: str | None = "openai",
        about: Callable[[], Mapping[str, Any]] | None = None,
        novnc: str | os.PathLike[str] | None = None,
        origins: Collection[str] = (),
        remote_tls: ClientSide = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        if isinstance(place, int):
            place = Address(host, PORT if place is True else place)
        elif place is None:
            place = Address(host, PORT)
        told = None if rewarder_auth is None else basic_header(rewarder_auth, "")
        service = _Page(self, remote, about, novnc_files(novnc), auth, told, origins, remote_tls)
        options["timeouts"] = options.get("timeouts") or _TIMEOUTS
        super().__init__(parse(place), service, **options)
        self._guarded = self._guarded or auth is not None

    @property
    def url(self) -> str:
        """What a browser loads."""
        return self.origin + "/"

    @property
    def origin(self) -> str:
        """The page's origin, as browsers say it."""
        where = self.address
        host = self._where.host or "localhost"
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self._encrypted else 'http'}://{host}:{where.port}"

    def _details(self) -> str:
        return "a page for browsers"


class _Page(Service):
    def __init__(
        self,
        server: PageServer,
        remote: Callable[[], URL],
        about: Callable[[], Mapping[str, Any]] | None,
        novnc: Mapping[str, bytes],
        secret: str | None,
        told: str | None,
        origins: Collection[str],
        tls: ClientSide,
    ) -> None:
        self._server, self._remote, self._about = server, remote, about
        self._secret, self._told, self._origins, self._tls = secret, told, origins, tls
        self._files = {f"/novnc/{name}": data for name, data in novnc.items()}
        for path, name in _FILES.items():
            self._files[path] = (folder() / name).read_bytes()

    def session(self) -> StreamSession:
        return websocket.WebSocketServerSession(
            websocket.Messages(),
            origins=[*self._own_origins(), *self._origins],
            pages=self._page,
            check=self._check,
            guess=None if self._secret is None else Guess(),
            ping_interval=20.0,
        )

    async def converse(self, connection: AsyncConnection) -> None:
        try:
            other = await self._reach(connection)
        except (RlwireError, OSError) as error:
            logger.warning("%s: nobody is reached for it: %s", connection.peer, error)
            _leave(connection, 1013, "who this is for cannot be reached")
            return
        async with other:
            ways = {
                asyncio.create_task(_pass(connection, other)): other,
                asyncio.create_task(_pass(other, connection)): connection,
            }
            try:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            for way in done:
                _tell(way.exception(), ways[way])

    async def _reach(self, connection: AsyncConnection) -> AsyncConnection:
        path = connection.session.request.path  # type: ignore[attr-defined]
        remote = self._remote()
        tls = self._tls
        if remote.tls and tls is None and remote.address.loopback:
            tls = _anybody()
        if path == "/pixels":
            return await _reach_pixels(remote, tls)
        if path == "/rewards" and not remote.only_pixels:
            headers = [("openai-observer", "true")]
            if self._told is not None:
                headers.append(("Authorization", self._told))
            return await _reach_rewards(remote, tls, headers)
        raise ConnectionClosed(f"{remote} has nothing that answers to {path!r}")

    def _own_origins(self) -> list[str]:
        """Return the page's origin, by all names of a server that only this machine reaches.

        Not by the Host header: a page of others can have a name that leads here.
        """
        own = self._server.origin
        where = self._server.address
        if not where.loopback:
            return [own]
        scheme = own.partition(":")[0]
        return [own, *(f"{scheme}://{name}:{where.port}" for name in ("localhost", "127.0.0.1"))]

    def _is_own(self, host: str) -> bool:
        """Whether a Host header is no name that somebody else may have led here.

        A script of such a name's page reads what answers by it. An address is none.
        """
        origins = [*self._own_origins(), *self._origins]
        own = {_name(origin.rpartition("/")[2]) for origin in origins}
        return "*" in origins or _name(host) in {*own, "localhost"} or _is_address(_name(host))

    def _allowed(self, headers: Headers) -> bool:
        given = basic_credentials(headers.get("Authorization")) or ()
        secret = self._secret
        return secret is None or any([same_secret(word, secret) for word in given])

    def _check(self, request: Request) -> websocket.Refusal | None:
        return None if self._allowed(request.headers) else websocket.Refusal(401, "no password")

    def _page(self, path: str, headers: Headers) -> websocket.Page | None:
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


async def _pass(giver: AsyncConnection, taker: AsyncConnection) -> NoReturn:
    while True:
        await taker.send(await giver.receive())


def _tell(error: BaseException | None, to: AsyncConnection) -> None:
    """Have a WebSocket's close frame say why the other side is gone; the log has what failed."""
    if isinstance(error, websocket.Closed):
        _leave(to, error.code, error.reason)
    elif isinstance(error, RlwireError):
        logger.info("%s: the other side is gone: %s", to.peer, error)
    elif error is not None:
        logger.error("%s: its relay failed", to.peer, exc_info=error)


def _leave(connection: AsyncConnection, code: int, reason: str) -> None:
    session = connection.session
    if isinstance(session, websocket.WebSocketClientSession | websocket.WebSocketServerSession):
        with contextlib.suppress(EncodeError):  # such as 1005, which no close frame says
            session.leave(code, reason)


def _name(authority: str) -> str:
    """Return a host without its port."""
    return _PORT.sub("", authority).strip("[]").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _anybody() -> ssl.SSLContext:
    """Return a context for a server of this very machine, whose certificate is for others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _reach_pixels(remote: URL, tls: ClientSide) -> AsyncConnection:
    where = remote.pixels_address
    if where is None:
        raise ConnectionClosed(f"{remote} has no pixels")
    return await connect(where, Passing(), timeouts=_TIMEOUTS, tls=client_tls(remote, tls))


async def _reach_rewards(
    remote: URL, tls: ClientSide, headers: list[tuple[str, str]]
) -> AsyncConnection:
    tls = client_tls(remote, tls)
    return await connect_asyncio(
        websocket_url(remote, tls), timeouts=_TIMEOUTS, tls=tls, headers=headers, kind="any"
    )
