from typing import Any, Final, Literal

from numpy.typing import DTypeLike
from typing_extensions import Buffer, disjoint_base

from rlwire.limits import Limits

@disjoint_base
class RLXDecoder:
    copy: Final[bool | None]
    images: Final[Literal["array", "float32"]]
    framed: Final[bool]
    def __init__(
        self,
        *,
        copy: bool | None = True,
        images: Literal["array", "float32"] = "array",
        dialect: Literal["program", "readme"] = "program",
        dtype: DTypeLike | None = None,
        framed: bool = False,
        limits: Limits | None = None,
    ) -> None: ...
    def decode(self, buffer: Buffer) -> dict[str, Any]: ...
    def decode_whole(self, buffer: Buffer, size: int) -> dict[str, Any] | None: ...

def decode(
    buffer: Buffer,
    *,
    copy: bool | None = True,
    images: Literal["array", "float32"] = "array",
    dialect: Literal["program", "readme"] = "program",
    dtype: DTypeLike | None = None,
    framed: bool = False,
    limits: Limits | None = None,
) -> dict[str, Any]: ...
def frame_size(buffer: Buffer, start: int, end: int, limit: int) -> int: ...
def data_offset(buffer: Buffer, start: int, end: int) -> int: ...
