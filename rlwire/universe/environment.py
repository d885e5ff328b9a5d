"""`UniverseEnv`, a vector of remotes, `BlockingReset`, and `UniverseEndpoint` for Gymnasium."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.rewarder.infos import SIZE, SPACES, mark_arrays
from rlwire.environments.endpoint import Endpoint, Outcome
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.pacing import Pacer
from rlwire.environments.spaces import spaces_of
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.sessions.rewarder.steps import merged
from rlwire.universe._links import Link, LinkOptions, LinkStep, RemoteScreen
from rlwire.universe._loop import ClientLoop, shared_loop
from rlwire.universe.input import PEEK, split_action
from rlwire.universe.remotes import Remote, Remotes, remotes_of
from rlwire.universe.rewarder.environment import ACTION, pop_flags

VectorStep: TypeAlias = tuple[list[Any], list[float], list[bool], dict[str, Any]]
"""Observations, rewards, done flags, and the info of a vector's step."""

# An age in info, and the remote's timestamp in info from which it is computed.
_STAMPS = (
    ("lag.reward", "rewarder.lag.observation.timestamp"),
    ("lag.rewarder_message", "reward_buffer.remote_time"),
)


class UniverseEnv:
    """A vector of remotes, as in OpenAI Universe's document.

    ::

        with UniverseEnv("vnc://game1:5900+15900,game2:5900+15900") as env:
            observation_n = env.reset()                     # [None, None]
            while True:
                action_n = [[("KeyEvent", "Up", True)] for _ in observation_n]
                observation_n, reward_n, done_n, info = env.step(action_n)

    `reset` and `step` do not wait, since environments run in real time. `step` sends the actions
    and returns what arrived since the last step. An observation is None until the index's episode
    runs and while it resets, otherwise ``{"vision": pixels, "text": [...]}``: the newest picture,
    read-only uint8 (height, width, 3) or None without pixels, and the texts since the last step.
    Rewards are summed. After ``done`` the next episode starts by itself: reward and info are of the
    episode that ended, the observation is of the next. docs/howto/universe.md lists the entries of
    ``info["n"][index]``.

    When a remote's connection is lost, one step is ``done`` with ``error`` in its info. Then the
    remote is reconnected and an episode starts, unless the remote rejected the first connection.
    Other remotes are not affected.

    An action is a list of events: ``("KeyEvent", name, down)``, ``("PointerEvent", x, y,
    buttons)``, or those of `rlwire.universe.key` and `pointer`. `PEEK` keeps the rewards for a
    later step. Other events go to the rewarder.

    Args:
        remotes: as for `rlwire.universe.remotes_of`.
        env_id: the environment that resets request, unless the remote names one.
        rate: the frames per second that resets request.
        start_timeout: seconds to connect each remote; by default 5, and 2 more for each remote.
        observer: whether to watch only: resets and actions are not sent.
        rewarder: options of each `rlwire.universe.rewarder.AsyncRewarderClient`.
        pixels: options of each `rlwire.universe.rfb.AsyncRfbClient`.
        loop: the `ClientLoop` to use; by default its own.

    Attributes:
        n: the number of remotes.
        labels: the remotes' names in errors and logs.
        links: each remote's connections: `client`, the rewarder's, and `screen`.
    """

    def __init__(
        self,
        remotes: Remotes,
        *,
        env_id: str | None = None,
        rate: float = 60.0,
        start_timeout: float | None = None,
        observer: bool = False,
        rewarder: Mapping[str, Any] | None = None,
        pixels: Mapping[str, Any] | None = None,
        loop: ClientLoop | None = None,
    ) -> None:
        found = remotes_of(remotes)
        if start_timeout is None:
            start_timeout = 5.0 + 2.0 * len(found)
        if not (start_timeout > 0 and rate > 0):
            raise ValueError(f"start_timeout={start_timeout} and rate={rate} must be positive")
        self.n = len(found)
        self.labels = [remote.label for remote in found]
        self._env_id = env_id
        self._was_reset = observer
        self._closed = False
        self._pictures = [_Picture() for _ in found]
        options = LinkOptions(
            start_timeout, rate, observer, dict(rewarder or {}), dict(pixels or {})
        )
        self._owns_loop = loop is None
        self._loop = ClientLoop() if loop is None else loop
        self._arrivals = self._loop.arrivals
        self._seen = self._arrivals.count()
        self.links = [Link(remote, self._loop, options) for remote in found]
        for link in self.links:
            self._loop.call_soon(link.connect)

    def __enter__(self) -> UniverseEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<UniverseEnv of {', '.join(self.labels)}>"

    @property
    def action_space(self) -> Any:
        """The `rlwire.universe.spaces.Events` of one index; needs Gymnasium."""
        from rlwire.universe.spaces import Events

        size = self.size
        return Events() if size is None else Events(size=size)

    @property
    def observation_space(self) -> Any:
        """The space of one index, of the first screen's size if known; needs Gymnasium."""
        from rlwire.universe.spaces import observations

        has_pixels = self.links[0].remote.pixels is not None
        return observations(self.size or (65535, 65535) if has_pixels else None)

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the first screen; None before it is connected."""
        screen = self.links[0].screen
        return None if screen is None else (screen.client.width, screen.client.height)

    @property
    def connected(self) -> list[bool]:
        """Whether each remote is connected."""
        return [link.connected for link in self.links]

    def wait_until_connected(self) -> None:
        """Wait up to `start_timeout` until all remotes are connected; raise a remote's error."""
        while True:
            seen = self._arrivals.count()
            self._check_open()
            if all(self.connected):
                return
            for link in self.links:
                if link.error is not None and not link.connected:
                    raise link.error
            self._arrivals.wait(seen, status=True)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosed("the remotes were closed on this side")

    def wait(self, timeout: float | None = None, *, status: bool = False) -> bool:
        """Wait for arrivals since the start of the last step; return whether there are any.

        Args:
            timeout: seconds; None for no timeout.
            status: whether to wait only for changes of status, such as the start of an episode or
                a lost connection, and not for pictures, rewards and texts.
        """
        return self._arrivals.wait(self._seen, timeout, status=status)

    def read_into(self, index: int, row: NDArray[np.uint8]) -> None:
        """Write an index's pictures, only changed rectangles, to an array (height, width, 3).

        Later observations contain that array.
        """
        self._pictures[index].into = row

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Start an episode at each index; return the observations, each None.

        Args:
            seed: the first index's seed, the others get the next integers; or a seed for each
                index. Each is sent once: after a reconnect an episode starts without a seed.
            options: of all resets, see `rlwire.universe.rewarder.RewarderClient.reset`.
        """
        self._check_open()
        seeds: list[int | None]
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + index for index in range(self.n)]
        else:
            seeds = list(seed)
        if len(seeds) != self.n:
            raise ValueError(f"expected {self.n} seeds, one for each index, not {len(seeds)}")
        mark_arrays(options or {})  # raises for what JSON cannot represent
        self._was_reset = True

        def reset_links() -> None:
            for link, number in zip(self.links, seeds, strict=True):
                link.reset(self._env_id, number, options)

        self._loop.call(reset_links)
        return [None] * self.n

    def step(self, action_n: Sequence[Sequence[Any]]) -> VectorStep:
        """Send a list of events to each index, and return what arrived, without waiting.

        Returns:
            Observations, rewards, whether the episodes ended, and ``{"n": infos}``.

        Raises:
            EncodeError: an action is invalid; none was sent.
            LocalProtocolError: `reset` was not called.
            ConnectionClosed: the vector is closed.
        """
        self._check_open()
        if not self._was_reset:
            raise LocalProtocolError("call reset() before the first step")
        if len(action_n) != self.n:
            raise EncodeError(f"expected {self.n} actions, one for each index, not {len(action_n)}")
        actions = [split_action(action) for action in action_n]
        self._seen = self._arrivals.count()

        def step_links() -> list[LinkStep]:
            steps = []
            for link, (messages, others, peek) in zip(self.links, actions, strict=True):
                step = link.step(peek)  # may mask the action
                steps.append(step)
                if step.open and not (messages or others):
                    continue
                if not (step.open and link.act(messages, others)):
                    step.info["mask.masked.action"] = True
            return steps

        steps = self._loop.call(step_links)
        observations: list[Any] = []
        for picture, step in zip(self._pictures, steps, strict=True):
            pixels = None if step.screen is None else picture.read(step.screen, step.info)
            _add_diagnostics(step)
            if not step.open:
                step.info["mask.masked.observation"] = True
            observations.append({"vision": pixels, "text": [*step.texts]} if step.open else None)
        return (
            observations,
            [step.reward for step in steps],
            [step.done for step in steps],
            {"n": [step.info for step in steps]},
        )

    def act(self, index: int, action: Sequence[Any]) -> None:
        """Send an action to one index without a step; raises as `step`."""
        self._check_open()
        messages, others, _ = split_action(action)
        if messages or others:
            self._loop.call_soon(lambda: self.links[index].act(messages, others))

    def close(self) -> None:
        """Close all connections."""
        if self._closed:
            return
        self._closed = True
        self._arrivals.notify(status=True)
        with contextlib.suppress(ConnectionClosed):  # the loop is closed
            self._loop.submit(self._close_links).result()
        if self._owns_loop:
            self._loop.close()

    async def _close_links(self) -> None:
        await asyncio.gather(*(link.close() for link in self.links))


def _add_diagnostics(step: LinkStep) -> None:
    info, clock = step.info, step.clock
    if clock is not None and "error" not in info:
        name = "stats.gauges.diagnostics."
        least, most = -clock.offset - clock.error, -clock.offset + clock.error
        info[name + "clock_skew"] = (least, most)
        for age, stamp in _STAMPS:
            if isinstance(info.get(stamp), (int, float)):
                passed = time.time() - info[stamp]
                info[name + age] = (passed - most, passed - least)


class _Picture:
    """The newest picture of one index, in the array `into`, or each in a new array."""

    __slots__ = ("_pixels", "_screen", "_updates", "into")

    def __init__(self) -> None:
        self.into: NDArray[np.uint8] | None = None
        self._screen: RemoteScreen | None = None
        self._updates = 0
        self._pixels: NDArray[np.uint8] | None = None

    def read(self, screen: RemoteScreen, info: dict[str, Any]) -> NDArray[np.uint8] | None:
        if screen is not self._screen:
            self._screen, self._updates, self._pixels = screen, 0, None
        updates = screen.updates
        info["stats.vnc.updates.n"] = updates - self._updates
        if updates == self._updates:
            return self._pixels
        try:
            pixels, rectangles = screen.read(self.into)
            if self.into is None:
                pixels.flags.writeable = False  # later steps may return it again
        except (RlwireError, OSError):  # the connection was lost: the next step reports it
            return self._pixels
        except ValueError:
            client = screen.client
            raise RemoteProtocolError(
                f"{client.address}: the screen is {client.width}x{client.height} pixels now, and "
                f"does not fit the array of read_into(); create the environment again"
            ) from None
        self._updates, self._pixels = updates, pixels
        info["stats.vnc.updates.rectangles"] = len(rectangles)
        info["stats.vnc.updates.pixels"] = sum(each.width * each.height for each in rectangles)
        return pixels


class BlockingReset:
    """Wraps a vector so that `reset` and `step` wait until each index has an observation.

    Rewards, texts and infos that arrive meanwhile are merged into the next step. Other attributes
    are those of the wrapped vector. `timeout` is in seconds; None for no timeout.
    """

    def __init__(self, env: Any, timeout: float | None = None) -> None:
        self.env = env
        self._timeout = timeout
        self._kept: VectorStep | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.env.close()

    def reset(self, *arguments: Any, **options: Any) -> list[Any]:
        """Start episodes, and return the first observation of each."""
        observation_n = self.env.reset(*arguments, **options)
        self._kept = None
        self._kept = self._until_all(self.env.step([[] for _ in observation_n]))
        return self._kept[0]

    def step(self, action_n: Sequence[Any]) -> VectorStep:
        """Step until each index has an observation, and return the merged steps."""
        step: VectorStep = self.env.step(action_n)
        kept, self._kept = self._kept, None
        if kept is not None:
            for index, observation in enumerate(kept[0]):
                kept[0][index] = None if observation is None else {**observation, "text": []}
            step = added(kept, step)
        return self._until_all(step)

    def _until_all(self, step: VectorStep) -> VectorStep:
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while any(observation is None for observation in step[0]):
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                self._kept = step
                missing = [index for index, seen in enumerate(step[0]) if seen is None]
                errors = [info["error"] for info in step[3]["n"] if "error" in info]
                raise DeadlineExceeded(
                    f"no observation of indexes {missing} within timeout={self._timeout:g} s"
                    + (f": {'; '.join(errors)}" if errors else "")
                )
            self.env.wait(left, status=True)
            # After `done`, the next episode's rewards are kept for the next step.
            idle: list[list[Any]] = [[PEEK] if done else [] for done in step[2]]
            step = added(step, self.env.step(idle))
        return step


def added(before: VectorStep, after: VectorStep) -> VectorStep:
    """Merge a later step into `before`, and return that.

    Rewards are added, ``done`` is sticky, pictures are replaced, texts appended, infos merged.
    """
    observations, rewards, dones, info = before
    for index, more in enumerate(after[3]["n"]):
        seen, newer = observations[index], after[0][index]
        if seen is not None and newer is not None:
            newer = {**newer, "text": seen["text"] + newer["text"]}
        observations[index] = newer
        rewards[index] += after[1][index]
        dones[index] = dones[index] or after[2][index]
        kept = info["n"][index]
        for name, value in more.items():
            kept[name] = merged(name, kept[name], value) if name in kept else value
    return before


class UniverseEndpoint(Endpoint):
    """A remote's pixels and rewards at a fixed rate; needs Gymnasium (the extra ``gym``).

    A step sends the action at once, waits for the next tick, and returns the newest whole picture
    and the rewards since the last step. After the end of an episode, a reset without a seed
    continues with the episode that the remote started by itself. ``info`` is `UniverseEnv`'s, with
    the texts as ``text``. Actions are values of the server's space or of `action_space`, indexes of
    `actions`, or lists of events.
    """

    def __init__(
        self,
        remote: Remote,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        actions: Sequence[Sequence[Any]] | None = None,
        rate: float | None = 60.0,
        copy: bool = True,
        start_timeout: float = 30.0,
        reset_timeout: float = 60.0,
        **options: Any,
    ) -> None:
        from rlwire.universe.spaces import Events, choices, pictures

        self._places = None if remote.rewarder is None else 1
        self._reset_timeout = reset_timeout
        self._pacer = None if rate is None else Pacer(rate)
        self._resetting = False
        self._needs_reset, self._continues = True, False
        self._kept = 0.0  # rewards that arrived with the reset's observation
        self._seen: NDArray[np.uint8] | None = None
        self._given: NDArray[np.uint8] | None = None
        self._into: NDArray[np.uint8] | None = None
        with contextlib.ExitStack() as undo:
            loop = undo.enter_context(shared_loop())
            self._env = env = UniverseEnv(
                remote, loop=loop, start_timeout=start_timeout, rate=rate or 60.0, **options
            )
            undo.callback(env.close)
            env.wait_until_connected()
            self._select(remote.env_id)
            size = env.size
            assert size is not None  # the screen is connected
            self.observation_space = pictures(size)
            if observation_space not in (None, self.observation_space):
                raise EncodeError(f"pixels are {self.observation_space}, not {observation_space}")
            if not copy:
                self.write_to(np.zeros(self.observation_space.shape, np.uint8))
            self._events: Callable[[Any], Sequence[Any]] = lambda action: action
            if actions is not None:
                self.action_space, self._events = choices(actions)
            else:
                client = env.links[0].client
                described = spaces_of(client and client.session.about.get(SPACES))
                self.episode = described.episode if described else {}
                if action_space is None:
                    action_space = Events(size=size) if described is None else described[1]
                self.action_space = action_space
                if not isinstance(action_space, Events):
                    fit = fitting(action_space, "the action", within=True)
                    self._events = lambda action: [(ACTION, plain(fit(action)))]
            self._undo = undo.pop_all()

    def _select(self, env_id: str | None) -> None:
        """Reset to another environment of an rlwire server, for its spaces and screen size."""
        client = self._env.links[0].client
        if client is None or client.observer or SPACES not in client.session.about:
            return
        if env_id not in (None, client.session.env_id):
            self.begin_reset(None, None)
            self._reset()
            while client.session.about.get(SIZE) not in (None, [*(self._env.size or ())]):
                if not self._env.wait(self._until - time.monotonic()):
                    raise DeadlineExceeded(f"{self._env!r}: no picture of {env_id}")
                self._env.step([[]])

    def write_to(self, row: NDArray[np.uint8]) -> None:
        """Write pictures to a row of a batch, of the observation's shape."""
        self._into = row
        self._env.read_into(0, row)

    @property
    def places(self) -> int | None:
        return self._places

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        if seed is not None or options or not self._continues:
            self._env.reset(seed, options)
        self._resetting, self._continues, self._needs_reset, self._kept = True, False, True, 0.0
        self._until = time.monotonic() + self._reset_timeout

    def encode_step(self, action: Any) -> Sequence[Any]:
        if self._needs_reset:
            raise LocalProtocolError(f"{self._env!r}: no episode is running, call reset()")
        events = self._events(action)
        split_action(events)  # raises for events that `act` does not send
        return events

    def send_step(self, encoded: Sequence[Any]) -> None:
        self._env.act(0, encoded)
        self._resetting = False

    def finish(self) -> Outcome:
        return self._reset() if self._resetting else self._step()

    def _reset(self) -> Outcome:
        error = ""
        link = self._env.links[0]
        while True:
            (observation,), (reward,), (done,), infos = self._env.step([[]])
            info = infos["n"][0]
            self._kept = 0.0 if done else self._kept + reward
            error = info.get("error", error)
            if self._has_picture(observation):
                break
            if error and not (link.connected or link.connecting):
                raise ConnectionClosed(error)
            left = self._until - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"{self._env!r}: no picture within reset_timeout={self._reset_timeout:g} s"
                    + (f": {error}" if error else "")
                )
            self._env.wait(left, status=True)
        self._needs_reset = False
        if self._pacer is not None:
            self._pacer.restart()
            self._pacer.advance()
        return self._picture(), _info_of(info, observation)

    def _step(self) -> Outcome:
        missed = 0 if self._pacer is None else self._pacer.wait()
        (observation,), (reward,), (done,), infos = self._env.step([[]])
        info = _info_of(infos["n"][0], observation)
        reward, self._kept = reward + self._kept, 0.0
        if missed:
            info["stats.throttle.missed"] = missed
        self._has_picture(observation)
        if "error" in info:
            info["lost"] = info["error"]
            self._needs_reset = True
            return self._picture(), reward, False, True, info
        if not done:
            return self._picture(), reward, False, False, info
        self._needs_reset = self._continues = True
        flags = pop_flags(info, "env_status.artificial.done" in info)
        return self._picture(), reward, *flags, info

    def _has_picture(self, observation: Any) -> bool:
        if observation is None or observation["vision"] is None:
            return False
        self._seen = observation["vision"]
        return True

    def _picture(self) -> NDArray[np.uint8] | None:
        """Return the newest picture: without `_into`, in an array that no other step returned."""
        picture = self._seen
        if picture is None or picture is not self._given or self._into is not None:
            self._given = picture
            return picture
        again: NDArray[np.uint8] = picture.copy()
        again.flags.writeable = False
        return again

    def start_rendering(self) -> None:
        rate = 60.0 if self._pacer is None else self._pacer.rate
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": rate}
        self.render_mode = "rgb_array"

    def render(self) -> NDArray[np.uint8] | None:
        return None if self.render_mode is None or self._seen is None else np.array(self._seen)

    def close(self) -> None:
        self._undo.close()


def _info_of(info: dict[str, Any], observation: Any) -> dict[str, Any]:
    info.pop("rewarder.observation", None)
    if observation is not None and observation["text"]:
        info["text"] = observation["text"]
    return info
