"""The connections of a `RewarderServer`, on its event loop.

What is to be sent (`Connections.send`) is written to all of them at once, and what one of them does
not take waits for that one alone. Another thread hands it over, in order, and goes on: the loop is
woken up once for all that was handed over meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rlwire.codecs.rewarder import AgentAction, ConnectionClose, EnvReset
from rlwire.codecs.websocket.handshake import Request
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LimitExceeded,
    LocalProtocolError,
    RlwireError,
)
from rlwire.serving.serving import Service
from rlwire.sessions import websocket
from rlwire.sessions.guesses import Guess
from rlwire.sessions.rewarder.rules import Push
from rlwire.sessions.rewarder.server import RewarderServerSession, Runtime, Who
from rlwire.transports.interface import NOTHING
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.tcp_asyncio import AsyncConnection

if TYPE_CHECKING:
    from rlwire.universe.rewarder.server import RewarderServer

logger = logging.getLogger(__name__)

_QUEUED = 64  # what waits for the event loop before who pushes more waits as well
_AT_ONCE = 4096  # messages that are sent before others have their turn on the loop
_PATIENCE = 30.0  # seconds for an event loop to take a push


class Client:
    """A connection that is told what is pushed, and the responder of what comes from it."""

    __slots__ = ("_connections", "connection", "peer", "session")

    def __init__(
        self, connections: Connections, connection: AsyncConnection, session: RewarderServerSession
    ) -> None:
        self._connections = connections
        self.connection = connection
        self.session = session
        self.peer = connection.peer

    def answer(self, event: AgentAction | EnvReset) -> Any:
        """Hand a message on; what answers it is sent when there is something."""
        connections = self._connections
        if type(event) is AgentAction:
            connections.actions += 1
            if connections.on_action is not None:
                connections.on_action(event)
                return NOTHING
        connections.told.take(event, self)
        return NOTHING

    def failure(self, event: Any, error: Exception) -> Any:
        """Nothing was to be sent."""
        raise error

    def close(self) -> None:
        """Take note that the connection is gone."""
        self._connections.left(self)


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


class Connections(Service):
    """What all connections of a server share.

    Attributes:
        clients: those that are told what is pushed, by their sessions.
        told: who is told what they say.
        on_action: called with each action in place of that, if there is one.
        actions, pushes, messages: what came, what was pushed, and what that became, one for each
            client.
    """

    def __init__(
        self,
        server: RewarderServer,
        on_action: Callable[[AgentAction], object] | None,
        runtime: Runtime,
        backlog: int,
        speech: dict[str, Any],
    ) -> None:
        self.clients: dict[RewarderServerSession, Client] = {}
        self.told = server
        self.on_action = on_action
        self.actions = self.pushes = self.messages = 0
        self.log = SeldomLog(logger)
        self._runtime = runtime
        self._backlog = backlog
        self._speech = speech
        self._loop: asyncio.AbstractEventLoop | None = None  # while it serves
        self._thread = 0
        self._newcomers: WeakKeyDictionary[RewarderServerSession, _Newcomer] = WeakKeyDictionary()
        self._coming = False  # whether there may be newcomers
        # What the loop is to send. As long as there is something, nobody overtakes it.
        self._queue: deque[tuple[Any, Client | None]] = deque()
        self._scheduled = False
        self._handing = threading.Condition(threading.Lock())

    # What the server calls.

    def session(self) -> websocket.WebSocketServerSession:
        """Return a connection's session, whose inner one is made when its handshake is read."""
        guess = Guess() if self._runtime.guarded else None
        return websocket.WebSocketServerSession(self._connect, guess=guess, **self._speech)

    def _connect(self, request: Request) -> RewarderServerSession:
        headers = request.headers
        session = self._runtime.connect(
            headers.get("Authorization"), headers.get("openai-observer")
        )
        self._newcomers[session] = _Newcomer(self._backlog)
        self._coming = True
        return session

    def responder(self, connection: AsyncConnection) -> Client:
        """Take a connection in, and send it what was pushed while it opened."""
        session: RewarderServerSession = connection.session.inner  # type: ignore[attr-defined]
        client = Client(self, connection, session)
        self.told.count("connections")
        missed = self._newcomers.pop(session).pushes
        if session.closed:
            self.told.count("refused")
            self.log.warning("%s: refused: %s", client.peer, session.closing)
            return client
        self.clients[session] = client
        observes = session.who is Who.OBSERVER
        self.log.info("%s: an %s", client.peer, "observer" if observes else "agent")
        if missed is None:
            self._drop(client)
        for push in missed or ():
            self.messages += 1
            self._post(push, (client,))
        return client

    def left(self, client: Client) -> None:
        """Take note that a client is gone."""
        session = client.session
        if self.clients.pop(session, None) and session.closing is not None and self._loop:
            self.told.count("refused")
            self.log.warning("%s: closed: %s", client.peer, session.closing)
        if session.refused:
            self.told.count("messages_refused", session.refused)
        session.release()

    def open(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def part(self) -> None:
        """Send what was handed over, and tell all clients that it ends."""
        while self._queue:
            self._drain()
        with self._handing:
            self._loop = None
            self._handing.notify_all()
        farewell = ConnectionClose("Disconnected since the rewarder stops")
        self._post(farewell, tuple(self.clients.values()))

    # Pushes.

    def send(self, what: Any, client: Client | None, *, wait: bool = False) -> None:
        """Send something to one client or, with None, to all; from any thread."""
        if get_ident() == self._thread:
            if not self._scheduled:
                if client is None and not self._coming:
                    self.pushes += 1
                    self.messages += len(self.clients)
                    self._post(what, self.clients.values())
                else:
                    self._tell(what, client)
                return
        elif wait and len(self._queue) >= _QUEUED:
            self._wait_for_room()
        with self._handing:
            if self._loop is None:
                return
            self._queue.append((what, client))
            if self._scheduled:
                return
            self._scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._drain)

    def _wait_for_room(self) -> None:
        with self._handing:
            if not self._handing.wait_for(
                lambda: len(self._queue) < _QUEUED or self._loop is None, _PATIENCE
            ):
                raise DeadlineExceeded(
                    f"the rewarder's event loop did not take a push within {_PATIENCE:g} s"
                )

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
        if self._scheduled and self._loop is not None:
            self._loop.call_soon(self._drain)

    def _tell(self, what: Any, client: Client | None) -> None:
        """Send something now, on the loop."""
        if client is not None:
            self._post(what, (client,))
            return
        self.pushes += 1
        self.messages += len(self.clients)
        if self._coming:
            for newcomer in self._newcomers.values():
                newcomer.keep(what)
            self._coming = bool(self._newcomers)
        self._post(what, self.clients.values())

    def _post(self, what: Any, clients: Iterable[Client]) -> None:
        backlog = self._backlog
        failed: list[tuple[Client, RlwireError]] = []
        for one in clients:
            try:
                one.connection.post(what, backlog)
            except RlwireError as error:
                failed.append((one, error))
        if failed:
            self._not_told(failed)

    def _not_told(self, failed: list[tuple[Client, RlwireError]]) -> None:
        for one, error in failed:
            if isinstance(error, (ConnectionClosed, LocalProtocolError)):
                # It is about to go, or what it asked for is of no interest any more.
                logger.debug("%s: not told: %s", one.peer, error)
            elif isinstance(error, LimitExceeded) and error.limit == "backlog":
                self._drop(one)
            else:
                self.log.error("%s: cannot be told: %s", one.peer, error)

    def _drop(self, client: Client) -> None:
        self.told.count("slow")
        self.log.warning("%s: closed, %d bytes wait for it", client.peer, self._backlog)
        self.clients.pop(client.session, None)
        client.connection.abort()
