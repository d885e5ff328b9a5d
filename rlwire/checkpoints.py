"""Checkpoints: what a parameter server has learned, kept in a folder so that a kill loses little.

A checkpoint is one file, written beside its place and then put there at once: whatever happens, it
is whole or not there. Files are safetensors: arrays and tensors by name, and the rest of the state,
as msgpack, in the file's metadata. Nothing is ever pickled.

Not here: what is kept and when (`rlwire.adapters.relaax`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import Any, Final

import numpy as np

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RlwireError, optional
from rlwire.limits import Limits

__all__ = ["Aside", "Checkpoint", "CheckpointDamaged", "CheckpointMismatch", "Checkpoints"]

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"checkpoint-(\d{12,})\.safetensors")
_TEMPORARY: Final = ".writing"
_LIMITS: Final = Limits(message=2**59, received=2**59, items=2**24, expanded=2**40, string=2**30)
_CODING: Final[Any] = {"limits": _LIMITS}
_READING: Final[Any] = {"strict_map_key": False, "limits": _LIMITS}
_KINDS: Final[dict[str, Any]] = {
    "step": int,
    "score": (float, type(None)),
    "algorithm": str,
    "version": int,
    "time": float,
}
_LATEST: Final = 2.0**38  # seconds since 1970 that every system's calendar has
_TENSOR, _ARRAY = 1, 2  # msgpack extensions that name a tensor or an array


class CheckpointDamaged(RlwireError, ValueError):
    """A file is not a whole checkpoint."""


class CheckpointMismatch(RlwireError, ValueError):
    """A checkpoint is of another algorithm, or of another version of its state."""


@dataclass(frozen=True)
class Checkpoint:
    """What is known of a checkpoint without reading its state.

    Attributes:
        name: of its file.
        step: how many steps had been learned from.
        score: how good the model was; None if that was not known.
        algorithm: whose state it is.
        version: of that state.
        time: when it was written, in seconds since 1970.
        bytes: of the file.
    """

    name: str
    step: int
    score: float | None
    algorithm: str
    version: int
    time: float
    bytes: int


@dataclass(frozen=True)
class _Taken:
    """A checkpoint that is not written yet: a copy of the state, as its file's bytes."""

    name: str
    step: int
    data: bytes
    before: tuple[int | None, float]  # the step of the one before it, and when


