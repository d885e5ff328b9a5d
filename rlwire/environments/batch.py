"""`Batch`: environments side by side in one process, which write what they give into columns.

Gymnasium's three ways to begin an environment's next episode stand here, once. Not here:
processes (`rlwire.environments.processes`), the face that users see (`rlwire.environments.vector`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.columns import Allocate, Columns, rows

__all__ = ["Batch", "Infos", "Part", "Shared"]

Infos: TypeAlias = list[tuple[int, dict[str, Any]]]
"""Infos that are not empty, each with its environment's place; of one place in their order."""


class Shared(NamedTuple):
    """What environments that step together write, a row for each.

    Attributes:
        observations: the last ones.
        finals: the last ones of episodes that ended within this step, for autoreset "SameStep".
        actions: what they shall do.
        rewards: float64.
        terminations: bool.
        truncations: bool.
    """

    observations: Columns
    finals: Columns
    actions: Columns
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]

    @classmethod
    def of(
        cls, observation_space: Any, action_space: Any, count: int, allocate: Allocate = np.zeros
    ) -> Shared:
        """Make columns for a number of environments with these spaces."""
        return cls(
            Columns(observation_space, count, allocate, "the observation"),
            Columns(observation_space, count, allocate, "the observation"),
            Columns(action_space, count, allocate, "the action"),
            allocate((count,), np.dtype(np.float64)),
            allocate((count,), np.dtype(np.bool_)),
            allocate((count,), np.dtype(np.bool_)),
        )

    def part(self, start: int, end: int) -> Shared:
        """Return the rows of some of the environments."""
        return Shared(
            self.observations.part(start, end),
            self.finals.part(start, end),
            self.actions.part(start, end),
            self.rewards[start:end],
            self.terminations[start:end],
            self.truncations[start:end],
        )


class Part(Protocol):
    """Some of a vector's environments: asked first, all parts, and then waited for."""

    size: int

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        """Begin an episode in each environment that the mask names."""

    def begin_step(self) -> None:
        """Do what stands in the columns' actions."""

    def finish(self) -> Infos:
        """Wait until what was begun is in the columns."""

    def call(
        self, name: str, arguments: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
    ) -> list[Any]:
        """Return each environment's attribute, or what it returned for its arguments."""

    def set(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment."""

    def close(self) -> None:
        """Close the environments."""


class Batch:
    """A `Part` in this process.

    Args:
        environments: of Gymnasium's kind.
        shared: where to write.
        mode: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``, as `gymnasium.vector.AutoresetMode`
            has them.
    """

    def __init__(self, environments: Sequence[Any], shared: Shared, mode: str) -> None:
        self.environments = list(environments)
        self.size = len(self.environments)
        self._shared = shared
        self._steps: list[Callable[[Any], Any]] = [each.step for each in self.environments]
        self._same = mode == "SameStep"
        self._next = mode == "NextStep"
        self.over = [False] * self.size
        self._begun: Callable[[], Infos] | None = None

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        """Begin an episode in each environment that the mask names."""
        self._begun = lambda: self.reset(seeds, options, mask)

    def begin_step(self) -> None:
        """Do what stands in the columns' actions."""
        self._begun = self.step

    def finish(self) -> Infos:
        """Do what was begun."""
        begun, self._begun = self._begun, None
        assert begun is not None
        return begun()

    def reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> Infos:
        """Begin an episode in each environment that the mask names."""
        infos: Infos = []
        for place in range(self.size):
            if mask[place]:
                self._begin(place, infos, seed=seeds[place], options=options)
                self._shared.rewards[place] = 0.0
                self._shared.terminations[place] = self._shared.truncations[place] = False
        return infos

    def step(self) -> Infos:
        """Do what stands in the columns' actions."""
        shared = self._shared
        write, rewards = shared.observations.write, shared.rewards
        terminations, truncations, over = shared.terminations, shared.truncations, self.over
        infos: Infos = []
        for place, (step, action) in enumerate(
            zip(self._steps, rows(shared.actions.value), strict=True)
        ):
            if over[place]:
                if not self._next:
                    raise RuntimeError(
                        f"environment {place} is at the end of its episode; without autoreset it "
                        f"has to be reset: reset(options={{'reset_mask': terminations | "
                        f"truncations}})"
                    )
                self._begin(place, infos)
                rewards[place] = 0.0
                terminations[place] = truncations[place] = False
                continue
            observation, rewards[place], terminated, truncated, info = step(action)
            terminations[place], truncations[place] = terminated, truncated
            if terminated or truncated:
                if self._same:
                    shared.finals.write(place, observation)
                    infos.append((place, {"final_obs": ..., "final_info": info}))
                    self._begin(place, infos)
                    continue
                over[place] = True
            write(place, observation)
            if info:
                infos.append((place, info))
        return infos

    def _begin(self, place: int, infos: Infos, **arguments: Any) -> None:
        self.over[place] = False
        observation, info = self.environments[place].reset(**arguments)
        self._shared.observations.write(place, observation)
        if info:
            infos.append((place, info))

    def call(
        self, name: str, arguments: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
    ) -> list[Any]:
        """Return each environment's attribute, or what it returned for its arguments."""
        results = []
        for environment, (places, names) in zip(self.environments, arguments, strict=True):
            found = environment.get_wrapper_attr(name)
            results.append(found(*places, **names) if callable(found) else found)
        return results

    def set(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment."""
        for environment, value in zip(self.environments, values, strict=True):
            environment.set_wrapper_attr(name, value)

    def close(self) -> None:
        """Close the environments."""
        for environment in self.environments:
            environment.close()
