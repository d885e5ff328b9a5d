"""`Link`: the two connections of one remote, and their reconnection after a loss."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.rfb.decoder import Rectangle
from rlwire.codecs.rfb.messages import ClientMessage
from rlwire.errors import DeadlineExceeded, PeerError, RlwireError
from rlwire.sessions.rewarder.client import PUSHES
from rlwire.sessions.rewarder.steps import ClockEstimate
from rlwire.sessions.rfb.client import Painted
from rlwire.transports.address import AddressLike
from rlwire.transports.sockets import Backoff, Timeouts, is_permanent
from rlwire.transports.tls import ClientTLS
from rlwire.universe._loop import Arrivals, ClientLoop
from rlwire.universe.remotes import Remote
from rlwire.universe.rewarder import AsyncRewarderClient
from rlwire.universe.rfb.client import AsyncRfbClient

logger = logging.getLogger(__name__)

RUNNING = "running"
"""The `env_state` in which agents receive observations and act."""

_LONGEST_PAUSE = 5.0  # seconds between two attempts to connect
_CLOSE_TIMEOUT = 0.5  # seconds that `close` waits for an attempt to connect
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class LinkOptions:
    start_timeout: float
    rate: float
    observer: bool
    rewarder: Mapping[str, Any]
    pixels: Mapping[str, Any]


@dataclass(slots=True)
class LinkStep:
    reward: float = 0.0
    done: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    texts: Sequence[str] = ()
    open: bool = False
    screen: RemoteScreen | None = None
    clock: ClockEstimate | None = None


class RemoteScreen:
    """A remote's pixels: painted in the painter's thread, read in any other."""

    def __init__(
        self, painter: ClientLoop, arrivals: Arrivals, address: AddressLike, **options: Any
    ) -> None:
        self.client = AsyncRfbClient(address, **options)
        self._painter = painter
        self._lock = self.client.painting = threading.Lock()  # also held while pixels are read
        self._last: NDArray[np.uint8] | None = None  # the array of the last `read`
        self._first: list[Rectangle] = []  # changes of the first update, until they are read

        def watch(event: Any) -> None:
            if type(event) is Painted or isinstance(event, Exception):
                arrivals.notify(status=type(event) is not Painted)

        self.client.watcher = watch

    @property
    def updates(self) -> int:
        """The number of whole updates that changed pixels."""
        return self.client.session.updates

    async def open(self) -> None:
        await asyncio.wrap_future(self._painter.submit(self._open))

    async def shut(self) -> None:
        await asyncio.wrap_future(self._painter.submit(self.client.close))

    async def _open(self) -> None:
        await self.client.connect()
        self._first = await self.client.update()

    def post(self, messages: Sequence[ClientMessage]) -> None:
        """Queue messages to be sent in order; if one cannot be encoded, none is sent."""
        if self.client.error is not None:
            raise self.client.error
        self.client.session.send(messages)  # raises encoding errors here
        self._painter.call_soon(lambda: self.client.post(messages))

    def read(
        self, out: NDArray[np.uint8] | None = None
    ) -> tuple[NDArray[np.uint8], list[Rectangle]]:
        """Return the pixels, in `out` if given, and the rectangles changed since the last read.

        If `out` is the array of the last call, only these are copied. ValueError if shapes differ.
        """
        with self._lock:
            pixels = self.client.framebuffer.pixels
            whole = out is None or out is not self._last or out.shape != pixels.shape
            if out is None or whole:
                self._last = None
                self._last = out = self.client.snapshot(out)
            changes = self._first + self.client.session.pop_changes()
            self._first = []
            for r in () if whole else changes:
                area = slice(r.y, r.y + r.height), slice(r.x, r.x + r.width)
                out[area] = pixels[area]
            return out, changes


class Link:
    """One remote. The methods run in the loop's thread and do not block."""

    def __init__(self, remote: Remote, loop: ClientLoop, options: LinkOptions) -> None:
        self.remote = remote
        self._secrets = {"auth": remote.auth, "tls": ClientTLS() if remote.tls else None}
        self.client: AsyncRewarderClient | None = None
        self.screen: RemoteScreen | None = None
        self.connected = self.connecting = False
        self._loop = loop
        self._arrivals = loop.arrivals
        self._options = options
        self._attempt: asyncio.Task[Any] | None = None
        self._calling = False
        self._closed = False
        self._wanted: tuple[Any, ...] | None = None  # the arguments of the reset to send
        self._resets = 0
        self._env_id: str | None = None  # of the last reset
        self._entered: str | None = None  # the episode in the reply to a reset
        self._error: tuple[str, Exception] | None = None  # not reported by a step yet
        self._lost = False  # whether that error ended an established connection
        self._failures = 0  # since the last running episode
        self._mask()

    @property
    def error(self) -> Exception | None:
        """The error that ended or prevented the connection, until a step reports it."""
        return None if self._error is None else self._error[1]

    # Masking: while an environment resets, its actions are dropped and its observation is None.
    # It lasts until an episode runs, and again from the start of an episode that does not run yet.

    def _mask(self) -> None:
        self._open = self.remote.rewarder is None
        self._episode_id: str | None = None

    def _follow(self, episode_id: str | None, env_state: str | None) -> bool:
        """Update the mask for the newest episode and its state; return whether it is off."""
        if env_state == RUNNING and episode_id is not None:
            self._open, self._episode_id = True, episode_id
        elif self._open and episode_id != self._episode_id:
            self._open, self._episode_id = False, episode_id
        return self._open

    # Connections.

    def connect(self) -> None:
        if not (self.connected or self.connecting or self._closed):
            self.connecting = True
            self._attempt = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        what = "Remote"
        try:
            if self._failures > 1:
                await asyncio.sleep(min(0.1 * 2 ** (self._failures - 2), _LONGEST_PAUSE))
            until = asyncio.get_running_loop().time() + self._options.start_timeout
            client = screen = None
            async with contextlib.AsyncExitStack() as undo:
                if self.remote.rewarder is not None:
                    what = "Rewarder session"
                    client = await self._retry(self._connect_rewarder, until)
                    undo.push_async_callback(client.close)
                if self.remote.pixels is not None:
                    what = "VNC session"
                    screen = await self._retry(self._connect_screen, until)
                undo.pop_all()
            self.client, self.screen, self.connected = client, screen, True
            self._mask()
            logger.info("%s: connected", self.remote.label)
            if self._wanted is None and self._resets:
                self._wanted = (self._env_id,)  # start an episode after a reconnect
            self._send_reset()
        except Exception as error:
            self._note_failure(what, error, lost=False)
        finally:
            self.connecting = False
            self._arrivals.notify(status=True)

    async def _retry(self, make: Callable[[float], Awaitable[_Made]], until: float) -> _Made:
        clock = asyncio.get_running_loop().time
        last: Exception | None = None
        for delay in Backoff(attempts=1 << 30, longest=1.0).delays():
            left = until - clock()
            if left <= 0:
                break
            try:
                self._calling = True
                return await asyncio.wait_for(make(left), left)
            except asyncio.TimeoutError:
                last = last or DeadlineExceeded("no reply")
                break
            except OSError as error:
                if is_permanent(error):
                    raise
                last = error
            finally:
                self._calling = False
            await asyncio.sleep(min(delay, max(0.0, until - clock())))
        raise DeadlineExceeded(
            f"not connected within start_timeout={self._options.start_timeout:g} s: {last}"
        ) from last

    async def _connect_rewarder(self, seconds: float) -> AsyncRewarderClient:
        remote = self.remote
        assert remote.rewarder is not None
        given = {
            **self._secrets,
            "observer": self._options.observer,
            "timeout": Timeouts(connect=seconds, idle=None),
            **self._options.rewarder,
        }
        client = AsyncRewarderClient(remote.rewarder, **given)
        client.watcher = lambda event: self._arrivals.notify(status=type(event) not in PUSHES)
        return await client.connect()

    async def _connect_screen(self, seconds: float) -> RemoteScreen:
        remote = self.remote
        assert remote.pixels is not None
        given = {**self._secrets, **self._options.pixels}
        screen = RemoteScreen(self._loop.painter, self._arrivals, remote.pixels, **given)
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(screen.shut)
            await screen.open()
            undo.pop_all()
        return screen

    def _note_failure(self, what: str, error: Exception, *, lost: bool) -> None:
        logger.warning("%s: %s failed: %s", self.remote.label, what, error)
        self._error, self._lost = (what, error), lost
        self._failures += 1

    def _fail(self, what: str, error: Exception) -> None:
        self._note_failure(what, error, lost=True)
        self._loop.create_task(self._disconnect(), closes=True)

    def _disconnect(self) -> Coroutine[Any, Any, None]:
        """Close both connections; the remote counts as disconnected before the first await."""
        client, screen = self.client, self.screen
        self.client = self.screen = None
        self.connected = False
        self._mask()
        return _close(client, screen)

    async def close(self) -> None:
        self._closed = True
        if self._attempt is not None and not self._attempt.done():
            if self._calling:  # a nearly established connection closes more cleanly
                await asyncio.wait([self._attempt], timeout=_CLOSE_TIMEOUT)
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        await self._disconnect()

    # Resets and actions.

    def reset(self, env_id: str | None, *arguments: Any) -> None:
        """Request an episode, by `RewarderClient.reset`, once connected; masked until it runs."""
        self._resets += 1
        self._env_id = env_id
        self._wanted = (env_id, *arguments)
        self._entered = None
        self._mask()
        if self.connected:
            self._send_reset()
        else:
            self.connect()

    def _send_reset(self) -> None:
        wanted, self._wanted = self._wanted, None
        client = self.client
        if wanted is not None and client is not None and not self._options.observer:
            self._loop.create_task(self._reset(client, wanted, self._resets))

    async def _reset(self, client: AsyncRewarderClient, wanted: Any, number: int) -> None:
        entered = failed = None
        env_id, *arguments = wanted
        try:
            env_id = env_id or self.remote.env_id
            entered = await client.reset(env_id, *arguments, fps=self._options.rate)
        except Exception as error:
            failed = error
        if client is self.client and number == self._resets:
            self._entered = entered
            if failed is not None:
                self._fail("Rewarder session", failed)

    def act(self, messages: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
        """Send events and return True, unless masked; without pixels all go to the rewarder."""
        if not self._open or not self.connected:
            return False
        try:
            if messages and self.screen is not None:
                self.screen.post(messages)
            elif messages:
                given = [[type(each).__name__, *dataclasses.astuple(each)] for each in messages]
                others = [*given, *others]
            if others and self.client is not None:
                self.client.act(others)
        except (RlwireError, OSError) as error:
            self._fail("Remote", error)
            return False
        return True

    # Steps.

    def step(self, peek: bool) -> LinkStep:
        """Return rewards, texts and info since the last step; `peek` keeps them for the next."""
        if self.connected:
            what = "VNC session"
            try:
                if self.screen is not None and self.screen.client.error is not None:
                    raise self.screen.client.error
                if self.client is None:
                    return LinkStep(open=True, screen=self.screen)
                what = "Rewarder session"
                return (self._peek if peek else self._step)(self.client)
            except (RlwireError, OSError) as error:
                self._fail(what, error)
        info: dict[str, Any] = {"env_status.disconnected": True}
        failed, self._error = self._error, None
        if failed is None:
            return LinkStep(info=info)
        what, reason = failed
        info["error"] = f"{self.remote.label}: {what} failed: {reason}"
        if self._lost or isinstance(reason, OSError):  # not after a rejected first connection
            self.connect()
        return LinkStep(done=True, info=info)

    def _step(self, client: AsyncRewarderClient) -> LinkStep:
        info: dict[str, Any] = {}
        try:
            step = client.poll()
        except PeerError as error:
            if client.ended:
                raise
            info["env.refused"] = str(error)  # an action; the episode continues
            step = client.poll()
        info |= step.info
        if step.observation is not None:
            info["rewarder.observation"] = step.observation, step.episode_id
        if step.sent_at is not None:
            info["reward_buffer.remote_time"] = step.sent_at
        info["stats.reward.count"] = step.count
        episode_id, env_state, texts = step.episode_id, step.env_state, step.texts
        if self._entered is not None:
            info["env_status.reset.episode_id"], self._entered = self._entered, None
        if step.done:
            info["env_status.complete.episode_id"] = episode_id
            info["env_status.complete.env_state"] = env_state
            if step.cut:
                info["env_status.artificial.done"] = True
            # Observation and texts are of the next episode.
            episode_id, env_state = _newest(client)
            texts = client.session.pop_texts() if env_state == RUNNING else ()
        info["env_status.episode_id"], info["env_status.env_state"] = episode_id, env_state
        is_open = self._follow(episode_id, env_state)
        if is_open:
            self._failures = 0
        clock = client.session.clock_offset()
        return LinkStep(step.reward, step.done, info, texts, is_open, self.screen, clock)

    def _peek(self, client: AsyncRewarderClient) -> LinkStep:
        step = client.peek()
        episode_id, env_state = _newest(client)
        info = {
            "peek": True,
            "env_status.episode_id": step.episode_id,
            "env_status.env_state": step.env_state,
            "env_status.peek.episode_id": episode_id,
            "env_status.peek.env_state": env_state,
        }
        return LinkStep(info=info, open=self._follow(episode_id, env_state), screen=self.screen)


def _newest(client: AsyncRewarderClient) -> tuple[str | None, str | None]:
    newest = client.session.episodes.newest
    return (None, None) if newest is None else (newest.episode_id, newest.env_state)


async def _close(client: AsyncRewarderClient | None, screen: RemoteScreen | None) -> None:
    for closing in (client and client.close, screen and screen.shut):
        try:
            if closing:
                await closing()
        except Exception as error:  # of a lost connection
            logger.debug("closing a connection failed: %s", error)
