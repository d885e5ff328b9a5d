"""`Link`: the two connections of one remote, from the first attempt to the last crash.

Its methods are called in the hub's thread, and none of them waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from rlwire.errors import DeadlineExceeded, PeerError, RlwireError, on_error
from rlwire.sessions.rewarder.client import PUSHES
from rlwire.sessions.rewarder.steps import ClockEstimate
from rlwire.transports.address import parse
from rlwire.transports.sockets import Backoff, Timeouts, is_permanent
from rlwire.universe.hub import Hub, News
from rlwire.universe.remotes import Remote
from rlwire.universe.rewarder.client import AsyncRewarderClient

if TYPE_CHECKING:
    from rlwire.universe.rfb.screens import Screen

logger = logging.getLogger(__name__)

Replace = Callable[[Remote, Exception], "Remote | None"]

RUNNING = "running"
"""The state of an environment that can be seen and played."""

_LONGEST = 5.0  # seconds before a remote that fails again and again is tried again
_PATIENCE = 0.5  # seconds in which an attempt may end by itself when all is closed
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class LinkOptions:
    """What is the same for all remotes of a vector; see `UniverseEnv`."""

    start_timeout: float
    fps: float = 60.0
    observer: bool = False
    replace: Replace | None = None
    rewarder: Mapping[str, Any] = field(default_factory=dict)
    pixels: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Turn:
    """What one step has of one remote; `open` says whether the agent may see and act."""

    reward: float
    done: bool
    info: dict[str, Any]
    texts: list[str]
    open: bool
    screen: Screen | None
    clock: ClockEstimate | None = None


class _Client(AsyncRewarderClient):
    """A link's client: takes note of what comes."""

    def __init__(self, news: News, address: str, **options: Any) -> None:
        self._news = news
        super().__init__(address, **options)

    def _take(self, event: Any) -> None:
        super()._take(event)
        self._news.note(turn=type(event) not in PUSHES)

    def _end(self, error: Exception) -> None:
        super()._end(error)
        self._news.note(turn=True)


class Mask:
    """Opens when an episode runs, and closes when another one begins that does not run yet.

    So what is said of the end of an episode does not close it, and the first frame of the next is
    shown as soon as that runs; and actions for a resetting environment, which might hit a menu of
    it, go nowhere.
    """

    __slots__ = ("_episodes", "episode_id", "open")

    def __init__(self, episodes: bool) -> None:
        self._episodes = episodes
        self.close()

    def close(self) -> None:
        """Close until the next episode runs: a reset was asked for, or the remote was lost."""
        self.open = not self._episodes
        self.episode_id: str | None = None

    def follow(self, episode_id: str | None, env_state: str | None) -> bool:
        """Take note of the newest episode and its state; return whether it is open."""
        if not self._episodes:
            return True
        if env_state == RUNNING and episode_id is not None:
            self.open = True
            self.episode_id = episode_id
        elif self.open and episode_id != self.episode_id:
            self.open = False
            self.episode_id = episode_id
        return self.open


