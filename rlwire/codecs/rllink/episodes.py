"""Episodes of one agent: columns of steps, in Ray's form and in the documented one.

Ray sends the state of its `SingleAgentEpisode`: a map of buffers. Each buffer's ``data`` is a list
with one item per step, or one array ("finalized"). Both can be decoded. rlwire encodes one array
per column, which is 16 times cheaper. RLlib's documentation has plain lists under other names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from rlwire.errors import DecodeError, EncodeError, quoted

Column: TypeAlias = Any
"""An array with the step as first axis, a dict or tuple of columns, or a list of other values."""

_DEPTH = 32  # levels of nested columns
_ROWS, _BOOLS, _INTEGERS = (ndarray, list), (bool, np.bool_), (int, np.integer)


@dataclass(eq=False)
class Episode:
    """A fragment of an episode of one agent. Its `len` is T, its number of steps.

    Attributes:
        observations: T + 1 entries, the first one from before the first step.
        actions: T entries.
        rewards: T entries.
        terminated: whether the environment ended after the last step.
        truncated: whether something else, such as a time limit, ended the episode there.
        outputs: the model's other outputs, T each; RLlib's PPO needs ``"action_dist_inputs"`` and
            ``"action_logp"``.
        infos: T + 1 dicts, or None if all are empty.
        id: the same in all fragments of an episode.
        started: steps of the episode before this fragment.
        lookback: leading entries of each column that an earlier fragment has too.
        duration: seconds, for RLlib's metrics.
        custom_data: any values that can be sent.
        weights_seq_no: version of the weights that chose the actions, if the client sent it.
    """

    observations: Column
    actions: Column
    rewards: Column
    terminated: bool = False
    truncated: bool = False
    outputs: dict[str, Column] = field(default_factory=dict)
    infos: list[dict[str, Any]] | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: int = 0
    lookback: int = 0
    duration: float = 0.0
    custom_data: dict[str, Any] = field(default_factory=dict)
    weights_seq_no: int | None = None

    def __len__(self) -> int:
        return len(self.rewards) - self.lookback

    @property
    def done(self) -> bool:
        """Whether the episode is over after this fragment."""
        return self.terminated or self.truncated

    def check(self) -> None:
        """Check the lengths of the columns.

        Raises:
            EncodeError: a column has the wrong length, or `lookback` or `started` is out of range.
        """
        rewards = self.rewards
        whole = isinstance(rewards, list) or (isinstance(rewards, ndarray) and rewards.ndim)
        steps = len(rewards) if whole else 0
        _check(self.rewards, steps, "rewards", steps)
        if not 0 <= self.lookback <= steps:
            raise EncodeError(f"lookback must be 0 to {steps} steps, not {self.lookback}")
        if self.started < 0:
            raise EncodeError(f"t_started must be at least 0, not {self.started}")
        _check(self.observations, steps + 1, "observations", steps)
        _check(self.actions, steps, "actions", steps)
        for name, column in self.outputs.items():
            _check(column, steps, f"extra_model_outputs.{name}", steps)
        if self.infos is not None:
            _check(self.infos, steps + 1, "infos", steps)

    def to_state(self, *, brief: bool = False) -> dict[str, Any]:
        """Return the map that Ray's `SingleAgentEpisode` reads. Raises what `check` raises.

        A `brief` one is for rlwire: it lacks what `from_state` does not need. Ray needs all
        entries, a dict per step even without infos, and one end at most: an episode that is
        terminated and truncated is terminated, since what is terminal is not bootstrapped.
        """
        self.check()
        lookback, infos = self.lookback, self.infos
        needed = {
            "id_": self.id,
            "observations": _buffer(self.observations, lookback, brief),
            "actions": _buffer(self.actions, lookback, brief),
            "rewards": _buffer(self.rewards, lookback, brief),
            "is_terminated": self.terminated,
            "is_truncated": self.truncated and (brief or not self.terminated),
            "t_started": self.started,
        }
        if infos is None and not brief:
            infos = [{}] * (len(self.rewards) + 1)
        further = {
            "infos": None if infos is None else _buffer(infos, lookback),
            "extra_model_outputs": {
                name: _buffer(column, lookback, brief) for name, column in self.outputs.items()
            }
            or None,
            "_last_step_time": self.duration,
            "custom_data": self.custom_data,
        }
        if brief:
            return {**needed, **{name: value for name, value in further.items() if value}}
        times = {"t": self.started + len(self), "_start_time": 0.0}
        return {**dict.fromkeys(_UNUSED), **needed, **times, **further}

    @classmethod
    def from_state(cls, state: Any, path: str = "$.episodes[]") -> Episode:
        """Return the episode in one of Ray's maps, with its columns as arrays.

        Raises:
            DecodeError: an invalid entry, or columns of different lengths; the error has the path.
        """
        fields = _Fields(state, path)
        rewards, lookback = fields.buffer("rewards")
        outputs: dict[str, Column] = {}
        given = fields.get("extra_model_outputs")
        if given is not None:
            output_fields = _Fields(given, f"{path}.extra_model_outputs")
            outputs = {name: output_fields.buffer(name)[0] for name in given}
        infos = fields.buffer("infos", raw=True)[0] if fields.get("infos") is not None else ()
        empty = all(each is None or (type(each) is dict and not each) for each in infos)
        custom = fields.get("custom_data")
        episode = cls(
            fields.buffer("observations")[0],
            fields.buffer("actions")[0],
            rewards,
            fields.flag("is_terminated"),
            fields.flag("is_truncated"),
            outputs,
            None if empty else list(infos),
            fields._typed("id_", (str,), "a string"),
            int(fields._typed("t_started", _INTEGERS, "a number")),
            lookback,
            fields.seconds(),
            {} if custom is None else fields._typed("custom_data", (dict,), "a map"),
        )
        return episode._checked(path)

    def to_document(self) -> dict[str, Any]:
        """Return the documented map, for JSON.

        Raises:
            EncodeError: columns differ in length, or an output has a reserved name.
        """
        self.check()

        def after(column: Column) -> Column:
            return mapped(lambda part: part[self.lookback :], column)

        written: dict[str, Any] = {
            "obs": after(self.observations),
            "actions": after(self.actions),
            "rewards": after(self.rewards),
        }
        for name, column in self.outputs.items():
            if name in written or name in _DOCUMENT:
                raise EncodeError(f"the name {name!r} of a model's output is reserved in JSON")
            written[name] = after(column)
        written["is_terminated"] = self.terminated
        written["is_truncated"] = self.truncated and not self.terminated
        return written

    @classmethod
    def from_document(cls, written: Any, path: str = "$.episodes[]") -> Episode:
        """Return the episode in a documented map. Raises what `from_state` raises."""
        fields = _Fields(written, path)
        outputs = {
            name: fields.column(name, value)
            for name, value in written.items()
            if name not in _DOCUMENT
        }
        episode = cls(
            fields.column("obs", fields.need("obs")),
            fields.column("actions", fields.need("actions")),
            fields.column("rewards", fields.need("rewards")),
            fields.flag("is_terminated"),
            fields.flag("is_truncated"),
            outputs,
        )
        return episode._checked(path)

    def _checked(self, path: str) -> Episode:
        try:
            self.check()
        except EncodeError as error:
            raise DecodeError(error.reason, path=path) from None
        return self


_UNUSED = ("agent_id", "module_id", "multi_agent_episode_id", "_observation_space", "_action_space")
_DOCUMENT = ("obs", "actions", "rewards", "is_terminated", "is_truncated")


class _Fields:
    """The entries of a received map. Errors have their path."""

    def __init__(self, entries: Any, path: str) -> None:
        if type(entries) is not dict:
            raise DecodeError(
                f"an episode must be a map, not a {type(entries).__name__}", path=path
            )
        self._entries: dict[Any, Any] = entries
        self._path = path

    def get(self, name: Any, default: Any = None) -> Any:
        return self._entries.get(name, default)

    def need(self, name: str) -> Any:
        if name not in self._entries:
            raise DecodeError(f"an episode must have {name!r}", path=self._path)
        return self._entries[name]

    def _typed(self, name: str, kinds: Any, wanted: str) -> Any:
        value = self.need(name)
        if type(value) is not kinds[0] and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            raise DecodeError(
                f"{name} must be {wanted}, not {quoted(value)}", path=f"{self._path}.{name}"
            )
        return value

    def flag(self, name: str) -> bool:
        return bool(self._typed(name, _BOOLS, "true or false"))

    def seconds(self) -> float:
        started, ended = self.get("_start_time", 0.0), self.get("_last_step_time")
        if not (isinstance(started, float) and isinstance(ended, float)):
            return 0.0  # before the first step
        return max(0.0, ended - started)

    def column(self, name: str, value: Any, whole: bool = False) -> Column:
        try:
            return _column(value, whole)
        except (ValueError, TypeError, OverflowError) as error:
            raise DecodeError(str(error), path=f"{self._path}.{name}") from None

    def buffer(self, name: str, raw: bool = False) -> tuple[Column, int]:
        """Return the data and the lookback of one of Ray's buffers, or of a brief array."""
        array = self.get(name)
        if isinstance(array, ndarray) and array.ndim and not raw:
            return array, 0
        given = _Fields(self.need(name), f"{self._path}.{name}")
        if raw:
            rows = given._typed("data", (list, tuple, ndarray), "a list")
            return given.column("data", rows) if isinstance(rows, ndarray) else rows, 0
        data = given.need("data")
        column = given.column("data", data, given.flag("finalized"))
        return column, int(given._typed("lookback", _INTEGERS, "a number"))