class Checkpoints:
    """A folder of checkpoints, of which the latest and the best are kept; one program writes to it.

    Args:
        folder: a directory, made when it is missing.
        keep: how many of the latest to keep.
        every_steps: after how many steps one is due.
        every_seconds: after how many seconds one is due, if there were steps.
        keep_best: how many of those with the best scores to keep beside them.

    Raises:
        ValueError: a number is too small.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int = 5,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep_best: int = 1,
    ) -> None:
        for name, value, least in (("keep", keep, 1), ("keep_best", keep_best, 0)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        for name, every in (("every_steps", every_steps), ("every_seconds", every_seconds)):
            if every is not None and not every > 0:
                raise ValueError(f"{name} must be positive, not {every}")
        self.folder = os.fspath(folder)
        self.keep = keep
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.keep_best = keep_best
        self._files = _Files(self.folder)
        self._last: tuple[int | None, float] = (None, monotonic())

    def due(self, step: int) -> bool:
        """Return whether a checkpoint should be saved at a step; never twice at the same."""
        last, when = self._last
        if last is None:
            self._last = step, when
        if last is None or step == last:
            return False
        if self.every_steps is not None and abs(step - last) >= self.every_steps:
            return True
        return self.every_seconds is not None and monotonic() - when >= self.every_seconds

    def saved(self, step: int) -> bool:
        """Return whether the last one that was saved or restored is of this step."""
        return step == self._last[0]

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        *,
        score: float | None = None,
        algorithm: str,
        version: int = 1,
    ) -> str:
        """Write a checkpoint, then remove those that are not to be kept.

        Args:
            step: of the state; from 0 on.
            state: nested dictionaries and lists of arrays, numbers, texts and tensors.
            score: how good the state is; more is better.
            algorithm: whose state it is.
            version: of the form of that state.

        Returns:
            the file's name.

        Raises:
            EncodeError: something in the state cannot be kept.
            MissingExtra: safetensors is not installed.
            OSError: it cannot be written; older ones are as they were.
        """
        return self._write(self._taken(step, state, score, algorithm, version))

    def _taken(
        self, step: int, state: Mapping[str, Any], score: float | None, algorithm: str, version: int
    ) -> _Taken:
        """Return a copy of a state, which counts as saved from now on."""
        head = {
            "rlwire": "checkpoint",
            "algorithm": algorithm,
            "version": int(version),
            "step": int(step),
            "score": None if score is None else float(score),
            "time": time(),
        }
        name = f"checkpoint-{int(step):012d}.safetensors"
        taken = _Taken(name, step, _written(state, head), self._last)
        self._last = step, monotonic()
        return taken

    def _write(self, taken: _Taken) -> str:
        name = taken.name
        try:
            self._files.write(name, taken.data)
        except BaseException:
            if self.saved(taken.step):
                self._last = taken.before
            raise
        logger.info("saved %s/%s, %d bytes", self.folder, name, len(taken.data))
        self._forget(name)
        return name

    def restore(self, algorithm: str, version: int = 1) -> tuple[int, Any] | None:
        """Return step and state of the latest whole checkpoint; None if there are no checkpoints.

        Those that are not whole are passed over, with a warning.

        Raises:
            CheckpointMismatch: it is of another algorithm or version.
            CheckpointDamaged: there are checkpoints, and none of them is whole.
            MissingExtra: safetensors is not installed, or PyTorch for its tensors.
            OSError: it cannot be read.
        """
        names = self._names()
        for name in names:
            try:
                found = self._look(name)
                if (found.algorithm, found.version) != (algorithm, version):
                    raise CheckpointMismatch(
                        f"{self.folder}/{name} is of algorithm {found.algorithm}, version "
                        f"{found.version}, and not of {algorithm}, version {version}: use another "
                        "folder, or move it away"
                    )
                state = _read(self._files.read(name))
            except CheckpointDamaged as error:
                logger.warning("%s/%s is passed over: %s", self.folder, name, error)
                continue
            self._last = found.step, monotonic()
            logger.info("restored %s/%s", self.folder, name)
            return found.step, state
        if names:
            raise CheckpointDamaged(
                f"none of the {len(names)} checkpoints in {self.folder} is whole: move them away "
                "to begin anew"
            )
        return None

    def list(self) -> Sequence[Checkpoint]:
        """Return the whole checkpoints, the latest first; the log tells of others."""
        found = []
        for name in self._names():
            try:
                found.append(self._look(name))
            except CheckpointDamaged as error:
                logger.warning("%s/%s: %s", self.folder, name, error)
        return found

    def _names(self) -> Sequence[str]:
        steps = {name: int(m[1]) for name in self._files.names() if (m := _NAME.fullmatch(name))}
        return sorted(steps, key=lambda name: (steps[name], name), reverse=True)

    def _look(self, name: str) -> Checkpoint:
        size = self._files.size(name)
        head = _head(lambda end: self._files.read(name, end), size)
        for key, kind in _KINDS.items():
            if not isinstance(head.get(key, _KINDS), kind):
                raise CheckpointDamaged(f"its head has no {key}")
        if not 0 <= head["time"] < _LATEST:
            raise CheckpointDamaged(f"its head has the time {head['time']}")
        return Checkpoint(name=name, **{key: head[key] for key in _KINDS}, bytes=size)

    def _forget(self, written: str) -> None:
        """Remove what is neither among the latest nor among the best."""
        names = self._names()
        if len(names) <= self.keep:
            return
        kept = {written, *names[: self.keep]}
        scores = []
        for name in names:
            with contextlib.suppress(CheckpointDamaged):
                found = self._look(name)
                if found.score is not None:
                    scores.append((found.score, found.step, name))
        kept.update(name for _, _, name in sorted(scores, reverse=True)[: self.keep_best])
        for name in names:
            if name not in kept:
                self._files.remove(name)


class Aside:
    """Writes checkpoints in a thread of its own; of those that wait for a slow disk the latest.

    Args:
        checkpoints: to which.
        failed: called in that thread with why one could not be written.
    """

    def __init__(self, checkpoints: Checkpoints, failed: Callable[[Exception], object]) -> None:
        self._checkpoints = checkpoints
        self._failed = failed
        self._changed = threading.Condition()
        self._waits: _Taken | None = None
        self._writes = False

    def save(
        self, step: int, state: Mapping[str, Any], score: float | None, algorithm: str, version: int
    ) -> None:
        """Copy a state, and have it written; arguments and errors as of `Checkpoints.save`."""
        taken = self._checkpoints._taken(step, state, score, algorithm, version)
        with self._changed:
            self._waits = taken
            if not self._writes:
                self._writes = True
                name = "rlwire checkpoint"
                threading.Thread(target=self._write, name=name, daemon=True).start()

    def wait(self) -> None:
        """Return when nothing is left to write."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writes)

    def _write(self) -> None:
        while True:
            with self._changed:
                taken, self._waits = self._waits, None
                if taken is None:
                    self._writes = False
                    self._changed.notify_all()
                    return
            try:
                self._checkpoints._write(taken)
            except Exception as error:
                self._failed(error)


