"""`UniverseEndpoint`: one remote with pixels as an `Endpoint`, for `rlwire.make` and `make_vec`.

Needs Gymnasium (the extra ``gym``).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
    optional,
)
from rlwire.transports.pacing import Pacer
from rlwire.universe.env import UniverseEnv, turns_of
from rlwire.universe.hub import News, shared_hub
from rlwire.universe.remotes import Remote
from rlwire.universe.rewarder.environment import ACTION, SPACES
from rlwire.universe.spaces import Choices, Events
from rlwire.universe.sums import Outcome as Stepped

with optional("gymnasium", "gym"):
    from gymnasium.spaces import Box

logger = logging.getLogger(__name__)


class UniverseEndpoint(Endpoint):
    """A remote's pixels and rewards, at a rate.

    An observation is the newest whole picture: it has changed since the last, or not. A step sends
    the action at once, and gives at the next tick what there is then; the environment waits for
    neither. After the end of an episode a reset without a seed takes up the next one, which the
    remote has begun by itself. ``info`` is as of `UniverseEnv`, with the texts as ``text``.

    All of a process live in one thread, and share its loop. Those of a batch have one rate, and ask
    that thread once for all of them.

    Args:
        remote: where it is.
        observation_space: only to compare: pixels are what they are.
        action_space: of what the rewarder takes, as the event ``["Action", value]``; by default a
            server of ours tells it. Otherwise actions are lists of events.
        actions: in place of that, the lists of events that the numbers of a Discrete stand for.
        rate: steps a second; None not to wait.
        copy: whether each observation has memory of its own.
        start_timeout: seconds until the remote has to be there.
        reset_timeout: seconds until an episode has to run.
        options: `UniverseEnv`'s.

    Raises:
        DeadlineExceeded: it is not there in time.
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
        self._places = None if remote.rewarder is None else 1
        self._reset_timeout = reset_timeout
        self._rate = rate
        self._error = ""  # of a reset that goes on
        self._over, self._goes_on = True, False
        self._owed = 0.0
        self._seen: NDArray[np.uint8] | None = None
        self._given: NDArray[np.uint8] | None = None  # of what is seen, as it is
        with contextlib.ExitStack() as undo:
            hub = undo.enter_context(shared_hub())
            self._env = env = UniverseEnv(
                remote, hub=hub, start_timeout=start_timeout, fps=rate or 60.0, **options
            )  # fmt: skip
            undo.callback(env.close)
            env.wait_until_up()
            size = env.size
            assert size is not None  # it is up, and has pixels
            shape = (size[1], size[0], 3)
            self.observation_space = Box(0, 255, shape, np.uint8)
            if observation_space not in (None, self.observation_space):
                raise EncodeError(f"pixels are {self.observation_space}, not {observation_space}")
            self._into = None if copy else np.zeros(shape, np.uint8)
            if self._into is not None:
                env.read_into(0, self._into)
            if actions is not None:
                self.action_space = Choices(actions)
            else:
                told = spaces_of(env.about(0).get(SPACES))
                if action_space is None and told is not None:
                    action_space = told[1]
                self.action_space = Events(size=size) if action_space is None else action_space
            self._fit = None
            if not isinstance(self.action_space, (Choices, Events)):
                self._fit = fitting(self.action_space, "the action", within=True)
            self._group = _Group([self])
            self._undo = undo.pop_all()

    def join(self, others: Sequence[UniverseEndpoint]) -> None:
        """Share questions and ticks with others, as far as they have the same rate."""
        joined = [self, *(other for other in others if other._rate == self._rate)]
        group = _Group(joined)
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
        self._over, self._owed, self._error = True, 0.0, ""
        self._until = time.monotonic() + self._reset_timeout

    def begin_step(self, action: Any) -> None:
        """Send what is to be done."""
        if self._over:
            raise LocalProtocolError(f"{self._env!r}: no episode goes on, call reset()")
        self._env.act(0, self._events(action))
        self._group.begin(self, is_reset=False)

    def _events(self, action: Any) -> Sequence[Any]:
        space = self.action_space
        if isinstance(space, Choices):
            number = np.asarray(action).item()
            if not space.contains(number):
                raise EncodeError(f"the action {action!r} is not in {space}")
            return space.actions[number]
        if self._fit is None:
            events: Sequence[Any] = action
            return events
        return [(ACTION, plain(self._fit(action)))]

    def finish(self) -> Outcome:
        """Wait for the tick, or until an episode runs."""
        return self._group.finish(self)

    def _reset(self, stepped: Stepped) -> Outcome | None:
        """Return what a reset gives, or None while no episode runs."""
        observations, rewards, dones, info = stepped
        told = info["n"][0]
        self._owed = 0.0 if dones[0] else self._owed + rewards[0]
        self._error = error = told.get("error", self._error)
        if self._shown(observations[0]):
            self._over = False
            return self._picture(), self._told(told, observations[0])
        if error and not self._env.tries[0]:
            raise ConnectionClosed(error)
        if time.monotonic() >= self._until:
            raise DeadlineExceeded(
                f"{self._env!r}: no episode runs within reset_timeout={self._reset_timeout:g} s"
                + (f": {error}" if error else "")
            )
        return None

    def _step(self, stepped: Stepped, missed: int) -> Outcome:
        observations, rewards, dones, info = stepped
        told = self._told(info["n"][0], observations[0])
        reward, self._owed = rewards[0] + self._owed, 0.0
        if missed:
            told["stats.throttle.missed"] = missed
        self._shown(observations[0])
        if "error" in told:
            told["lost"] = told["error"]
            self._over = True
            return self._picture(), reward, False, True, told
        if not dones[0]:
            return self._picture(), reward, False, False, told
        self._over = self._goes_on = True
        cut = bool(told.pop("rlwire.truncated", False)) or "env_status.artificial.done" in told
        return self._picture(), reward, not cut, cut, told

    def _shown(self, observation: Any) -> bool:
        """Take note of what is seen; return whether there is something."""
        if observation is None or observation["vision"] is None:
            return False
        self._seen = observation["vision"]
        return True

    def _picture(self) -> NDArray[np.uint8] | None:
        """Return what is seen, in memory of its own even if nothing has changed."""
        picture = self._seen
        if picture is None or picture is not self._given or self._into is not None:
            self._given = picture
            return picture
        again: NDArray[np.uint8] = picture.copy()
        again.flags.writeable = False
        return again

    def _told(self, info: dict[str, Any], observation: Any) -> dict[str, Any]:
        info.pop("rewarder.observation", None)
        if observation is not None and observation["text"]:
            info["text"] = observation["text"]
        return info

    def start_rendering(self) -> None:
        """Let `render` return what is seen."""
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": self._rate or 60.0}
        self.render_mode = "rgb_array"

    def render(self) -> NDArray[np.uint8] | None:
        """Return the picture that was seen last."""
        return None if self.render_mode is None or self._seen is None else np.array(self._seen)

    def close(self) -> None:
        """Leave; again does nothing."""
        self._undo.close()


