"""`Batch` and `EndpointBatch`: environments side by side, which write what they give into columns.

Those of a `Batch` are in this process and step one after the other; those of an `EndpointBatch` are
somewhere else, and all of them are asked before any is waited for.

Gymnasium's three ways to begin an environment's next episode stand here, once. Not here:
processes (`rlwire.environments.processes`), the face that users see (`rlwire.environments.vector`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.columns import Allocate, Columns
from rlwire.environments.endpoint import Endpoint

Arguments: TypeAlias = "tuple[Sequence[Any], Mapping[str, Any]]"
"""Those of a call, by place and by name."""

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
        cls,
        observation_space: Any,
        action_space: Any,
        count: int,
        allocate: Allocate = np.zeros,
        lent: int = 0,
    ) -> Shared:
        """Make columns for a number of environments with these spaces; `lent`: observations'."""
        return cls(
            Columns(observation_space, count, allocate, "the observation", lent),
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

    def call(self, name: str, arguments: Sequence[Arguments | None]) -> list[Any]:
        """Return each environment's attribute, or what it returned for its arguments.

        None for those whose arguments are None, which are left alone.
        """

    def set(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment."""

    def close(self) -> None:
        """Close the environments."""


class Batch:
    """A `Part` in this process."""

    def __init__(self, environments: Sequence[Any], shared: Shared, mode: str) -> None:
        self.environments = list(environments)
        self.size = len(self.environments)
        self._shared = shared
        self._steps: list[Callable[[Any], Any]] = [each.step for each in self.environments]
        self._same = mode == "SameStep"
        self._next = mode == "NextStep"
        self.over = [False] * self.size
        self._write = shared.observations.write
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
        self._write = self._shared.observations.follow()
        for place in range(self.size):
            if mask[place]:
                self._begin(place, infos, seed=seeds[place], options=options)
                self._shared.rewards[place] = 0.0
                self._shared.terminations[place] = self._shared.truncations[place] = False
        return infos

    def step(self) -> Infos:
        """Do what stands in the columns' actions."""
        over = self.over
        infos: Infos = []
        place = 0
        self._write = self._shared.observations.follow()
        try:
            for place, (step, action) in enumerate(
                zip(self._steps, self._shared.actions.rows(), strict=True)
            ):
                if over[place]:
                    self._check_over(place)
                    self._begin(place, infos)
                elif self._stepped(place, step(action), infos):
                    self._begin(place, infos)
        except BaseException:
            self._shared.observations.keep(place)
            raise
        return infos

    def _check_over(self, place: int) -> None:
        if not self._next:
            raise RuntimeError(
                f"environment {place} is at the end of its episode; without autoreset it has to "
                f"be reset: reset(options={{'reset_mask': terminations | truncations}})"
            )
        shared = self._shared
        shared.rewards[place] = 0.0
        shared.terminations[place] = shared.truncations[place] = False

    def _stepped(self, place: int, outcome: Any, infos: Infos) -> bool:
        """Write what a step gave; return whether the next episode begins within this step."""
        shared = self._shared
        observation, shared.rewards[place], terminated, truncated, info = outcome
        shared.terminations[place], shared.truncations[place] = terminated, truncated
        if terminated or truncated:
            self.over[place] = True
            if self._same:
                shared.finals.write(place, observation)
                infos.append((place, {"final_obs": ..., "final_info": info}))
                return True
        self._write(place, observation)
        if info:
            infos.append((place, info))
        return False

    def _begin(self, place: int, infos: Infos, **arguments: Any) -> None:
        self._begun_anew(place, self.environments[place].reset(**arguments), infos)

    def _begun_anew(self, place: int, outcome: Any, infos: Infos) -> None:
        self.over[place] = False
        observation, info = outcome
        self._write(place, observation)
        if info:
            infos.append((place, info))

    def call(self, name: str, arguments: Sequence[Arguments | None]) -> list[Any]:
        """Return each environment's attribute, or what it returned for its arguments."""
        results = []
        for environment, given in zip(self.environments, arguments, strict=True):
            found = None if given is None else environment.get_wrapper_attr(name)
            results.append(found(*given[0], **given[1]) if given and callable(found) else found)
        return results

    def set(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment."""
        for environment, value in zip(self.environments, values, strict=True):
            environment.set_wrapper_attr(name, value)

    def close(self) -> None:
        """Close the environments."""
        for environment in self.environments:
            environment.close()


class EndpointBatch(Batch):
    """A `Part` whose environments are somewhere else."""

    def __init__(self, environments: Sequence[Any], shared: Shared, mode: str) -> None:
        super().__init__(environments, shared, mode)
        self._endpoints: list[Endpoint] = [each.endpoint for each in self.environments]
        self._asked: list[tuple[int, bool]] = []  # places, and whether an episode begins there
        self._failed: Exception | None = None  # of those that could not be asked, the first
        seen = shared.observations.value
        if isinstance(seen, np.ndarray):
            for endpoint, row in zip(self._endpoints, seen, strict=True):
                if hasattr(endpoint, "write_to"):
                    endpoint.write_to(row)
                    self._write = self._write_others

    def _write_others(self, place: int, observation: Any) -> None:
        """Write an observation that its endpoint has not written to its row by itself."""
        if not np.may_share_memory(observation, self._shared.observations.value[place]):
            self._shared.observations.write(place, observation)

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        """Ask for an episode in each environment that the mask names."""
        shared, self._asked = self._shared, []
        for place, endpoint in enumerate(self._endpoints):
            if mask[place]:
                shared.rewards[place] = 0.0
                shared.terminations[place] = shared.truncations[place] = False
                try:
                    endpoint.begin_reset(seeds[place], options)
                except Exception as error:
                    self._failed = self._failed or error
                else:
                    self._asked.append((place, True))

    def begin_step(self) -> None:
        """Tell all of them what to do."""
        self._asked = []
        for place, (endpoint, action) in enumerate(
            zip(self._endpoints, self._shared.actions.rows(), strict=True)
        ):
            try:
                begins = self.over[place]
                if begins:
                    self._check_over(place)
                    endpoint.begin_reset(None, None)
                else:
                    endpoint.begin_step(action)
            except Exception as error:  # for `finish`: the others are asked and waited for
                self._failed = self._failed or error
            else:
                self._asked.append((place, begins))

    def finish(self) -> Infos:
        """Wait for all of them, whatever one of them fails with."""
        infos: Infos = []
        failed, self._failed = self._failed, None
        asked, self._asked = self._asked, []
        while asked:
            again: list[tuple[int, bool]] = []
            for place, begins in asked:
                endpoint = self._endpoints[place]
                try:
                    if begins:
                        self._begun_anew(place, endpoint.finish(), infos)
                    elif self._stepped(place, endpoint.finish(), infos):
                        endpoint.begin_reset(None, None)
                        again.append((place, True))
                except Exception as error:
                    failed = failed or error
            asked = again
        if failed is not None:
            raise failed
        return infos
