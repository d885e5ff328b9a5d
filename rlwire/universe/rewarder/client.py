"""`RewarderClient` and `AsyncRewarderClient`: an agent's or observer's clients of a rewarder."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from typing import Any, TypeVar

from rlwire import websocket
from rlwire._options import with_options
from rlwire.codecs.rewarder import (
    AgentAction,
    ConnectionClose,
    ControlPing,
    EnvReset,
    UnknownMessage,
)
from rlwire.codecs.rewarder.infos import OPTIONS, SPACES, STEPS, VERSION, mark_arrays
from rlwire.environments.endpoint import check_seed
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LocalProtocolError,
    PeerError,
    without_secret,
)
from rlwire.sessions.rewarder.client import (
    PING_TIMEOUT,
    PUSHES,
    RESET_TIMEOUT,
    RequestDone,
    RewarderClientSession,
    handshake_headers,
)
from rlwire.sessions.rewarder.steps import RewarderStep
from rlwire.transports.forking import not_ours, track
from rlwire.transports.interface import NOTHING
from rlwire.transports.sockets import Timeouts
from rlwire.transports.waiter_asyncio import Waiter
from rlwire.transports.waits import Asyncio, Blocking, ClientBase, Waits, driven
from rlwire.universe.options import PASSWORD, UniverseClientOptions
from rlwire.universe.push_client import PushClient, PushHandler
from rlwire.universe.rewarder._reader import Reader

logger = logging.getLogger(__name__)

_Self = TypeVar("_Self", bound="RewarderClientBase")

_KEPT = 256  # rejections that `step` has not raised yet; and unknown messages


class RewarderClientBase(PushClient, ClientBase):
    """The base class of `RewarderClient` and `AsyncRewarderClient`.

    The address may also be ``"ws://host:port/path"`` or ``"wss://..."``. `timeout.connect` applies
    to the handshake and the server's first message.

    Attributes:
        wants_arrays: whether resets ask rlwire's servers to send large arrays of observations in
            their own dtypes, as binary messages, not as numbers.
        session: the last connection's session: `env_id`, `env_state`, `fps`, `about`, `episode_id`
            and `clock_offset`. ``about["rlwire.spaces"]`` of rlwire's servers describes the spaces.

    Raises:
        ValueError: the address is invalid.
        EncodeError: the password has a colon.
    """

    _connect: Callable[..., Any]
    _listen: Callable[[Any], None]  # receives the events of a connection, until it ends
    _transmit: Callable[[Any], Any]  # sends a message
    _lock: AbstractContextManager[Any] = nullcontext()  # of the session

    @with_options(UniverseClientOptions)
    def __init__(self, options: UniverseClientOptions) -> None:
        address, dialing, path = options.dialing("universe")
        self.url = websocket.url_of(address, dialing["tls"], f"/{path}")
        self.observer = options.observer
        self._timeouts = Timeouts.of(options.timeout, idle=None)
        auth = PASSWORD if options.auth is None else options.auth
        self._options: dict[str, Any] = {
            **dialing,
            "headers": handshake_headers(auth, self.observer),
            "kind": "text",
            "timeout": self._timeouts,
            "ping_interval": options.ping_interval,
            "ping_timeout": options.ping_timeout,
            "limits": options.limits,
        }
        self._make_session = partial(
            RewarderClientSession,
            clock=time.monotonic,
            wall=time.time,
            observer=self.observer,
            attach=options.attach,
            limits=options.limits,
        )
        self.session = self._make_session()
        self._greeted = self._has_dropped = False
        self.wants_arrays = False
        self._replies: dict[int, float | Exception | None] = {}
        self._refused: list[Exception] = []
        self._unknown: list[UnknownMessage] = []
        self._set_up()

    def _set_up(self) -> None: ...

    def _peer(self) -> str:
        return without_secret(self.url)

    @driven
    def connect(self: _Self) -> Waits[_Self]:
        """Connect, and wait until the server describes the environment.

        Raises:
            PeerError: the server rejects the client, for example for a wrong password.
            DeadlineExceeded: the server sends nothing.
            Others: as `rlwire.websocket.connect`.
        """
        if self._connection is not None:
            raise RuntimeError(f"{self} is already connected")
        with self._lock:
            session = self.session = self._make_session()
            self.error, self._greeted = None, False
            self._refused, self._unknown, self._replies = [], [], {}
        self._connection = self._count((yield self._connect(self.url, session, **self._options)))
        seconds = self._timeouts.connect
        try:
            self._listen(self._connection)
            yield from self._until(lambda: self._greeted, seconds, "first message")
        except BaseException:
            yield self.close()
            raise
        return self

    def _await_reply(self) -> None:
        """Read a reply as soon as it arrives."""

    def _poll(self) -> None:
        """Read what has arrived. The lock must be held."""

    def _receive(self, event: Any) -> None:
        kind = type(event)
        if not self._greeted and kind is not ConnectionClose:
            self._greeted = True
            self._wake()
        if kind is RequestDone:
            self._resolve(event)
        elif kind is UnknownMessage:
            self._unknown.append(event)
            del self._unknown[:-_KEPT]
        elif kind is ConnectionClose:
            self._end(PeerError(event.message))

    def _resolve(self, done: RequestDone) -> None:
        outcome: float | Exception = done.seconds
        if done.timed_out:
            what = f"no reply to a {done.what} within {done.seconds:g} s"
            outcome = DeadlineExceeded(f"{self._peer()}: {what}")
        elif done.error is not None:
            outcome = PeerError(done.error)
        if isinstance(outcome, Exception) and done.what == "message":
            self._refused.append(outcome)
            del self._refused[:-_KEPT]
        elif done.request in self._replies:
            self._replies[done.request] = outcome
        self._wake()

    def _end(self, error: Exception) -> None:
        closing = self.session.close_reason
        super()._end(error if closing is None else PeerError(closing))

    def _has_errors(self) -> bool:
        return bool(self._refused) or self.error is not None

    def _check_step(self) -> None:
        """Raise the error of a rejected action, or the one that ended the connection."""
        if self._refused:
            raise self._refused.pop(0)
        self._check()

    @driven
    def reset(
        self,
        env_id: str | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        fps: float | None = None,
        timeout: float = RESET_TIMEOUT,
    ) -> Waits[str]:
        """Request a new episode, wait for the reply, and return the episode's id.

        Pushes of former episodes are dropped. After an error no episode is open, unless the server
        starts one by itself. A late reply is counted and dropped.

        Args:
            env_id: the environment; None for the current one.
            seed: for the environment.
            options: of the environment's reset. Only rlwire's environments receive them; for
                others they are dropped, with one warning.
            fps: frames per second.
            timeout: seconds to wait for the reply.

        Raises:
            PeerError: the server rejected the reset.
            DeadlineExceeded: no reply in time.
            ConnectionClosed: the connection is closed.
            EncodeError: JSON cannot represent an option.
        """
        number = self.send_reset(env_id, seed, options, fps=fps)
        return (yield self.await_reset(number, timeout))

    def send_reset(
        self,
        env_id: str | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        fps: float | None = None,
    ) -> int:
        """Send a reset as `reset` does, and return its number for `await_reset`."""
        more: dict[str, Any] = {}
        if self.wants_arrays and SPACES in self.session.about:
            more[STEPS] = VERSION
            with self._lock:
                if self._connection is not None:
                    self._connection.session.outer.accept_binary()
        if options and SPACES in self.session.about:
            more[OPTIONS] = mark_arrays(options, "options")
        elif options and not self._has_dropped:
            self._has_dropped = True
            logger.warning(
                "%s: not an environment of rlwire: options=%r of resets are not sent",
                self.url,
                options,
            )
        return self._request(EnvReset(env_id, check_seed(seed), fps, extra_body=more))

    @driven
    def await_reset(self, number: int, timeout: float = RESET_TIMEOUT) -> Waits[str]:
        """Wait for the reply to a reset, and return the episode's id; raises as `reset`."""
        yield from self._reply(number, "reset", timeout)
        episode_id = self.session.episode_id
        assert episode_id is not None
        return episode_id

    @driven
    def ping(self, timeout: float = PING_TIMEOUT) -> Waits[float]:
        """Return the seconds between a ping and its reply; DeadlineExceeded without one."""
        return (yield from self._reply(self._request(ControlPing()), "ping", timeout))

    def _request(self, request: EnvReset | ControlPing) -> int:
        with self._lock:
            self._post(request)
            self._await_reply()
            number: int = self.session.last_id
            self._replies[number] = None
        return number

    def _reply(self, number: int, what: str, timeout: float) -> Waits[float]:
        replies = self._replies
        try:
            yield from self._until(
                lambda: replies[number] is not None, timeout, f"reply to a {what}"
            )
            outcome = replies[number]
        finally:
            with self._lock:
                del replies[number]
                self.session.cancel(number)  # does nothing after a reply
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is not None
        return outcome

    def act(self, events: Iterable[Sequence[Any]]) -> None:
        """Send an action: events, such as ``[("KeyEvent", 97, True)]``.

        Actions have no reply. If the server rejects one, a later `step` raises PeerError.

        Raises:
            LocalProtocolError: an observer cannot act.
            EncodeError, LimitExceeded: it cannot be encoded, or too many bytes are unsent.
            ConnectionClosed: the connection is closed.
        """
        action = tuple(events)  # without the lock, since it may run the caller's code
        with self._lock:
            self._post(action)

    def send(self, message: AgentAction | UnknownMessage) -> None:
        """Send an action, or a message with a method of your own; raises as `act`."""
        with self._lock:
            self._post(message)

    def _post(self, message: Any) -> None:
        if self.error is not None or self._connection is None:
            self._check()
        try:
            self._transmit(message)
        except (ConnectionClosed, LocalProtocolError):
            self._check_closing()
            raise

    def _check_closing(self) -> None:
        """Raise PeerError for a close message that may not have been returned as an event yet."""
        if self.session.close_reason is not None:
            raise PeerError(self.session.close_reason) from None

    def peek(self) -> RewarderStep:
        """Return what `step` would, without waiting, and keep it for the next `step`."""
        with self._lock:
            self._poll()
            return self.session.peek()

    def unknown(self) -> list[UnknownMessage]:
        """Return the messages of unknown methods since the last call, at most the last 256."""
        with self._lock:
            self._poll()
            messages, self._unknown = self._unknown, []
        return messages

    def poll(self) -> RewarderStep:
        """Return what has arrived since the last step, without waiting; raises as `step`."""
        with self._lock:
            self._poll()
            if not self.session.has_news:
                self._check_step()
            return self.session.pop_step()

    def statistics(self) -> dict[str, int]:
        """Return the counts of all clients, ``stale`` pushes, ``late`` replies, and others."""
        with self._lock:
            self._poll()
            return {**super().statistics(), **self.session.statistics()}


