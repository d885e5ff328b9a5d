"""LeRobot's values to bytes and back, without pickle; `rlwire.lerobot` is the drop-in.

A message is MessagePack with arrays: a list of `MARK` and the value. A list whose first item is of
type bytes stands for a value of another type, which these bytes name. Only the types in this module
are encoded. A decoder makes no others, imports nothing and holds `Limits`.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pickle  # only the class of its errors: nothing is loaded
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RlwireError, quoted
from rlwire.limits import Limits, checked

MARK = "lerobot1"
_BEGINNING = msgpack.encode([MARK, None])[:-1]  # no pickle, nor a file of torch.save, begins so
PICKLES = (b"\x80", b"PK\x03\x04")  # pickle from protocol 2 on; torch.save's zip file

_NUMBER = (int, float, np.number)
_WHOLE = (int, np.integer)
_HELPERS, _TYPES = "lerobot.async_inference.helpers", "lerobot.configs.types"
# LeRobot's classes: the module, and the types of the fields in order.
_CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "TimedObservation": (
        _HELPERS, {"timestamp": _NUMBER, "timestep": _WHOLE, "observation": dict, "must_go": bool}
    ),
    "TimedAction": (_HELPERS, {"timestamp": _NUMBER, "timestep": _WHOLE, "action": object}),
    "RemotePolicyConfig": (
        _HELPERS,
        {
            "policy_type": str, "pretrained_name_or_path": str, "lerobot_features": dict,
            "actions_per_chunk": _WHOLE, "device": str, "rename_map": dict,
        },
    ),
    "PolicyFeature": (_TYPES, {"type": str, "shape": (tuple, list)}),
    "FeatureType": (_TYPES, {"value": str}),  # an Enum
}  # fmt: skip

_ARRAY = np.ndarray
_SCALARS = frozenset(
    np.dtype(code).type for code in "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]
)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    known = kind is float or kind is str or kind is _ARRAY or kind is int or kind is bool
    return known or value is None


class Codec:
    """Encode and decode LeRobot's values; threads may share it.

    Tensors become contiguous tensors on the CPU, without their gradient's history. Arrays of bytes
    are read-only views of the message, and tensors own their memory. A bytearray is the receiver's
    own: its large tensors and arrays are writable views of it, which keep it alive. Ordered
    dictionaries become plain ones.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        import torch

        self.limits = limits = checked(limits)
        self._encoder = msgpack.Encoder(strict_types=True, align=True, limits=limits)
        self._views, self._parts = (
            msgpack.Decoder(copy=copy, arrays="bytes", strict_map_key=False, limits=limits)
            for copy in (False, None)
        )
        self._torch = torch
        self._from_numpy = torch.from_numpy
        self._packers: dict[type, Callable[[Any, int], Any]] = {
            bytes: lambda value, depth: [b"bytes", value],
            tuple: lambda value, depth: [b"tuple", *self._pack_list(value, depth)],
            torch.Tensor: self._pack_tensor,
            torch.nn.Parameter: self._pack_tensor,
            **dict.fromkeys(_SCALARS, lambda value, depth: value),
        }
        self._classes: dict[bytes, list[Any]] = {}
        self._makers: dict[bytes, Callable[[list[Any]], Any]] = {
            b"tuple": lambda parts: tuple(map(self._unpack, parts[1:])),
            b"bytes": lambda parts: _held(parts, bytes),
            b"tensor": self._tensor,
            b"bfloat16": lambda parts: self._tensor(parts, np.int16).view(torch.bfloat16),
        }

    def encode(self, value: Any) -> bytes:
        """Return the message of a value; EncodeError with the path of what it cannot carry."""
        try:
            return self._encoder.encode([MARK, self._pack(value, 0)])
        except LimitExceeded:
            raise
        except (RlwireError, RecursionError, _Refused) as error:
            raise self._blame(value, "$", error, self.limits.depth) from None

    def decode(self, data: Any, kind: type = object) -> Any:
        """Return the value of a message, of type `kind`; a pickle is rejected and not loaded."""
        decoder = self._parts if type(data) is bytearray else self._views
        if type(data) is not bytes and type(data) is not bytearray:
            data = bytes(memoryview(data))
        if not data.startswith(_BEGINNING):
            if not data:
                raise EOFError("the message is empty")  # as of pickle
            raise NotLoaded(data)
        try:
            value = self._unpack(decoder.decode(data)[1])
        except _Refused as error:
            raise DecodeError(str(error), offset=len(_BEGINNING)) from None
        if kind is not object and not isinstance(value, kind):
            words = f"expected a {kind.__name__}, got a {type(value).__name__}"
            raise DecodeError(words, offset=len(_BEGINNING))
        return value

    # --- values to what MessagePack has

    def _pack(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if _is_plain(value):
            return value
        if depth > self.limits.depth:
            raise RecursionError("the value is nested too deeply")
        if kind is list:
            return self._pack_list(value, depth)
        if kind is not dict and kind is not OrderedDict:
            packer = self._packers.get(kind)
            if packer is None:
                packer = self._packers[kind] = self._find_packer(kind)
            return packer(value, depth)
        packed: dict[Any, Any] = {}
        for key, part in value.items():
            if type(key) is not str and type(key) is not int:
                raise _Refused(f"the key {quoted(key)} is neither a str nor an int")
            packed[key] = part if _is_plain(part) else self._pack(part, depth + 1)
        return packed

    def _pack_list(self, value: Any, depth: int) -> list[Any]:
        return [part if _is_plain(part) else self._pack(part, depth + 1) for part in value]

    def _pack_tensor(self, value: Any, depth: int) -> Any:
        mark = b"tensor"
        try:
            if value.dtype is self._torch.bfloat16:
                mark, value = b"bfloat16", value.detach().view(self._torch.int16)
            return [mark, value.numpy(force=True)]
        except (RuntimeError, TypeError, ValueError) as error:
            what = f"{value.dtype}, {value.layout}"
            raise _Refused(f"a tensor ({what}) has no NumPy form: {error}") from None

    def _find_packer(self, kind: type) -> Callable[[Any, int], Any]:
        fields = _fields(kind)
        if fields is None:
            raise _Refused(
                f"a {kind.__module__}.{kind.__qualname__} cannot be sent: use tensors, arrays, "
                "numbers, text, None, dicts and lists"
            )
        mark = kind.__name__.encode()

        def pack_class(value: Any, depth: int) -> list[Any]:
            parts = [getattr(value, field) for field in fields]
            if not all(map(isinstance, parts, fields.values())):
                raise _Refused(f"it has fields of types {quoted((*map(type, parts),))}")
            return [mark, *self._pack_list(parts, depth)]

        return pack_class

    def _blame(self, value: Any, path: str, error: BaseException, depth: int) -> RlwireError:
        """Return an error with the path of the smallest part of a value that cannot be encoded."""
        if depth == 0:
            maximum = self.limits.depth
            return LimitExceeded("depth", maximum, maximum + 1, path=path)
        items: Any = ()
        if isinstance(value, dict):
            items = [(f"{path}[{key!r}]", part) for key, part in value.items()]
        elif isinstance(value, (list, tuple)):
            items = [(f"{path}[{i}]", part) for i, part in enumerate(value)]
        elif fields := _fields(type(value)):
            items = [(f"{path}.{field}", getattr(value, field)) for field in fields]
        for where, part in items:
            try:
                self._encoder.encode(self._pack(part, 0))
            except (RlwireError, RecursionError, _Refused) as inner:
                return self._blame(part, where, inner, depth - 1)
        return EncodeError(getattr(error, "reason", str(error)), path=path)

    # --- and back

    def _unpack(self, value: Any) -> Any:
        """Return a decoded value as LeRobot's; dictionaries and lists are changed in place."""
        kind = type(value)
        if kind is dict:
            for key, part in value.items():
                if type(key) is not str and type(key) is not int:
                    raise _Refused("a key is neither a str nor an int")
                if not _is_plain(part):
                    value[key] = self._unpack(part)
            return value
        if kind is list:
            if value and type(value[0]) is bytes:
                maker = self._makers.get(value[0])
                return self._make(value) if maker is None else maker(value)
            return self._unpack_list(value)
        if kind not in _SCALARS and not _is_plain(value):
            raise _Refused(f"a value of type {kind.__name__} is not one of LeRobot's")
        return value

    def _unpack_list(self, value: list[Any]) -> list[Any]:
        for index, part in enumerate(value):
            if not _is_plain(part):
                value[index] = self._unpack(part)
        return value

    def _tensor(self, parts: list[Any], dtype: Any = None) -> Any:
        array = _held(parts, np.ndarray)
        try:
            if dtype is None or dtype == array.dtype:
                return self._from_numpy(array if array.flags.writeable else array.copy())
        except (TypeError, ValueError):
            pass  # PyTorch has no such dtype
        raise _Refused(f"a {parts[0].decode()} is sent as an array of {array.dtype}")

    def _make(self, parts: list[Any]) -> Any:
        """Return one of LeRobot's classes, whose module the program has imported."""
        mark = parts.pop(0)
        known = self._classes.get(mark)
        if known is None:
            name = mark.decode("latin-1")
            if (kind := _imported(name)) is None:
                raise _Refused(f"{quoted(name)} is none of the types that the program has imported")
            known = self._classes[mark] = [kind, None]  # and the types of the last one's fields
        kind = known[0]
        types = [type(part) for part in self._unpack_list(parts)]
        if types != known[1]:
            wanted = (_fields(kind) or {}).values()
            if len(types) != len(wanted) or not all(map(isinstance, parts, wanted)):
                raise _Refused(f"a {kind.__name__} has fields of types {quoted(types)}")
            known[1] = types
        try:
            return kind(*parts)
        except ValueError as error:  # no member of the Enum
            raise _Refused(str(error)) from None


class _Refused(Exception):
    """A value that is none of the types above; becomes an EncodeError or DecodeError."""


def _imported(name: str) -> Any:
    """Return one of LeRobot's classes; None if it is not one, or not imported."""
    if name not in _CLASSES:
        return None
    return getattr(sys.modules.get(_CLASSES[name][0]), name, None)


def _fields(kind: type) -> dict[str, Any] | None:
    """Return the fields of one of LeRobot's classes, else None."""
    if _imported(kind.__name__) is not kind:
        return None
    fields = _CLASSES[kind.__name__][1]
    found = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    if found and [field.name for field in found] != list(fields):
        raise different(f"{kind.__module__}.{kind.__name__}")
    return fields


def _held(parts: list[Any], kind: type) -> Any:
    if len(parts) != 2 or type(parts[1]) is not kind:
        raise _Refused(f"a mark of a {kind.__name__} without one")
    return parts[1]


class NotLoaded(DecodeError, pickle.UnpicklingError):
    """A peer without rlwire sent a pickle, or bytes of another program. Nothing was loaded."""

    def __init__(self, data: bytes) -> None:
        found = data[:4]
        what = "a pickle, which can run any code" if found.startswith(PICKLES) else "not of rlwire"
        super().__init__(
            f"the message begins with {found!r}: it is {what}, and is not loaded: the peer runs "
            'LeRobot without rlwire: install rlwire there, and call rlwire.install("lerobot") '
            "before LeRobot starts"
        )


def different(name: str) -> RuntimeError:
    """Return the error that a part of LeRobot is not as expected."""
    version = importlib.metadata.version("lerobot")
    return RuntimeError(
        f"LeRobot {version}: {name} is not that of versions 0.4.3 to 0.6.2, which rlwire's "
        "drop-in replaces: install one of them"
    )
