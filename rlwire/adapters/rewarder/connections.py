"""The connections of a `RewarderServer`, on its event loop.

What is to be sent (`Service.send`) is written to all connections at once, and what one of them does
not take waits for that one alone. The thread that has something to send does that itself when the
event loop has nothing to do; otherwise the loop does it, in the order in which it was handed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from threading import get_ident
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from rlwire.adapters.rewarder.shared_loop import SharedLoop
from rlwire.codecs.rewarder import (
    AgentAction,
    ConnectionClose,
    EnvReset,
)
from rlwire.codecs.websocket_handshake import Request
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
)
from rlwire.sessions import websocket
from rlwire.sessions.rewarder_server import Push, Runtime, ServerSession, Who
from rlwire.transports.address import Address
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.tcp_asyncio import AsyncConnection, AsyncServer

__all__ = ["Client", "Listener", "Service"]

logger = logging.getLogger(__name__)

_QUEUED = 64  # what waits for the event loop before who pushes more waits as well
_AT_ONCE = 4096  # messages that are sent before others have their turn on the loop
_PATIENCE = 30.0  # seconds for an event loop to take a push


class Listener(Protocol):
    """Who is told what clients say; called on the event loop."""

    def take(self, event: AgentAction | EnvReset, client: Client) -> None:
        """Take a client's message."""

    def count(self, name: str, number: int = 1) -> None:
        """Count what happened; from any thread."""

    def pushed(self, messages: int) -> None:
        """Count a push and the messages it became; one thread at a time."""

    def idle(self) -> None:
        """Take note that there was no active client for too long."""


class Client:
    """A connection that is told what is pushed."""

    __slots__ = ("_backlog", "connection", "peer", "session")

    def __init__(self, connection: AsyncConnection, session: ServerSession, backlog: int) -> None:
        self.connection = connection
        self.session = session
        self.peer = connection.peer
        self._backlog = backlog

    def post(self, what: Any) -> bool:
        """Send something; returns whether the client can take it.

        Raises:
            EncodeError, LimitExceeded: it cannot be written.
        """
        try:
            self.connection.post(what, self._backlog)
        except LimitExceeded as error:
            if error.limit == "backlog":
                return False
            raise
        except (ConnectionClosed, LocalProtocolError) as error:
            # It is about to go, or what it asked for is of no interest any more.
            logger.debug("%s: not told: %s", self.peer, error)
        return True


class _Newcomer:
    """A session that tells what the environment is, while its connection is still opening.

    Attributes:
        pushes: what was pushed since; None if that was too much.
    """

    __slots__ = ("_room", "pushes")

    def __init__(self, backlog: int) -> None:
        self._room = backlog
        self.pushes: list[Push] | None = []

    def keep(self, push: Push) -> None:
        """Take note of a push."""
        self._room -= push.size
        if self._room < 0:
            self.pushes = None
        elif self.pushes is not None:
            self.pushes.append(push)