class RewarderClient(Blocking, RewarderClientBase):
    """A blocking client of a rewarder, for an agent or an observer.

    ::

        with RewarderClient("127.0.0.1:15900", auth="secret") as client:
            client.reset()
            while not (step := client.step()).done:
                client.act([("Action", choose(step.observation))])

    A thread receives while the agent computes, so pings are answered in time and no messages queue
    up in the network. Methods may be called from any thread; one at a time may wait in `step`.

    The arguments and errors are `RewarderClientBase`'s.
    """

    _connect = staticmethod(websocket.connect)

    def _set_up(self) -> None:
        self._lock: Any = threading.RLock()
        self._woken = threading.Condition(threading.Lock())
        self._reader: Reader | None = None

    def close_inherited(self) -> None:
        """As in `rlwire.transports.forking.Forked`; a child may connect again."""
        if self._connection is not None:
            self._set_up()  # the parent's locks may be held
            self._connection, self.session = None, self._make_session()
            self.error = not_ours(self._peer())

    def step(self, timeout: float | None = None) -> RewarderStep:
        """Return what has arrived since the last step; if nothing has, wait.

        The wait ends with a reward, text, observation, end of the episode or new `env_state`.

        Args:
            timeout: seconds to wait before an empty step is returned; None for no timeout.

        Raises:
            PeerError: the server rejected an action, or closed the connection with a reason.
            ConnectionClosed: the connection is closed. Earlier arrivals are returned first.
        """
        with self._lock:
            session = self.session
            if timeout is not None and timeout <= 0:
                self._poll()
            if not session.has_news:
                reader = self._reader
                if reader is None or self._refused or self.error is not None:
                    self._check_step()
                if reader is None:  # another thread is closing it
                    raise ConnectionClosed(f"{self} is no longer connected")
                if timeout is None or timeout > 0:
                    reader.wait(timeout)
                    if not session.has_news:
                        self._check_step()
            return session.pop_step()

    def exchange(
        self, action: tuple[Sequence[Any], ...], timeout: float
    ) -> tuple[float, Any] | None:
        """Send an action's events; return reward and observation of the answer if it is alone.

        It has no info, and does not end its episode. None if `step` must wait for it, or merge it.
        """
        with self._lock:
            reader = self._reader
            if reader is None or self.error is not None or self.session.has_news:
                self._post(action)
                return None
            try:
                return reader.exchange(action, timeout)
            except (ConnectionClosed, LocalProtocolError):
                self._check_closing()
                raise

    def watch(self, wanted: bool) -> int:
        """Let an event loop wait for a step, or `step`; return the file to watch, -1 for none."""
        reader = self._reader
        return -1 if reader is None or (wanted and self.session.has_news) else reader.watch(wanted)

    def has_arrived(self) -> bool:
        """Return whether a step with an observation and a reward has arrived, or an error."""
        step = self.peek()
        whole = step.done or (step.count and step.observation is not None)
        return bool(whole or self._has_errors())

    def _listen(self, connection: Any) -> None:
        track(self)
        self._reader = Reader(
            connection, self.session, self._lock, self._receive, self._end, self._has_errors
        )
        self._transmit = self._reader.send

    def _await_reply(self) -> None:
        if self._reader is not None:
            self._reader.wake()

    def _poll(self) -> None:
        if self._reader is not None:
            self._reader.poll()
        elif isinstance(self.error, LocalProtocolError):  # in a forked child
            self._check()

    def _wake(self) -> None:
        with self._woken:
            self._wakeups += 1
            self._woken.notify_all()

    def _wait(self, seconds: float | None, wakeups: int) -> None:
        with self._woken:
            self._woken.wait_for(lambda: self._wakeups != wakeups, seconds)

    def _close_connection(self, connection: Any) -> Waits[None]:
        reader, self._reader = self._reader, None
        yield (connection if reader is None else reader).close()


