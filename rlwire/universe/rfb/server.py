"""A display that any VNC viewer can watch and play on: `Display`, and `RfbServer`, which serves it.

Frames come from any thread; viewers are told on the server's event loop, where what they do arrives
as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from rlwire.limits import Limits, checked
from rlwire.registry import URL
from rlwire.serving.serving import Service, StreamOptions, StreamServer
from rlwire.sessions.guesses import Guess
from rlwire.sessions.rfb.admitting import check_passwords
from rlwire.sessions.rfb.screen import Screen, Shown
from rlwire.sessions.rfb.server import Input, RfbServerSession
from rlwire.transports.address import AddressLike
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import NOTHING
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.sockets import Timeouts

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

PORT: Final = 5900
"""Where VNC's viewers look for display 0."""

TIMEOUTS: Final = Timeouts(idle=None)
"""A viewer that looks on says nothing while nothing changes."""


class Viewer:
    """Who does something at a display; `peer` is its name, for logs."""

    __slots__ = ("_service", "connection", "peer", "session")

    def __init__(
        self, service: _Viewers, connection: AsyncConnection, session: RfbServerSession
    ) -> None:
        self._service = service
        self.connection = connection
        self.session = session
        self.peer = connection.peer

    def __repr__(self) -> str:
        return f"<Viewer {self.peer}{', looks on' if self.view_only else ''}>"

    @property
    def view_only(self) -> bool:
        """Whether it may only look on."""
        return self.session.view_only

    def answer(self, event: Input) -> Any:
        """Hand on what the viewer did."""
        self._service.told(self, event)
        return NOTHING

    def failure(self, event: Any, error: Exception) -> Any:
        """Nothing was to be sent."""
        raise error

    def close(self) -> None:
        """Take note that it is gone."""
        self._service.left(self)


OnInput: TypeAlias = Callable[[Viewer, Input], object]


class Display:
    """What viewers see: the last frame that was shown. All methods may be called from any thread.

    Args:
        width, height: of what is seen before the first frame, which is black.
        name: as viewers have it in their title.
        on_input: called on the server's event loop with who did something and a `KeyEvent` or a
            `PointerEvent`; it returns at once.
        on_leave: called there with a viewer that is gone, so that what it held down is let go.
    """

    def __init__(
        self,
        width: int,
        height: int,
        *,
        name: str = "rlwire",
        on_input: OnInput | None = None,
        on_leave: Callable[[Viewer], object] | None = None,
    ) -> None:
        for side in (width, height):
            if not 0 < side < 65536:
                raise ValueError(f"a display has 1 to 65535 pixels each way, not {width}x{height}")
        self.name = name
        self.on_input = on_input
        self.on_leave = on_leave
        self._lock = threading.Lock()
        self._shown = Shown(0, np.zeros((height, width, 3), np.uint8))
        self._watchers: tuple[_Viewers, ...] = ()

    @property
    def width(self) -> int:
        """Pixels across of the last frame."""
        return len(self._shown.frame[0])

    @property
    def height(self) -> int:
        """Pixels down of the last frame."""
        return len(self._shown.frame)

    @property
    def frames(self) -> int:
        """How many were shown."""
        return self._shown.number

    def newest(self) -> Shown:
        """Return the last frame and its number; it is never changed."""
        return self._shown

    def show(self, frame: npt.NDArray[np.uint8]) -> None:
        """Show a frame, of which a copy is kept; viewers get what changed when they can take it.

        It is (H, W, 3) uint8; another size than before resizes the display.
        """
        frame = np.asarray(frame)
        if (
            frame.ndim != 3
            or frame.shape[2] != 3
            or frame.dtype != np.uint8
            or not (0 < frame.shape[0] < 65536 and 0 < frame.shape[1] < 65536)
        ):
            raise ValueError(
                f"a frame is (height, width, 3) uint8, not {frame.shape} {frame.dtype}"
            )
        copy = np.array(frame, order="C", copy=True)
        with self._lock:
            self._shown = Shown(self._shown.number + 1, copy)
            watchers = self._watchers
        for one in watchers:
            one.wake()

    def watch(self, viewers: _Viewers, watching: bool) -> None:
        """Take note that a server serves this display, or no longer."""
        with self._lock:
            others = tuple(one for one in self._watchers if one is not viewers)
            self._watchers = (*others, viewers) if watching else others


