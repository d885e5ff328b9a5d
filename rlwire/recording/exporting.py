"""``rlwire export``: write the episodes of a recording as a dataset of Minari."""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlwire.environments.fitting import fitting
from rlwire.environments.trees import text_of, tree_of
from rlwire.errors import RlwireError, optional, quoted
from rlwire.recording.dissecting import FAULTS
from rlwire.recording.files import packets
from rlwire.recording.reading import RecordedEpisode, messages

logger = logging.getLogger(__name__)


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
    with optional("minari", "minari"), optional("h5py", "minari"):
        __import__("h5py")
        import minari
        from minari.data_collector import EpisodeBuffer

    kind, _, name = given.dataset.partition(":")
    if kind != "minari" or not name:
        raise RlwireError(f"{given.dataset}: expected minari:NAME, such as minari:pong/played-v0")
    observations, actions = _spaces(given)
    unfinished = []

    def buffers() -> Iterator[Any]:
        for _, each in _episodes(given):
            unfinished.extend([each.number] * (not (each.terminated or each.truncated)))
            before = [False] * (each.length - 1)
            yield EpisodeBuffer(
                observations=_columns("observations", each.observations, observations),
                actions=_columns("actions", each.actions, actions),
                rewards=each.rewards,
                terminations=[*before, each.terminated],
                truncations=[*before, each.truncated or not each.terminated],
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


def _episodes(given: argparse.Namespace) -> Iterator[tuple[int, RecordedEpisode]]:
    """Yield the episodes with all their observations, and the numbers of their connections."""
    for message in messages(packets(given.file), keep=True):
        number = message.packet.connection.number
        if given.connection in (None, number):
            for each in message.episodes:
                if len(each.observations) == each.length + 1:
                    yield number, each


def _spaces(given: argparse.Namespace) -> tuple[Any, Any]:
    """Return the spaces that all episodes have, of the wire or inferred, and check all values."""
    described: Any = None
    observations, actions = None, []
    for number, each in _episodes(given):
        described = each.spaces if described is None else described
        if each.spaces != described:
            raise RlwireError(f"connection {number} has other spaces: choose one with --connection")
        observations = _space("observations", each.observations, observations or described[0])
        actions += each.actions
    if described is None:
        raise RlwireError(f"{given.file}: found no episode with observations")
    found = observations, _space("actions", actions, described[1])
    for what, space, sent in zip(("observations", "actions"), found, described, strict=True):
        logger.info("%s: %s, %s", what, space, "as sent" if sent else "inferred from the values")
    return found


def _space(what: str, values: list[Any], space: Any) -> Any:
    """Return the space of the values, inferred if it is None, and check them."""
    try:
        space = space or _inferred(values, discrete=what == "actions")
        _columns(what, values, space)
    except FAULTS as error:
        raise RlwireError(f"the {what} are not all of one space: {error}") from None
    return space


def _inferred(values: list[Any], discrete: bool) -> Any:
    """Return the space of values: integers are Discrete or Box, lists of numbers have floats."""
    from gymnasium import spaces

    first = values[0]
    if isinstance(first, dict):
        names = {name: [each[name] for each in values] for name in first}
        return spaces.Dict({name: _inferred(each, discrete) for name, each in names.items()})
    if isinstance(first, list) and any(isinstance(x, (str, dict, np.ndarray)) for x in first):
        return spaces.Tuple([_inferred([*x], discrete) for x in zip(*values, strict=True)])
    if isinstance(first, str):
        return text_of(None, spaces)
    array = np.asarray(first, np.float64 if isinstance(first, list) else None)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"expected arrays, numbers or texts, not {quoted(first)}")
    if discrete and array.dtype.kind in "iu" and not array.shape:
        low, high = min(0, int(min(values))), int(max(values))
        return spaces.Discrete(high - low + 1, start=low)
    bounds: Any = (-np.inf, np.inf) if array.dtype.kind == "f" else (0, 1)
    if array.dtype.kind in "iu":
        bounds = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
    return spaces.Box(*bounds, array.shape, array.dtype.type)


def _columns(what: str, values: list[Any], space: Any) -> Any:
    """Return the values of a space, as Minari stores them."""
    tree = tree_of(space, what, "which Minari does not store")
    fit = fitting(space, what, within=False)
    columns = zip(*[tree.parts(fit(each)) for each in values], strict=True)
    pairs = zip(tree.leaves, columns, strict=True)
    return tree.build([*column] if leaf.text else np.stack(column) for leaf, column in pairs)