class Link:
    """One remote."""

    def __init__(self, remote: Remote, hub: Hub, options: LinkOptions, news: News) -> None:
        self.remote = remote
        self._news = news
        self.client: AsyncRewarderClient | None = None
        self.screen: Screen | None = None
        self.mask = Mask(remote.rewarder is not None)
        self._hub = hub
        self._options = options
        self._up = False
        self._trying = False
        self._attempt: asyncio.Task[Any] | None = None
        self._calling = False
        self._closed = False
        self._wanted: tuple[str | None, int | None] | None = None  # the reset that is to be sent
        self._resets = 0
        self._env_id: str | None = None  # the last one that was asked for
        self._entered: str | None = None  # the episode of a reset that was answered
        self._error: tuple[str, Exception] | None = None  # that no step has told
        self._lost = False  # whether that was of a remote that had been there
        self._failures = 0  # since an episode ran

    @property
    def up(self) -> bool:
        """Whether it is connected."""
        return self._up

    @property
    def trying(self) -> bool:
        """Whether it is tried to reach it."""
        return self._trying

    @property
    def error(self) -> Exception | None:
        """Why it is not there, as no step has told yet."""
        return None if self._error is None else self._error[1]

    # -- connections -----------------------------------------------------------------------------

    def connect(self) -> None:
        """Begin to connect, unless it is tried or done already."""
        if not (self._up or self._trying or self._closed):
            self._try(None)

    def _try(self, lost: Exception | None) -> None:
        self._trying = True
        self._attempt = self._hub.begin(self._connect(lost))

    async def _connect(self, lost: Exception | None) -> None:
        """Connect, to another remote perhaps if this one was lost; what goes wrong is kept."""
        what = "Remote"
        try:
            if self._failures > 1:
                await asyncio.sleep(min(0.1 * 2 ** (self._failures - 2), _LONGEST))
            replace = self._options.replace
            if lost is not None and replace is not None:
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(None, replace, self.remote, lost)
                if found is None:
                    logger.warning("%s: it is not replaced", self.remote.label)
                    return
                self._move(found)
            remote = self.remote
            until = asyncio.get_running_loop().time() + self._options.start_timeout
            client = screen = None
            try:
                if remote.rewarder is not None:
                    what = "Rewarder session"
                    client = await self._persistently(self._call, until)
                if remote.pixels is not None:
                    what = "VNC session"
                    screen = await self._persistently(self._show, until)
            except BaseException:
                if client is not None:
                    await client.close()
                raise
            self.client, self.screen, self._up = client, screen, True
            self.mask.close()
            logger.info("%s: connected", remote.label)
            if self._wanted is None and self._resets:
                self._wanted = self._env_id, None  # whoever comes back begins anew
            self._send_reset()
        except Exception as error:
            logger.warning("%s: %s failed: %s", self.remote.label, what, error)
            self._error, self._lost = (what, error), False
            self._failures += 1
        finally:
            self._trying = False
            self._news.note(turn=True)

    def _move(self, found: Remote) -> None:
        index = self.remote.index
        if (found.pixels is None, found.rewarder is None) != (
            self.remote.pixels is None,
            self.remote.rewarder is None,
        ):
            raise ValueError(f"{found} is not of the kind of {self.remote}, which it replaces")
        self.remote = Remote(
            found.pixels, found.rewarder, found.auth, found.env_id, found.tls
        ).at(index)  # fmt: skip

    async def _persistently(self, make: Callable[[float], Awaitable[_Made]], until: float) -> _Made:
        """Connect as often as it takes until then."""
        clock = asyncio.get_running_loop().time
        seconds = self._options.start_timeout
        last: Exception | None = None
        for delay in Backoff(attempts=1 << 30, longest=1.0).delays():
            left = until - clock()
            if left <= 0:
                break
            try:
                self._calling = True
                return await asyncio.wait_for(make(left), left)
            except asyncio.TimeoutError:
                last = last or DeadlineExceeded("nobody answers")
                break
            except OSError as error:
                if is_permanent(error):
                    raise
                last = error
            finally:
                self._calling = False
            await asyncio.sleep(min(delay, max(0.0, until - clock())))
        text = f"not up within start_timeout={seconds:g} s: {last}"
        raise DeadlineExceeded(text) from last

    async def _call(self, seconds: float) -> AsyncRewarderClient:
        remote, options = self.remote, self._options
        assert remote.rewarder is not None
        where = parse(remote.rewarder)
        scheme = "wss" if remote.tls else "ws"
        client = _Client(
            self._news,
            f"{scheme}://{where}/",
            **{
                "auth": remote.auth,
                "observer": options.observer,
                "timeouts": Timeouts(connect=seconds, idle=None),
                **options.rewarder,
            },
        )
        await client.connect()
        return client

    async def _show(self, seconds: float) -> Screen:
        remote, options = self.remote, self._options
        assert remote.pixels is not None
        given = {"auth": remote.auth, **({"tls": True} if remote.tls else {}), **options.pixels}
        shown = asyncio.Event()
        wake = asyncio.get_running_loop().call_soon_threadsafe

        def look(screen: Screen) -> None:
            self._news.note(turn=screen.error is not None)
            if not shown.is_set():
                with contextlib.suppress(RuntimeError):  # the hub's loop is closed
                    wake(shown.set)

        screen = self._hub.screens.add(remote.pixels, on_change=look, **given)
        with on_error(screen.close):
            if not screen.ready and screen.error is None:
                await shown.wait()
            if screen.error is not None:
                raise screen.error
        return screen

    def _fail(self, what: str, error: Exception) -> None:
        """Let go of both connections; the next step tells why."""
        logger.warning("%s: %s failed: %s", self.remote.label, what, error)
        self._error, self._lost = (what, error), True
        self._failures += 1
        self._let_go()

    def _let_go(self) -> None:
        client, screen = self.client, self.screen
        self.client = self.screen = None
        self._up = False
        self.mask.close()
        if client is not None:
            self._hub.begin(_closed(client), to_its_end=True)
        if screen is not None:
            screen.close()

    async def close(self) -> None:
        """Close both connections for good."""
        self._closed = True
        if self._attempt is not None and not self._attempt.done():
            if self._calling:  # one that is nearly there has less to be undone
                await asyncio.wait([self._attempt], timeout=_PATIENCE)
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        client, self.client = self.client, None
        self._let_go()
        if client is not None:
            await _closed(client)

    # -- what the agent does ---------------------------------------------------------------------

    def reset(self, env_id: str | None, seed: int | None) -> None:
        """Ask for an episode, as soon as the remote is there; the mask is closed until it runs."""
        self._resets += 1
        self._env_id = env_id
        self._wanted = env_id, seed
        self._entered = None
        self.mask.close()
        if self._up:
            self._send_reset()
        else:
            self.connect()

    def _send_reset(self) -> None:
        wanted, self._wanted = self._wanted, None
        client = self.client
        if wanted is not None and client is not None and not self._options.observer:
            self._hub.begin(self._reset(client, *wanted, self._resets))

    async def _reset(
        self, client: AsyncRewarderClient, env_id: str | None, seed: int | None, number: int
    ) -> None:
        env_id = env_id or self.remote.env_id
        try:
            entered = await client.reset(env_id, seed, fps=self._options.fps)
        except Exception as error:
            if client is self.client and number == self._resets:
                self._fail("Rewarder session", error)
            return
        if client is self.client and number == self._resets:
            self._entered = entered

    def act(self, messages: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
        """Send events, unless the agent may not act; return whether it may.

        Without pixels the keys and the pointer go to the rewarder, as the document has it.
        """
        if not self.mask.open or not self._up:
            return False
        try:
            if messages and self.screen is not None:
                self.screen.send(messages)
            elif messages:
                told = [[type(each).__name__, *dataclasses.astuple(each)] for each in messages]
                others = [*told, *others]
            if others and self.client is not None:
                self.client.act(others)
        except (RlwireError, OSError) as error:
            self._fail("Remote", error)
            return False
        return True

    # -- what has come ---------------------------------------------------------------------------

    def turn(self, peek: bool) -> Turn:
        """Return what has come since the last time; with `peek` the rewards stay where they are."""
        if self._up:
            what = "VNC session"
            try:
                if self.screen is not None and self.screen.error is not None:
                    raise self.screen.error
                what = "Rewarder session"
                if self.client is None:
                    return Turn(0.0, False, {}, [], True, self.screen)
                return self._peeked(self.client) if peek else self._taken(self.client)
            except (RlwireError, OSError) as error:
                self._fail(what, error)
        info: dict[str, Any] = {"env_status.disconnected": True}
        failed, self._error = self._error, None
        if failed is None:
            return Turn(0.0, False, info, [], False, None)
        info["error"] = f"{self.remote.label}: {failed[0]} failed: {failed[1]}"
        self._recover(failed[1])
        return Turn(0.0, True, info, [], False, None)

    def _recover(self, error: Exception) -> None:
        """Connect anew, unless a remote that was never there has said that it is of no use."""
        if self._trying or self._closed:
            return
        if self._options.replace is None and not self._lost and not isinstance(error, OSError):
            return
        self._try(error)

    def _taken(self, client: AsyncRewarderClient) -> Turn:
        info: dict[str, Any] = {}
        try:
            step = client.take()
        except PeerError as error:
            if client.ended:
                raise
            info["env.refused"] = str(error)  # an action; the episode goes on
            step = client.take()
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
            # What is shown is of the episode's successor, which its texts belong to.
            episode_id, env_state = client.newest()
            texts = client.take_texts() if env_state == RUNNING else ()
        info["env_status.episode_id"], info["env_status.env_state"] = episode_id, env_state
        is_open = self.mask.follow(episode_id, env_state)
        if is_open:
            self._failures = 0
        clock = client.clock_offset()
        return Turn(step.reward, step.done, info, list(texts), is_open, self.screen, clock)

    def _peeked(self, client: AsyncRewarderClient) -> Turn:
        step = client.peek()
        episode_id, env_state = client.newest()
        info = {
            "peek": True,
            "env_status.episode_id": step.episode_id,
            "env_status.env_state": step.env_state,
            "env_status.peek.episode_id": episode_id,
            "env_status.peek.env_state": env_state,
        }
        return Turn(0.0, False, info, [], self.mask.follow(episode_id, env_state), self.screen)


async def _closed(client: AsyncRewarderClient) -> None:
    try:
        await client.close()
    except Exception as error:  # it is lost anyway
        logger.debug("%r: %s", client, error)
