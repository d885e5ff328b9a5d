from collections.abc import Callable
from typing import Any, Final, Literal, TypedDict

from typing_extensions import Buffer, Unpack, disjoint_base

from rlwire.limits import Limits

class _Options(TypedDict, total=False):
    arrays: bool | Literal["bytes"]
    copy: bool | None
    ext_hook: Callable[[int, bytes], Any] | None
    timestamp: Callable[[int, int], Any] | None
    strict_map_key: bool
    limits: Limits | None

@disjoint_base
class Decoder:
    arrays: Final[bool | Literal["bytes"]]
    copy: Final[bool | None]
    ext_hook: Final[Callable[[int, bytes], Any] | None]
    timestamp: Final[Callable[[int, int], Any] | None]
    strict_map_key: Final[bool]
    limits: Final[Limits]
    def __init__(self, **options: Unpack[_Options]) -> None: ...
    def decode(self, buffer: Buffer) -> Any: ...

def decode(buffer: Buffer, **options: Unpack[_Options]) -> Any: ...
