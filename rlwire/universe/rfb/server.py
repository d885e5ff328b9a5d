"""`RfbServer` serves a `Display` to VNC viewers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlwire._options import StreamServerOptions, with_options
from rlwire.limits import Limits, checked
from rlwire.serving.serving import Service, StreamServer
from rlwire.sessions.passwords import PasswordCheck
from rlwire.sessions.rfb.handshake import check_passwords
from rlwire.sessions.rfb.server import FrameEncoder, Input, NumberedFrame, RfbServerSession
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import NOTHING, Recording
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.universe.options import RfbServerOptions
from rlwire.universe.push_client import PushHandler
from rlwire.urls import URL

logger = logging.getLogger(__name__)


class Viewer:
    """One viewer of a display, over RFB or in a browser's page.

    Attributes:
        peer: its address.
        view_only: whether its keys and pointer are ignored.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.peer = connection.peer
        session = connection.session
        self.view_only = isinstance(session, RfbServerSession) and session.view_only

    def update(self) -> None:
        """Send what has changed, on the event loop."""
        self.connection.send_output()


class Display:
    """The frame that viewers see. All methods may be called from any thread.

    Args:
        width, height: pixels of the initial, black frame.
        name: the title of viewers' windows.
        on_input: called on the server's event loop with a `Viewer` and its `KeyEvent` or
            `PointerEvent`; must not block.
        on_leave: called on the event loop with a viewer that has disconnected.
    """

    def __init__(
        self,
        width: int,
        height: int,
        *,
        name: str = "rlwire",
        on_input: Callable[[Viewer, Input], object] | None = None,
        on_leave: Callable[[Viewer], object] | None = None,
    ) -> None:
        self.name = name
        self.on_input = on_input
        self.on_leave = on_leave
        self._lock = threading.Lock()
        self._newest = NumberedFrame(0, _checked(np.zeros((height, width, 3), np.uint8)))
        self._services: tuple[ViewerService, ...] = ()

    @property
    def width(self) -> int:
        return len(self._newest.frame[0])

    @property
    def height(self) -> int:
        return len(self._newest.frame)

    @property
    def frames(self) -> int:
        return self._newest.number

    def newest(self) -> NumberedFrame:
        """Return the last frame, which does not change, and its number."""
        return self._newest

    def show(self, frame: npt.NDArray[np.uint8]) -> None:
        """Show a copy of a frame, uint8 (height, width, 3); a new size resizes the display."""
        copy = np.array(_checked(np.asarray(frame)), order="C", copy=True)
        with self._lock:
            self._newest = NumberedFrame(self._newest.number + 1, copy)
            services = self._services
        for service in services:
            service.wake()

    def __str__(self) -> str:
        return f"{self.name!r}, {self.width}x{self.height}"

    @property
    def viewers(self) -> int:
        """The number of viewers at all servers of this display."""
        return sum(len(service.viewers) for service in self._services)

    def attach(self, service: ViewerService) -> None:
        """Wake a server's viewers for each frame, until `detach`."""
        with self._lock:
            self._services = (*self._services, service)

    def detach(self, service: ViewerService) -> None:
        with self._lock:
            self._services = tuple(one for one in self._services if one is not service)


def _checked(frame: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    shape = frame.shape
    if shape[2:] != (3,) or frame.dtype != np.uint8 or not 0 < min(shape) <= max(shape) < 65536:
        raise ValueError(f"a frame is (1 to 65535, 1 to 65535, 3) uint8, not {shape} {frame.dtype}")
    return frame


@dataclass(eq=False)
class ViewerService(Service[AsyncConnection]):
    """Serves a display to viewers, on an event loop."""

    display: Display
    viewers: set[Viewer] = field(default_factory=set, init=False)
    counts: Counter[str] = field(default_factory=Counter, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _woken: bool = field(default=False, init=False)
    _log: RateLimitedLog = field(default_factory=lambda: RateLimitedLog(logger), init=False)

    def viewer(self, connection: AsyncConnection) -> Viewer:
        """Return the viewer of a new connection."""
        return Viewer(connection)

    def handler(self, connection: AsyncConnection) -> PushHandler:
        viewer = self.viewer(connection)
        self.viewers.add(viewer)
        self.counts["connections"] += 1
        can = "view only" if viewer.view_only else "viewer"
        self._log.info("%s: connected, %s", viewer.peer, can)

        def answer(event: Any) -> Any:
            self.receive(viewer, event)
            return NOTHING

        return PushHandler(answer, lambda: self._remove(viewer))

    def receive(self, viewer: Viewer, event: Input) -> None:
        self.counts["inputs"] += 1
        if self.display.on_input is not None:
            try:
                self.display.on_input(viewer, event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                self._log.exception("%s: on_input failed at %r", viewer.peer, event)

    def _remove(self, viewer: Viewer) -> None:
        self.viewers.discard(viewer)
        if self.display.on_leave is not None:
            self.display.on_leave(viewer)
        self._log.info("%s: disconnected", viewer.peer)

    def set_up_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.display.attach(self)

    def tear_down_loop(self) -> None:
        self.display.detach(self)
        with self._lock:
            self._loop = None

    def wake(self) -> None:
        """Send changes to viewers; from any thread."""
        with self._lock:
            if self._woken or self._loop is None:
                return
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._woken = False
        for viewer in list(self.viewers):
            viewer.update()


@dataclass(eq=False)
class _RfbService(ViewerService):
    frames: FrameEncoder
    _auth: str | None
    _view_auth: str | None

    def session(self) -> RfbServerSession:
        return RfbServerSession(
            self.frames,
            password=self._auth,
            view_password=self._view_auth,
            password_check=None if self._auth is None else PasswordCheck(),
        )


class RfbServer(StreamServer):
    """Serves a `Display` to VNC viewers.

    ::

        display = Display(160, 210, name="Pong", on_input=lambda viewer, event: keys.append(event))
        with RfbServer(display, "127.0.0.1:5900"):
            while True:
                display.show(game.frame())

    Slow viewers skip frames, and always get the newest.
    """

    scheme = "universe"

    @with_options(RfbServerOptions)
    def __init__(self, display: Display, options: RfbServerOptions) -> None:
        auth, view_auth = options.auth, options.view_auth
        check_passwords(auth, view_auth)
        self.display = display
        limits = checked(options.limits or Limits(string=1 << 20))
        frames = FrameEncoder(display.newest, name=display.name, limits=limits)
        self._viewers = _RfbService(display, frames, auth, view_auth)
        super().__init__(self._viewers, options)

    @property
    def url(self) -> str:
        """The URL for viewers; for a unix socket its address."""
        where, port = self._where, self.address.port
        if where.path:
            return str(where)
        return str(URL(self.scheme, where.host, tls=self._encrypted, pixels=port, only_pixels=True))

    @property
    def viewers(self) -> int:
        return len(self._viewers.viewers)

    def _recording(self, options: StreamServerOptions) -> Recording | None:
        return options.recording("rfb", "3.8")

    def statistics(self) -> dict[str, int]:
        """Return the number of ``viewers``, and counts since the server was made.

        ``frames``, ``updates`` and their ``bytes``, ``encoded`` (frames, once for viewers with the
        same format), ``inputs``, ``ignored`` (inputs of viewers that only watch), ``refused``
        (wrong passwords).
        """
        viewers = self._viewers
        return {
            "viewers": len(viewers.viewers),
            "frames": self.display.frames,
            **viewers.counts,
            **viewers.frames.counts,
        }

    def _details(self) -> str:
        return str(self.display)
