"""Checkpoints: what a parameter server has learned, kept in a folder so that a kill loses little.

A checkpoint is one file, written beside its place and then put there at once: whatever happens, it
is whole or not there. State of arrays and numbers is msgpack; state with PyTorch's tensors is
safetensors, with the rest of it in that file's metadata. Nothing is ever pickled.

Not here: what is kept and when (`rlwire.adapters.relaax`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import re
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import Any, Final, Protocol

import numpy as np

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RlwireError, optional, quoted
from rlwire.limits import Limits

__all__ = ["Aside", "Checkpoint", "CheckpointDamaged", "CheckpointMismatch", "Checkpoints"]

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"checkpoint-(\d{12,})\.(msgpack|safetensors)")
_TEMPORARY: Final = ".writing"
_ARCHIVES: Final = {"libarchive", "tar", "zip"}  # of fsspec's schemes
_LIMITS: Final = Limits(message=2**59, received=2**59, items=2**24, expanded=2**40, string=2**30)
_CODING: Final[Any] = {"limits": _LIMITS}
_READING: Final[Any] = {"strict_map_key": False, "limits": _LIMITS}
_HEAD: Final = 65536  # bytes in which the head of a msgpack file lies
_KINDS: Final[dict[str, Any]] = {
    "step": int,
    "score": (float, type(None)),
    "algorithm": str,
    "version": int,
    "time": float,
}
_TENSOR, _ARRAY = 1, 2  # extensions that stand for what safetensors holds


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
        folder: a directory, made when it is missing; or a URL of fsspec's, such as
            ``"s3://bucket/run"``, where fsspec is installed.
        keep: how many of the latest to keep.
        every_steps: after how many steps one is due.
        every_seconds: after how many seconds one is due, if there were steps.
        keep_best: how many of those with the best scores to keep beside them.

    Raises:
        ValueError: a number is too small, or `folder` is in an archive.
        MissingExtra: `folder` is a URL, and fsspec is not installed.
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
        self._files: _Files = _Remote(self.folder) if "://" in self.folder else _Local(self.folder)
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
            MissingExtra: there are tensors, and safetensors is not installed.
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
        kind, data = _written(state, head)
        taken = _Taken(f"checkpoint-{int(step):012d}.{kind}", step, data, self._last)
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
            MissingExtra: it holds tensors, and safetensors or PyTorch is not installed.
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
                state = _read(name, self._files.read(name))
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
        head = _head(name, lambda end: self._files.read(name, end), size)
        for key, kind in _KINDS.items():
            if not isinstance(head.get(key, _KINDS), kind):
                raise CheckpointDamaged(f"its head has no {key}")
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


def _written(state: Mapping[str, Any], head: dict[str, Any]) -> tuple[str, bytes]:
    """Return a checkpoint's kind and bytes."""
    torch = sys.modules.get("torch")
    if torch is None or not _holds_tensors(state, torch):
        body = msgpack.encode(state, **_CODING)
        head = {**head, "bytes": len(body), "crc32": zlib.crc32(body)}
        return "msgpack", msgpack.encode(head) + body
    with optional("safetensors", "checkpoints"):
        from safetensors.torch import save
    tensors: dict[str, Any] = {}
    body = msgpack.encode(_without_tensors(state, "", tensors, torch), **_CODING)
    rest = {"rlwire": json.dumps(head), "state": base64.b64encode(body).decode()}
    return "safetensors", save(tensors, rest)


def _holds_tensors(value: Any, torch: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_tensors(each, torch) for each in value)
    return isinstance(value, torch.Tensor)


def _without_tensors(value: Any, path: str, tensors: dict[str, Any], torch: Any) -> Any:
    """Return a state with names in place of its tensors, which go to `tensors`."""
    if isinstance(value, Mapping):
        return {
            key: _without_tensors(each, f"{path}.{key}" if path else str(key), tensors, torch)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _without_tensors(each, f"{path}.{index}", tensors, torch)
            for index, each in enumerate(value)
        ]
    if isinstance(value, torch.Tensor):
        code = _TENSOR
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        code, value = _ARRAY, torch.from_numpy(np.array(value))
    else:
        return value
    if path in tensors:  # a dictionary with keys 1 and "1"
        raise EncodeError("two tensors of a checkpoint have the same name", path=f"$.{path}")
    # Of its own: safetensors takes no two that share memory, as tied weights do.
    tensors[path] = value.detach().cpu().clone().contiguous()
    return msgpack.ExtType(code, path.encode())


