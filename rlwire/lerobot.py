"""The drop-in for LeRobot: `rlwire.install("lerobot")`, at both ends.

LeRobot sends observations, actions, transitions and weights as pickles over gRPC. Whoever reaches
its port can run code (CVE-2026-25874). With the drop-in they are MessagePack with arrays: a list of
`MARK` and the value. A list whose first item is of type bytes stands for
a value of another type, which these bytes name. Only the types in this module are encoded, and a
decoder makes no others, imports nothing and holds `Limits`. gRPC and its messages stay LeRobot's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.abc
import importlib.metadata
import inspect
import logging
import pickle  # only the class of its errors: nothing is loaded
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RlwireError, quoted
from rlwire.limits import DEFAULT, Limits, checked
from rlwire.msgpack_numpy import DropIn

__all__ = ["MARK", "Codec", "NotLoaded", "lerobot_drop_in"]

MARK = "lerobot1"
_BEGINNING = msgpack.encode([MARK, None])[:-1]  # no pickle, nor a file of torch.save, begins so
_PICKLES = (b"\x80", b"PK\x03\x04")  # pickle from protocol 2 on; torch.save's zip file

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

_PLAIN: frozenset[type] = frozenset((str, int, float, bool, type(None), np.ndarray))
_KEYS = frozenset((str, int))
_SCALARS = frozenset(
    np.dtype(code).type for code in "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]
)


class Codec:
    """Encode and decode LeRobot's values.

    Tensors become contiguous tensors on the CPU, without their gradient's history, and own their
    memory. Arrays are read-only views of the message. Ordered dictionaries become plain ones.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        import torch

        self.limits = limits = checked(limits)
        self._encode = msgpack.Encoder(strict_types=True, limits=limits).encode
        self._decode = msgpack.Decoder(
            copy=False, arrays="bytes", strict_map_key=False, limits=limits,
            ext_hook=_refuse_extension, timestamp=_refuse_extension,
        ).decode  # fmt: skip
        self._torch = torch
        self._from_numpy = torch.from_numpy
        self._packers: dict[type, Callable[[Any], Any]] = {
            dict: self._pack_dict,
            OrderedDict: self._pack_dict,
            list: self._pack_list,
            bytes: lambda value: [b"bytes", value],
            tuple: lambda value: [b"tuple", *self._pack_list(value)],
            torch.Tensor: self._pack_tensor,
            torch.nn.Parameter: self._pack_tensor,
            **dict.fromkeys(_PLAIN | _SCALARS, lambda value: value),
        }
        self._makers: dict[bytes, Callable[[list[Any]], Any]] = {
            b"tuple": lambda parts: tuple(map(self._unpack, parts[1:])),
            b"bytes": lambda parts: _held(parts, bytes),
            b"tensor": self._tensor,
            b"bfloat16": lambda parts: self._tensor(parts, np.int16).view(torch.bfloat16),
        }

    def encode(self, value: Any) -> bytes:
        """Return the message of a value; EncodeError with the path of what it cannot carry."""
        try:
            return self._encode([MARK, self._pack(value)])
        except LimitExceeded:
            raise
        except (RlwireError, RecursionError, _Refused) as error:
            raise self._blame(value, "$", error, self.limits.depth) from None

    def decode(self, data: Any, kind: type = object) -> Any:
        """Return the value of a message, of type `kind`; a pickle is rejected and not loaded."""
        data = data if type(data) is bytes else bytes(memoryview(data))
        if not data.startswith(_BEGINNING):
            if not data:
                raise EOFError("the message is empty")  # as of pickle
            raise NotLoaded(data)
        try:
            value = self._unpack(self._decode(data)[1])
        except _Refused as error:
            raise DecodeError(str(error), offset=len(_BEGINNING)) from None
        if not isinstance(value, kind):
            words = f"expected a {kind.__name__}, got a {type(value).__name__}"
            raise DecodeError(words, offset=len(_BEGINNING))
        return value

    # --- values to what MessagePack has

    def _pack(self, value: Any) -> Any:
        kind = type(value)
        packer = self._packers.get(kind)
        if packer is None:
            packer = self._packers[kind] = self._find_packer(kind)
        return packer(value)

    def _pack_dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        if not _KEYS.issuperset(map(type, value)):
            key = next(key for key in value if type(key) not in _KEYS)
            raise _Refused(f"the key {quoted(key)} is neither a str nor an int")
        pack, plain = self._pack, _PLAIN
        return {key: x if type(x) in plain else pack(x) for key, x in value.items()}

    def _pack_list(self, value: Any) -> list[Any]:
        pack, plain = self._pack, _PLAIN
        return [x if type(x) in plain else pack(x) for x in value]

    def _pack_tensor(self, value: Any) -> Any:
        try:
            return [b"tensor", value.numpy()]
        except (RuntimeError, TypeError, ValueError):
            pass  # on another device, with a gradient, or of a dtype that NumPy has not
        try:
            if value.dtype is self._torch.bfloat16:
                bits = value.detach().cpu().contiguous().view(self._torch.int16)
                return [b"bfloat16", bits.numpy(force=True)]
            return [b"tensor", value.numpy(force=True)]
        except (RuntimeError, TypeError, ValueError) as error:
            what = f"{value.dtype}, {value.layout}"
            raise _Refused(f"a tensor ({what}) has no NumPy form: {error}") from None

    def _find_packer(self, kind: type) -> Callable[[Any], Any]:
        fields = _fields(kind.__name__, kind)
        if fields is None:
            raise _Refused(
                f"a {kind.__module__}.{kind.__qualname__} cannot be sent: use tensors, arrays, "
                "numbers, text, None, dicts and lists"
            )
        mark, pack, wanted = kind.__name__.encode(), self._pack, fields.values()

        def pack_class(value: Any) -> list[Any]:
            parts = [getattr(value, field) for field in fields]
            if not all(map(isinstance, parts, wanted)):
                raise _Refused(f"it has fields of types {quoted((*map(type, parts),))}")
            return [mark, *map(pack, parts)]

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
        elif fields := _fields(type(value).__name__, type(value)):
            items = [(f"{path}.{field}", getattr(value, field)) for field in fields]
        for where, part in items:
            try:
                self._encode(self._pack(part))
            except (RlwireError, RecursionError, _Refused) as inner:
                return self._blame(part, where, inner, depth - 1)
        return EncodeError(getattr(error, "reason", str(error)), path=path)

    # --- and back

    def _unpack(self, value: Any) -> Any:
        """Return a decoded value as LeRobot's; dictionaries and lists are changed in place."""
        kind = type(value)
        if kind is dict:
            if not _KEYS.issuperset(map(type, value)):
                raise _Refused("a key is neither a str nor an int")
            if not _PLAIN.issuperset(map(type, value.values())):
                for key, part in value.items():
                    if type(part) not in _PLAIN:
                        value[key] = self._unpack(part)
            return value
        if kind is list:
            if value and type(value[0]) is bytes:
                maker = self._makers.get(value[0])
                return (maker or self._find_maker(value[0]))(value)
            for index, part in enumerate(value):
                if type(part) not in _PLAIN:
                    value[index] = self._unpack(part)
            return value
        if kind not in _PLAIN and kind not in _SCALARS:
            raise _Refused(f"a value of type {kind.__name__} is not one of LeRobot's")
        return value

    def _tensor(self, parts: list[Any], dtype: Any = None) -> Any:
        array = _held(parts, np.ndarray)
        try:
            if dtype is None or dtype == array.dtype:
                return self._from_numpy(array.copy())
        except (TypeError, ValueError):
            pass  # PyTorch has no such dtype
        raise _Refused(f"a {parts[0].decode()} is sent as an array of {array.dtype}")

    def _find_maker(self, mark: bytes) -> Callable[[list[Any]], Any]:
        """Return what makes one of LeRobot's classes; its module is loaded already, or never."""
        name = mark.decode("latin-1")
        kind: Any = getattr(sys.modules.get(_CLASSES.get(name, ("",))[0]), name, None)
        fields = _fields(name, kind)
        if fields is None:
            raise _Refused(f"{quoted(name)} is none of the types that this program has imported")
        known_types = set()

        def maker(parts: list[Any]) -> Any:
            del parts[0]
            for index, part in enumerate(parts):
                if type(part) not in _PLAIN:
                    parts[index] = self._unpack(part)
            if (types := (*map(type, parts),)) not in known_types:
                wanted = fields.values()
                if len(parts) != len(wanted) or not all(map(isinstance, parts, wanted)):
                    raise _Refused(f"a {name} has fields of types {quoted(types)}")
                known_types.add(types)
            try:
                return kind(*parts)
            except ValueError as error:  # no member of the Enum
                raise _Refused(str(error)) from None

        self._makers[mark] = maker
        return maker