class AsyncRewarderClient(Asyncio, RewarderClientBase):
    """`RewarderClient` for an event loop: `connect`, `reset`, `ping`, `step`, `close` are awaited.

    It receives while the loop runs. One task at a time may wait in `step`. The arguments and
    errors are `RewarderClientBase`'s.
    """

    _connect = staticmethod(websocket.connect_asyncio)

    def _set_up(self) -> None:
        self._stepping: Waiter | None = None  # of a task that waits for a step
        self._due = 0.0  # when its wait ends
        self._timer: asyncio.TimerHandle | None = None  # one for many steps
        self._waiters: set[asyncio.Future[None]] = set()  # of the others

    async def step(self, timeout: float | None = None) -> RewarderStep:
        """Return what has arrived since the last step, as `RewarderClient.step`."""
        session, stepping = self.session, self._stepping
        if session.has_news:
            return session.pop_step()
        self._check_step()
        assert stepping is not None
        if stepping.waiting:
            raise LocalProtocolError("another task is waiting for a step: one at a time may wait")
        loop = asyncio.get_running_loop()
        self._due = due = inf if timeout is None else loop.time() + timeout
        timer = self._timer
        if due < inf and (timer is None or timer.when() > due):
            if timer is not None:
                timer.cancel()
            self._timer = loop.call_at(due, self._expire, loop)
        while not session.has_news and (due == inf or loop.time() < due):
            await stepping.start()
            if not session.has_news:
                self._check_step()
        return session.pop_step()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._stepping is not None and self._stepping.waiting and self._due < inf:
            if loop.time() < self._due:  # the deadline of a later step
                self._timer = loop.call_at(self._due, self._expire, loop)
            else:
                self._stepping.resume(None)

    def _listen(self, connection: Any) -> None:
        def answer(event: Any) -> Any:
            if type(event) not in PUSHES or not self._greeted:
                self._receive(event)
            self._wake()
            return NOTHING

        closed = ConnectionClosed(f"{self._peer()}: connection closed")
        self._stepping = Waiter(asyncio.get_running_loop())
        self._transmit = connection.post
        connection.serve(PushHandler(answer, partial(self._end, closed)), self._end)

    def _wake(self) -> None:
        stepping = self._stepping
        news = self.session.has_news or self._has_errors()
        if stepping is not None and stepping.waiting and news:
            stepping.resume(None)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self, seconds: float | None, wakeups: int) -> None:
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
