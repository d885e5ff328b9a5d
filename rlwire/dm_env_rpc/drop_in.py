"""The drop-in for the dm_env_rpc package: `rlwire.install("dm_env_rpc")`.

The package converts each array through a Python list. The drop-in converts it through its wire
form, which protobuf reads and writes in C. Values that rlwire's codec rejects go to the package's
own code, which raises its own errors.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rlwire.codecs.dm_env_rpc import AnyMessage, ProtoArray, decode_tensor, encode_tensor
from rlwire.errors import RlwireError
from rlwire.limits import Limits

# The package has no limits, and its values are in memory already.
_LIMITS = Limits(message=2**31, expanded=2**40, string=2**31)

_MESSAGES = (AnyMessage, ProtoArray)

# Payloads that are a single bytes field: the package returns views of them.
_BYTES = {"int8s": np.dtype(np.int8), "uint8s": np.dtype(np.uint8)}


def replace() -> contextlib.ExitStack:
    """Replace the package's packing; functions imported before stay the package's."""
    from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils

    undo = contextlib.ExitStack()
    pack, unpack = tensor_utils.pack_tensor, tensor_utils.unpack_tensor
    undo.callback(setattr, tensor_utils, "pack_tensor", pack)
    undo.callback(setattr, tensor_utils, "unpack_tensor", unpack)
    tensor_utils.pack_tensor = _pack_tensor(pack, dm_env_rpc_pb2)
    tensor_utils.unpack_tensor = _unpack_tensor(unpack, tensor_utils.reshape_array)
    return undo


def _pack_tensor(original: Callable[..., Any], pb2: Any) -> Callable[..., Any]:
    parse = pb2.Tensor.FromString

    @functools.wraps(original, ("__name__", "__doc__"))
    def pack_tensor(value: Any, dtype: Any = None, try_compress: bool = False) -> Any:
        try:
            data = encode_tensor(value, dtype, try_compress=try_compress, limits=_LIMITS)
        except (RlwireError, TypeError, AttributeError):
            return original(value, dtype, try_compress)
        return parse(data)

    return pack_tensor


def _unpack_tensor(original: Callable[..., Any], reshape: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, ("__name__", "__doc__"))
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