def _written(state: Mapping[str, Any], head: dict[str, Any]) -> bytes:
    """Return a checkpoint as the bytes of a safetensors file."""
    with optional("safetensors", "checkpoints"):
        import safetensors.numpy
    torch = sys.modules.get("torch")
    arrays: dict[str, Any] = {}
    body = msgpack.encode(_without_arrays(state, "", arrays, torch), **_CODING)
    save: Any = safetensors.numpy.save
    if torch is not None and any(isinstance(each, torch.Tensor) for each in arrays.values()):
        import safetensors.torch

        save = safetensors.torch.save
        head = {**head, "torch": True}
        # Copies: safetensors takes no two tensors that share memory, as tied weights do.
        arrays = {
            name: torch.as_tensor(each).detach().cpu().clone().contiguous()
            for name, each in arrays.items()
        }
    rest = {"rlwire": json.dumps(head), "state": base64.b64encode(body).decode()}
    data: bytes = save(arrays, rest)
    return data


def _without_arrays(value: Any, path: str, arrays: dict[str, Any], torch: Any) -> Any:
    """Return a state with names in place of its arrays and tensors, which go to `arrays`."""
    if isinstance(value, Mapping):
        return {
            key: _without_arrays(each, f"{path}.{key}" if path else str(key), arrays, torch)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _without_arrays(each, f"{path}.{index}", arrays, torch)
            for index, each in enumerate(value)
        ]
    if torch is not None and isinstance(value, torch.Tensor):
        code = _TENSOR
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.isnative:
        code, value = _ARRAY, np.array(value, order="C")
    else:  # arrays of other dtypes go into the msgpack
        return value
    if path in arrays:  # a dictionary with keys 1 and "1"
        raise EncodeError("two arrays of a checkpoint have the same name", path=f"$.{path}")
    arrays[path] = value
    return msgpack.ExtType(code, path.encode())


def _head(read: Callable[[int], bytes], size: int) -> dict[str, Any]:
    """Return what a file says of itself.

    Args:
        read: returns the file's first bytes, as many as asked for.
        size: of the file.

    Raises:
        CheckpointDamaged: it is not whole, or no checkpoint.
    """
    try:
        length = int.from_bytes(read(8), "little")
        if length > size - 8:
            raise ValueError(f"it has {size} bytes, its head alone {length}")
        table = json.loads(read(8 + length)[8:])
        rest = table.pop("__metadata__")
        whole = 8 + length + max((each["data_offsets"][1] for each in table.values()), default=0)
        head = {**json.loads(rest["rlwire"], parse_constant=_refuse), "state": rest["state"]}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointDamaged(f"it is cut off or no checkpoint: {error}") from None
    if size != whole:
        raise CheckpointDamaged(f"it has {size} bytes, and should have {whole}")
    return head


def _refuse(constant: str) -> Any:
    raise ValueError(f"its head has {constant}, which is no number")


def _read(data: bytes) -> Any:
    """Return the state in a file.

    Raises:
        CheckpointDamaged: it is not whole.
    """
    head = _head(lambda end: data[:end], len(data))
    with optional("safetensors", "checkpoints"):
        import safetensors.numpy
    load: Any = safetensors.numpy.load
    if head.get("torch"):
        with optional("torch", "torch"):
            import safetensors.torch
        load = safetensors.torch.load
    try:
        arrays = load(data)
        body = base64.b64decode(head["state"], validate=True)
    except (safetensors.SafetensorError, LookupError, TypeError, ValueError) as error:
        raise CheckpointDamaged(f"it cannot be read: {error}") from None

    def bring_back(code: int, path: bytes) -> Any:
        found = arrays.get(path.decode(errors="replace"))
        if found is None or code not in (_TENSOR, _ARRAY):
            raise CheckpointDamaged(f"it has no array {path!r}")
        return found.numpy() if code == _ARRAY and head.get("torch") else found

    try:
        return msgpack.decode(body, ext_hook=bring_back, **_READING)
    except (DecodeError, LimitExceeded, TypeError) as error:  # an array of torch's own numbers
        raise CheckpointDamaged(f"it cannot be read: {error}") from None


class _Files:
    """Files of a directory."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []

    def size(self, name: str) -> int:
        return os.path.getsize(self._path(name))

    def read(self, name: str, end: int = -1) -> bytes:
        with open(self._path(name), "rb") as file:
            return file.read(end)

    def write(self, name: str, data: bytes) -> None:
        os.makedirs(self._folder, exist_ok=True)
        for left in self.names():  # by a program that was killed
            if left.endswith(_TEMPORARY):
                self.remove(left)
        temporary = self._path(name + _TEMPORARY)
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path(name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        if hasattr(os, "O_DIRECTORY"):  # the name is on the disk when its directory is
            directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)
