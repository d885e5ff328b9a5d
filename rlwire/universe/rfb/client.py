"""`RfbClient` and `AsyncRfbClient` connect to a remote screen, its keyboard and pointer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlwire._options import with_options
from rlwire.codecs.rfb.decoder import Framebuffer, Rectangle
from rlwire.codecs.rfb.keysyms import keysym
from rlwire.codecs.rfb.messages import ClientMessage, KeyEvent, PointerEvent
from rlwire.errors import ConnectionClosed, LocalProtocolError, RlwireError
from rlwire.sessions.rfb.client import RfbClientSession
from rlwire.transports import tcp, tcp_asyncio
from rlwire.transports.address import parse
from rlwire.transports.connection import Connection
from rlwire.transports.sockets import Timeouts, ready
from rlwire.transports.waits import Asyncio, Blocking, ClientBase, Waits, driven
from rlwire.universe.options import RfbClientOptions
from rlwire.universe.push_client import PushClient
from rlwire.urls import located

_Self = TypeVar("_Self", bound="_RfbClientBase")

_SESSION = ("shared", "encodings", "quality", "compression", "continuous")
_READS = 1024  # maximum of reads in one `poll`
_SLICE = 0.25  # maximum seconds of one read


class _RfbClientBase(PushClient, ClientBase):
    _connect: Callable[..., Any]
    _read: Callable[[], Any]  # receives what has arrived, or returns an awaitable that does

    @with_options(RfbClientOptions)
    def __init__(self, options: RfbClientOptions) -> None:
        address, tls, _ = located("universe", options.address, options.tls, pixels=True)
        self.address = parse(address)
        self._timeouts = Timeouts.of(options.timeout, idle=None)
        self._make_session = partial(
            RfbClientSession,
            password=options.auth,
            update_timeout=self._timeouts.read,
            limits=options.limits,
            **{name: getattr(options, name) for name in _SESSION},
        )
        self._options: dict[str, Any] = {
            "timeout": self._timeouts, "tls": tls, "backoff": options.backoff,
            "record": options.recording("rfb", "3.8"),
        }  # fmt: skip
        self.session = self._make_session()
        self._seen = 0  # updates that the caller has received

    def _peer(self) -> Any:
        return self.address

    @driven
    def connect(self: _Self) -> Waits[_Self]:
        """Connect and complete the handshake; pixels arrive with the first update.

        Raises:
            PeerError: the server rejects the client.
            RemoteProtocolError: the server has another version, or other security types.
            DeadlineExceeded: the server sends nothing.
            OSError: the server cannot be reached.
        """
        if self._connection is not None:
            raise LocalProtocolError(f"{self} is already connected")
        self.session, self.error, self._seen = self._make_session(), None, 0
        connection = yield self._connect(self.address, self.session, **self._options)
        self._connection = self._count(connection)
        self._listen(self._connection)
        return self

    def _receive(self, event: Any) -> None:
        """The session has all that callers ask for."""

    @property
    def framebuffer(self) -> Framebuffer:
        """The pixels of whole updates; later updates are painted into the same framebuffer."""
        framebuffer = self.session.framebuffer
        if framebuffer is None:
            self._check()
            raise ConnectionClosed(f"{self} has no pixels yet")
        return framebuffer

    @property
    def width(self) -> int:
        return self.framebuffer.width

    @property
    def height(self) -> int:
        return self.framebuffer.height

    @property
    def name(self) -> str:
        return self.session.name

    @driven
    def update(self, timeout: float | None = None) -> Waits[list[Rectangle]]:
        """Wait for a whole update that changes pixels; return the changes since the last call.

        `poll` counts as a call. After `DeadlineExceeded` the connection stays open.
        """
        yield from self._until(lambda: self.session.updates != self._seen, timeout, "update")
        return self._pop_changes()

    @driven
    def poll(self) -> Waits[list[Rectangle]]:
        """Receive what has arrived, without waiting; return the changes since the last call."""
        self._check()
        yield self._read()
        changes = self._pop_changes()
        if not changes:
            self._check()
        return changes

    def _pop_changes(self) -> list[Rectangle]:
        self._seen = self.session.updates
        return self.session.pop_changes()

    def snapshot(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return a copy of the pixels, in `out` if given: (height, width, 3), uint8."""
        return self.framebuffer.snapshot(out)

    @driven
    def send(self, messages: ClientMessage | Sequence[ClientMessage]) -> Waits[None]:
        """Send a message, or several at once.

        Raises:
            EncodeError: a field does not fit; nothing was sent.
            LocalProtocolError: the server does not support the message; nothing was sent.
            ConnectionClosed: the connection is closed.
        """
        self._check()
        yield self._transmit(messages)

    @driven
    def key(self, key: int | str, down: bool) -> Waits[None]:
        """Press or release a key: X11's name, a character, or a keysym."""
        yield self.send(KeyEvent(keysym(key), down))

    @driven
    def pointer(self, x: int, y: int, buttons: int = 0) -> Waits[None]:
        """Move the pointer; `buttons` adds up held ones: 1 left, 2 middle, 4 right, 8, 16 wheel."""
        yield self.send(PointerEvent(x, y, buttons))

    def statistics(self) -> dict[str, int]:
        """Return the counts of all clients, and the last connection's.

        ``updates`` that changed pixels, their ``rectangles``, and ``bytes`` of messages.
        """
        session, counts = self.session, super().statistics()
        counts |= {"updates": session.updates, "rectangles": session.rectangles}
        return {**counts, "bytes": session.bytes}


class RfbClient(Blocking, _RfbClientBase):
    """A blocking client of a remote screen, for one thread.

    ::

        with RfbClient("localhost:5900", auth="secret") as screen:
            screen.update()
            screen.key("Return", True)
            image = screen.snapshot()

    Only `update` and `poll` read.

    Attributes:
        session: the newest connection's: `version`, `continuous`, `fences`.
    """

    _connect = staticmethod(tcp.connect)

    def _listen(self, connection: Connection) -> None:
        self._transmit = connection.send
        self._fetch, _ = connection.reader_call(_SLICE)

    def _wait(self, seconds: float | None, wakeups: int) -> None:
        connection = self._connection
        wait = _SLICE if seconds is None else min(seconds, _SLICE)
        arrived = connection.pending or ready(connection.fileno(), wait)[0]
        self._hear(self._fetch(False) if arrived else None)

    def _read(self) -> None:
        for _ in range(_READS):
            have = self._fetch(False)
            self._hear(have)
            if have is None:
                return

    def _hear(self, have: int | OSError | None) -> None:
        try:
            self._connection.deliver(self._receive, have)
        except RlwireError as error:
            self._end(error)


class AsyncRfbClient(Asyncio, _RfbClientBase):
    """`RfbClient` for asyncio: the same methods, arguments and errors.

    It receives updates while the loop runs. One task at a time may wait.
    """

    _connect = staticmethod(tcp_asyncio.connect)
    _waiter: asyncio.Future[None] | None = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self, seconds: float | None, wakeups: int) -> None:
        if self._waiter is not None:
            raise LocalProtocolError(f"{self.address}: another task is already waiting")
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({waiter}, timeout=seconds)
        finally:
            self._waiter = None

    async def _read(self) -> None:
        await asyncio.sleep(0)  # the loop reads meanwhile
