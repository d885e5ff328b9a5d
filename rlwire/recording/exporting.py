"""``rlwire export``: write the episodes of a recording as a dataset of Minari."""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlwire.environments.trees import text_of
from rlwire.errors import RlwireError, optional, quoted
from rlwire.recording.episodes import Episode
from rlwire.recording.files import packets
from rlwire.recording.reading import messages

logger = logging.getLogger(__name__)

_FAULTS = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write the episodes of a recording as a dataset of Minari, into the folder that the "
        "variable MINARI_DATASETS_PATH names. Episodes without an end count as truncated."
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="a recording")
    add("dataset", metavar="minari:NAME", help="the new dataset, such as minari:pong/played-v0")
    add("--connection", type=int, metavar="N", help="the episodes of this connection only")


def run(given: argparse.Namespace) -> None:
    """Read the file twice: for the spaces, and for the values."""
    for name in ("minari", "h5py"):
        with optional(name, "minari"):
            __import__(name)
    import minari
    from minari.data_collector import EpisodeBuffer

    kind, _, name = given.dataset.partition(":")
    if kind != "minari" or not name:
        raise RlwireError(f"{given.dataset}: expected minari:NAME, such as minari:pong/played-v0")
    observations, actions = _spaces(given)
    unfinished = []

    def buffers() -> Iterator[Any]:
        for each in _episodes(given):
            unfinished.extend([each.number] * (not each.finished))
            yield EpisodeBuffer(
                observations=_columns(each.observations, observations, "observation"),
                actions=_columns(each.actions, actions, "action"),
                rewards=each.rewards,
                terminations=[*[False] * (each.length - 1), each.terminated],
                truncations=[*[False] * (each.length - 1), each.truncated],
            )

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it asks for an author
            dataset = minari.create_dataset_from_buffers(
                name, buffers(), observation_space=observations, action_space=actions,
                description="exported from a recording of rlwire", jpeg_encoding=False,
            )  # fmt: skip
    except ValueError as error:
        raise RlwireError(str(error)) from error
    logger.info("%s: %d episodes, %d of them unfinished, %d steps",
                name, dataset.total_episodes, len(unfinished), dataset.total_steps)  # fmt: skip


def _episodes(given: argparse.Namespace) -> Iterator[Episode]:
    for message in messages(packets(given.file), keep=True):
        for each in message.episodes:
            if given.connection in (None, each.connection.number) and each.observations:
                yield each


def _spaces(given: argparse.Namespace) -> tuple[Any, Any]:
    """Return the spaces that all episodes have, of the wire or inferred from the values."""
    told: Any = None
    actions: list[Any] = []
    for each in _episodes(given):
        if told is None:
            told = each.spaces
            observations = told[0] or _inferred(each.observations[:1], "observation")
        elif each.spaces != told:
            where = f"connection {each.connection.number}"
            raise RlwireError(f"{where} has other spaces: choose with --connection")
        _columns(each.observations, observations, "observation")
        actions += each.actions
    if told is None:
        raise RlwireError(f"{given.file}: found no episode with observations")
    found = observations, told[1] or _inferred(actions, "action")
    _columns(actions, found[1], "action")
    for what, space, sent in zip(("observations", "actions"), found, told, strict=True):
        logger.info("%s: %s, %s", what, space, "as sent" if sent else "inferred from the values")
    return found


def _inferred(values: list[Any], path: str) -> Any:
    """Return the space of values: whole numbers of actions are Discrete, lists have floats."""
    try:
        return _space(values, path)
    except _FAULTS as error:
        raise RlwireError(f"{path} has no space: {error}") from None


def _space(values: list[Any], path: str) -> Any:
    from gymnasium import spaces

    first = values[0]
    if isinstance(first, dict):
        parts = {key: _space([each[key] for each in values], f"{path}.{key}") for key in first}
        return spaces.Dict(parts)
    if _is_tuple(first):
        items = enumerate(zip(*values, strict=True))
        return spaces.Tuple([_space(list(each), f"{path}[{place}]") for place, each in items])
    if isinstance(first, str):
        return text_of(None, spaces)
    array = np.asarray(first)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"expected arrays, numbers or texts, not {quoted(first)}")
    if array.dtype.kind in "iu" and not array.shape and path.startswith("action"):
        low, high = min(0, int(min(values))), int(max(values))
        return spaces.Discrete(high - low + 1, start=low)
    dtype = np.dtype(np.float64) if isinstance(first, (list, tuple)) else array.dtype
    bounds: Any = (-np.inf, np.inf) if dtype.kind == "f" else (0, 1)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype).min, np.iinfo(dtype).max
    return spaces.Box(*bounds, array.shape, dtype.type)


def _is_tuple(value: Any) -> bool:
    nested = isinstance(value, (list, tuple))
    return nested and any(isinstance(each, (str, dict, np.ndarray)) for each in value)


def _columns(values: list[Any], space: Any, path: str) -> Any:
    """Return the values of a space, one after the other; RlwireError for others."""
    from gymnasium import spaces

    try:
        if isinstance(space, spaces.Dict):
            items = space.items()
            return {
                key: _columns([x[key] for x in values], each, f"{path}.{key}")
                for key, each in items
            }
        if isinstance(space, spaces.Tuple):
            each = enumerate(zip(space, zip(*values, strict=True), strict=True))
            return tuple(
                _columns(list(column), part, f"{path}[{place}]") for place, (part, column) in each
            )
        if isinstance(space, spaces.Text):
            return [str(each) for each in values]
        return (
            np.stack([np.asarray(x) for x in values])
            .astype(space.dtype, casting="same_kind")
            .reshape(-1, *space.shape)
        )
    except _FAULTS as error:
        raise RlwireError(f"{path} is not always of {space}: {error}") from None