class _Refused(Exception):
    """A value that is none of the types above; becomes an EncodeError or DecodeError."""


def _refuse_extension(*_: Any) -> Any:
    raise _Refused("a MessagePack extension is none of LeRobot's values")


def _fields(name: str, kind: Any) -> dict[str, Any] | None:
    """Return the fields of one of LeRobot's classes; None if it is not one, or not imported."""
    module, fields = _CLASSES.get(name, ("", {}))
    if not fields or kind is None or getattr(sys.modules.get(module), name, None) is not kind:
        return None
    found = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    if found and [field.name for field in found] != list(fields):
        raise _different(f"{module}.{name}")
    return fields


def _held(parts: list[Any], kind: type) -> Any:
    if len(parts) != 2 or type(parts[1]) is not kind:
        raise _Refused(f"a mark of a {kind.__name__} without one")
    return parts[1]


class NotLoaded(DecodeError, pickle.UnpicklingError):
    """A peer without rlwire sent a pickle, or bytes of another program. Nothing was loaded."""

    def __init__(self, data: bytes) -> None:
        found = data[:4]
        what = "a pickle, which can run any code" if found.startswith(_PICKLES) else "not of rlwire"
        super().__init__(
            f"the message begins with {found!r}: it is {what}, and is not loaded: the peer runs "
            'LeRobot without rlwire: install rlwire there, and call rlwire.install("lerobot") '
            "before LeRobot starts"
        )


