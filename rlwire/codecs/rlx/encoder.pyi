from typing import Any, Final, Literal

from numpy.typing import DTypeLike
from typing_extensions import Buffer, disjoint_base

from rlwire.codecs._output import PartsEncoder
from rlwire.limits import Limits

NONE: Final[object]

@disjoint_base
class RLXEncoder(PartsEncoder):
    framed: Final[bool]
    def __init__(
        self,
        *,
        dialect: Literal["program", "readme"] = "program",
        dtype: DTypeLike | None = None,
        framed: bool = False,
        limits: Limits | None = None,
    ) -> None: ...

def encode(
    message: dict[str, Any],
    *,
    dialect: Literal["program", "readme"] = "program",
    dtype: DTypeLike | None = None,
    framed: bool = False,
    limits: Limits | None = None,
) -> bytes: ...
def encode_into(
    message: dict[str, Any],
    buffer: Buffer,
    offset: int = 0,
    *,
    dialect: Literal["program", "readme"] = "program",
    dtype: DTypeLike | None = None,
    framed: bool = False,
    limits: Limits | None = None,
) -> int: ...
def encode_parts(
    message: dict[str, Any],
    *,
    dialect: Literal["program", "readme"] = "program",
    dtype: DTypeLike | None = None,
    framed: bool = False,
    limits: Limits | None = None,
) -> list[bytes | memoryview]: ...
