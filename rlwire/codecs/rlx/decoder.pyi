from typing import Any, Literal, TypedDict

from numpy.typing import DTypeLike
from typing_extensions import Buffer, Unpack, disjoint_base

from rlwire.limits import Limits

class _DecoderOptions(TypedDict, total=False):
    copy: bool | None
    images: Literal["array", "float32"]
    dialect: Literal["program", "readme"]
    dtype: DTypeLike | None
    framed: bool
    limits: Limits | None

@disjoint_base
class RLXDecoder:
    def __init__(self, **options: Unpack[_DecoderOptions]) -> None: ...
    def decode(self, buffer: Buffer) -> dict[str, Any]: ...
    def decode_whole(self, buffer: Buffer, size: int) -> dict[str, Any] | None: ...

def decode(buffer: Buffer, **options: Unpack[_DecoderOptions]) -> dict[str, Any]: ...
def frame_size(buffer: Buffer, start: int, end: int, limit: int) -> int: ...
def data_offset(buffer: Buffer, start: int, end: int) -> int: ...
