"""`Batch` and `EndpointBatch`: step several environments and write their results into columns.

They implement Gymnasium's autoreset modes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.columns import Allocate, Columns
from rlwire.environments.endpoint import OLD_API, Endpoint, reset
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
        spare: int = 0,
    ) -> Shared:
        """Make columns for `count` environments, and `spare` additional batches of observations."""
        return cls(
            Columns(observation_space, count, allocate, "the observation", spare),
            Columns(observation_space, count, allocate, "the observation"),
            Columns(action_space, count, allocate, "the action"),
            allocate((count,), np.dtype(np.float64)),
            allocate((count,), np.dtype(np.bool_)),
            allocate((count,), np.dtype(np.bool_)),
        )

    def part(self, start: int, end: int) -> Shared:
        return Shared._make(column[start:end] for column in self)

    def clear(self, index: int) -> None:
        self.rewards[index] = 0.0
        self.terminations[index] = self.truncations[index] = False


class Batch:
    """Environments that this process steps.

    Attributes:
        ended: whether each has ended its episode.
        index: the number of the last one that was reset or called, or failed in a step.
    """

    def __init__(self, environments: Sequence[Any], shared: Shared, mode: str) -> None:
        self.environments = list(environments)
        self.size = len(self.environments)
        self._shared = shared
        self._steps: list[Callable[[Any], Any]] = [each.step for each in self.environments]
        self._same = mode == "SameStep"
        self._next = mode == "NextStep"
        self.ended = [False] * self.size
        self.index = 0
        self._write: Callable[[int, Any], None] = shared.observations.write
        self._pending: Callable[[], Infos] | None = None

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        self._pending = partial(self.reset, seeds, options, mask)

    def begin_step(self) -> None:
        self._pending = self.step

    def finish(self) -> Infos:
        pending, self._pending = self._pending, None
        assert pending is not None
        return pending()

    def reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> Infos:
        infos: Infos = []
        self._shared.observations.switch_batch()
        for index in range(self.size):
            self.index = index
            if mask[index]:
                self._reset_one(index, infos, seed=seeds[index], options=options)
                self._shared.clear(index)
        return infos

    def step(self) -> Infos:
        ended = self.ended
        infos: Infos = []
        index = 0
        self._shared.observations.switch_batch()
        try:
            for index, (step, action) in enumerate(
                zip(self._steps, self._shared.actions.rows(), strict=True)
            ):
                if ended[index]:
                    self._check_autoreset(index)
                    self._reset_one(index, infos)
                elif self._write_step(index, step(action), infos):
                    self._reset_one(index, infos)
        except BaseException:
            self.index = index
            self._shared.observations.copy_previous(index)
            raise
        return infos

    def _check_autoreset(self, index: int) -> None:
        if not self._next:
            raise RuntimeError(
                f"environment {index} has ended its episode, and autoreset is disabled: call "
                f"reset(options={{'reset_mask': terminations | truncations}})"
            )
        self._shared.clear(index)

    def _write_step(self, index: int, outcome: Any, infos: Infos) -> bool:
        """Write a step's results; return whether to reset in the same step."""
        shared = self._shared
        try:
            observation, shared.rewards[index], terminated, truncated, info = outcome
            shared.terminations[index], shared.truncations[index] = terminated, truncated
        except _INVALID as error:
            expected = "step must return an observation, a number, two booleans and an info"
            raise self._wrong(index, expected, outcome, error) from error
        if terminated or truncated:
            self.ended[index] = True
            if self._same:
                shared.finals.write(index, observation)
                infos.append((index, info, True))
                return True
        self._write(index, observation)
        if info:
            infos.append((index, info, False))
        return False

    def _reset_one(self, index: int, infos: Infos, **arguments: Any) -> None:
        self._write_reset(index, reset(self.environments[index], **arguments), infos)

    def _write_reset(self, index: int, outcome: Any, infos: Infos) -> None:
        self.ended[index] = False
        try:
            if not isinstance(outcome, tuple):  # an array of two numbers would be unpacked
                raise TypeError("it is no tuple")
            observation, info = outcome
        except _INVALID as error:
            expected = "reset must return an observation and an info"
            raise self._wrong(index, expected, outcome, error) from error
        self._write(index, observation)
        if info:
            infos.append((index, info, False))

    def _wrong(self, index: int, expected: str, outcome: Any, error: Exception) -> EncodeError:
        name = self._shared.observations.name(index)
        return EncodeError(f"{name}: {expected}, not {quoted(outcome)}: {error}; {OLD_API}")

    def call(self, name: str, arguments: Sequence[Arguments | None]) -> list[Any]:
        results = []
        for index, given in enumerate(arguments):
            self.index, environment = index, self.environments[index]
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
        self._encoders = [each.encode_step for each in self._endpoints]
        self._senders = [each.send_step for each in self._endpoints]
        self._flushes = {each.flush for each in self._endpoints if each.flush is not None}
        self._requested: list[tuple[int, bool]] = []  # pairs of index and whether it resets
        self._failed: Exception | None = None  # first error of sending
        seen = shared.observations.value
        if isinstance(seen, np.ndarray):
            for endpoint, row in zip(self._endpoints, seen, strict=True):
                if hasattr(endpoint, "write_to"):
                    endpoint.write_to(row)
                    self._write = self._write_others

    def _write_others(self, index: int, observation: Any) -> None:
        """Write an observation unless its endpoint has already written the row."""
        if not np.may_share_memory(observation, self._shared.observations.value[index]):
            self._shared.observations.write(index, observation)

    def begin_reset(
        self, seeds: Sequence[int | None], options: Mapping[str, Any] | None, mask: Sequence[bool]
    ) -> None:
        self._requested, self._failed = [], None
        for index in itertools.compress(range(self.size), mask):
            self._shared.clear(index)
            self._request_reset(index, seeds[index], options)
        self._flush()

    def _flush(self) -> None:
        for flush in self._flushes:
            flush()

    def begin_step(self) -> None:
        """Encode all actions, then send them: if one is invalid, nothing is sent."""
        for index in itertools.compress(range(self.size), self.ended):
            self._check_autoreset(index)
        encoded = [
            None if ended else encode(action)
            for ended, encode, action in zip(
                self.ended, self._encoders, self._shared.actions.rows(), strict=True
            )
        ]
        requested = self._requested = []
        self._failed = None
        for index, (send, each) in enumerate(zip(self._senders, encoded, strict=True)):
            if self.ended[index]:
                self._request_reset(index)
                continue
            try:
                send(each)
            except Exception as error:  # `finish` raises it after it has waited for the others
                self._failed = self._failed or error
            else:
                requested.append((index, False))
        self._flush()

    def _request_reset(
        self, index: int, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        try:
            self._endpoints[index].begin_reset(seed, options)
        except Exception as error:  # as in `begin_step`
            self._failed = self._failed or error
        else:
            self._requested.append((index, True))

    def finish(self) -> Infos:
        infos: Infos = []
        while self._requested:
            requested, self._requested = self._requested, []
            for index, resets in requested:
                try:
                    outcome = self._endpoints[index].finish()
                    if resets:
                        self._write_reset(index, outcome, infos)
                    elif self._write_step(index, outcome, infos):
                        self._request_reset(index)
                except Exception as error:
                    self._failed = self._failed or error
            if self._requested:
                self._flush()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        return infos
