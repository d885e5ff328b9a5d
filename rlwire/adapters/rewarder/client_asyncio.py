"""`AsyncRewarderClient`: what a rewarder tells, step by step, for the tasks of an event loop.

Not here: what messages add up to (`rlwire.sessions.rewarder_client`), the blocking counterpart
(`rlwire.adapters.rewarder.client`).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import copy_context
from types import TracebackType
from typing import Any

from rlwire.adapters.websocket import connect_asyncio
from rlwire.codecs.rewarder import (
    AgentAction,
    ConnectionClose,
    ControlPing,
    EnvReset,
    UnknownMessage,
)
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LocalProtocolError,
    PeerError,
    RlwireError,
)
from rlwire.limits import Limits
from rlwire.sessions.rewarder_client import (
    Answered,
    ClientSession,
    ClientSettings,
    Failed,
    Step,
    TimedOut,
    handshake_headers,
)
from rlwire.sessions.rewarder_steps import ClockEstimate, LatencySummary
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tcp_asyncio import AsyncConnection
from rlwire.transports.turn import Turn

__all__ = ["AsyncRewarderClient"]

_UNKNOWN = 256  # messages of unknown methods that are kept


class AsyncRewarderClient:
    """An agent's, or an observer's, connection to a rewarder.

    ::

        async with AsyncRewarderClient("127.0.0.1:15900", "secret") as client:
            await client.reset()
            while not (step := await client.step()).done:
                client.act([("Action", choose(step.observation))])

    What comes is taken in while the loop runs, so pings are timed well and nothing piles up in the
    network; `step` gives all that came since the last one. One task may wait in `step` at a time.

    Args:
        where: ``"ws://host:port/path"``, ``"wss://..."``, or ``"host:port"``.
        password: which the server asks for.
        observer: whether to look on only: no resets, no actions.
        attach: whether to join the episode that goes on without a reset. None: as `observer`.
        tls: for ``wss``; by default a context that trusts the system's authorities.
        timeouts: `connect` is for the handshake, the server's first word included.
        backoff: how often and when to try to reach the server; by default once.
        ping_interval: seconds of silence after which the server's program is pinged by the
            WebSocket; None for never.
        ping_timeout: seconds that it may take to answer.
        settings: times and bounds of the protocol.
        limits: maxima for what is read and written.

    Raises:
        ValueError: the URL is none.
        EncodeError: the password cannot be sent.
    """

    def __init__(
        self,
        where: str,
        password: str = "openai",
        *,
        observer: bool = False,
        attach: bool | None = None,
        tls: ssl.SSLContext | None = None,
        timeouts: Timeouts | None = None,
        backoff: Backoff | None = None,
        ping_interval: float | None = 20.0,
        ping_timeout: float | None = 20.0,
        settings: ClientSettings | None = None,
        limits: Limits | None = None,
    ) -> None:
        where = str(where)
        self.url = where if "://" in where else f"{'ws' if tls is None else 'wss'}://{where}/"
        self.observer = observer
        self._settings = settings or ClientSettings()
        self._limits = limits
        self._attach = attach
        self._timeouts = timeouts or Timeouts(idle=None)
        self._options: dict[str, Any] = {
            "headers": handshake_headers(password, observer),
            "kind": "text",
            "tls": tls,
            "timeouts": self._timeouts,
            "backoff": backoff,
            "ping_interval": ping_interval,
            "ping_timeout": ping_timeout,
            "limits": limits,
        }
        self._session = self._make_session()
        self._connection: AsyncConnection | None = None
        self._reader: Coroutine[Any, Any, None] | None = None
        self._context = copy_context()  # that it runs in
        self._first: asyncio.Future[None] | None = None
        self._turn: Turn | None = None  # of a task that waits for a step
        self._until: float | None = None  # how long it waits
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._replies: dict[int, asyncio.Future[float]] = {}
        self._refused: list[Exception] = []
        self._unknown: list[UnknownMessage] = []
        self._ended: RlwireError | OSError | None = None

    def _make_session(self) -> ClientSession:
        return ClientSession(
            clock=time.monotonic,
            wall=time.time,
            observer=self.observer,
            attach=self._attach,
            settings=self._settings,
            limits=self._limits,
        )

    async def __aenter__(self) -> AsyncRewarderClient:
        return self if self._connection is not None else await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    # -- the connection --------------------------------------------------------------------------

    async def connect(self) -> AsyncRewarderClient:
        """Connect, and wait until the server says what the environment is.

        Raises:
            PeerError: it does not let us in.
            DeadlineExceeded: it says nothing.
            What `rlwire.adapters.websocket.connect_asyncio` raises.
        """
        if self._connection is not None:
            raise RuntimeError(f"{self} is connected already")
        session = self._session = self._make_session()
        self._ended = None
        connection = await connect_asyncio(self.url, session, **self._options)
        self._connection = connection
        loop = asyncio.get_running_loop()
        self._turn = Turn(loop)
        self._first = first = loop.create_future()
        self._reader = self._read(connection)
        self._read_on()
        seconds = self._timeouts.connect
        try:
            await asyncio.wait_for(first, seconds)
        except asyncio.TimeoutError as error:
            await self.close()
            if isinstance(error, RlwireError):
                raise
            raise DeadlineExceeded(f"{self.url}: no word within connect={seconds} s") from None
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the connection; whoever waits gets `ConnectionClosed`."""
        connection, self._connection = self._connection, None
        reader, self._reader = self._reader, None
        self._end(ConnectionClosed(f"the connection to {self.url} was closed on this side"))
        if reader is not None:
            reader.close()
        self._wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if connection is not None:
            connection.close()
            await connection.wait_closed()

    async def _read(self, connection: AsyncConnection) -> None:
        try:
            while True:
                self._take(await connection.receive())
        except (RlwireError, OSError) as error:
            closing = self._session.closing
            self._end(error if closing is None else PeerError(closing))

    def _read_on(self, _: object = None) -> None:
        """Run `_read` until it waits for the next message.

        As a task would, but a task cannot resume another: the one that waits for a step would go on
        only after one more round of the loop.
        """
        reader = self._reader
        if reader is None:
            return
        try:
            turn = reader.send(None)
        except StopIteration:
            self._reader = None
        else:
            turn._asyncio_future_blocking = False  # as a task does to say that it knows
            turn.add_done_callback(self._read_on, context=self._context)
        if self._session.news or self._refused or self._ended is not None:
            self._wake()

    def _end(self, error: RlwireError | OSError) -> None:
        """Take note of why nothing more comes; the first reason counts."""
        if self._ended is None:
            self._ended = error
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(self._ended)
        self._replies.clear()
        if self._first is not None and not self._first.done():
            self._first.set_exception(self._ended)
            self._first.exception()  # nobody may wait for it any more

    def _take(self, event: Any) -> None:
        """Take one event of the session."""
        if self._first is not None:
            if isinstance(event, ConnectionClose):
                self._end(PeerError(event.message))
                return
            if not self._first.done():
                self._first.set_result(None)
            self._first = None
        if isinstance(event, Answered):
            self._resolve(event.request, event.seconds, None)
        elif isinstance(event, Failed):
            error = PeerError(event.message)
            if event.what == "message":
                self._refused.append(error)
                del self._refused[:-_UNKNOWN]
            else:
                assert event.request is not None
                self._resolve(event.request, 0.0, error)
        elif isinstance(event, TimedOut):
            late = DeadlineExceeded(f"{self.url}: no reply to a {event.what} in {event.seconds} s")
            self._resolve(event.request, 0.0, late)
        elif isinstance(event, ConnectionClose):
            self._end(PeerError(event.message))
        elif isinstance(event, UnknownMessage):
            self._unknown.append(event)
            del self._unknown[:-_UNKNOWN]

    def _resolve(self, request: int, seconds: float, error: RlwireError | None) -> None:
        reply = self._replies.pop(request, None)
        if reply is None or reply.done():
            return
        if error is None:
            reply.set_result(seconds)
        else:
            reply.set_exception(error)

    def _wake(self) -> None:
        """Let the task that waits for a step look again."""
        turn = self._turn
        if turn is not None and turn.waiting:
            turn.resume(None)

    # -- what the agent does ---------------------------------------------------------------------

    async def reset(
        self,
        env_id: str | None = None,
        seed: int | None = None,
        *,
        fps: float | None = None,
        timeout: float | None = None,
    ) -> str:
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
        await self._ask(EnvReset(env_id, seed, fps), "reset", timeout)
        episode_id = self._session.episode_id
        assert episode_id is not None
        return episode_id

    async def step(self, timeout: float | None = None) -> Step:
        """Return what has come since the last step, and wait for something if nothing has.

        Something is a reward, a text, an observation, the episode's end, or another `env_state`.

        Args:
            timeout: seconds to wait; then the step is empty. None waits for ever, 0 not at all.

        Raises:
            PeerError: the server refused an action, or it said why it closes the connection.
            ConnectionClosed: the connection is gone. What came before is given first.
        """
        session = self._session
        if not session.news:
            until = None if timeout is None else time.monotonic() + timeout
            self._check()
            while until is None or time.monotonic() < until:
                await self._next(until)
                if session.news:
                    break
                self._check()
        return session.take()

    def peek(self) -> Step:
        """Return what `step` would give now, without waiting, and leave it for the next `step`.

        `env_state` tells of the newest episode, which may be one after this step's.
        """
        return self._session.peek()

    def _next(self, until: float | None) -> Turn:
        """Return what to await for news, an error or that time; it may end before."""
        turn = self._turn
        assert turn is not None
        if turn.waiting:
            raise LocalProtocolError("another task is waiting for a step; one may at a time")
        self._until = until
        if until is not None and (self._timer is None or self._timer_due > until):
            self._set_timer(until)
        return turn.begin()

    # One timer for many steps: it is not set anew for each, but looks what has become of them.

    def _set_timer(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seconds = max(0.0, until - time.monotonic())
        self._timer_due = until
        self._timer = asyncio.get_running_loop().call_later(seconds, self._timed)

    def _timed(self) -> None:
        self._timer = None
        if self._turn is None or not self._turn.waiting or self._until is None:
            return
        if time.monotonic() >= self._until:
            self._wake()
        else:
            self._set_timer(self._until)

    def _check(self) -> None:
        """Raise what is wrong."""
        if self._refused:
            raise self._refused.pop(0)
        if self._ended is not None:
            raise self._ended
        if self._connection is None:
            raise ConnectionClosed(f"{self} is not connected: call connect(), or use `with`")

    def act(self, events: Iterable[Sequence[Any]]) -> None:
        """Send an action: events, such as ``[("KeyEvent", 97, True)]``.

        It is not answered; if the server refuses it, the next `step` raises that.

        Raises:
            LocalProtocolError: an observer cannot act.
            EncodeError, LimitExceeded: it cannot be written, or too much waits to be sent.
            ConnectionClosed: the connection is gone.
        """
        self._post(AgentAction(events))

    def send(self, message: AgentAction | UnknownMessage) -> None:
        """Send a message without an answer, such as one of a method of one's own; as `act`."""
        self._post(message)

    def _post(self, message: Any) -> None:
        if self._ended is not None or self._connection is None:
            self._check()
        assert self._connection is not None
        try:
            self._connection.post(message)
        except (ConnectionClosed, LocalProtocolError):
            # The server may have said why, and the task that reads has not come to it.
            closing = self._session.closing
            if closing is None:
                raise
            raise PeerError(closing) from None

    async def ping(self, timeout: float | None = None) -> float:
        """Return the seconds until the server answers a ping.

        Raises:
            DeadlineExceeded: it does not answer in time; by default `ClientSettings.ping_timeout`.
            ConnectionClosed: the connection is gone.
        """
        return await self._ask(
            ControlPing(), "ping", self._settings.ping_timeout if timeout is None else timeout
        )

    async def _ask(self, request: EnvReset | ControlPing, what: str, timeout: float) -> float:
        self._post(request)
        session = self._session
        number = session.last_id
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        try:
            return await asyncio.wait_for(reply, timeout)
        except asyncio.TimeoutError as error:
            if isinstance(error, RlwireError):
                raise
            raise DeadlineExceeded(f"{self.url}: no reply to a {what} in {timeout:g} s") from None
        finally:
            self._replies.pop(number, None)
            session.give_up(number)  # unless it was answered

    def unknown(self) -> list[UnknownMessage]:
        """Return messages of methods that are not known, since the last call; the last 256."""
        taken, self._unknown = self._unknown, []
        return taken

    # -- what is known ---------------------------------------------------------------------------

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
    def episode_id(self) -> str | None:
        """The episode that the next step is of; None while none is open."""
        return self._session.episode_id

    def clock_offset(self) -> ClockEstimate | None:
        """Return how the server's clock differs from ours; None before the first pong."""
        return self._session.clock_offset()

    def round_trips(self) -> LatencySummary | None:
        """Return how long pings took; None if there were none."""
        return self._session.round_trips()

    def reset_times(self) -> LatencySummary | None:
        """Return how long resets took; None if there were none."""
        return self._session.reset_times()

    def delays(self) -> LatencySummary | None:
        """Return how long pushes were under way, by the clocks' offset; None if that is unknown."""
        return self._session.delays()

    def statistics(self) -> dict[str, int]:
        """Return counts: pushes that were ``stale``, replies that were ``late``, and so on."""
        return self._session.statistics()
