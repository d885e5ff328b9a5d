"""`UniverseEnv`: many remotes in real time, as one vector whose calls wait for none of them.

`UniverseEndpoint` is one remote with pixels for `rlwire.make` and `make_vec`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.endpoint import Endpoint, Outcome
from rlwire.environments.fitting import fitting, plain
from rlwire.environments.spaces import spaces_of
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.transports.pacing import Pacer
from rlwire.universe._links import Link, LinkOptions, LinkStep, RemoteScreen, Replace
from rlwire.universe._loop import ClientLoop, shared_loop
from rlwire.universe.blocking_reset import VectorStep
from rlwire.universe.input import split_action
from rlwire.universe.remotes import Remote, Remotes, remotes_of
from rlwire.universe.rewarder.environment import ACTION, SPACES

_Split: TypeAlias = tuple[list[Any], list[Sequence[Any]], bool]

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
    step leaves the rewards for a later one, and reports the newest episode and its state as
    ``env_status.peek.*``. Events of other names go to the rewarder.

    Args:
        remotes: as `rlwire.universe.remotes_of` takes them.
        env_id: which environment resets ask for, where a remote does not say.
        rate: frames a second that resets ask for.
        start_timeout: seconds until a remote has to be connected; by default 5 and 2 for each.
        observer: whether to watch only: nothing is reset, no action sent.
        replace: called with a `Remote` that is lost and the error, in a thread that may wait;
            returns the `Remote` that replaces it, None for none. By default it is connected again,
            unless it was never connected and refuses us, as for a wrong password.
        rewarder: options of each `rlwire.universe.rewarder.AsyncRewarderClient`.
        pixels: options of each `rlwire.universe.rfb.AsyncRfbClient`.
        loop: the `ClientLoop` to use; by default one of its own.

    Attributes:
        n: how many remotes there are.
        rate: as given.
        labels: the remotes' names in errors and logs.
    """

    def __init__(
        self,
        remotes: Remotes,
        *,
        env_id: str | None = None,
        rate: float = 60.0,
        start_timeout: float | None = None,
        observer: bool = False,
        replace: Replace | None = None,
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
        self.rate = rate
        self.labels = [remote.label for remote in found]
        self._env_id = env_id
        self._begun = observer
        self._closed = False
        self._pictures = [_Picture() for _ in found]
        options = LinkOptions(
            start_timeout, rate, observer, replace, dict(rewarder or {}), dict(pixels or {})
        )  # fmt: skip
        self._owns_loop = loop is None
        self._loop = ClientLoop() if loop is None else loop
        self._arrivals = self._loop.arrivals
        self._seen = self._arrivals.count()
        self._links = [Link(remote, self._loop, options) for remote in found]
        for link in self._links:
            self._loop.call_soon(link.connect)

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

        has_pixels = self._links[0].remote.pixels is not None
        return observations(self.size or (65535, 65535) if has_pixels else None)

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the first screen; None if there is none yet."""
        screen = self._links[0].screen
        return None if screen is None else (screen.width, screen.height)

    @property
    def connected(self) -> list[bool]:
        """Whether each remote is connected."""
        return [link.connected for link in self._links]

    def wait_until_connected(self) -> None:
        """Wait until all remotes are connected, for as long as `start_timeout`."""
        while True:
            seen = self._arrivals.count()
            if self._closed:
                raise ConnectionClosed("the remotes were closed on this side")
            if all(self.connected):
                return
            for link in self._links:
                if link.error is not None and not link.connected:
                    raise link.error
            self._arrivals.wait(seen, status=True)

    def wait(self, timeout: float | None = None, *, status: bool = False) -> bool:
        """Wait until something has arrived since the last step began; return whether it has.

        Args:
            timeout: seconds; None for ever.
            status: whether to wait for what may show or mask an index, such as the beginning of an
                episode or a lost connection, and not for pictures, rewards and texts.
        """
        return self._arrivals.wait(self._seen, timeout, status=status)

    def read_into(self, index: int, row: NDArray[np.uint8]) -> None:
        """Have the pictures of an index written to an array, of shape (height, width, 3).

        Then each step shows that same array, and of a picture only what has changed is copied.
        """
        self._pictures[index].into = row

    def about(self, index: int) -> Mapping[str, Any]:
        """Return what else the rewarder at an index said of its environment."""
        client = self._links[index].client
        return {} if client is None else client.about

    def reset(self, seed: int | Sequence[int | None] | None = None) -> list[Any]:
        """Begin an episode at each index, and return an observation of each: None.

        Args:
            seed: the first index's, those that follow get the next numbers; or each one's. Each is
                used once: an index that comes back after a crash goes on without one.

        Raises:
            ValueError: there are more or fewer seeds than remotes.
            ConnectionClosed: this was closed.
        """
        seeds: list[int | None]
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + index for index in range(self.n)]
        else:
            seeds = list(seed)
        if len(seeds) != self.n:
            raise ValueError(f"there must be {self.n} seeds, one for each index, not {len(seeds)}")
        self._begun = True

        def begin() -> None:
            for link, number in zip(self._links, seeds, strict=True):
                link.reset(self._env_id, number)

        self._loop.call(begin)
        return [None] * self.n

    def step(self, action_n: Sequence[Sequence[Any]]) -> VectorStep:
        """Send the actions, and return what has arrived; at once.

        Args:
            action_n: for each index a list of events.

        Returns:
            Observations, rewards, whether an episode ended, and ``{"n": infos}``.

        Raises:
            EncodeError: these are no actions; none was sent.
            LocalProtocolError: `reset` was not called.
            ConnectionClosed: this was closed.
        """
        (steps,) = _step_all([self], [action_n])
        return self._outcome(steps)

    def act(self, index: int, action: Sequence[Any]) -> None:
        """Send an action to one index, and take no step; errors as of `step`."""
        messages, others, _ = split_action(action)
        if messages or others:
            self._loop.call_soon(lambda: self._links[index].act(messages, others))

    def _split(self, action_n: Sequence[Sequence[Any]]) -> list[_Split]:
        if not self._begun:
            raise LocalProtocolError("call reset() before the first step")
        if len(action_n) != self.n:
            raise EncodeError(f"there must be {self.n} actions, one for each index")
        return [split_action(action) for action in action_n]

    def _step_links(self, actions: list[_Split]) -> list[LinkStep]:
        """Step and then act, in the loop's thread: the step may mask the action."""
        steps = []
        for link, (messages, others, peek) in zip(self._links, actions, strict=True):
            step = link.step(peek)
            steps.append(step)
            if step.open and not (messages or others):
                continue
            if not (step.open and link.act(messages, others)):
                step.info["mask.masked.action"] = True
        return steps

    def _outcome(self, steps: list[LinkStep]) -> VectorStep:
        """Return the links' steps as `step` does, with the pictures."""
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

    def close(self) -> None:
        """Leave all remotes; again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._arrivals.notify(status=True)
        with contextlib.suppress(ConnectionClosed):  # the loop was closed before
            self._loop.run(self._close_links)
        if self._owns_loop:
            self._loop.close()

    async def _close_links(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links))


def _step_all(
    envs: Sequence[UniverseEnv], actions: Sequence[Sequence[Sequence[Any]]]
) -> list[list[LinkStep]]:
    """Step vectors of one loop, with one question to it."""
    given = [env._split(action_n) for env, action_n in zip(envs, actions, strict=True)]
    if not envs:
        return []
    for env in envs:
        env._seen = env._arrivals.count()
    return envs[0]._loop.call(
        lambda: [env._step_links(its) for env, its in zip(envs, given, strict=True)]
    )


def _add_diagnostics(step: LinkStep) -> None:
    """Add the round trip to the remote, and what its clock says, to a step's info."""
    info, clock = step.info, step.clock
    if "error" in info:
        return
    if step.round_trip is not None:
        info["stats.gauges.vnc.round_trip"] = step.round_trip
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
        self._screen: RemoteScreen | None = None
        self._updates = 0
        self._pixels: NDArray[np.uint8] | None = None

    def read(self, screen: RemoteScreen, info: dict[str, Any]) -> NDArray[np.uint8] | None:
        """Return it, and count in an info what was painted since the last time."""
        if screen is not self._screen:
            self._screen, self._updates, self._pixels = screen, 0, None
        updates = screen.updates
        info["stats.vnc.updates.n"] = updates - self._updates
        if updates == self._updates:
            return self._pixels
        try:
            if self.into is None:
                pixels, rectangles = screen.read()
                pixels.flags.writeable = False  # the next steps may give it again
            else:
                pixels, rectangles = self.into, screen.read_changes(self.into)
        except (RlwireError, OSError):  # it was lost just now, as the next step reports
            return self._pixels
        except ValueError:
            raise RemoteProtocolError(
                f"{screen.address} is {screen.width}x{screen.height} pixels now, which do not fit "
                f"where they are to be written; make the vector anew"
            ) from None
        self._updates, self._pixels = updates, pixels
        info["stats.vnc.updates.rectangles"] = len(rectangles)
        info["stats.vnc.updates.pixels"] = sum(each.width * each.height for each in rectangles)
        return pixels


class UniverseEndpoint(Endpoint):
    """A remote's pixels and rewards, at a rate; needs Gymnasium (the extra ``gym``).

    An observation is the newest whole picture, changed since the last or not. A step sends the
    action at once, and returns at the next tick what has arrived by then; the environment waits for
    neither. After the end of an episode a reset without a seed continues with the next one, which
    the remote has begun by itself. ``info`` is that of `UniverseEnv`, with the texts as ``text``.

    All endpoints of a process share one loop. Those of a batch with one rate step together.

    Args:
        remote: where it is.
        observation_space: only compared with the pixels' own.
        action_space: of what the rewarder takes, as the event ``["Action", value]``; by default a
            server of ours tells it. Otherwise actions are lists of events.
        actions: in place of that, the lists of events that the numbers of a Discrete stand for.
        rate: steps a second; None not to wait.
        copy: whether each observation has memory of its own.
        start_timeout: seconds until the remote has to be connected.
        reset_timeout: seconds until an episode has to run.
        options: `UniverseEnv`'s.

    Raises:
        DeadlineExceeded: it is not connected in time.
        EncodeError: its pixels are not of the observation space.
        RlwireError: it refuses us.
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
        self._rate = rate
        self._error = ""  # of a reset that goes on
        self._over, self._goes_on = True, False
        self._kept = 0.0  # rewards that arrived with the reset's observation
        self._seen: NDArray[np.uint8] | None = None
        self._given: NDArray[np.uint8] | None = None
        with contextlib.ExitStack() as undo:
            loop = undo.enter_context(shared_loop())
            self._env = env = UniverseEnv(
                remote, loop=loop, start_timeout=start_timeout, rate=rate or 60.0, **options
            )
            undo.callback(env.close)
            env.wait_until_connected()
            size = env.size
            assert size is not None  # it is connected, and has pixels
            self.observation_space = pictures(size)
            if observation_space not in (None, self.observation_space):
                raise EncodeError(f"pixels are {self.observation_space}, not {observation_space}")
            self._into: NDArray[np.uint8] | None = None
            if not copy:
                self.write_to(np.zeros(self.observation_space.shape, np.uint8))
            self._events: Callable[[Any], Sequence[Any]] = lambda action: action
            if actions is not None:
                self.action_space, self._events = choices(actions)
            else:
                told = spaces_of(env.about(0).get(SPACES))
                if action_space is None:
                    action_space = Events(size=size) if told is None else told[1]
                self.action_space = action_space
                if not isinstance(action_space, Events):
                    fit = fitting(action_space, "the action", within=True)
                    self._events = lambda action: [(ACTION, plain(fit(action)))]
            self._group = _EndpointGroup([self])
            self._undo = undo.pop_all()

    def join(self, others: Sequence[UniverseEndpoint]) -> None:
        """Step together with others of the same rate."""
        joined = [self, *(other for other in others if other._rate == self._rate)]
        group = _EndpointGroup(joined)
        for each in joined:
            each._group = group

    def write_to(self, row: NDArray[np.uint8]) -> None:
        """Have pictures written to a row of a batch, of the observation's shape."""
        self._into = row
        self._env.read_into(0, row)

    @property
    def places(self) -> int | None:
        """One, of a rewarder's active client; any number watch pixels alone."""
        return self._places

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Ask for an episode, unless the next one has begun by itself and no seed is wanted."""
        self._group.begin(self, is_reset=True)
        if seed is not None or not self._goes_on:
            self._env.reset(seed)
        self._goes_on = False
        self._over, self._kept, self._error = True, 0.0, ""
        self._until = time.monotonic() + self._reset_timeout

    def begin_step(self, action: Any) -> None:
        """Send an action."""
        if self._over:
            raise LocalProtocolError(f"{self._env!r}: no episode goes on, call reset()")
        self._env.act(0, self._events(action))
        self._group.begin(self, is_reset=False)

    def finish(self) -> Outcome:
        """Wait for the tick, or until an episode runs."""
        return self._group.finish(self)

    def _reset(self, step: VectorStep) -> Outcome | None:
        """Return the outcome of a reset, or None while no episode runs."""
        (observation,), (reward,), (done,), info = step
        told = info["n"][0]
        self._kept = 0.0 if done else self._kept + reward
        self._error = error = told.get("error", self._error)
        if self._has_picture(observation):
            self._over = False
            return self._picture(), _info_of(told, observation)
        link = self._env._links[0]
        if error and not (link.connected or link.connecting):
            raise ConnectionClosed(error)
        if time.monotonic() >= self._until:
            raise DeadlineExceeded(
                f"{self._env!r}: no episode runs within reset_timeout={self._reset_timeout:g} s"
                + (f": {error}" if error else "")
            )
        return None

    def _step(self, step: VectorStep, missed: int) -> Outcome:
        (observation,), (reward,), (done,), all_infos = step
        info = _info_of(all_infos["n"][0], observation)
        reward, self._kept = reward + self._kept, 0.0
        if missed:
            info["stats.throttle.missed"] = missed
        self._has_picture(observation)
        if "error" in info:
            info["lost"] = info["error"]
            self._over = True
            return self._picture(), reward, False, True, info
        if not done:
            return self._picture(), reward, False, False, info
        self._over = self._goes_on = True
        cut = bool(info.pop("rlwire.truncated", False)) or "env_status.artificial.done" in info
        return self._picture(), reward, not cut, cut, info

    def _has_picture(self, observation: Any) -> bool:
        if observation is None or observation["vision"] is None:
            return False
        self._seen = observation["vision"]
        return True

    def _picture(self) -> NDArray[np.uint8] | None:
        """Return the newest picture, in memory of its own even if nothing has changed."""
        picture = self._seen
        if picture is None or picture is not self._given or self._into is not None:
            self._given = picture
            return picture
        again: NDArray[np.uint8] = picture.copy()
        again.flags.writeable = False
        return again

    def start_rendering(self) -> None:
        """Let `render` return the newest picture."""
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": self._rate or 60.0}
        self.render_mode = "rgb_array"

    def render(self) -> NDArray[np.uint8] | None:
        """Return the picture that was observed last."""
        return None if self.render_mode is None or self._seen is None else np.array(self._seen)

    def close(self) -> None:
        """Leave; again does nothing."""
        self._undo.close()


def _info_of(info: dict[str, Any], observation: Any) -> dict[str, Any]:
    info.pop("rewarder.observation", None)
    if observation is not None and observation["text"]:
        info["text"] = observation["text"]
    return info


class _EndpointGroup:
    """Endpoints of one rate that step together: all are begun before the first `finish`."""

    def __init__(self, endpoints: Sequence[UniverseEndpoint]) -> None:
        rate = endpoints[0]._rate
        self._pacer = None if rate is None else Pacer(rate)
        self._arrivals = endpoints[0]._env._arrivals
        self._begun: dict[UniverseEndpoint, bool] = {}  # whether it is a reset
        self._outcomes: dict[UniverseEndpoint, Outcome | Exception] = {}

    def begin(self, endpoint: UniverseEndpoint, *, is_reset: bool) -> None:
        """Take note of what is to be finished."""
        self._begun[endpoint] = is_reset
        self._outcomes.pop(endpoint, None)

    def finish(self, endpoint: UniverseEndpoint) -> Outcome:
        """Return an endpoint's outcome, or raise its error."""
        if endpoint not in self._outcomes:
            self._finish_all()
        outcome = self._outcomes.pop(endpoint)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _finish_all(self) -> None:
        """Wait for all resets, then for the tick of all steps."""
        begun, self._begun = self._begun, {}
        stepping = [endpoint for endpoint, is_reset in begun.items() if not is_reset]
        resetting = [endpoint for endpoint, is_reset in begun.items() if is_reset]
        while resetting:
            seen = self._arrivals.count()
            self._step_all(resetting, UniverseEndpoint._reset)
            resetting = [each for each in resetting if each not in self._outcomes]
            if resetting:
                left = min(each._until for each in resetting) - time.monotonic()
                self._arrivals.wait(seen, max(0.0, left), status=True)
        missed = 0
        if self._pacer is not None:
            if stepping:
                missed = self._pacer.wait()
            else:
                self._pacer.restart()
                self._pacer.advance()
        self._step_all(stepping, lambda endpoint, step: endpoint._step(step, missed))

    def _step_all(
        self,
        endpoints: list[UniverseEndpoint],
        outcome_of: Callable[[UniverseEndpoint, VectorStep], Outcome | None],
    ) -> None:
        """Step some, and keep their outcomes and errors."""
        envs = [endpoint._env for endpoint in endpoints]
        for endpoint, steps in zip(endpoints, _step_all(envs, [[[]]] * len(envs)), strict=True):
            try:
                outcome: Outcome | Exception | None = outcome_of(
                    endpoint, endpoint._env._outcome(steps)
                )
            except Exception as error:
                outcome = error
            if outcome is not None:
                self._outcomes[endpoint] = outcome