class _Group:
    """Endpoints of one rate, asked together: all that was begun ends with the first `finish`."""

    def __init__(self, endpoints: Sequence[UniverseEndpoint]) -> None:
        rate = endpoints[0]._rate
        self._pacer = None if rate is None else Pacer(rate)
        self._news = News()
        for endpoint in endpoints:
            endpoint._env.news.pass_on(self._news)
        self._begun: dict[UniverseEndpoint, bool] = {}  # whether it is a reset
        self._found: dict[UniverseEndpoint, Outcome | Exception] = {}

    def begin(self, endpoint: UniverseEndpoint, *, is_reset: bool) -> None:
        """Take note of what is to be finished."""
        self._begun[endpoint] = is_reset
        self._found.pop(endpoint, None)

    def finish(self, endpoint: UniverseEndpoint) -> Outcome:
        """Return an endpoint's outcome, or raise its error."""
        if endpoint not in self._found:
            self._finish_all()
        found = self._found.pop(endpoint)
        if isinstance(found, Exception):
            raise found
        return found

    def _finish_all(self) -> None:
        """Wait for all resets, then for the tick of all steps."""
        begun, self._begun = self._begun, {}
        stepping = [endpoint for endpoint, is_reset in begun.items() if not is_reset]
        self._wait_for([endpoint for endpoint, is_reset in begun.items() if is_reset])
        missed = 0
        if self._pacer is not None:
            if stepping:
                missed = self._pacer.wait()
            else:
                self._pacer.restart()
                self._pacer.advance()
        self._ask(stepping, lambda endpoint, stepped: endpoint._step(stepped, missed))

    def _wait_for(self, resetting: list[UniverseEndpoint]) -> None:
        while resetting:
            seen = self._news.seen()
            self._ask(resetting, lambda endpoint, stepped: endpoint._reset(stepped))
            resetting = [each for each in resetting if each not in self._found]
            if resetting:
                left = min(each._until for each in resetting) - time.monotonic()
                self._news.wait(seen, max(0.0, left), turns=True)

    def _ask(
        self,
        endpoints: list[UniverseEndpoint],
        outcome_of: Callable[[UniverseEndpoint, Stepped], Outcome | None],
    ) -> None:
        """Ask what has come to some, and take note of their outcomes and errors."""
        envs = [endpoint._env for endpoint in endpoints]
        turns = turns_of(envs, [[[]]] * len(envs))
        for endpoint, its in zip(endpoints, turns, strict=True):
            try:
                found: Outcome | Exception | None = outcome_of(endpoint, endpoint._env.told(its))
            except Exception as error:
                found = error
            if found is not None:
                self._found[endpoint] = found
