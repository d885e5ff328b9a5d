from collections.abc import Callable
from typing import Any, Literal, TypedDict

from typing_extensions import Buffer, Unpack, disjoint_base

from rlwire.codecs._output import PartsEncoder
from rlwire.codecs.msgpack.values import ExtType as ExtType
from rlwire.codecs.msgpack.values import Timestamp as Timestamp
from rlwire.limits import Limits

class _EncoderOptions(TypedDict, total=False):
    arrays: Literal["msgpack_numpy", "openpi"]
    default: Callable[[Any], Any] | None
    strict_types: bool
    align: bool
    limits: Limits | None

@disjoint_base
class Encoder(PartsEncoder):
    def __init__(self, **options: Unpack[_EncoderOptions]) -> None: ...

def encode(value: Any, **options: Unpack[_EncoderOptions]) -> bytes: ...
def encode_into(
    value: Any, buffer: Buffer, offset: int = 0, **options: Unpack[_EncoderOptions]
) -> int: ...
def encode_parts(value: Any, **options: Unpack[_EncoderOptions]) -> list[bytes | memoryview]: ...

class _DecoderOptions(TypedDict, total=False):
    arrays: bool | Literal["bytes"]
    copy: bool | None
    ext_hook: Callable[[int, bytes], Any] | None
    timestamp: Callable[[int, int], Any] | None
    strict_map_key: bool
    limits: Limits | None

@disjoint_base
class Decoder:
    def __init__(self, **options: Unpack[_DecoderOptions]) -> None: ...
    def decode(self, buffer: Buffer) -> Any: ...

def decode(buffer: Buffer, **options: Unpack[_DecoderOptions]) -> Any: ...
