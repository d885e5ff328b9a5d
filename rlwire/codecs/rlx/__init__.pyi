from typing import Any, Final, Literal, TypedDict

from numpy.typing import DTypeLike
from typing_extensions import Buffer, Unpack, disjoint_base

from rlwire.codecs._output import PartsEncoder
from rlwire.limits import Limits

NONE: Final[object]

class _EncoderOptions(TypedDict, total=False):
    dialect: Literal["program", "readme"]
    dtype: DTypeLike | None
    framed: bool
    limits: Limits | None

@disjoint_base
class RLXEncoder(PartsEncoder):
    def __init__(self, **options: Unpack[_EncoderOptions]) -> None: ...

def encode(message: dict[str, Any], **options: Unpack[_EncoderOptions]) -> bytes: ...
def encode_into(
    message: dict[str, Any], buffer: Buffer, offset: int = 0, **options: Unpack[_EncoderOptions]
) -> int: ...
def encode_parts(
    message: dict[str, Any], **options: Unpack[_EncoderOptions]
) -> list[bytes | memoryview]: ...

class _DecoderOptions(_EncoderOptions, total=False):
    copy: bool | None
    images: Literal["array", "float32"]

@disjoint_base
class RLXDecoder:
    def __init__(self, **options: Unpack[_DecoderOptions]) -> None: ...
    def decode(self, buffer: Buffer) -> dict[str, Any]: ...
    def decode_whole(self, buffer: Buffer, size: int) -> dict[str, Any] | None: ...

def decode(buffer: Buffer, **options: Unpack[_DecoderOptions]) -> dict[str, Any]: ...
def frame_size(buffer: Buffer, start: int, end: int, limit: int) -> int: ...
def data_offset(buffer: Buffer, start: int, end: int) -> int: ...
