"""`RfbClient` connects to a remote screen, its keyboard and pointer."""

from __future__ import annotations

from collections.abc import Sequence
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
from rlwire.transports import tcp
from rlwire.transports.address import parse
from rlwire.transports.sockets import Timeouts, ready
from rlwire.transports.waits import Blocking, ClientBase, Waits, driven
from rlwire.universe.options import RfbClientOptions
from rlwire.universe.push_client import PushClient
from rlwire.urls import located

_Self = TypeVar("_Self", bound="RfbClient")

_SESSION = ("shared", "encodings", "quality", "compression", "continuous")
_READS = 1024  # maximum of reads in one `poll`
_SLICE = 0.25  # maximum seconds of one read


class RfbClient(Blocking, PushClient, ClientBase):
    """A client of a remote screen, for one thread.

    ::

        with RfbClient("localhost:5900", auth="secret") as screen:
            screen.update()
            screen.key("Return", True)
            image = screen.snapshot()

    Only `update` and `poll` read.

    Attributes:
        session: the newest connection's: `version`, `continuous`, and `updates`, the number of
            updates that changed pixels.
    """

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

    def connect(self: _Self) -> _Self:
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
        connection = tcp.connect(self.address, self.session, **self._options)
        self._connection = self._count(connection)
        self._fetch, _ = connection.reader_call(_SLICE)
        return self

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

    def poll(self) -> list[Rectangle]:
        """Receive what has arrived, without waiting; return the changes since the last call."""
        self._check()
        for _ in range(_READS):
            have = self._fetch(False)
            self._hear(have)
            if have is None:
                break
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

    def send(self, messages: ClientMessage | Sequence[ClientMessage]) -> None:
        """Send a message, or several at once.

        Raises:
            EncodeError: a field does not fit; nothing was sent.
            LocalProtocolError: the server does not support the message; nothing was sent.
            ConnectionClosed: the connection is closed.
        """
        self._check()
        self._connection.send(messages)

    def key(self, key: int | str, down: bool) -> None:
        """Press or release a key: X11's name, a character, or a keysym."""
        self.send(KeyEvent(keysym(key), down))

    def pointer(self, x: int, y: int, buttons: int = 0) -> None:
        """Move the pointer; `buttons` adds up held ones: 1 left, 2 middle, 4 right, 8, 16 wheel."""
        self.send(PointerEvent(x, y, buttons))

    def _wait(self, seconds: float | None, wakeups: int) -> None:
        connection = self._connection
        wait = _SLICE if seconds is None else min(seconds, _SLICE)
        arrived = connection.pending or ready(connection.fileno(), wait)[0]
        self._hear(self._fetch(False) if arrived else None)

    def _hear(self, have: int | OSError | None) -> None:
        try:
            self._connection.deliver(self._receive, have)
        except RlwireError as error:
            self._end(error)
