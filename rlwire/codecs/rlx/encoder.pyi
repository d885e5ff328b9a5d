from typing import Any, Final

from typing_extensions import Buffer, disjoint_base

from rlwire.codecs._output import PartsEncoder
from rlwire.limits import Limits

__all__ = ["NONE", "RLXEncoder", "encode", "encode_into", "encode_parts"]

NONE: Final[object]

@disjoint_base
class RLXEncoder(PartsEncoder):
    framed: Final[bool]
    def __init__(self, *, framed: bool = False, limits: Limits | None = None) -> None: ...

def encode(
    message: dict[str, Any], *, framed: bool = False, limits: Limits | None = None
) -> bytes: ...
def encode_into(
    message: dict[str, Any],
    buffer: Buffer,
    offset: int = 0,
    *,
    framed: bool = False,
    limits: Limits | None = None,
) -> int: ...
def encode_parts(
    message: dict[str, Any], *, framed: bool = False, limits: Limits | None = None
) -> list[bytes | memoryview]: ...
