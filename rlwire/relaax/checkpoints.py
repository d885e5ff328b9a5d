"""Checkpoints of a parameter server, in a folder.

A checkpoint is a safetensors file: arrays and tensors by name, and the rest of the state as msgpack
in the metadata. It is written under a temporary name and then renamed. Nothing is pickled.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import numpy as np

from rlwire.codecs import msgpack
from rlwire.errors import EncodeError, RlwireError, optional, quoted
from rlwire.limits import Limits

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"checkpoint-\d{12,}\.safetensors")
_TEMPORARY: Final = ".writing"
_LIMITS: Final = Limits(message=2**59, received=2**59, items=2**24, expanded=2**40, string=2**30)
_KINDS: Final = {"step": int, "algorithm": str, "version": int}
_TENSOR, _ARRAY = 1, 2  # msgpack extensions that name a tensor or an array


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
            EncodeError: a value has an unsupported type.
            MissingExtra: safetensors is not installed.
            OSError: the file cannot be written; older checkpoints stay.
        """
        self._since = step, monotonic()
        head = {"algorithm": algorithm, "version": int(version), "step": int(step)}
        name = f"checkpoint-{int(step):012d}.safetensors"
        data = _serialize(state, head)
        self._write(name, data)
        self._saved = step
        logger.info("saved %s/%s, %d bytes", self.folder, name, len(data))
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
            MissingExtra: safetensors or PyTorch is not installed.
            OSError: a file cannot be read.
        """
        names = self._names()
        for name in names:
            try:
                with _open(self._path(name)) as file:
                    head = _head(file)
                if (head["algorithm"], head["version"]) != (algorithm, version):
                    raise CheckpointMismatch(
                        f"{self.folder}/{name} is of algorithm {head['algorithm']}, version "
                        f"{head['version']}, not {algorithm}, version {version}: use another folder"
                    )
                state = _read(self._path(name), bool(head.get("torch")))
            except CheckpointDamaged as error:
                logger.warning("skipping %s/%s: %s", self.folder, name, error)
                continue
            step: int = head["step"]
            self._saved, self._since = step, (step, monotonic())
            logger.info("restored %s/%s", self.folder, name)
            return step, state
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

    def _write(self, name: str, data: bytes) -> None:
        os.makedirs(self.folder, exist_ok=True)
        for left in os.listdir(self.folder):  # of a process that was killed
            if left.endswith(_TEMPORARY):
                os.remove(self._path(left))
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
        directory = os.open(self.folder, os.O_RDONLY)  # the rename must reach the disk too
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _serialize(state: Mapping[str, Any], head: dict[str, Any]) -> bytes:
    with optional("safetensors", "checkpoints"):
        import safetensors.numpy
    torch = sys.modules.get("torch")
    arrays: dict[str, Any] = {}
    body = msgpack.encode(_extract_arrays(state, "", arrays, torch), limits=_LIMITS)
    save: Any = safetensors.numpy.save
    if torch is not None and any(isinstance(each, torch.Tensor) for each in arrays.values()):
        import safetensors.torch

        save = safetensors.torch.save
        head = {**head, "torch": True}
        # Cloned, since safetensors rejects tensors that share memory, such as tied weights.
        arrays = {
            name: torch.as_tensor(each).detach().cpu().clone().contiguous()
            for name, each in arrays.items()
        }
    return save(arrays, {"rlwire": json.dumps(head), "state": base64.b64encode(body).decode()})


def _extract_arrays(value: Any, path: str, arrays: dict[str, Any], torch: Any) -> Any:
    """Move a state's arrays and tensors to `arrays`; return the state with their names instead."""
    if isinstance(value, Mapping):
        return {
            key: _extract_arrays(each, f"{path}.{key}" if path else str(key), arrays, torch)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _extract_arrays(each, f"{path}.{index}", arrays, torch)
            for index, each in enumerate(value)
        ]
    if torch is not None and isinstance(value, torch.Tensor):
        code = _TENSOR
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.isnative:
        code, value = _ARRAY, np.array(value, order="C")
    else:  # also arrays of other dtypes, which msgpack carries
        return value
    if path in arrays:  # keys 1 and "1"
        raise EncodeError("two arrays have the same name in a checkpoint", path=f"$.{path}")
    arrays[path] = value
    return msgpack.ExtType(code, path.encode())


@contextlib.contextmanager
def _open(path: str, framework: str = "np") -> Iterator[Any]:
    with optional("safetensors", "checkpoints"):
        import safetensors
    wrong = (safetensors.SafetensorError, LookupError, TypeError, ValueError, RecursionError)
    try:
        with safetensors.safe_open(path, framework) as file:
            yield file
    except CheckpointDamaged:
        raise
    except wrong as error:
        raise CheckpointDamaged(f"truncated, or not a checkpoint: {error}") from None


def _head(file: Any) -> dict[str, Any]:
    head: Any = json.loads(file.metadata()["rlwire"])
    if not isinstance(head, dict):
        raise CheckpointDamaged(f"metadata that is not an object: {quoted(head)}")
    for key, kind in _KINDS.items():
        if not isinstance(head.get(key, _KINDS), kind):
            raise CheckpointDamaged(f"metadata without {key}")
    return head


def _read(path: str, torch: bool) -> Any:
    if torch:
        with optional("torch", "torch"):
            importlib.import_module("torch")
    with _open(path, "pt" if torch else "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        body = base64.b64decode(file.metadata()["state"], validate=True)

        def restore(code: int, name: bytes) -> Any:
            found = arrays.get(name.decode(errors="replace"))
            if found is None or code not in (_TENSOR, _ARRAY):
                raise CheckpointDamaged(f"array {name!r} is missing")
            return found.numpy() if code == _ARRAY and torch else found

        state = msgpack.decode(body, ext_hook=restore, strict_map_key=False, limits=_LIMITS)
    if not isinstance(state, dict):
        raise CheckpointDamaged(f"state that is not a map: {quoted(state)}")
    return state
