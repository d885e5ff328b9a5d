"""`RewarderServer`: pushes the rewards of one environment to any number of clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from types import EllipsisType
from typing import Any
from weakref import WeakKeyDictionary

from rlwire._options import with_options
from rlwire.codecs.casting import flag, real
from rlwire.codecs.rewarder import (
    AgentAction,
    ConnectionClose,
    EnvDescribe,
    EnvObservation,
    EnvReset,
    EnvReward,
    EnvText,
    ReplyEnvReset,
    ReplyError,
)
from rlwire.codecs.rewarder.infos import OPTIONS, restore_arrays
from rlwire.codecs.websocket.handshake import UpgradeRequest
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LimitExceeded,
    LocalProtocolError,
    RlwireError,
    describe,
    on_error,
)
from rlwire.serving.serving import Running, Service, StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.passwords import PasswordCheck, new_password
from rlwire.sessions.rewarder.rules import Push
from rlwire.sessions.rewarder.server import RewarderServerSession, Runtime
from rlwire.sessions.stack import Stack
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.interface import NOTHING
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.universe.options import PASSWORD, RewarderServerOptions
from rlwire.universe.push_client import PushHandler
from rlwire.universe.rewarder._loan import Loan
from rlwire.urls import parse_url

logger = logging.getLogger(__name__)

_ACTIONS = 1024  # in the queue of `actions`; the oldest are dropped
_RESETS = 64  # in the queue of `next_reset`; the oldest are rejected
_TEXT = 1000  # maximum characters of an error
_QUEUED = 64  # pushes queued for the event loop before the next push blocks
_BATCH = 4096  # messages sent in one iteration of the loop
_PUSH_TIMEOUT = 30.0  # seconds that a push may block


@dataclass(frozen=True)
class EnvResetRequest:
    """A client's reset; reply with `RewarderServer.begin_episode` or `refuse`.

    Attributes:
        env_id: the environment, None for the current one.
        seed: for the environment, if any.
        fps: frames per second, None for the current rate.
        options: of the environment's reset, which rlwire's clients send, or None.
        episode_id: the newest episode that the client has received.
        peer: the client's address.
        message, client: what came, and from which connection.
    """

    env_id: str | None
    seed: int | None
    fps: float | None
    episode_id: str | None
    peer: str
    options: Mapping[str, Any] | None
    message: EnvReset = field(repr=False, compare=False)
    client: AsyncConnection = field(repr=False, compare=False)


class RewarderServer(StreamServer):
    """A rewarder: the environment pushes rewards, agents reset and act.

    ::

        with RewarderServer("my.Game-v0", "127.0.0.1:15900", auth="...") as server:
            while True:
                if (request := server.next_reset(timeout=0)) is not None:
                    game.reset(request.seed)
                    server.begin_episode(request)
                for action in server.actions():
                    game.play(action.action)
                server.observation(game.numbers())
                server.reward(game.score(), game.is_over())

    All clients receive the same pushes. One is active: its resets and actions reach the
    environment. The others are observers. Methods may be called from any thread; a thread's pushes
    keep their order and do not wait for slow clients. ``GET /healthz`` returns 200 without a
    password.

    `env_id` is the environment's id, None for none yet. In `timeout`, `connect` applies to
    handshakes, and `write` to a client that does not read.

    Attributes:
        auth: the password that clients must send.
        player: steps the environment, for an `EnvironmentRewarder`.
        limits: of messages.
        log: for what clients cause, at a limited rate.

    Raises:
        ValueError: an argument is invalid.
    """

    scheme = "universe"
    player: Any = None  # begins and ends with the server

    @with_options(RewarderServerOptions)
    def __init__(self, env_id: str | None, options: RewarderServerOptions) -> None:
        auth, self._random = options.auth, options.auth is ...
        self.auth: str | None = new_password() if isinstance(auth, EllipsisType) else auth
        limits = options.limits
        about = dict(options.about or {})
        self._runtime = Runtime(
            EnvDescribe(env_id, options.env_state, options.rate, extra_body=about),
            clock=time.monotonic,
            wall=time.time,
            password=self.auth,
            limits=limits,
        )
        self._connections = RewarderService(
            self,
            self._receive,
            self._runtime,
            options.backlog,
            {
                "origins": options.origins,
                "ping_interval": options.ping_interval,
                "ping_timeout": options.ping_timeout,
                "limits": limits,
                "kind": "text",
                "pages": websocket.health,
            },
        )
        self._connections.session()  # raises now if an argument is invalid
        super().__init__(self._connections, options)
        self.guards = "TLS or a password of its own"
        self._guarded = self._encrypted or self.auth not in (None, PASSWORD)
        self._on_action = options.on_action
        self.limits, self.log = self._runtime.limits, self._connections.log
        self._order = threading.Lock()  # clients receive episodes in the order of their starts
        self._lock = threading.Lock()  # guards the following
        self._actions: deque[AgentAction] = deque(maxlen=_ACTIONS)
        self._resets: deque[EnvResetRequest] = deque()
        self._input = threading.Condition(self._lock)
        self._counts: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """The URL for clients, with the password if it is random."""
        url = super().url
        if self._random:
            url = str(parse_url(url).replace(options=(("password", self.auth),)))
        return url

    @property
    def status(self) -> EnvDescribe:
        """The description of the environment that clients receive when they connect."""
        return self._runtime.status

    @property
    def episode_id(self) -> str:
        """The current episode's id."""
        return self._runtime.episode_id

    @property
    def clients(self) -> int:
        """The number of clients, including observers."""
        return len(self._connections.clients)

    @property
    def active(self) -> bool:
        """Whether there is an active client."""
        return self._runtime.active is not None

    def reward(
        self,
        value: float,
        done: bool = False,
        info: Mapping[str, Any] | None = None,
        *,
        episode_id: str | None = None,
    ) -> None:
        """Push a reward to all clients.

        Args:
            value: the reward.
            done: whether the episode is over.
            info: values for JSON.
            episode_id: by default the current episode. Pass it from threads that do not start
                episodes: pushes of an episode that is over are counted as ``stale``, not sent.

        Raises:
            EncodeError, LimitExceeded: it cannot be encoded; nothing was sent.
            DeadlineExceeded: the event loop is too busy: it accepted no push for 30 s.
        """
        if type(value) is not int or abs(value) >= 1 << 1023:
            value = real(value, "the reward")
        given = value, done is not False and flag(done, "done"), dict(info or {})
        self._connections.send(self._runtime.push_values(EnvReward, given, episode_id), wait=True)

    def text(self, text: str, *, episode_id: str | None = None) -> None:
        """Push a text to all clients; see `reward`."""
        if not isinstance(text, str):
            raise TypeError(f"text must be str, not {type(text).__name__}")
        push = self._runtime.push(EnvText(str(text), episode_id=episode_id or None))
        self._connections.send(push, wait=True)

    def observation(self, observation: Any, *, episode_id: str | None = None) -> None:
        """Push an observation to all clients, an array or a value for JSON; see `reward`.

        Tuples arrive as lists. EncodeError for what JSON lacks, such as bytes and dates.
        """
        arrays, clients = len(self._connections.arrays), len(self._connections.clients)
        if arrays:
            event = EnvObservation(observation, episode_id=episode_id or None)
            push = self._runtime.push(event, arrays=True, text=arrays < clients)
        else:
            push = self._runtime.push_values(EnvObservation, (observation,), episode_id)
        self._connections.send(push, wait=True)

    def describe(
        self, *, env_id: str | None = None, env_state: str | None = None, fps: float | None = None
    ) -> None:
        """Change the description's given fields, and push it to all clients."""
        with self._order:
            status = self._runtime.describe(env_id=env_id, env_state=env_state, fps=fps)
            self._connections.send(self._runtime.push(status))

    def begin_episode(
        self,
        request: EnvResetRequest | None = None,
        *,
        env_id: str | None = None,
        env_state: str = "running",
        fps: float | None = None,
        info: Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> str:
        """Start a new episode for later pushes, describe it to all clients, and return its id.

        Args:
            request: the reset to reply to; None if the environment starts an episode by itself.
            env_id: the environment; by default the same.
            env_state: its state.
            fps: frames per second; by default the same.
            info: of the environment's reset, for the first step's info of rlwire's clients.
            about: replaces the server's `about`, as for another environment.
        """
        past = None if request is None else request.episode_id
        with self._order:
            status = self._runtime.begin(
                past, env_id=env_id, env_state=env_state, fps=fps, info=info, about=about
            )
            episode_id = status.episode_id
            assert episode_id is not None
            self.count("episodes")  # before a client receives it
            self._connections.send(self._runtime.push(status))
            if request is not None:
                parent = request.message.message_id
                reply = ReplyEnvReset(parent_message_id=parent, episode_id=episode_id)
                self._connections.send(reply, request.client)
        return episode_id

    def refuse(self, request: EnvResetRequest | AgentAction, message: str) -> None:
        """Reply to a reset or an action with an error, such as "No such environment: llama"."""
        if isinstance(request, EnvResetRequest):
            client: AsyncConnection | None = request.client
            number, name = request.message.message_id, "resets_refused"
        else:
            active = self._runtime.active
            client = None if active is None else self._connections.clients.get(active)
            number, name = request.message_id, "actions_refused"
        self.count(name)
        if client is not None:
            self._connections.send(ReplyError(message[:_TEXT], parent_message_id=number), client)

    def actions(self) -> list[AgentAction]:
        """Return the actions since the last call, at most the last 1,024."""
        with self._lock:
            taken = list(self._actions)
            self._actions.clear()
        return taken

    def next_reset(self, timeout: float | None = None) -> EnvResetRequest | None:
        """Return the next reset; None after `timeout` seconds, or when the server stops."""
        with self._input:
            if not self._resets and timeout != 0:
                self._input.wait_for(lambda: self._resets or not self.running, timeout)
            return self._resets.popleft() if self._resets else None

    def next_input(self, timeout: float | None = None) -> EnvResetRequest | AgentAction | None:
        """Return the next reset or action; None after `timeout` seconds, or once it has stopped.

        None also at once while the calling thread has a `loan`, which has the next one.
        """
        with self._input:
            self._input.wait_for(
                lambda: self._resets or self._actions or self.loan or not self.running, timeout
            )
            queue: deque[Any] = self._resets or self._actions
            return queue.popleft() if queue else None

    def wake(self) -> None:
        """Let `next_input` check again what there is."""
        with self._input:
            self._input.notify_all()

    def borrow(self) -> None:
        """Ask for a `loan` to the calling thread."""
        self._connections.borrow(self._runtime.active)

    @property
    def loan(self) -> Loan | None:
        """The active client's connection, if the calling thread has borrowed it."""
        loan = self._connections.loan
        return loan if loan is not None and loan.mine else None

    def statistics(self) -> dict[str, int]:
        """Return the number of ``clients``, and counts since the server was made.

        ``pushes``, ``messages`` (one for each client and push), ``stale`` (unsent pushes of ended
        episodes), ``slow`` (clients closed over `backlog`), ``refused`` (wrong password, or a
        second agent), ``actions_dropped`` (from a full queue), and others.
        """
        connections, counts = self._connections, {"stale": self._runtime.stale}
        for name in ("actions", "pushes", "messages"):
            counts[name] = getattr(connections, name)
        with self._lock:
            counts |= self._counts
        found = {name: count for name, count in counts.items() if count}
        return {"clients": self.clients, "active": int(self.active), **found}

    def count(self, name: str, number: int = 1) -> None:
        """Add to a count of the statistics."""
        with self._lock:
            self._counts[name] += number

    def _receive(self, client: AsyncConnection, event: Any) -> Any:
        """Process an action or a reset, in the thread that has received it."""
        if type(event) is tuple:  # of a borrower that could not answer a ping
            number, *action = event
            event = AgentAction([action], message_id=number)
        if type(event) is AgentAction:
            self._connections.actions += 1  # before a client can hold its step
            if self._on_action is not None:
                self._on_action(event)
                return NOTHING
            with self._input:
                self._counts["actions_dropped"] += len(self._actions) == _ACTIONS
                self._actions.append(event)
                self._input.notify_all()
            return NOTHING
        stack: Any = client.session
        if stack.inner.arrays:
            stack.outer.accept_binary()
            self._connections.arrays.add(stack.inner)
        seed = event.seed  # checked by the session, as the options
        options = restore_arrays(event.extra_body.get(OPTIONS, {})) or None
        about = event.env_id, seed, event.fps, event.episode_id, client.peer, options
        request = EnvResetRequest(*about, event, client)
        self.log.info("%s: resets %s", client.peer, event.env_id or "the environment")
        with self._input:
            self._counts["resets"] += 1
            self._resets.append(request)
            late = self._resets.popleft() if len(self._resets) > _RESETS else None
            self._input.notify_all()
        if late is not None:
            self.refuse(late, f"more than {_RESETS} resets are pending")
        return NOTHING

    def _run(self) -> Running:
        player = self.player
        if player is None:
            return self._listen()
        with on_error(player.end):
            player.begin(lambda: self._stopping is not None and self._stopping.asked)
            return self._listen()

    def _listen(self) -> Running:
        return super()._run()

    def _details(self) -> str:
        env_id, fps = self._runtime.status.env_id, self._runtime.status.fps
        return f"{env_id or 'no environment yet'} at {fps:g} Hz"

    def _after_stop(self) -> None:
        super()._after_stop()
        if self.player is not None:
            self.player.end()
        self._connections.close_pair()
        self.wake()
        counts = ", ".join(f"{name} {count}" for name, count in self.statistics().items() if count)
        logger.info("rewarder: %s", counts or "no clients")


@dataclass(eq=False)
class RewarderService(Service[AsyncConnection]):
    """Serves the connections of a server, on its event loop; other threads queue pushes for it."""

    _server: RewarderServer
    receive: Callable[[AsyncConnection, Any], object]
    _runtime: Runtime
    _backlog: int
    _websocket: dict[str, Any]  # options of the sessions
    clients: dict[RewarderServerSession, AsyncConnection] = field(default_factory=dict)
    arrays: set[RewarderServerSession] = field(default_factory=set)  # of these, that read arrays
    actions: int = 0
    pushes: int = 0
    messages: int = 0
    log: RateLimitedLog = field(default_factory=lambda: RateLimitedLog(logger))
    loan: Loan | None = None  # the current or last one
    _pair: tuple[socket.socket, socket.socket] | None = None  # wakes its borrower
    _loop: asyncio.AbstractEventLoop | None = None  # while it serves
    _thread: int = 0
    # Pushes for sessions whose connections are opening; None after too many.
    _opening: WeakKeyDictionary[RewarderServerSession, list[Push] | None] = field(
        default_factory=WeakKeyDictionary
    )
    _opens: bool = False  # whether there may be any
    # Messages for the loop to send. Unless it is empty, all go through it, to keep the order.
    _queue: deque[tuple[Any, AsyncConnection | None]] = field(default_factory=deque)
    _scheduled: bool = False
    _changed: threading.Condition = field(
        default_factory=lambda: threading.Condition(threading.Lock())
    )

    def session(self) -> Stack:
        """Return a connection's session, whose inner one is made when its handshake is read."""
        check = PasswordCheck() if self._runtime.guarded else None
        outer = websocket.WebSocketServerSession(
            accept=self._connect, password_check=check, **self._websocket
        )
        return Stack(outer, lambda: outer.accepted)

    def _connect(self, request: UpgradeRequest) -> RewarderServerSession:
        headers = request.headers
        session = self._runtime.connect(
            headers.get("Authorization"), headers.get("openai-observer")
        )
        if self.loan is not None and not self.loan.ended:  # a loan is of the only connection
            self.loan.connection.take_back()
        self._opening[session], self._opens = [], True
        return session

    def handler(self, connection: AsyncConnection) -> PushHandler:
        """Return a connection's handler, after sending the pushes since its handshake."""
        session: RewarderServerSession = connection.session.inner  # type: ignore[attr-defined]
        handler = PushHandler(
            partial(self.receive, connection), partial(self._forget, connection, session)
        )
        self._server.count("connections")
        if session.closed:
            self._opening.pop(session)
            self._server.count("refused")
            self.log.warning("%s: rejected: %s", connection.peer, session.close_reason)
            return handler
        self.clients[session] = connection
        kind = "observer" if session.observer else "agent"
        self.log.info("%s: connected, %s", connection.peer, kind)
        if (missed := self._opening.pop(session)) is None:
            self._drop(connection)
        for push in missed or ():
            self.messages += 1
            self._post(push, connection)
        return handler

    def _forget(self, connection: AsyncConnection, session: RewarderServerSession) -> None:
        self.arrays.discard(session)
        if self.clients.pop(session, None) and session.close_reason is not None and self._loop:
            self._server.count("refused")
            self.log.warning("%s: closed: %s", connection.peer, session.close_reason)
        if session.refused:
            self._server.count("messages_refused", session.refused)
        session.release()

    def set_up_loop(self) -> None:
        """Start sending on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self.loan, self._pair = None, socket.socketpair()
        for end in self._pair:
            end.setblocking(False)

    def close_pair(self) -> None:
        pair, self._pair = self._pair, None
        for end in pair or ():
            end.close()

    def borrow(self, active: RewarderServerSession | None) -> None:
        """Have the loop lend the active client's connection to the calling thread, if it can."""
        if self.loan is not None and not self.loan.ended:
            return
        client = None if active is None else self.clients.get(active)
        if client is None or not client.lendable or len(self.clients) > 1 or self._opening:
            return
        with self._changed:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._lend, client, get_ident())

    def _lend(self, client: AsyncConnection, thread: int) -> None:
        # The borrower's own pushes, sent directly, must not overtake queued ones.
        with self._changed:
            alone = len(self.clients) == 1 and not (self._opening or self._queue)
            if alone and client in self.clients.values() and self._pair is not None:
                loan = Loan(self, client, thread, self._pair)
                if loan.begin():
                    self.loan = loan
        self._server.wake()

    def tear_down_loop(self) -> None:
        """Send the queued messages, and then ``v0.connection.close`` to all clients."""
        while self._queue:
            self._drain()
        with self._changed:
            self._loop = None
            self._changed.notify_all()
        error = self._server.fatal
        reason = "" if error is None else f": {describe(error)}"
        message = ConnectionClose(f"Disconnected since the rewarder stops{reason}"[:_TEXT])
        for client in tuple(self.clients.values()):
            self._post(message, client)

    def send(self, what: Any, client: AsyncConnection | None = None, *, wait: bool = False) -> None:
        """Send a message to one client or, with None, to all; from any thread."""
        loan = self.loan
        if get_ident() == self._thread:
            if not self._scheduled:
                self._post(what, client)
                return
        elif loan is not None and loan.mine and client in (None, loan.connection):
            if self.send_borrowed(loan, what, client is None):
                return
        elif wait and len(self._queue) >= _QUEUED:
            self._wait_for_room()
        with self._changed:
            if self._loop is None:
                return
            overtakes = self.loan is not loan  # a loan was made meanwhile
            if not overtakes:
                self._queue.append((what, client))
                if self._scheduled:
                    return
                self._scheduled = True
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._drain)
        if overtakes:
            self.send(what, client, wait=wait)

    def send_borrowed(self, loan: Loan, what: Any, pushed: bool) -> bool:
        """Send a message to the connection that this thread has borrowed, unless that has ended."""
        try:
            if not loan.post(what):
                return False
        except RlwireError as error:
            self._not_sent(loan.connection, error)
        self.pushes += pushed
        self.messages += pushed
        return True

    def _wait_for_room(self) -> None:
        with self._changed:
            if not self._changed.wait_for(
                lambda: len(self._queue) < _QUEUED or self._loop is None, _PUSH_TIMEOUT
            ):
                raise DeadlineExceeded(
                    f"the rewarder's event loop accepted no push within {_PUSH_TIMEOUT:g} s"
                )

    def _drain(self) -> None:
        """Send a batch of the queued messages; the loop runs other callbacks between batches."""
        most = max(1, _BATCH // (len(self.clients) or 1))
        with self._changed:
            queue = self._queue
            batch = [queue.popleft() for _ in range(min(most, len(queue)))]
            self._changed.notify_all()
        try:
            for what, client in batch:
                self._post(what, client)
        finally:
            with self._changed:
                self._scheduled = bool(self._queue)
            if self._scheduled and self._loop is not None:
                self._loop.call_soon(self._drain)

    def _post(self, what: Any, client: AsyncConnection | None) -> None:
        """Send a message now, on the loop, to one client or to all."""
        clients = list(self.clients.values()) if client is None else [client]
        if client is None:
            self.pushes += 1
            self.messages += len(clients)
            if self._opens:
                self._keep(what)
        for one in clients:
            try:
                one.post(what, self._backlog)
            except RlwireError as error:
                self._not_sent(one, error)

    def _keep(self, push: Push) -> None:
        """Keep a push for the sessions whose connections are opening."""
        self._opens = len(self._opening) > 0
        for session, missed in self._opening.items():
            if missed is not None:
                missed.append(push)
                if len(missed) > _BATCH or sum(each.size for each in missed) > self._backlog:
                    self._opening[session] = None

    def _not_sent(self, one: AsyncConnection, reason: RlwireError) -> None:
        if isinstance(reason, (ConnectionClosed, LocalProtocolError)):
            # The client is closing, or the request of this reply was cancelled.
            logger.debug("%s: message dropped: %s", one.peer, reason)
        elif isinstance(reason, LimitExceeded) and reason.limit == "backlog":
            self._drop(one)
        else:
            self.log.error("%s: message cannot be sent: %s", one.peer, reason)

    def _drop(self, client: AsyncConnection) -> None:
        self._server.count("slow")
        self.log.warning("%s: closed: unsent bytes over backlog=%d", client.peer, self._backlog)
        self.clients.pop(client.session.inner, None)  # type: ignore[attr-defined]
        client.abort()
