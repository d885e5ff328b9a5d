"""`RewarderClient` and `AsyncRewarderClient`: an agent's, or an observer's, side of a rewarder."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from typing import Any, TypeVar

from rlwire import websocket
from rlwire.codecs.rewarder import (
    AgentAction,
    ConnectionClose,
    ControlPing,
    EnvReset,
    UnknownMessage,
)
from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError, PeerError
from rlwire.limits import Limits
from rlwire.registry import located
from rlwire.sessions.rewarder.client import (
    PUSHES,
    ClientSettings,
    RequestDone,
    RewarderClientSession,
    handshake_headers,
)
from rlwire.sessions.rewarder.steps import ClockEstimate, RewarderStep
from rlwire.transports.forking import not_ours, of_this_process
from rlwire.transports.push_client import PushClient, PushHandler
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tls import ClientSide
from rlwire.transports.waiter_asyncio import Waiter
from rlwire.transports.waits import Asyncio, Blocking, Waits, driven
from rlwire.universe.rewarder._reader import Reader

_Self = TypeVar("_Self", bound="RewarderClientBase")

_UNKNOWN = 256  # messages of unknown methods that are kept


class RewarderClientBase(PushClient):
    """What both clients do, once.

    Args:
        address: ``"host:port"``, ``"unix:/path"``, ``"ws://host:port/path"`` or ``"wss://..."``.
        auth: the password that the server asks for.
        tls: for ``wss``; by default a context that trusts the system's authorities.
        timeout: `connect` is for the handshake, the server's first word included.
        backoff: how often and when to try to reach the server; by default once.
        limits: maxima for what is read and written.
        observer: whether to look on only: no resets, no actions.
        attach: whether to join the episode that goes on without a reset. None: as `observer`.
        ping_interval: seconds of silence after which the server's program is pinged by the
            WebSocket; None for never.
        ping_timeout: seconds that it may take to answer.
        session_settings: times and bounds of the protocol.

    Raises:
        ValueError: the URL is none.
        EncodeError: the password cannot be sent.
    """

    _connect: Callable[..., Any]
    _lock: AbstractContextManager[Any] = nullcontext()  # of the session

    def __init__(
        self,
        address: Any,
        *,
        auth: str = "openai",
        tls: ClientSide = None,
        timeout: Timeouts | float | None = None,
        backoff: Backoff | None = None,
        limits: Limits | None = None,
        observer: bool = False,
        attach: bool | None = None,
        ping_interval: float | None = 20.0,
        ping_timeout: float | None = 20.0,
        session_settings: ClientSettings | None = None,
    ) -> None:
        address, tls, path = located("universe", address, tls)
        self.url = websocket.url_of(address, tls, f"/{path}")
        self.observer = observer
        self._settings = session_settings or ClientSettings()
        self._timeouts = Timeouts.of(timeout, idle=None)
        self._options: dict[str, Any] = {
            "headers": handshake_headers(auth, observer),
            "kind": "text",
            "tls": tls,
            "timeout": self._timeouts,
            "backoff": backoff,
            "ping_interval": ping_interval,
            "ping_timeout": ping_timeout,
            "limits": limits,
        }
        self._make_session = partial(
            RewarderClientSession,
            clock=time.monotonic,
            wall=time.time,
            observer=observer,
            attach=attach,
            settings=self._settings,
            limits=limits,
        )
        self._session = self._make_session()
        self._transmit: Callable[[Any], None]  # what sends a message over it
        self._greeted = False
        self._replies: dict[int, float | Exception | None] = {}
        self._refused: list[Exception] = []
        self._unknown: list[UnknownMessage] = []

    def _peer(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    @driven
    def connect(self: _Self) -> Waits[_Self]:
        """Connect, and wait until the server says what the environment is.

        Raises:
            PeerError: it does not let us in.
            DeadlineExceeded: it says nothing.
            What `rlwire.websocket.connect` raises.
        """
        if self._connection is not None:
            raise RuntimeError(f"{self} is connected already")
        with self._lock:
            session = self._session = self._make_session()
            self._ended, self._greeted = None, False
            self._refused, self._unknown = [], []
        self._connection = self._count((yield self._connect(self.url, session, **self._options)))
        seconds = self._timeouts.connect
        try:
            self._listen(self._connection)
            yield from self._until(lambda: self._greeted, seconds, "first word")
        except BaseException:
            yield self.close()
            raise
        return self

    def _listen(self, connection: Any) -> None:
        """Have `_take` called with each event from now on, and `_end` at the end."""
        raise NotImplementedError

    def _await_reply(self) -> None:
        """Have a reply read when it comes."""

    def _look(self) -> None:
        """Read what is there already; with the lock."""

    def _take(self, event: Any) -> None:
        """Take one event of the session."""
        kind = type(event)
        if not self._greeted and kind is not ConnectionClose:
            self._greeted = True
            self._wake()
        if kind in PUSHES:
            return
        if kind is RequestDone:
            self._resolve(event)
        elif kind is ConnectionClose:
            self._end(PeerError(event.message))
        elif kind is UnknownMessage:
            self._unknown.append(event)
            del self._unknown[:-_UNKNOWN]

    def _resolve(self, done: RequestDone) -> None:
        outcome: float | Exception = done.seconds
        if done.timed_out:
            what = f"no reply to a {done.what} within {done.seconds:g} s"
            outcome = DeadlineExceeded(f"{self.url}: {what}")
        elif done.error is not None:
            outcome = PeerError(done.error)
        if isinstance(outcome, Exception) and done.what == "message":
            self._refused.append(outcome)
            del self._refused[:-_UNKNOWN]
        elif done.request in self._replies:
            self._replies[done.request] = outcome
        else:
            return
        self._wake()

    def _end(self, error: Exception) -> None:
        closing = self._session.closing
        super()._end(error if closing is None else PeerError(closing))

    def _check_step(self) -> None:
        """Raise what a step has to tell, if nothing has come."""
        if self._refused:
            raise self._refused.pop(0)
        self._check()

    @driven
    def reset(
        self,
        env_id: str | None = None,
        seed: int | None = None,
        *,
        fps: float | None = None,
        timeout: float | None = None,
    ) -> Waits[str]:
        """Ask for a new episode, and wait for it; return its id.

        What came of former episodes is dropped. After an error no episode is open, unless the
        server has begun one by itself; the reply, if it comes after all, is counted and dropped.

        Args:
            env_id: which environment; None for the one that runs.
            seed: for the environment.
            fps: frames a second.
            timeout: seconds; by default `ClientSettings.reset_timeout`.

        Raises:
            PeerError: the server refused it.
            DeadlineExceeded: no answer came in time.
            ConnectionClosed: the connection is gone.
        """
        if timeout is None:
            timeout = self._settings.reset_timeout
        yield from self._ask(EnvReset(env_id, seed, fps), "reset", timeout)
        episode_id = self._session.episode_id
        assert episode_id is not None
        return episode_id

    @driven
    def ping(self, timeout: float | None = None) -> Waits[float]:
        """Return the seconds until the server answers a ping.

        Raises:
            DeadlineExceeded: it does not answer in time; by default `ClientSettings.ping_timeout`.
            ConnectionClosed: the connection is gone.
        """
        if timeout is None:
            timeout = self._settings.ping_timeout
        return (yield from self._ask(ControlPing(), "ping", timeout))

    def _ask(self, request: EnvReset | ControlPing, what: str, timeout: float) -> Waits[float]:
        replies = self._replies
        with self._lock:
            self._post(request)
            self._await_reply()
            number = self._session.last_id
            replies[number] = None
        try:
            yield from self._until(
                lambda: replies[number] is not None, timeout, f"reply to a {what}"
            )
            outcome = replies[number]
        finally:
            with self._lock:
                del replies[number]
                self._session.cancel(number)  # unless it was answered
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is not None
        return outcome

    def act(self, events: Iterable[Sequence[Any]]) -> None:
        """Send an action: events, such as ``[("KeyEvent", 97, True)]``.

        It is not answered; if the server refuses it, the next `step` raises that.

        Raises:
            LocalProtocolError: an observer cannot act.
            EncodeError, LimitExceeded: it cannot be written, or too much waits to be sent.
            ConnectionClosed: the connection is gone.
        """
        self.send(AgentAction(list(events)))

    def send(self, message: AgentAction | UnknownMessage) -> None:
        """Send a message without an answer, such as one of a method of one's own; as `act`."""
        with self._lock:
            self._post(message)

    def _post(self, message: Any) -> None:
        if self._ended is not None or self._connection is None:
            self._check()
        try:
            self._transmit(message)
        except (ConnectionClosed, LocalProtocolError):
            # The server may have said why, and nobody has come to it.
            closing = self._session.closing
            if closing is None:
                raise
            raise PeerError(closing) from None

    def peek(self) -> RewarderStep:
        """Return what `step` would give now, without waiting, and leave it for the next `step`.

        `env_state` tells of the newest episode, which may be one after this step's.
        """
        with self._lock:
            self._look()
            return self._session.peek()

    def take(self) -> RewarderStep:
        """Return what has come since the last step, without waiting; errors as of `step`."""
        with self._lock:
            self._look()
            if not self._session.news:
                self._check_step()
            return self._session.take()

    def take_texts(self) -> tuple[str, ...]:
        """Return the texts of the episode that `step` is of now, and leave the rest for `step`."""
        with self._lock:
            self._look()
            return self._session.take_texts()

    def newest(self) -> tuple[str | None, str | None]:
        """Return id and state of the newest episode that counts, which may be one behind `step`'s.

        Both are None while none is open, as after a reset was asked for.
        """
        with self._lock:
            self._look()
            newest = self._session.episodes.newest
            return (None, None) if newest is None else (newest.episode_id, newest.env_state)

    def unknown(self) -> list[UnknownMessage]:
        """Return messages of methods that are not known, since the last call; the last 256."""
        with self._lock:
            self._look()
            taken, self._unknown = self._unknown, []
        return taken

    @property
    def env_id(self) -> str | None:
        """Which environment there is, as the server last said."""
        return self._session.env_id

    @property
    def env_state(self) -> str | None:
        """What it does, such as "running", as the server last said."""
        return self._session.env_state

    @property
    def fps(self) -> float | None:
        """Its frames a second."""
        return self._session.fps

    @property
    def about(self) -> Mapping[str, Any]:
        """What else the server last said of the environment, by names the protocol does not have.

        ``rlwire.spaces`` of a server of ours is ``{"observation": ..., "action": ...}``, each as
        `rlwire.environments.spaces.space_of` takes it.
        """
        return self._session.about

    @property
    def episode_id(self) -> str | None:
        """The episode that the next step is of; None while none is open."""
        return self._session.episode_id

    def clock_offset(self) -> ClockEstimate | None:
        """Return how the server's clock differs from ours; None before the first pong."""
        with self._lock:
            return self._session.clock_offset()

    def statistics(self) -> dict[str, int]:
        """Return what all clients count, pushes that were ``stale``, ``late`` replies, and more."""
        with self._lock:
            return {**super().statistics(), **self._session.statistics()}