# --- LeRobot's own functions and modules

# Functions keep their identity, because LeRobot's modules import them by name: only `__code__` is
# replaced, by code that runs in `lerobot.transport.utils`.
_rlwire: Any = None
_CODE: dict[str, Any] = {
    "state_to_bytes": lambda state_dict: _rlwire.dumps(state_dict),
    "bytes_to_state_dict": lambda buffer: _rlwire.loads(buffer, dict),
    "python_object_to_bytes": lambda python_object: _rlwire.dumps(python_object),
    "bytes_to_python_object": lambda buffer: _rlwire.loads(buffer),
    "bytes_to_transitions": lambda buffer: _rlwire.loads(buffer, list),
    "transitions_to_bytes": lambda transitions: _rlwire.dumps(transitions),
    "receive_bytes_in_chunks": lambda iterator, queue, shutdown_event, log_prefix="": (
        _rlwire.receive(iterator, queue, shutdown_event, log_prefix)
    ),
}
# The SHA-256 of their source, in LeRobot 0.4.3 to 0.6.2.
_SOURCE = "e7f0588cf764a66d60eb25726bef4b9704315ea5929a9b7d95f28e4b62aab4f2"
# These modules call `pickle` inline.
_MODULES = ("lerobot.async_inference.policy_server", "lerobot.async_inference.robot_client")


def _different(name: str) -> RuntimeError:
    version = importlib.metadata.version("lerobot")
    return RuntimeError(
        f"LeRobot {version}: {name} is not that of versions 0.4.3 to 0.6.2, which rlwire's "
        "drop-in replaces: install one of them"
    )