def _buffer(column: Column, lookback: int, brief: bool = False) -> Any:
    if brief and not lookback and isinstance(column, ndarray):
        return column
    # Ray treats a list as one item per step, whatever `finalized` says.
    whole = not isinstance(column, list)
    return {"data": column, "lookback": lookback, "finalized": whole, "space": None}


def _column(data: Any, whole: bool, depth: int = 0) -> Column:
    """Return received data as a column; lists have an item per step, or if `whole` are tuples."""
    if isinstance(data, ndarray):
        if data.ndim == 0:
            raise ValueError("a column must have one entry per step, not be a single number")
        return data
    if depth > _DEPTH:
        raise ValueError(f"columns are nested more than {_DEPTH} levels deep")
    if type(data) is dict:
        return {name: _column(part, whole, depth + 1) for name, part in data.items()}
    if not isinstance(data, (list, tuple)):
        raise ValueError(f"a column must be an array, list or dict, not a {type(data).__name__}")
    if whole and data and isinstance(data[0], (np.ndarray, dict, list, tuple)):
        return tuple(_column(part, whole, depth + 1) for part in data)
    if not data:
        return np.empty(0, np.float32)
    first = data[0]
    if type(first) is dict:
        names = list(first)
        if not all(type(item) is dict and list(item) == names for item in data):
            raise ValueError("steps have different entries")
        return {name: _column([item[name] for item in data], whole, depth + 1) for name in names}
    if isinstance(first, (str, bytes)):
        return list(data)
    if isinstance(first, np.ndarray):
        shape, dtype = first.shape, first.dtype
        for item in data:
            if not isinstance(item, np.ndarray) or item.shape != shape or item.dtype != dtype:
                raise ValueError("steps have different shapes or dtypes")
    try:
        column = np.array(data)
    except (ValueError, TypeError, OverflowError):
        raise ValueError("steps have different shapes, or a number is too large") from None
    if column.dtype.hasobject or column.dtype.kind in "US":
        raise ValueError("steps have different kinds of values")
    return column


