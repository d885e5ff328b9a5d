from collections.abc import Callable
from typing import Any, Final, Literal, TypedDict

from typing_extensions import Buffer, Unpack, disjoint_base

from rlwire.codecs._output import PartsEncoder
from rlwire.limits import Limits

class _Options(TypedDict, total=False):
    arrays: Literal["msgpack_numpy", "openpi", "refuse"]
    default: Callable[[Any], Any] | None
    strict_types: bool
    limits: Limits | None

@disjoint_base
class Encoder(PartsEncoder):
    arrays: Final[Literal["msgpack_numpy", "openpi", "refuse"]]
    default: Final[Callable[[Any], Any] | None]
    strict_types: Final[bool]
    def __init__(self, **options: Unpack[_Options]) -> None: ...

def encode(value: Any, **options: Unpack[_Options]) -> bytes: ...
def encode_into(
    value: Any, buffer: Buffer, offset: int = 0, **options: Unpack[_Options]
) -> int: ...
def encode_parts(value: Any, **options: Unpack[_Options]) -> list[bytes | memoryview]: ...
