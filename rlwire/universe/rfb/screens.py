"""`Screens`: many screens in one process, all taken in by one thread.

The thread runs an event loop, and in it an `AsyncRfbClient` for each screen; pixels are painted
with the interpreter's lock released, so the program goes on meanwhile. What the program asks of a
screen never waits for the network. One that fails touches no other.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.rfb.decoder import Rectangle
from rlwire.codecs.rfb.framebuffer import Framebuffer
from rlwire.codecs.rfb.messages import FENCE_BLOCK_BEFORE, FENCE_REQUEST, ClientMessage, Fence
from rlwire.errors import ConnectionClosed
from rlwire.sessions.rfb.events import Painted
from rlwire.transports.address import AddressLike
from rlwire.universe.rfb.client import AsyncRfbClient

logger = logging.getLogger(__name__)


class Screens:
    """Screens whose pixels one thread takes in.

    ::

        with Screens() as screens:
            left, right = screens.add("host:5900"), screens.add("host:5901", auth="secret")
            left.wait(10.0)
            image = left.read()

    Args:
        options: for each screen, unless `add` says otherwise: those of `AsyncRfbClient`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._screens: set[Screen] = set()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rlwire screens", daemon=True)
        self._thread.start()

    def __enter__(self) -> Screens:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._screens)

    def add(
        self,
        address: AddressLike,
        *,
        on_change: Callable[[Screen], object] | None = None,
        **options: Any,
    ) -> Screen:
        """Begin to connect to a screen; returns at once.

        Args:
            address: ``"host:port"`` or ``"unix:/path"``.
            on_change: called with the screen, in the thread, after each whole update and when it
                has an `error`; it returns at once.
            options: as for `AsyncRfbClient`: `auth`, `encodings`, `quality`, `timeouts` and so on.
        """
        screen = Screen(self, address, {**self._options, **options}, on_change)
        with self._lock:
            if self._closed:
                raise ConnectionClosed("these screens are closed")
            self._screens.add(screen)
            self._loop.call_soon_threadsafe(screen._begin)
        return screen

    def close(self) -> None:
        """Close all screens, and end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            screens = list(self._screens)
        asyncio.run_coroutine_threadsafe(self._close_all(screens), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _close_all(self, screens: list[Screen]) -> None:
        for screen in screens:
            await screen._close()

    def _drop(self, screen: Screen) -> None:
        with self._lock:
            self._screens.discard(screen)


class _Client(AsyncRfbClient):
    """A screen's client: tells the screen what has come, and when."""

    def __init__(self, screen: Screen, address: AddressLike, options: dict[str, Any]) -> None:
        self._screen = screen
        super().__init__(address, **options)

    def _make_session(self) -> Any:
        self._said["painting"] = self._screen._lock
        return super()._make_session()

    def _take(self, event: Any) -> None:
        kind = type(event)
        if kind is Painted:
            self._screen._note_update()
        elif kind is Fence:
            self._screen._note_fence(event)
        super()._take(event)

    def _end(self, error: Exception) -> None:
        super()._end(error)
        self._screen._fail(error)