def _head(name: str, read: Any, size: int) -> dict[str, Any]:
    """Return what a file says of itself; errors as of `_read`."""
    if name.endswith(".msgpack"):
        try:
            head, begin = msgpack.Decoder(limits=_LIMITS).decode_first(read(min(size, _HEAD)))
            whole = begin + head["bytes"]
            head = {**head, "begin": begin}
        except (DecodeError, LimitExceeded, LookupError, TypeError) as error:
            raise CheckpointDamaged(f"it is cut off or no checkpoint: {error}") from None
        if size != whole:
            raise CheckpointDamaged(f"it has {size} bytes, and should have {whole}")
        return head
    try:
        (length,) = struct.unpack("<Q", read(min(size, 8)))
        if length > size - 8:
            raise ValueError(f"it has {size} bytes, its head alone {length}")
        table = json.loads(read(8 + length)[8:])
        rest = table.pop("__metadata__")
        whole = 8 + length + max((each["data_offsets"][1] for each in table.values()), default=0)
        head = {**json.loads(rest["rlwire"]), "state": rest.get("state", "")}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise CheckpointDamaged(f"it is cut off or no checkpoint: {error}") from None
    if size != whole:
        raise CheckpointDamaged(f"it has {size} bytes, and should have {whole}")
    return head


def _read(name: str, data: bytes) -> Any:
    """Return the state in a file.

    Raises:
        CheckpointDamaged: it is not whole.
    """
    head = _head(name, lambda end: data[:end], len(data))
    if name.endswith(".msgpack"):
        body = data[head["begin"] :]
        if zlib.crc32(body) != head.get("crc32"):
            raise CheckpointDamaged("its bytes are not those that were written")
        try:
            return msgpack.decode(body, **_READING)
        except (DecodeError, LimitExceeded) as error:
            raise CheckpointDamaged(f"it cannot be read: {error}") from None
    with optional("safetensors", "checkpoints"):
        from safetensors import SafetensorError
    with optional("torch", "torch"):
        from safetensors.torch import load
    try:
        tensors = load(data)
        body = base64.b64decode(head["state"], validate=True)
    except (SafetensorError, ValueError) as error:
        raise CheckpointDamaged(f"it cannot be read: {error}") from None

    def bring_back(code: int, path: bytes) -> Any:
        tensor = tensors.get(path.decode())
        if tensor is None or code not in (_TENSOR, _ARRAY):
            raise CheckpointDamaged(f"it has no tensor {path!r}")
        return tensor if code == _TENSOR else tensor.numpy()

    try:
        return msgpack.decode(body, ext_hook=bring_back, **_READING)
    except (DecodeError, LimitExceeded) as error:
        raise CheckpointDamaged(f"it cannot be read: {error}") from None


class _Files(Protocol):
    """A folder's files."""

    def names(self) -> list[str]: ...

    def size(self, name: str) -> int: ...

    def read(self, name: str, end: int | None = None) -> bytes: ...

    def write(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


class _Local:
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

    def read(self, name: str, end: int | None = None) -> bytes:
        with open(self._path(name), "rb") as file:
            return file.read(-1 if end is None else end)

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


class _Remote:
    """Files that fsspec reaches. Object stores put a file in place at once; others rename it."""

    def __init__(self, url: str) -> None:
        if inside := _ARCHIVES & set(url.partition("://")[0].split("::")):
            raise ValueError(
                f"checkpoints cannot be kept in an archive ({inside.pop()}), where no file is "
                f"replaced: give a folder instead of {quoted(url)}"
            )
        with optional("fsspec", "checkpoints"):
            from fsspec.core import url_to_fs
        self._fs, self._folder = url_to_fs(url)

    def names(self) -> list[str]:
        self._fs.invalidate_cache()
        if not self._fs.exists(self._folder):
            return []
        found = self._fs.ls(self._folder, detail=False)
        return [name.rstrip("/").rpartition("/")[2] for name in found]

    def size(self, name: str) -> int:
        return int(self._fs.size(self._path(name)))

    def read(self, name: str, end: int | None = None) -> bytes:
        return bytes(self._fs.cat_file(self._path(name), start=0, end=end))

    def write(self, name: str, data: bytes) -> None:
        self._fs.makedirs(self._folder, exist_ok=True)
        self._fs.pipe_file(self._path(name + _TEMPORARY), data)
        self._fs.mv(self._path(name + _TEMPORARY), self._path(name))

    def remove(self, name: str) -> None:
        self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
