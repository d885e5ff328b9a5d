"""`Batch` and `EndpointBatch`: step several environments and write their results into columns.

They implement Gymnasium's autoreset modes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.columns import Allocate, Columns
from rlwire.environments.endpoint import Endpoint, check_options
from rlwire.errors import EncodeError, quoted

Arguments: TypeAlias = "tuple[Sequence[Any], Mapping[str, Any]]"
"""Positional and keyword arguments of a call."""

Infos: TypeAlias = list[tuple[int, dict[str, Any], bool]]
"""Environments' numbers, infos that are not empty, and whether each is a `final_info`."""


_INVALID = (ArithmeticError, TypeError, ValueError)  # of assignments of what users return


class Shared(NamedTuple):
    """The columns of a vector; in mode "SameStep", `finals` has the last observations."""

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
        """Make columns for `count` environments, and `lent` additional batches of observations."""
        return cls(
            Columns(observation_space, count, allocate, "the observation", lent),
            Columns(observation_space, count, allocate, "the observation"),
            Columns(action_space, count, allocate, "the action"),
            allocate((count,), np.dtype(np.float64)),
            allocate((count,), np.dtype(np.bool_)),
            allocate((count,), np.dtype(np.bool_)),
        )

    def part(self, start: int, end: int) -> Shared:
        rows = slice(start, end)
        return Shared(
            self.observations.part(start, end),
            self.finals.part(start, end),
            self.actions.part(start, end),
            self.rewards[rows],
            self.terminations[rows],
            self.truncations[rows],
        )

    def clear(self, place: int) -> None:
        self.rewards[place] = 0.0
        self.terminations[place] = self.truncations[place] = False


class Batch:
    """Environments that this process steps.

    Attributes:
        over: whether each has ended its episode.
        place: the number of the last one that was reset or called, or failed in a step.
    """

    def __init__(self, environments: Sequence[Any], shared: Shared, mode: str) -> None:
        self.environments = list(environments)
        self.size = len(self.environments)
        self._shared = shared
        self._steps: list[Callable[[Any], Any]] = [each.step for each in self.environments]
        self._same = mode == "SameStep"
        self._next = mode == "NextStep"
        self.over = [False] * self.size
        self.place = 0
        self._write: Callable[[int, Any], None] = shared.observations.write
        self._begun: Callable[[], Infos] | None = None

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        self._begun = partial(self.reset, seeds, options, mask)

    def begin_step(self) -> None:
        self._begun = self.step

    def finish(self) -> Infos:
        begun, self._begun = self._begun, None
        assert begun is not None
        return begun()

    def reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> Infos:
        infos: Infos = []
        self._shared.observations.follow()
        for place in range(self.size):
            self.place = place
            if mask[place]:
                self._begin(place, infos, seed=seeds[place], options=options)
                self._shared.clear(place)
        return infos

    def step(self) -> Infos:
        over = self.over
        infos: Infos = []
        place = 0
        self._shared.observations.follow()
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
            self.place = place
            self._shared.observations.keep(place)
            raise
        return infos

    def _check_over(self, place: int) -> None:
        if not self._next:
            raise RuntimeError(
                f"environment {place} has ended its episode, and autoreset is disabled: call "
                f"reset(options={{'reset_mask': terminations | truncations}})"
            )
        self._shared.clear(place)

    def _stepped(self, place: int, outcome: Any, infos: Infos) -> bool:
        """Write a step's results; return whether to reset in the same step."""
        shared = self._shared
        try:
            observation, shared.rewards[place], terminated, truncated, info = outcome
            shared.terminations[place], shared.truncations[place] = terminated, truncated
        except _INVALID as error:
            expected = "step must return an observation, a number, two booleans and an info"
            raise self._wrong(place, expected, outcome, error) from error
        if terminated or truncated:
            self.over[place] = True
            if self._same:
                shared.finals.write(place, observation)
                infos.append((place, info, True))
                return True
        self._write(place, observation)
        if info:
            infos.append((place, info, False))
        return False

    def _begin(self, place: int, infos: Infos, **arguments: Any) -> None:
        self._begun_anew(place, self.environments[place].reset(**arguments), infos)

    def _begun_anew(self, place: int, outcome: Any, infos: Infos) -> None:
        self.over[place] = False
        try:
            observation, info = outcome
        except _INVALID as error:
            expected = "reset must return an observation and an info"
            raise self._wrong(place, expected, outcome, error) from error
        self._write(place, observation)
        if info:
            infos.append((place, info, False))

    def _wrong(self, place: int, expected: str, outcome: Any, error: Exception) -> EncodeError:
        name = self._shared.observations.name(place)
        return EncodeError(f"{name}: {expected}, not {quoted(outcome)}: {error}")

    def call(self, name: str, arguments: Sequence[Arguments | None]) -> list[Any]:
        results = []
        for place, given in enumerate(arguments):
            self.place, environment = place, self.environments[place]
            found = None if given is None else environment.get_wrapper_attr(name)
            results.append(found(*given[0], **given[1]) if given and callable(found) else found)
        return results

    def close(self) -> None:
        with contextlib.ExitStack() as undo:  # closes all, whatever one of them raises
            for environment in reversed(self.environments):
                undo.callback(environment.close)


class EndpointBatch(Batch):
    """Environments behind `Endpoint` objects."""

    def __init__(self, environments: Sequence[Any], shared: Shared, mode: str) -> None:
        super().__init__(environments, shared, mode)
        self._endpoints: list[Endpoint] = [each.endpoint for each in self.environments]
        self._asked: list[tuple[int, bool]] = []  # pairs of place and whether it resets
        self._failed: Exception | None = None  # first error of sending
        seen = shared.observations.value
        if isinstance(seen, np.ndarray):
            for endpoint, row in zip(self._endpoints, seen, strict=True):
                if hasattr(endpoint, "write_to"):
                    endpoint.write_to(row)
                    self._write = self._write_others

    def _write_others(self, place: int, observation: Any) -> None:
        """Write an observation unless its endpoint has already written the row."""
        if not np.may_share_memory(observation, self._shared.observations.value[place]):
            self._shared.observations.write(place, observation)

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        check_options(options)
        self._asked = []
        for place, endpoint in enumerate(self._endpoints):
            if mask[place]:
                self._shared.clear(place)
                self._ask(place, endpoint.begin_reset, seeds[place], options)

    def begin_step(self) -> None:
        self._asked = []
        for place, (endpoint, action) in enumerate(
            zip(self._endpoints, self._shared.actions.rows(), strict=True)
        ):
            if self.over[place]:
                self._ask(place, self._reset_over, place)
            else:
                self._ask(place, endpoint.begin_step, action)

    def _reset_over(self, place: int) -> None:
        self._check_over(place)
        self._endpoints[place].begin_reset(None, None)

    def _ask(self, place: int, begin: Callable[..., None], *arguments: Any) -> None:
        try:
            begin(*arguments)
        except Exception as error:  # `finish` raises it after it has waited for the others
            self._failed = self._failed or error
        else:
            self._asked.append((place, begin != self._endpoints[place].begin_step))

    def finish(self) -> Infos:
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
