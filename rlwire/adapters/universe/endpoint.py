"""`UniverseEndpoint`: one remote with pixels as an `Endpoint`, for `rlwire.make` and `make_vec`.

Needs Gymnasium (the extra ``gym``). Not here: many remotes as the document has them
(`rlwire.adapters.universe.env`), remotes without pixels (`rlwire.adapters.rewarder.endpoint`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rlwire.adapters.rewarder.endpoint import action_value, told_spaces
from rlwire.adapters.rewarder.environments import ACTION
from rlwire.adapters.universe.env import UniverseEnv
from rlwire.adapters.universe.hub import shared_hub
from rlwire.adapters.universe.remotes import Remote
from rlwire.adapters.universe.spaces import Choices, Events
from rlwire.environments.endpoint import Outcome
from rlwire.environments.trees import tree_of
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    optional,
)
from rlwire.transports.pacing import Pacer

with optional("gymnasium", "gym"):
    from gymnasium.spaces import Box

__all__ = ["UniverseEndpoint"]

logger = logging.getLogger(__name__)

_POLL = 1 / 240  # seconds between two looks at a remote that resets


class UniverseEndpoint:
    """A remote's pixels and rewards, at a rate.

    An observation is the newest whole picture: it has changed since the last, or not. A step sends
    the action at once, and gives at the next tick what there is then; the environment waits for
    neither. After the end of an episode a reset without a seed takes up the next one, which the
    remote has begun by itself. ``info`` is as of `UniverseEnv`, with the texts as ``text``.

    All of a process live in one thread, and share its loop.

    Args:
        remote: where it is.
        observation_space: only to compare: pixels are what they are.
        action_space: of what the rewarder takes, as the event ``["Action", value]``; by default a
            server of ours tells it. Otherwise actions are lists of events.
        actions: in place of that, the lists of events that the numbers of a Discrete stand for; or
            the name of such, as `rlwire.adapters.universe.wrappers.SafeActionSpace` takes it.
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

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's interface
    render_mode: str | None = None
    nondeterministic: ClassVar[bool] = True

    def __init__(
        self,
        remote: Remote,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        actions: str | Sequence[Sequence[Any]] | None = None,
        rate: float | None = 60.0,
        copy: bool = True,
        start_timeout: float = 30.0,
        reset_timeout: float = 60.0,
        **options: Any,
    ) -> None:
        self._reset_timeout = reset_timeout
        self._pacer = None if rate is None else Pacer(rate)
        self._begun = ""
        self._over, self._goes_on = True, False
        self._owed = 0.0
        self._seen: NDArray[np.uint8] | None = None
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
                self.action_space = _choices(actions)
            else:
                told = told_spaces(env.about(0))
                if action_space is None and told is not None:
                    action_space = told[1]
                self.action_space = Events(size=size) if action_space is None else action_space
            self._tree = None
            if not isinstance(self.action_space, (Choices, Events)):
                cannot = "which the rewarder's JSON cannot carry"
                self._tree = tree_of(self.action_space, "the action", cannot)
            self._undo = undo.pop_all()

    def write_to(self, row: NDArray[np.uint8]) -> None:
        """Have pictures written to a row of a batch, of the observation's shape."""
        self._into = row
        self._env.read_into(0, row)

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Ask for an episode, unless the next one has begun by itself and no seed is wanted."""
        self._begun = "reset"
        if seed is not None or not self._goes_on:
            self._env.reset(seed)
        self._goes_on = False

    def begin_step(self, action: Any) -> None:
        """Send what is to be done."""
        if self._over:
            raise LocalProtocolError(f"{self._env!r}: no episode goes on, call reset()")
        self._begun = "step"
        self._env.act(0, self._events(action))

    def _events(self, action: Any) -> Sequence[Any]:
        space = self.action_space
        if isinstance(space, Choices):
            number = np.asarray(action).item()
            if not space.contains(number):
                raise EncodeError(f"the action {action!r} is not in {space}")
            return space.actions[number]
        if self._tree is None:
            events: Sequence[Any] = action
            return events
        return [(ACTION, action_value(self._tree, space, action))]

    def finish(self) -> Outcome:
        """Wait for the tick, or until an episode runs."""
        return self._reset() if self._begun == "reset" else self._step()

    def _reset(self) -> Outcome:
        until = time.monotonic() + self._reset_timeout
        self._over, owed, error = True, 0.0, ""
        while True:
            observations, rewards, dones, info = self._env.step([[]])
            told = info["n"][0]
            owed = 0.0 if dones[0] else owed + rewards[0]
            error = told.get("error", error)
            if self._shown(observations[0]):
                break
            if error and not self._env.tries[0]:
                raise ConnectionClosed(error)
            if time.monotonic() >= until:
                raise DeadlineExceeded(
                    f"{self._env!r}: no episode runs within reset_timeout={self._reset_timeout:g} s"
                    + (f": {error}" if error else "")
                )
            time.sleep(_POLL)
        self._over, self._owed = False, owed
        if self._pacer is not None:
            self._pacer.restart()
            self._pacer.advance()
        return self._seen, self._told(told, observations[0])

    def _step(self) -> Outcome:
        missed = 0 if self._pacer is None else self._pacer.wait()
        observations, rewards, dones, info = self._env.step([[]])
        told = self._told(info["n"][0], observations[0])
        reward, self._owed = rewards[0] + self._owed, 0.0
        if missed:
            told["stats.throttle.missed"] = missed
        self._shown(observations[0])
        if "error" in told:
            told["lost"] = told["error"]
            self._over = True
            return self._seen, reward, False, True, told
        if not dones[0]:
            return self._seen, reward, False, False, told
        self._over = self._goes_on = True
        cut = bool(told.pop("rlwire.truncated", False)) or "env_status.artificial.done" in told
        return self._seen, reward, not cut, cut, told

    def _shown(self, observation: Any) -> bool:
        """Take note of what is seen; return whether there is something."""
        if observation is None or observation["vision"] is None:
            return False
        self._seen = observation["vision"]
        return True

    def _told(self, info: dict[str, Any], observation: Any) -> dict[str, Any]:
        info.pop("rewarder.observation", None)
        if observation is not None and observation["text"]:
            info["text"] = observation["text"]
        return info

    def close(self) -> None:
        """Leave; again does nothing."""
        self._undo.close()


def _choices(actions: str | Sequence[Sequence[Any]]) -> Choices:
    if isinstance(actions, str):
        from rlwire.adapters.universe.wrappers import safe_actions

        actions = safe_actions(actions)
    return Choices(actions)