def _sources(library: ModuleType) -> str:
    """Return the SHA-256 of the source of the functions that are replaced."""
    found = hashlib.sha256()
    for name in _CODE:
        own: Any = getattr(library, name, None)
        try:
            found.update(inspect.getsource(own).encode())
        except (OSError, TypeError):
            raise _different(f"{library.__name__}.{name}") from None
    return found.hexdigest()


def _receiver(limits: Limits, states: Any) -> Callable[..., bytes | None]:
    def receive(iterator: Any, queue: Any, shutdown: Any, prefix: Any) -> bytes | None:
        """Join chunks, as LeRobot does; a message of one chunk is not copied."""
        parts: list[bytes] = []
        size = 0
        logging.info("%s Starting receiver", prefix)
        for item in iterator:
            if shutdown.is_set():
                logging.info("%s Shutting down receiver", prefix)
                return None
            state, data = item.transfer_state, item.data
            if state == states.TRANSFER_BEGIN:
                parts, size = [], 0
            elif state not in (states.TRANSFER_MIDDLE, states.TRANSFER_END):
                logging.warning("%s Received unknown transfer state %s", prefix, state)
                raise ValueError(f"Received unknown transfer state {state}")
            size += len(data)
            if size > limits.message:
                raise LimitExceeded("message", limits.message, size)
            parts.append(data)
            if state != states.TRANSFER_END:
                continue
            message = data if len(parts) == 1 else b"".join(parts)
            parts, size = [], 0
            # Before it is queued: so only the peer that sent it is told, and the loop goes on.
            if message.startswith(_PICKLES):
                raise NotLoaded(message)
            if queue is None:
                return message
            queue.put(message)
        return None

    return receive


class _Loader(importlib.abc.Loader):
    """Replaces `pickle` in a module when it has been imported; `python -m` fails with it."""

    def __init__(self, own: Any, replace: Callable[[ModuleType], None]) -> None:
        self._own, self._replace = own, replace

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        self._replace(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds LeRobot's modules that call `pickle`, if they are imported after `install`."""

    def __init__(self, replace: Callable[[ModuleType], None]) -> None:
        self._replace = replace

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname in _MODULES:
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(fullname, path, target)
                if spec is not None:
                    spec.loader = _Loader(spec.loader, self._replace)
                    return spec
        return None


def _replace_lerobot(*, limits: Limits | None = DEFAULT) -> contextlib.ExitStack:
    """Replace the code of the functions, and `pickle` in the modules that call it themselves."""
    from lerobot.transport import utils

    if _sources(utils) != _SOURCE:
        raise _different(f"a function of {utils.__name__}")
    undo = contextlib.ExitStack()
    codec = Codec(limits)
    ours = SimpleNamespace(dumps=codec.encode, loads=codec.decode)

    def replace(module: ModuleType) -> None:
        used = set(re.findall(r"\bpickle\.(\w+)", inspect.getsource(module)))
        own = getattr(module, "pickle", None)
        if not used <= {"dumps", "loads"} or type(own) is not ModuleType:
            raise _different(module.__name__)
        undo.callback(setattr, module, "pickle", own)
        vars(module)["pickle"] = ours

    try:
        for name in _MODULES:
            if name in sys.modules:
                replace(sys.modules[name])
        finder = _Finder(replace)
        sys.meta_path.insert(0, finder)
        undo.callback(sys.meta_path.remove, finder)
        ours.receive = _receiver(codec.limits, utils.TransferState)
        utils._rlwire = ours
        undo.callback(delattr, utils, "_rlwire")
        for name, code in _CODE.items():
            own = getattr(utils, name)
            undo.callback(setattr, own, "__code__", own.__code__)
            own.__code__ = code.__code__
    except BaseException:
        undo.close()
        raise
    return undo


lerobot_drop_in = DropIn(_replace_lerobot)