class RewarderClient(Blocking, RewarderClientBase):
    """An agent's, or an observer's, connection to a rewarder.

    ::

        with RewarderClient("127.0.0.1:15900", auth="secret") as client:
            client.reset()
            while not (step := client.step()).done:
                client.act([("Action", choose(step.observation))])

    What comes is taken in when it comes, by a thread while the agent's does not wait, so pings are
    timed well and nothing piles up in the network; `step` gives all that came since the last one.
    Methods may be called from any thread; one at a time may wait in `step`.

    The arguments and errors are `RewarderClientBase`'s.
    """

    _connect = staticmethod(websocket.connect)

    def __init__(self, address: Any, **options: Any) -> None:
        super().__init__(address, **options)
        self._lock: Any = threading.RLock()
        self._looking = threading.Condition(threading.Lock())
        self._reader: Reader | None = None
        of_this_process(self)

    def close_inherited(self) -> None:
        """See `rlwire.transports.forking.Forked`: the reader's thread is the parent's only."""
        if self._connection is not None:
            self._connection = self._reader = None
            self._lock, self._ended = _ParentsLock(self.url), not_ours(self.url)
            self._looking = threading.Condition(threading.Lock())

    def step(self, timeout: float | None = None) -> RewarderStep:
        """Return what has come since the last step, and wait for something if nothing has.

        Something is a reward, a text, an observation, the episode's end, or another `env_state`.

        Args:
            timeout: seconds to wait; then the step is empty. None waits for ever, 0 not at all.

        Raises:
            PeerError: the server refused an action, or it said why it closes the connection.
            ConnectionClosed: the connection is gone. What came before is given first.
        """
        with self._lock:
            session = self._session
            if timeout is not None and timeout <= 0:
                self._look()
            if not session.news:
                reader = self._reader
                if reader is None or self._refused or self._ended is not None:
                    self._check_step()
                if reader is None:  # another thread closes it just now
                    raise ConnectionClosed(f"{self} is not connected any more")
                if timeout is None or timeout > 0:
                    reader.wait(timeout)
                    if not session.news:
                        self._check_step()
            return session.take()

    def _listen(self, connection: Any) -> None:
        self._reader = Reader(
            connection,
            self._session,
            self._lock,
            self._take,
            self._end,
            lambda: bool(self._refused) or self._ended is not None,
        )
        self._transmit = self._reader.send

    def _await_reply(self) -> None:
        if self._reader is not None:
            self._reader.wake()

    def _look(self) -> None:
        if self._reader is not None:
            self._reader.poll()

    def _wake(self) -> None:
        with self._looking:
            self._heard += 1
            self._looking.notify_all()

    def _wait(self, seconds: float | None, heard: int) -> None:
        with self._looking:
            self._looking.wait_for(lambda: self._heard != heard, seconds)

    def _close_connection(self, connection: Any) -> Waits[None]:
        reader, self._reader = self._reader, None
        yield (connection if reader is None else reader).close()