class Service:
    """A server on an event loop: what a `LoopThread` runs."""

    def __init__(
        self,
        listener: Listener,
        where: Address,
        runtime: Runtime,
        backlog: int,
        speech: dict[str, Any],
        listening: dict[str, Any],
        idle_timeout: float | None,
    ) -> None:
        self.address = where
        self.clients: tuple[Client, ...] = ()
        self.log = SeldomLog(logger)
        self._told = listener
        self._runtime = runtime
        self._backlog = backlog
        self._speech = speech
        self._listening = listening
        self._idle_timeout = idle_timeout
        self._server: AsyncServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shared: SharedLoop | None = None
        self._thread = 0
        self._newcomers: WeakKeyDictionary[ServerSession, _Newcomer] = WeakKeyDictionary()
        # What the loop is to send. As long as there is something, nobody overtakes it.
        self._queue: deque[tuple[Any, Client | None]] = deque()
        self._scheduled = False
        self._handing = threading.Condition(threading.Lock())
        self._stopping = False

    async def start(self) -> None:
        """Listen."""
        self._loop = loop = asyncio.get_running_loop()
        self._shared = loop if isinstance(loop, SharedLoop) else None
        self._thread = get_ident()
        self._server = AsyncServer(self.address, self._make_session, self._serve, **self._listening)
        self.address = self._server.address
        await self._server.start()
        if self._idle_timeout is not None:
            self._began = time.monotonic()
            self._watch_idle(self._idle_timeout)

    async def stop(self, grace: float) -> None:
        """Tell all clients, and end."""
        while self._queue:
            self._drain()
        with self._handing:
            self._stopping = True
            self._handing.notify_all()
        for client in self.clients:
            client.post(ConnectionClose("Disconnected since the rewarder stops"))
        assert self._server is not None
        await self._server.stop(grace)

    def _watch_idle(self, seconds: float) -> None:
        assert self._loop is not None
        now = time.monotonic()
        left = seconds - min(self._runtime.idle_for(now), now - self._began)
        if left > 0:
            self._loop.call_later(left, self._watch_idle, seconds)
            return
        logger.info("no active client for %g s: stopping", seconds)
        self._told.idle()

    # Connections.

    def _make_session(self) -> websocket.Server:
        return websocket.Server(self._connect, **self._speech)

    def _connect(self, request: Request) -> ServerSession:
        headers = request.headers
        session = self._runtime.connect(
            headers.get("Authorization"), headers.get("openai-observer")
        )
        self._newcomers[session] = _Newcomer(self._backlog)
        return session

    async def _serve(self, connection: AsyncConnection) -> None:
        session: ServerSession = connection.session.inner  # type: ignore[attr-defined]
        client = Client(connection, session, self._backlog)
        told = self._told
        told.count("connections")
        missed = self._newcomers.pop(session).pushes
        if session.closed:
            told.count("refused")
            self.log.warning("%s: refused: %s", client.peer, session.closing)
        else:
            self.clients = (*self.clients, client)
            logger.info("%s: an %s", client.peer, "observer" if _observes(session) else "agent")
            if missed is None or not all(client.post(push) for push in missed):
                self._drop(client)
            elif missed:
                told.count("messages", len(missed))
        try:
            while True:
                told.take(await connection.receive(), client)
        finally:
            before = len(self.clients)
            self.clients = tuple(other for other in self.clients if other is not client)
            if session.closing is not None and before != len(self.clients) and not self._stopping:
                told.count("refused")
                self.log.warning("%s: closed: %s", client.peer, session.closing)
            if session.refused:
                told.count("messages_refused", session.refused)
            session.release()

    # Pushes.

    def send(self, what: Any, client: Client | None, *, wait: bool = False) -> None:
        """Send something to one client or, with None, to all; from any thread.

        Args:
            what: a `Push`, or what a `ServerSession` takes.
            client: who is told.
            wait: whether to wait, in another thread than the loop's, as long as too much waits for
                the loop.

        Raises:
            DeadlineExceeded: that takes too long.
        """
        if get_ident() == self._thread:
            if not self._scheduled:
                self._tell(what, client)
                return
        elif wait and len(self._queue) >= _QUEUED:
            self._wait_for_room()
        elif not self._scheduled:
            # Not waiting for the lock: what the loop runs now may wait for this thread.
            shared = self._shared
            if shared is not None and shared.lock.acquire(blocking=False):
                try:
                    if not self._stopping:
                        self._tell(what, client)
                        shared.changed()
                        return
                finally:
                    shared.lock.release()
        self._enqueue(what, client)

    def _wait_for_room(self) -> None:
        with self._handing:
            if not self._handing.wait_for(
                lambda: len(self._queue) < _QUEUED or self._stopping, _PATIENCE
            ):
                raise DeadlineExceeded(
                    f"the rewarder's event loop did not take a push within {_PATIENCE:g} s"
                )

    def _enqueue(self, what: Any, client: Client | None) -> None:
        with self._handing:
            if self._stopping or self._loop is None:
                return
            self._queue.append((what, client))
            if self._scheduled:
                return
            self._scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """Send what was handed over, but let the loop do other things between."""
        most = max(1, _AT_ONCE // (len(self.clients) or 1))
        with self._handing:
            queue = self._queue
            batch = [queue.popleft() for _ in range(min(most, len(queue)))]
            self._handing.notify_all()
        for what, client in batch:
            self._tell(what, client)
        with self._handing:
            self._scheduled = bool(self._queue)
        if self._scheduled:
            assert self._loop is not None
            self._loop.call_soon(self._drain)

    def _tell(self, what: Any, client: Client | None) -> None:
        """Send something now: the loop is ours."""
        if client is None:
            clients = self.clients
            self._told.pushed(len(clients))
            if self._newcomers:
                for newcomer in self._newcomers.values():
                    newcomer.keep(what)
        else:
            clients = (client,)
        slow = None
        for one in clients:
            try:
                if not one.post(what):
                    slow = [*(slow or []), one]
            except (EncodeError, LimitExceeded) as error:
                self.log.error("%s: cannot be told: %s", one.peer, error)
        for one in slow or ():
            self._drop(one)

    def _drop(self, client: Client) -> None:
        self._told.count("slow")
        self.log.warning("%s: closed, %d bytes wait for it", client.peer, self._backlog)
        self.clients = tuple(other for other in self.clients if other is not client)
        client.connection.abort()


def _observes(session: ServerSession) -> bool:
    return session.who is Who.OBSERVER
