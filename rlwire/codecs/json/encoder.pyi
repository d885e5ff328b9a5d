from collections.abc import Callable
from typing import Any, Final, Literal, TypedDict

from typing_extensions import Buffer, Unpack, disjoint_base

from rlwire.limits import Limits

__all__ = ["Encoder", "encode", "encode_into"]

class _Options(TypedDict, total=False):
    nan: Literal["refuse", "null", "words"]
    big_integers: bool
    default: Callable[[Any], Any] | None
    limits: Limits | None

@disjoint_base
class Encoder:
    nan: Final[Literal["refuse", "null", "words"]]
    big_integers: Final[bool]
    default: Final[Callable[[Any], Any] | None]
    limits: Final[Limits]
    def __init__(self, **options: Unpack[_Options]) -> None: ...
    def encode(self, value: Any) -> bytes: ...
    def encode_into(self, value: Any, buffer: Buffer, offset: int = ...) -> int: ...

def encode(value: Any, **options: Unpack[_Options]) -> bytes: ...
def encode_into(
    value: Any, buffer: Buffer, offset: int = 0, **options: Unpack[_Options]
) -> int: ...
