"""The packing of the dm_env_rpc package, replaced: `rlwire.install("dm_env_rpc")`.

Its `pack_tensor` and `unpack_tensor` go through a Python list for each array; here an array goes
through its wire form, which protobuf reads and writes in C. Functions, packers and error types
stay those of the package: what rlwire's codec refuses, the package's own code is asked about, so
that it raises what it always raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from rlwire.codecs.dm_env_rpc import (
    AnyMessage,
    ProtoArray,
    decode_payload,
    decode_tensor,
    encode_payload,
    encode_tensor,
)
from rlwire.errors import RlwireError
from rlwire.limits import Limits

logger = logging.getLogger(__name__)

# The package has no limits of its own, and its values are in memory already.
_LIMITS = Limits(message=2**31, expanded=2**40, string=2**31)

_MESSAGES = (AnyMessage, ProtoArray)

# Payloads that are one field of bytes: the package views them, so there is nothing to decode.
_BYTES = {"int8s": np.dtype(np.int8), "uint8s": np.dtype(np.uint8)}

_originals: list[tuple[Any, str, Any]] = []


def install(*, transport: bool = False) -> None:
    """Replace the package's packing, and what its connections go over; again does nothing.

    Names that a program has imported from the package before (``from ... import pack_tensor``)
    stay the package's own functions; they become faster too, because the packers that they call
    are replaced, though by less.
    """
    replaced = [name for _owner, name, _original in _originals]
    if transport and "insecure_channel" not in replaced:
        from rlwire.dm_env_rpc import drop_in_transport

        for owner, name, replacement in drop_in_transport.replacements():
            _originals.append((owner, name, getattr(owner, name)))
            setattr(owner, name, replacement)
    if "pack_tensor" in replaced:
        return
    from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils

    names = ("_RepeatedFieldPacker", "_RepeatedStringFieldPacker", "pack_tensor", "unpack_tensor")
    absent = [name for name in names if not hasattr(tensor_utils, name)]
    if absent:
        raise RuntimeError(
            f"this dm_env_rpc has no tensor_utils.{absent[0]}: rlwire's drop-in is made for "
            f"version 1.1"
        )
    _replace(tensor_utils, "pack_tensor", _pack_tensor(tensor_utils.pack_tensor, dm_env_rpc_pb2))
    _replace(
        tensor_utils,
        "unpack_tensor",
        _unpack_tensor(tensor_utils.unpack_tensor, tensor_utils.reshape_array),
    )
    for name in names[:2]:
        packer = getattr(tensor_utils, name)
        _replace(packer, "pack", _pack(packer.pack))
        _replace(packer, "unpack", _unpack(packer.unpack))
    logger.debug("dm_env_rpc packs with rlwire now")


def uninstall() -> None:
    """Give the package its own packing back; does nothing where `install` was not called."""
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    replacement.__name__ = name
    replacement.__doc__ = original.__doc__
    replacement.__module__ = __name__
    _originals.append((owner, name, original))
    setattr(owner, name, replacement)


def _pack_tensor(original: Callable[..., Any], pb2: Any) -> Callable[..., Any]:
    parse = pb2.Tensor.FromString

    def pack_tensor(value: Any, dtype: Any = None, try_compress: bool = False) -> Any:
        try:
            data = encode_tensor(value, dtype, try_compress=try_compress, limits=_LIMITS)
        except (RlwireError, TypeError, AttributeError):
            return original(value, dtype, try_compress)
        return parse(data)

    return pack_tensor


def _unpack_tensor(original: Callable[..., Any], reshape: Callable[..., Any]) -> Callable[..., Any]:
    def unpack_tensor(tensor_proto: Any) -> Any:
        try:
            payload = tensor_proto.WhichOneof("payload")
            if payload in _BYTES:
                array = np.frombuffer(getattr(tensor_proto, payload).array, _BYTES[payload])
                if array.size != 1:
                    return reshape(array, tensor_proto.shape)
            value = decode_tensor(tensor_proto.SerializeToString(), limits=_LIMITS)
        except (RlwireError, TypeError, AttributeError):
            return original(tensor_proto)
        # Messages stay protobuf's own objects.
        return original(tensor_proto) if isinstance(value, _MESSAGES) else value

    return unpack_tensor


def _pack(original: Callable[..., Any]) -> Callable[..., Any]:
    def pack(self: Any, proto: Any, value: Any) -> None:
        try:
            data = encode_payload(value.ravel(), limits=_LIMITS)
        except (RlwireError, TypeError, AttributeError):
            original(self, proto, value)
            return
        getattr(proto, self.name).MergeFromString(data)

    return pack


def _unpack(original: Callable[..., Any]) -> Callable[..., Any]:
    def unpack(self: Any, proto: Any) -> Any:
        payload = getattr(proto, self.name)
        try:
            return decode_payload(payload.SerializeToString(), self.np_type, limits=_LIMITS)
        except (RlwireError, TypeError, AttributeError):
            return original(self, proto)

    return unpack
