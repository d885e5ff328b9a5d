"""`UniverseEnv`: many remotes in real time, as one vector whose calls wait for none of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.errors import (
    ConnectionClosed,
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.universe.events import parted
from rlwire.universe.hub import Hub, News
from rlwire.universe.links import Link, LinkOptions, Replace, Turn
from rlwire.universe.remotes import Remotes, remotes_of
from rlwire.universe.sums import Outcome, seeds_of

if TYPE_CHECKING:
    from rlwire.universe.rfb.screens import Screen

_Parted: TypeAlias = tuple[list[Any], list[Sequence[Any]], bool]

# Info's name of an age, and of the remote's time that it is the age of.
_STAMPS = (
    ("lag.reward", "rewarder.lag.observation.timestamp"),
    ("lag.rewarder_message", "reward_buffer.remote_time"),
)


class UniverseEnv:
    """A vector of remotes, as OpenAI Universe's document has it.

    ::

        with UniverseEnv("vnc://game1:5900+15900,game2:5900+15900") as env:
            observation_n = env.reset()                     # [None, None]
            while True:
                action_n = [[("KeyEvent", "Up", True)] for _ in observation_n]
                observation_n, reward_n, done_n, info = env.step(action_n)

    Environments go on by themselves, whether an agent steps or thinks. `reset` begins an episode at
    each index, and `step` sends what is to be done and gives what has come since the last step:
    neither waits. An observation is None until the index runs and while it is resetting, otherwise
    ``{"vision": pixels, "text": [...]}``: the newest whole picture, read-only, of shape
    (height, width, 3), None without pixels, and the texts since the last step. Rewards are summed.
    At ``done`` the index begins its next episode by itself; reward and info are of the one that
    ended, with ``env_status.complete.*``, observation and ``env_status.*`` of the next.

    ``info["n"]`` has for each index the infos of its rewards, merged, and besides

    | name | what it says |
    |---|---|
    | ``env_status.episode_id``, ``.env_state`` | the episode that is shown, and what it does |
    | ``env_status.complete.episode_id``, ``.env_state`` | the one that ended |
    | ``env_status.artificial.done`` | it ended because a newer one began, and nobody said so |
    | ``env_status.reset.episode_id`` | the one that a reset began |
    | ``env_status.disconnected`` | the remote is not there |
    | ``mask.masked.action``, ``.observation`` | what was to be done was dropped; nothing is shown |
    | ``stats.reward.count`` | rewards in the sum |
    | ``stats.vnc.updates.n``, ``.rectangles``, ``.pixels`` | what was painted since the last step |
    | ``rewarder.observation`` | the newest of ``v0.env.observation``, and its episode's id |
    | ``reward_buffer.remote_time`` | when the newest message was sent, by the remote's clock |
    | ``stats.gauges.diagnostics.clock_skew`` | seconds to add to the remote's time: least, most |
    | ``stats.gauges.diagnostics.lag.reward``, ``.rewarder_message`` | ages, the same way |
    | ``stats.gauges.vnc.round_trip`` | seconds to the screen and back |
    | ``env.refused`` | what the rewarder did not take, in its words |
    | ``error`` | the remote is lost, and why |

    A remote that is lost has ``error`` in its info and is done, once; then it is connected again,
    to what `replace` says, and begins an episode. The others notice nothing.

    An action is a list of events: ``("KeyEvent", name, down)``, ``("PointerEvent", x, y,
    buttons)``, or those of `rlwire.universe.key` and `pointer`; with `PEEK` among them a
    step leaves the rewards for a later one, and tells the newest episode and its state as
    ``env_status.peek.*``. Events of other names go to the rewarder.

    Args:
        remotes: as `rlwire.universe.remotes_of` takes them.
        env_id: which environment resets ask for, where a remote does not say.
        fps: frames a second that resets ask for.
        start_timeout: seconds until a remote has to be there; by default 5 and 2 for each.
        observer: whether to look on only: nothing is reset, nothing done.
        replace: called with a `Remote` that is lost and the error, in a thread that may wait;
            returns the `Remote` that takes its place, None for none. By default it is connected
            again, unless it was never there and refuses us, as for a wrong password.
        rewarder: options of each `rlwire.universe.rewarder.AsyncRewarderClient`.
        pixels: options of each screen: those of `rlwire.universe.rfb.Screens.add`.
        hub: the thread to live in; by default one of its own.

    Attributes:
        n: how many remotes there are.
        fps: as given.
        labels: what the remotes are called.
        news: of what `wait` waits for.
    """

    def __init__(
        self,
        remotes: Remotes,
        *,
        env_id: str | None = None,
        fps: float = 60.0,
        start_timeout: float | None = None,
        observer: bool = False,
        replace: Replace | None = None,
        rewarder: Mapping[str, Any] | None = None,
        pixels: Mapping[str, Any] | None = None,
        hub: Hub | None = None,
    ) -> None:
        found = remotes_of(remotes)
        if start_timeout is None:
            start_timeout = 5.0 + 2.0 * len(found)
        if not (start_timeout > 0 and fps > 0):
            raise ValueError(f"start_timeout={start_timeout} and fps={fps} must be positive")
        self.n = len(found)
        self.fps = fps
        self.labels = [remote.label for remote in found]
        self._env_id = env_id
        self._begun = observer
        self._closed = False
        self._pictures = [_Picture() for _ in found]
        options = LinkOptions(
            start_timeout, fps, observer, replace, dict(rewarder or {}), dict(pixels or {})
        )  # fmt: skip
        self._owns = hub is None
        self.hub = Hub() if hub is None else hub
        self.news = News()
        self._looked = self.news.seen()
        self._links = [Link(remote, self.hub, options, self.news) for remote in found]
        for link in self._links:
            self.hub.tell(link.connect)

    def __enter__(self) -> UniverseEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<UniverseEnv of {', '.join(self.labels)}>"

    @property
    def action_space(self) -> Any:
        """One index's, `rlwire.universe.spaces.Events`; needs Gymnasium."""
        from rlwire.universe.spaces import Events

        size = self.size
        return Events() if size is None else Events(size=size)

    @property
    def observation_space(self) -> Any:
        """One index's, of the first screen's size, if that is known; needs Gymnasium."""
        from rlwire.universe.spaces import observations

        first = self._links[0]
        has_pixels = first.remote.pixels is not None
        return observations(self.size or (65535, 65535) if has_pixels else None)

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the first screen; None if there is none yet."""
        screen = self._links[0].screen
        return None if screen is None else (screen.width, screen.height)

    @property
    def ups(self) -> list[bool]:
        """Whether each remote is there."""
        return [link.up for link in self._links]

    @property
    def tries(self) -> list[bool]:
        """Whether each remote is there, or it is tried to reach it."""
        return [link.up or link.trying for link in self._links]

    def wait_until_up(self) -> None:
        """Wait until all remotes are there, for as long as `start_timeout`."""
        while True:
            seen = self.news.seen()
            if self._closed:
                raise ConnectionClosed("the remotes were closed on this side")
            if all(self.ups):
                return
            for link in self._links:
                if link.error is not None and not link.up:
                    raise link.error
            self.news.wait(seen, turns=True)

    def wait(self, timeout: float | None = None, *, turns: bool = False) -> bool:
        """Wait until something has come since the last step began; return whether it has.

        Args:
            timeout: seconds; None for ever.
            turns: whether to wait for what may open or close an index, such as the beginning of an
                episode or a lost connection, and not for pictures, rewards and texts.
        """
        return self.news.wait(self._looked, timeout, turns=turns)

    def read_into(self, index: int, row: NDArray[np.uint8]) -> None:
        """Have the pictures of an index written to an array, of shape (height, width, 3).

        Then each step shows that same array, and of a picture only what has changed is copied.
        """
        self._pictures[index].into = row

    def about(self, index: int) -> Mapping[str, Any]:
        """Return what else the rewarder at an index said of its environment."""
        client = self._links[index].client
        return {} if client is None else client.about

    # -- the document's two methods --------------------------------------------------------------

    def reset(self, seed: int | Sequence[int | None] | None = None) -> list[Any]:
        """Begin an episode at each index, and return an observation of each: None.

        Args:
            seed: the first index's, those that follow get the next numbers; or each one's. Each is
                used once: an index that comes back after a crash goes on without one.

        Raises:
            ValueError: there are more or fewer seeds than remotes.
            ConnectionClosed: this was closed.
        """
        seeds = seeds_of(seed, self.n)
        self._begun = True

        def begin() -> None:
            for link, number in zip(self._links, seeds, strict=True):
                link.reset(self._env_id, number)

        self.hub.ask(begin)
        return [None] * self.n

    def step(self, action_n: Sequence[Sequence[Any]]) -> Outcome:
        """Send what is to be done, and return what has come; at once.

        Args:
            action_n: for each index a list of events.

        Returns:
            Observations, rewards, whether an episode ended, and ``{"n": infos}``.

        Raises:
            EncodeError: these are no actions; nothing was done.
            LocalProtocolError: `reset` was not called.
            ConnectionClosed: this was closed.
        """
        (turns,) = turns_of([self], [action_n])
        return self.told(turns)

    def _parted(self, action_n: Sequence[Sequence[Any]]) -> list[_Parted]:
        if not self._begun:
            raise LocalProtocolError("call reset() before the first step")
        if len(action_n) != self.n:
            raise EncodeError(f"there must be {self.n} actions, one for each index")
        return [parted(action) for action in action_n]

    def act(self, index: int, action: Sequence[Any]) -> None:
        """Send what is to be done at one index, and take nothing; errors as of `step`."""
        messages, others, _ = parted(action)
        if messages or others:
            self.hub.tell(lambda: self._links[index].act(messages, others))

    def _turns(self, actions: list[_Parted]) -> list[Turn]:
        """Take and act, in the hub's thread.

        Taken first, for the mask: a resetting environment is to get nothing.
        """
        turns = []
        for link, (messages, others, peek) in zip(self._links, actions, strict=True):
            turn = link.turn(peek)
            turns.append(turn)
            if turn.open and not (messages or others):
                continue
            if not (turn.open and link.act(messages, others)):
                turn.info["mask.masked.action"] = True
        return turns

    def told(self, turns: list[Turn]) -> Outcome:
        """Return as `step` does what each remote's turn is, with the pictures."""
        observations: list[Any] = []
        for index, turn in enumerate(turns):
            info, screen = turn.info, turn.screen
            picture = None
            if screen is not None:
                picture = self._pictures[index].look(screen, info)
            _diagnose(turn)
            if not turn.open:
                info["mask.masked.observation"] = True
                observations.append(None)
            else:
                observations.append({"vision": picture, "text": turn.texts})
        return (
            observations,
            [turn.reward for turn in turns],
            [turn.done for turn in turns],
            {"n": [turn.info for turn in turns]},
        )

    def close(self) -> None:
        """Leave all remotes; again does nothing."""
        if self._closed:
            return
        self._closed = True
        self.news.note(turn=True)
        with contextlib.suppress(ConnectionClosed):  # the hub was closed before
            self.hub.wait(self._close_links)
        if self._owns:
            self.hub.close()

    async def _close_links(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links))


