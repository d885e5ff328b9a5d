from typing import Any

from numpy.typing import DTypeLike
from typing_extensions import Buffer

from rlwire.codecs.dm_env_rpc.values import DataType
from rlwire.limits import Limits

__all__ = ["encode_payload", "encode_tensor", "encode_tensor_into", "encode_tensor_parts"]

def encode_tensor(
    value: Any,
    dtype: DTypeLike | DataType | None = None,
    *,
    try_compress: bool = False,
    limits: Limits | None = None,
) -> bytes: ...
def encode_tensor_into(
    value: Any,
    buffer: Buffer,
    offset: int = 0,
    dtype: DTypeLike | DataType | None = None,
    *,
    try_compress: bool = False,
    limits: Limits | None = None,
) -> int: ...
def encode_tensor_parts(
    value: Any,
    dtype: DTypeLike | DataType | None = None,
    *,
    try_compress: bool = False,
    limits: Limits | None = None,
) -> list[bytes | memoryview]: ...
def encode_payload(
    value: Any,
    dtype: DTypeLike | DataType | None = None,
    *,
    limits: Limits | None = None,
) -> bytes: ...