class _ParentsLock:
    """In a child process: nobody gets it."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def __enter__(self) -> None:
        raise not_ours(self._peer)

    def __exit__(self, *_: object) -> None: ...


class AsyncRewarderClient(Asyncio, RewarderClientBase):
    """An agent's, or an observer's, connection to a rewarder.

    ::

        async with AsyncRewarderClient("127.0.0.1:15900", auth="secret") as client:
            await client.reset()
            while not (step := await client.step()).done:
                client.act([("Action", choose(step.observation))])

    What comes is taken in while the loop runs, so pings are timed well and nothing piles up in the
    network; `step` gives all that came since the last one. One task may wait in `step` at a time.

    The arguments and errors are `RewarderClientBase`'s.
    """

    _connect = staticmethod(websocket.connect_asyncio)

    def __init__(self, address: Any, **options: Any) -> None:
        super().__init__(address, **options)
        self._turn: Waiter | None = None  # of a task that waits for a step
        self._due = 0.0  # when its wait ends
        self._timer: asyncio.TimerHandle | None = None  # one for many steps
        self._waiters: set[asyncio.Future[None]] = set()  # of the others

    async def step(self, timeout: float | None = None) -> RewarderStep:
        """Return what has come since the last step, as `RewarderClient.step`."""
        session, turn = self._session, self._turn
        if session.news:
            return session.take()
        self._check_step()
        assert turn is not None
        if turn.waiting:
            raise LocalProtocolError("another task is waiting for a step; one may at a time")
        loop = asyncio.get_running_loop()
        self._due = due = inf if timeout is None else loop.time() + timeout
        timer = self._timer
        if due < inf and (timer is None or timer.when() > due):
            if timer is not None:
                timer.cancel()
            self._timer = loop.call_at(due, self._expire, loop)
        while not session.news and (due == inf or loop.time() < due):
            await turn.begin()
            if not session.news:
                self._check_step()
        return session.take()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._turn is not None and self._turn.waiting and self._due < inf:
            if loop.time() < self._due:  # a later step's
                self._timer = loop.call_at(self._due, self._expire, loop)
            else:
                self._turn.resume(None)

    def _listen(self, connection: Any) -> None:
        self._turn = Waiter(asyncio.get_running_loop())
        self._transmit = connection.post
        connection.serve(PushHandler(self._hear, self._gone), self._end)

    def _hear(self, event: Any) -> None:
        """Take one event, and run the task that waits for it, within this call."""
        self._take(event)
        turn = self._turn
        if turn is not None and turn.waiting and self._session.news:
            turn.resume(None)

    def _wake(self) -> None:
        turn = self._turn
        if turn is not None and turn.waiting and (self._refused or self._ended is not None):
            turn.resume(None)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self, seconds: float | None, heard: int) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=seconds)
        finally:
            self._waiters.discard(waiter)

    def _close_connection(self, connection: Any) -> Waits[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        yield from super()._close_connection(connection)
