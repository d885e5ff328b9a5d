"""`EpisodeCollector`: collects an environment's steps into episodes, split as RLlib splits them.

A batch has an exact number of steps. An episode that continues in the next batch keeps its id, and
its last observation is repeated as the first one there. Each column of steps is one array.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.casting import as_array, cast, flag, real
from rlwire.codecs.rllink import Episode
from rlwire.codecs.rllink.episodes import mapped


class EpisodeCollector:
    """Collects the steps of one environment.

    ::

        collector = EpisodeCollector(config.env_steps_per_sample)
        collector.reset(observation)
        while not collector.full:
            action, outputs = policy(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            collector.step(action, observation, reward, terminated, truncated, outputs)
            ...                                         # reset() after its end
        weights = client.send(collector.take())

    Observations, actions and outputs are numbers, arrays, or dicts and tuples of them. The first
    entry of a column sets its shape and dtype.

    Args:
        steps: steps per batch.
    """

    def __init__(self, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, not {steps}")
        self._steps = steps
        self._taken = 0  # steps in the batch's finished pieces
        self._id = ""
        self._started = 0
        self._count = 0  # steps of the current piece
        self._begun = 0.0
        self._open = False
        self._batch: list[Episode] = []
        self._observations: Any = None
        self._columns: dict[str, Any] | None = None

    def __len__(self) -> int:
        return self._taken + self._count

    @property
    def full(self) -> bool:
        """Whether the batch has all its steps."""
        return len(self) >= self._steps

    def reset(self, observation: Any) -> None:
        """Begin an episode; an unfinished one is truncated.

        Raises:
            ValueError: the observation's shape, dtype or keys differ from earlier ones.
        """
        if self._open:
            self._end(False, True)
        self._id, self._started, self._open = uuid.uuid4().hex, 0, True
        self._begin(observation)

    def step(
        self,
        action: Any,
        observation: Any,
        reward: float,
        terminated: bool,
        truncated: bool = False,
        outputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a step.

        `outputs` are the model's other outputs, such as ``{"action_logp": ...}``.

        Raises:
            RuntimeError: there is no episode, or the batch is full.
            ValueError: a value's shape, dtype or keys differ from earlier ones.
        """
        if not self._open or self.full:
            why = "the batch is full, call take()" if self._open else "call reset() first"
            raise RuntimeError(f"no step can be recorded: {why}")
        at = self._count
        reward, outputs = real(reward, "the reward"), dict(outputs or {})
        if not (terminated is False is truncated):
            terminated, truncated = flag(terminated, "terminated"), flag(truncated, "truncated")
        if self._columns is None:
            step = {"actions": action, "rewards": reward, "outputs": outputs}
            self._columns = mapped(partial(_column, self._steps), step)
        columns = self._columns
        _put(columns["actions"], at, action, "a step, actions")
        columns["rewards"][at] = reward
        _put(columns["outputs"], at, outputs, "a step, outputs")
        _put(self._observations, at + 1, observation, "the observation")
        self._count = at + 1
        if terminated or truncated:
            self._end(terminated, truncated)

    def take(self) -> list[Episode]:
        """Return the batch; an unfinished episode continues in the next one."""
        if self._open and self._count:
            last = mapped(lambda column: column[self._count].copy(), self._observations)
            started = self._started + self._count
            self._end(False, False)
            self._started, self._open = started, True
            self._begin(last)
        batch, self._batch, self._taken = self._batch, [], 0
        return batch

    def _begin(self, observation: Any) -> None:
        if self._observations is None:
            self._observations = mapped(partial(_column, self._steps + 1), observation)
        _put(self._observations, 0, observation, "the observation")
        self._count, self._begun = 0, time.perf_counter()

    def _end(self, terminated: bool, truncated: bool) -> None:
        self._open = False
        count, self._count = self._count, 0
        if not count:
            return
        assert self._columns is not None
        columns = mapped(lambda column: column[:count].copy(), self._columns)
        self._batch.append(
            Episode(
                mapped(lambda column: column[: count + 1].copy(), self._observations),
                columns["actions"],
                columns["rewards"],
                terminated,
                truncated,
                columns["outputs"],
                id=self._id,
                started=self._started,
                duration=time.perf_counter() - self._begun,
            )
        )
        self._taken += count


def _column(length: int, value: Any) -> NDArray[Any]:
    one = as_array(value, "a value")
    if one.dtype.hasobject or one.dtype.kind in "USMmV":
        raise ValueError(f"expected numbers or arrays of numbers, not {type(value).__name__}")
    return np.empty((length, *one.shape), one.dtype)


_TAKES = {np.dtype(c).type: c for c in "?bBhHiIlLqQefd"} | {float: "efdg", int: "lqd", bool: "?"}
"""The dtypes of columns that accept a scalar, by their characters."""
_MOST = {int: 2**53, float: 65504.0}
"""Which of them all these columns can hold: up to float16's largest; NaN too."""


def _put(columns: Any, at: int, value: Any, *what: Any) -> None:
    """Write a value into its columns; `what` names it in errors."""
    if isinstance(columns, np.ndarray):
        same = type(value) is np.ndarray and value.dtype is columns.dtype
        same = same and value.shape == columns.shape[1:]
        takes = columns.ndim == 1 and columns.dtype.char in _TAKES.get(type(value), "")
        most = _MOST.get(type(value))
        if same or (takes and (most is None or not abs(value) > most)):
            columns[at] = value
            return
        one = as_array(value, _name(what), dtype=columns.dtype)
        if one.shape != columns.shape[1:] or not np.can_cast(one.dtype, columns.dtype, "same_kind"):
            raise ValueError(
                f"{_name(what)} must have shape {columns.shape[1:]} and dtype {columns.dtype} as "
                f"before; it has {one.shape} and {one.dtype}"
            )
        kinds = one.dtype.kind + columns.dtype.kind
        checked = kinds == "ff" or (kinds[0] in "biu" and kinds[1] != "O")
        columns[at] = cast(one, columns.dtype, _name(what)) if checked else one
        return
    if isinstance(columns, dict):
        if not isinstance(value, Mapping) or value.keys() != columns.keys():
            came = list(value) if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(
                f"{_name(what)} must be a dict of {', '.join(map(str, columns))}, not {came}"
            )
    elif not isinstance(value, tuple) or len(value) != len(columns):
        raise ValueError(
            f"{_name(what)} must be a tuple of {len(columns)} items, not {value!r:.60}"
        )
    for key, part in columns.items() if isinstance(columns, dict) else enumerate(columns):
        _put(part, at, value[key], *what, key)


def _name(what: tuple[Any, ...]) -> str:
    return ", ".join(map(str, what))
