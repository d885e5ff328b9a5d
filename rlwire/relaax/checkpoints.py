"""Checkpoints of a parameter server, in a folder.

A checkpoint is one msgpack map with the state, written under a temporary name and then renamed.
Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, LimitExceeded, RlwireError, optional
from rlwire.limits import Limits
from rlwire.sessions.layer import Buffer

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"checkpoint-\d{12,}\.msgpack")
_TEMPORARY: Final = ".writing"
_LIMITS: Final = Limits(message=2**59, received=2**59, items=2**24, expanded=2**40, string=2**30)
_KINDS: Final = {"step": int, "algorithm": str, "version": int, "state": dict}
_TENSOR: Final = 1  # the msgpack extension of a tensor: dtype, shape and bytes


class CheckpointDamaged(RlwireError, ValueError):
    """A file is truncated, or is not a checkpoint."""


class CheckpointMismatch(RlwireError, ValueError):
    """A checkpoint belongs to another algorithm, or to another version of its state."""


class Checkpoints:
    """A folder of checkpoints that one program writes; `save` creates it if it is missing.

    It keeps the last `keep` checkpoints. The next one is due after `every_steps` steps or
    `every_seconds` seconds, if there were steps since the last.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int = 5,
        every_steps: int | None = None,
        every_seconds: float | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        for name, every in (("every_steps", every_steps), ("every_seconds", every_seconds)):
            if every is not None and not every > 0:
                raise ValueError(f"{name} must be positive, not {every}")
        self.folder = os.fspath(folder)
        self.keep = keep
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self._saved: int | None = None
        self._since: tuple[int, float] | None = None  # step and time of the last one

    def due(self, step: int) -> bool:
        if self._since is None:
            self._since = step, monotonic()
        last, when = self._since
        if step == last:
            return False
        if self.every_steps is not None and abs(step - last) >= self.every_steps:
            return True
        return self.every_seconds is not None and monotonic() - when >= self.every_seconds

    def saved(self, step: int) -> bool:
        """Return whether the last saved or restored checkpoint is of this step."""
        return step == self._saved

    def save(self, step: int, state: Mapping[str, Any], *, algorithm: str, version: int = 1) -> str:
        """Write a checkpoint, then remove the oldest; return the file's name.

        `state` is nested dictionaries and lists of arrays, tensors, numbers and texts; `version` is
        that of its layout.

        Raises:
            EncodeError: a value has an unsupported type, or an array 4 GiB or more.
            OSError: the file cannot be written; older checkpoints stay.
        """
        self._since = step, monotonic()
        name = f"checkpoint-{int(step):012d}.msgpack"
        head = {"algorithm": algorithm, "version": int(version), "step": int(step)}
        parts = msgpack.encode_parts({**head, "state": _written(state)}, limits=_LIMITS)
        self._write(name, parts)
        self._saved = step
        logger.info("saved %s/%s, %d bytes", self.folder, name, sum(map(len, parts)))
        kept = {name, *self._names()[: self.keep]}
        for each in self._names():
            if each not in kept:
                os.remove(self._path(each))
        return name

    def restore(self, algorithm: str, version: int = 1) -> tuple[int, Any] | None:
        """Return step and state of the latest undamaged checkpoint; None for an empty folder.

        Raises:
            CheckpointMismatch: it belongs to another algorithm or version.
            CheckpointDamaged: all checkpoints are damaged.
            MissingExtra: it has tensors, and PyTorch is not installed.
            OSError: a file cannot be read.
        """
        names = self._names()
        for name in names:
            try:
                found = _read(self._path(name))
            except CheckpointDamaged as error:
                logger.warning("skipping %s/%s: %s", self.folder, name, error)
                continue
            if (found["algorithm"], found["version"]) != (algorithm, version):
                raise CheckpointMismatch(
                    f"{self.folder}/{name} is of algorithm {found['algorithm']}, version "
                    f"{found['version']}, not {algorithm}, version {version}: use another folder"
                )
            step: int = found["step"]
            self._saved, self._since = step, (step, monotonic())
            logger.info("restored %s/%s", self.folder, name)
            return step, found["state"]
        if names:
            raise CheckpointDamaged(
                f"all {len(names)} checkpoints in {self.folder} are damaged: remove them to start "
                "from scratch"
            )
        return None

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _names(self) -> Sequence[str]:
        if not os.path.isdir(self.folder):
            return []
        names = filter(_NAME.fullmatch, os.listdir(self.folder))
        return sorted(names, key=lambda name: (len(name), name), reverse=True)

    def _write(self, name: str, parts: Iterable[Buffer]) -> None:
        os.makedirs(self.folder, exist_ok=True)
        for left in os.listdir(self.folder):  # of a process that was killed
            if left.endswith(_TEMPORARY):
                os.remove(self._path(left))
        temporary = self._path(name + _TEMPORARY)
        try:
            with open(temporary, "wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path(name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        directory = os.open(self.folder, os.O_RDONLY)  # the rename must reach the disk too
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _written(value: Any) -> Any:
    """Return a state with extensions instead of tensors, which msgpack does not have."""
    if isinstance(value, Mapping):
        return {key: _written(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_written(each) for each in value]
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    dtype = str(value.dtype).removeprefix("torch.")
    body = msgpack.encode([dtype, list(value.shape), raw.numpy()], limits=_LIMITS)
    return msgpack.ExtType(_TENSOR, body)


def _tensor(code: int, data: bytes) -> Any:
    try:
        if code != _TENSOR:
            raise ValueError(f"msgpack extension {code}")
        name, shape, raw = msgpack.decode(data, limits=_LIMITS)
        with optional("torch", "torch"):
            import torch
        dtype = getattr(torch, name)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"dtype {name}")
        if raw.size == 0:  # whose strides PyTorch does not accept
            return torch.empty(shape, dtype=dtype)
        return torch.from_numpy(raw).view(dtype).reshape(shape)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointDamaged(f"invalid tensor: {error}") from None


def _read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        found = msgpack.decode(data, ext_hook=_tensor, strict_map_key=False, limits=_LIMITS)
    except (DecodeError, LimitExceeded) as error:
        raise CheckpointDamaged(f"truncated, or not a checkpoint: {error}") from None
    for key, kind in _KINDS.items():
        if not isinstance(found, dict) or not isinstance(found.get(key), kind):
            raise CheckpointDamaged(f"not a checkpoint: no {key}")
    return found