class Screen:
    """One of many screens; made by `Screens.add`. Its methods may be called from any thread.

    Attributes:
        address: where it is.
        error: why there is no such screen, or none any more; None while all is well.
        painted_at: when the last update was whole, by `time.monotonic`; None before the first.
    """

    def __init__(
        self,
        owner: Screens,
        address: AddressLike,
        options: dict[str, Any],
        on_change: Callable[[Screen], object] | None = None,
    ) -> None:
        self._owner = owner
        self._on_change = on_change
        self._lock = threading.Lock()  # whoever paints, or reads, has it
        self._changed = threading.Condition(threading.Lock())
        self.error: BaseException | None = None
        self.painted_at: float | None = None
        self._updates = 0
        self._client = _Client(self, address, options)
        self.address = self._client.address
        self._connecting: asyncio.Task[Any] | None = None
        self._closing: asyncio.Task[Any] | None = None
        self._out: list[ClientMessage] = []  # what the program has said, and the loop not yet sent
        self._fences = 0
        self._asked_at: float | None = None  # when the fence went that is not answered
        self._round_trip: float | None = None
        self._last: NDArray[np.uint8] | None = None  # what `read_changes` brought up to date

    def __repr__(self) -> str:
        state = "ready" if self.ready else "not ready" if self.error is None else str(self.error)
        return f"<Screen {self.address}, {state}>"

    # What the program asks.

    @property
    def ready(self) -> bool:
        """Whether there are pixels, and the connection is well."""
        return self._updates > 0 and self.error is None

    @property
    def updates(self) -> int:
        """Whole updates so far that changed something."""
        return self._updates

    @property
    def width(self) -> int:
        """Pixels."""
        return self._framebuffer().width

    @property
    def height(self) -> int:
        """Pixels."""
        return self._framebuffer().height

    @property
    def name(self) -> str:
        """The desktop's; empty before it is known."""
        return self._client.name

    def statistics(self) -> dict[str, int]:
        """Return what has come so far; see `RfbClient.statistics`."""
        return self._client.statistics()

    def wait(self, timeout: float | None = None, updates: int = 1) -> bool:
        """Wait until so many updates are whole, counted from the first; return whether they are.

        Raises the screen's `error`, if it has one.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._updates >= updates or self.error is not None, timeout
            )
        if self._updates < updates:
            self._check()
        return self._updates >= updates

    def read(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return a copy of the pixels, of whole updates only: (height, width, channels), uint8.

        Raises:
            ValueError: `out` has another shape, as the screen was resized.
            ConnectionClosed: the screen has no pixels yet.
        """
        with self._lock:
            return self._framebuffer().snapshot(out)

    def take(self) -> list[Rectangle]:
        """Return what has changed since the last `take` or `read_changes`.

        Pixels that are read afterwards have at least that.
        """
        with self._lock:
            return self._client.session.take()

    def read_changes(self, out: NDArray[np.uint8]) -> list[Rectangle]:
        """Bring `out` up to date, and return what has changed since the last call.

        Into the array of the last call only what has changed is copied, into another one all.
        """
        with self._lock:
            framebuffer = self._framebuffer()
            pixels = framebuffer.pixels
            if out is not self._last or out.shape != pixels.shape:
                self._last = None
                framebuffer.snapshot(out)
                self._last = out
                return list(self._client.session.take())
            changes = self._client.session.take()
            for r in changes:
                area = slice(r.y, r.y + r.height), slice(r.x, r.x + r.width)
                out[area] = pixels[area]
            return changes

    def send(self, messages: ClientMessage | Sequence[ClientMessage]) -> None:
        """Send messages, soon and in order, without waiting; where one cannot be sent, none is."""
        several = list(messages) if isinstance(messages, Sequence) else [messages]
        self._framebuffer()
        for message in several:
            self._client.session.encode(message)  # raises what it cannot be sent for
        with self._changed:
            first = not self._out
            self._out += several
        if first:
            self._tell(self._send_out)

    def round_trip(self) -> float | None:
        """Return the seconds of the last round trip that was measured, None without one.

        Each call has the next one measured, by a Fence, unless one is under way; a server without
        Fence has none.
        """
        last = self._round_trip
        if self.error is None and self._asked_at is None and self._client.session.fences:
            self._tell(self._ask)
        return last

    def close(self) -> None:
        """Close the connection, soon; its pixels stay."""
        self._tell(self._begin_to_close)

    def _tell(self, do: Any) -> None:
        try:
            self._owner._loop.call_soon_threadsafe(do)
        except RuntimeError:  # the loop is closed
            logger.debug("%s: nothing more is said", self.address)

    def _framebuffer(self) -> Framebuffer:
        framebuffer = self._client.session.framebuffer
        if framebuffer is None or self.error is not None:
            self._check()
            raise ConnectionClosed(f"{self.address} has no pixels yet: wait for it")
        return framebuffer

    def _check(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)

    # In the loop.

    def _begin(self) -> None:
        self._connecting = self._owner._loop.create_task(self._connect())

    def _begin_to_close(self) -> None:
        # Kept: a loop keeps none of its tasks.
        self._closing = self._owner._loop.create_task(self._close())

    async def _connect(self) -> None:
        try:
            await self._client.connect()
        except asyncio.CancelledError:
            self._fail(ConnectionClosed(f"the connection to {self.address} was closed"))
        except Exception as error:
            self._fail(error)

    async def _close(self) -> None:
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        await self._client.close()
        self._owner._drop(self)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self.error is None:
                self.error = error
                logger.debug("%s: %s", self.address, error)
            self._changed.notify_all()
        if self._on_change is not None:
            self._on_change(self)

    def _note_update(self) -> None:
        with self._changed:
            updates = self._client.session.updates
            if updates == self._updates:
                return
            self._updates, self.painted_at = updates, monotonic()
            self._changed.notify_all()
        if self._on_change is not None:
            self._on_change(self)

    def _note_fence(self, fence: Fence) -> None:
        if self._asked_at is not None and fence.payload == self._fences.to_bytes(8, "big"):
            self._round_trip, self._asked_at = monotonic() - self._asked_at, None

    def _ask(self) -> None:
        if self._asked_at is None:
            self._fences += 1
            self._asked_at = monotonic()
            payload = self._fences.to_bytes(8, "big")
            self._post([Fence(FENCE_REQUEST | FENCE_BLOCK_BEFORE, payload)])

    def _send_out(self) -> None:
        with self._changed:
            messages, self._out = self._out, []
        self._post(messages)

    def _post(self, messages: list[ClientMessage]) -> None:
        connection = self._client._connection
        if connection is None or self.error is not None:
            return
        try:
            connection.post(messages)
        except Exception as error:  # such as too much that waits for a server that does not read
            self._client._end(error)
            connection.close()