class _Viewers(Service):
    """The viewers of a display, on a server's event loop."""

    def __init__(
        self, display: Display, auth: str | None, view_auth: str | None, limits: Limits | None
    ) -> None:
        self.display = display
        self.screen = Screen(display.newest, name=display.name, limits=checked(limits))
        self._auth, self._view_auth = auth, view_auth
        self.viewers: dict[RfbServerSession, Viewer] = {}
        self.counts: Counter[str] = Counter()
        self._log = SeldomLog(logger)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._woken = False

    # What the server calls.

    def session(self) -> RfbServerSession:
        """Return a viewer's session."""
        return RfbServerSession(
            self.screen,
            time.monotonic,
            password=self._auth,
            view_password=self._view_auth,
            guess=None if self._auth is None else Guess(),
        )

    def responder(self, connection: AsyncConnection) -> Viewer:
        """Take a viewer in."""
        session: RfbServerSession = connection.session  # type: ignore[assignment]
        viewer = self.viewers[session] = Viewer(self, connection, session)
        self.counts["connections"] += 1
        self._log.info(
            "%s: %s", viewer.peer, "looks on" if viewer.view_only else "watches and plays"
        )
        return viewer

    def left(self, viewer: Viewer) -> None:
        """Take note that a viewer is gone."""
        self.viewers.pop(viewer.session, None)
        if self.display.on_leave is not None:
            self.display.on_leave(viewer)
        self._log.info("%s: gone after %d updates", viewer.peer, viewer.session.updates)

    def told(self, viewer: Viewer, event: Input) -> None:
        """Hand on what a viewer did."""
        self.counts["inputs"] += 1
        on_input = self.display.on_input
        if on_input is not None:
            try:
                on_input(viewer, event)
            except Exception:
                self._log.exception("%s: on_input failed at %r", viewer.peer, event)

    def open(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.display.watch(self, True)

    def part(self) -> None:
        """End."""
        self.display.watch(self, False)
        with self._lock:
            self._loop = None

    # What is said; from any thread.

    def wake(self) -> None:
        """Have viewers told what changed."""
        with self._lock:
            if self._woken or self._loop is None:
                return
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._woken = False
        for viewer in list(self.viewers.values()):
            viewer.connection.speak()


class RfbServer(StreamServer):
    """Serves a `Display` to VNC viewers.

    ::

        display = Display(160, 210, name="Pong", on_input=lambda viewer, event: keys.append(event))
        with RfbServer(display, "127.0.0.1:5900"):
            while True:
                display.show(game.frame())

    Viewers may come and go, several at once; all see the same. A slow one gets fewer frames, and
    always the newest.

    Args:
        display: what they see.
        address: where to listen, ``"host:port"``, ``"[ipv6]:port"``, ``(host, port)`` or
            ``"unix:/path"``; with port 0 the system chooses one.
        auth: the password, of which VNC takes eight characters; None lets all in.
        view_auth: another one, with which a viewer's keys and pointer count for nothing.
        limits: maxima for what is read. ``string`` is for cut texts: by default 1 MiB.
        options: `rlwire.serving.serving.StreamOptions`; of `timeouts`, `write` is for a viewer
            that takes nothing. By default nobody is too idle.
    """

    scheme = "universe"
    guards = "TLS or a password"
    handlers = "a viewer's connection"

    def __init__(
        self,
        display: Display,
        address: AddressLike = f"127.0.0.1:{PORT}",
        *,
        auth: str | None = None,
        view_auth: str | None = None,
        limits: Limits | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        check_passwords(auth, view_auth)
        self.display = display
        self._viewers = _Viewers(display, auth, view_auth, limits or Limits(string=1 << 20))
        options["timeouts"] = options.get("timeouts") or TIMEOUTS
        super().__init__(address, self._viewers, **options)
        self._guarded = self._guarded or auth is not None

    @property
    def url(self) -> str:
        """Where clients find it; where that is a unix socket, its address."""
        where, port = self._where, self.address.port
        if where.path:
            return str(where)
        return str(URL(self.scheme, where.host, tls=self._encrypted, pixels=port, only_pixels=True))

    @property
    def viewers(self) -> int:
        """How many there are."""
        return len(self._viewers.viewers)

    def statistics(self) -> dict[str, int]:
        """Return counts since the server was made, and of the ``viewers`` that there are.

        ``frames`` were shown; ``updates`` of so many ``bytes`` went out, and what they had was
        ``encoded`` so often; ``inputs`` came, or were ``ignored`` since the viewer only looks on;
        ``refused`` had no right password.
        """
        viewers = self._viewers
        return {
            "viewers": len(viewers.viewers),
            "frames": self.display.frames,
            **viewers.counts,
            **viewers.screen.counts,
        }

    def _details(self) -> str:
        display = self.display
        return f"{display.name!r}, {display.width}x{display.height}"