def turns_of(
    envs: Sequence[UniverseEnv], actions: Sequence[Sequence[Sequence[Any]]]
) -> list[list[Turn]]:
    """Begin a step of vectors that live in one hub, with one question to it."""
    given = [env._parted(action_n) for env, action_n in zip(envs, actions, strict=True)]
    if not envs:
        return []
    for env in envs:
        env._looked = env.news.seen()
    return envs[0].hub.ask(lambda: [env._turns(its) for env, its in zip(envs, given, strict=True)])


def _diagnose(turn: Turn) -> None:
    """Add to a turn's info how far away the remote is, and its clock, as pings tell them."""
    info, clock = turn.info, turn.clock
    if "error" in info:
        return
    trip = None if turn.screen is None else turn.screen.round_trip()
    if trip is not None:
        info["stats.gauges.vnc.round_trip"] = trip
    if clock is not None:
        name = "stats.gauges.diagnostics."
        least, most = -clock.offset - clock.error, -clock.offset + clock.error
        info[name + "clock_skew"] = (least, most)
        for age, stamp in _STAMPS:
            if isinstance(info.get(stamp), (int, float)):
                passed = time.time() - info[stamp]
                info[name + age] = (passed - most, passed - least)


class _Picture:
    """The newest whole picture of one index, in `into` or an array of its own for each."""

    __slots__ = ("_pixels", "_screen", "_updates", "into")

    def __init__(self) -> None:
        self.into: NDArray[np.uint8] | None = None
        self._screen: Screen | None = None
        self._updates = 0
        self._pixels: NDArray[np.uint8] | None = None

    def look(self, screen: Screen, info: dict[str, Any]) -> NDArray[np.uint8] | None:
        """Return it, and count in an info what was painted since the last time."""
        if screen is not self._screen:
            self._screen, self._updates, self._pixels = screen, 0, None
        updates = screen.updates
        info["stats.vnc.updates.n"] = updates - self._updates
        if updates != self._updates:
            try:
                if self.into is None:
                    rectangles = screen.take()
                    pixels = screen.read()
                else:
                    rectangles = screen.read_changes(self.into)
                    pixels = self.into
            except (RlwireError, OSError):  # it was lost just now, as the next step tells
                return self._pixels
            except ValueError:
                raise RemoteProtocolError(
                    f"{screen!r} is {screen.width}x{screen.height} pixels now, which do not fit "
                    f"where they are to be written; make the vector anew"
                ) from None
            self._updates = updates
            info["stats.vnc.updates.rectangles"] = len(rectangles)
            info["stats.vnc.updates.pixels"] = sum(each.width * each.height for each in rectangles)
            if self.into is None:
                pixels.flags.writeable = False  # the next steps may give it again
            self._pixels = pixels
        return self._pixels