def mapped(function: Callable[[Any], Any], column: Column) -> Column:
    """Return a column with `function` applied to each array or list in it."""
    if isinstance(column, Mapping):
        return {name: mapped(function, part) for name, part in column.items()}
    if isinstance(column, tuple):
        return tuple(mapped(function, part) for part in column)
    return function(column)


def _check(column: Column, wanted: int, name: str, steps: int, depth: int = 0) -> None:
    """Raise EncodeError unless all arrays and lists of a column have `wanted` entries."""
    if isinstance(column, _ROWS):
        if isinstance(column, ndarray) and not column.ndim:
            raise EncodeError(f"{name} must have one entry per step, not be a single number")
        if len(column) != wanted:
            raise EncodeError(
                f"{name} must have {wanted} entries for {steps} rewards, not {len(column)}"
            )
        return
    if not isinstance(column, (Mapping, tuple)):
        raise EncodeError(f"{name} must be a column, not a {type(column).__name__}")
    if not column:
        raise EncodeError(f"{name} is empty")
    if depth > _DEPTH:
        raise EncodeError(f"{name} is nested more than {_DEPTH} levels deep")
    for key, part in column.items() if isinstance(column, Mapping) else enumerate(column):
        _check(part, wanted, f"{name}.{key}", steps, depth + 1)
