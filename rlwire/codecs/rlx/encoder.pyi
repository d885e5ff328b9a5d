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
