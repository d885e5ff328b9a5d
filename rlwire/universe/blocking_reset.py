"""`BlockingReset` makes a `UniverseEnv` wait until each remote has an observation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rlwire.errors import DeadlineExceeded
from rlwire.sessions.rewarder.steps import merged
from rlwire.universe.input import PEEK

VectorStep: TypeAlias = tuple[list[Any], list[float], list[bool], dict[str, Any]]
"""Observations, rewards, whether done, and the info of a vector's step."""


class BlockingReset:
    """Makes `reset` and `step` wait until each index has an observation.

    Arrivals meanwhile are added to the next step. Other attributes are those of the inner vector.
    `timeout` is in seconds; None for no timeout.
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
        """Begin episodes, and return the first observation of each."""
        observation_n = self.env.reset(*arguments, **options)
        self._kept = None
        self._kept = self._until_all(self.env.step([[] for _ in observation_n]))
        return self._kept[0]

    def step(self, action_n: Sequence[Any]) -> VectorStep:
        """Step until each index has an observation, and return what has arrived."""
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
            # After an end, the next episode's rewards are left to the next step.
            idle: list[list[Any]] = [[PEEK] if done else [] for done in step[2]]
            step = added(step, self.env.step(idle))
        return step


def added(before: VectorStep, after: VectorStep) -> VectorStep:
    """Merge a later step into `before`, and return that.

    Rewards are added, ``done`` is sticky, pictures are replaced, texts are appended and infos are
    merged. A masked index has no observation.
    """
    observations, rewards, dones, info = before
    for index, more in enumerate(after[3]["n"]):
        seen, newer = observations[index], after[0][index]
        if seen is not None and newer is not None:
            newer = {**newer, "text": seen["text"] + newer["text"]}
        observations[index] = newer
        rewards[index] += after[1][index]
        dones[index] = dones[index] or after[2][index]
        _merge(info["n"][index], more)
    _merge(info, {name: value for name, value in after[3].items() if name != "n"})
    return before


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        into[name] = merged(name, into[name], value) if name in into else value
