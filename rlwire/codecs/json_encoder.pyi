from collections.abc import Callable
from typing import Any, Final, Literal

from typing_extensions import Buffer, disjoint_base

from rlwire.limits import Limits

__all__ = ["Encoder", "encode", "encode_into"]

@disjoint_base
class Encoder:
    nan: Final[Literal["refuse", "null", "words"]]
    big_integers: Final[bool]
    default: Final[Callable[[Any], Any] | None]
    limits: Final[Limits]
    def __init__(
        self,
        *,
        nan: Literal["refuse", "null", "words"] = "refuse",
        big_integers: bool = False,
        default: Callable[[Any], Any] | None = None,
        limits: Limits | None = None,
    ) -> None: ...
    def encode(self, value: Any) -> bytes: ...
    def encode_into(self, value: Any, buffer: Buffer, offset: int = ...) -> int: ...

def encode(
    value: Any,
    *,
    nan: Literal["refuse", "null", "words"] = "refuse",
    big_integers: bool = False,
    default: Callable[[Any], Any] | None = None,
    limits: Limits | None = None,
) -> bytes: ...
def encode_into(
    value: Any,
    buffer: Buffer,
    offset: int = 0,
    *,
    nan: Literal["refuse", "null", "words"] = "refuse",
    big_integers: bool = False,
    default: Callable[[Any], Any] | None = None,
    limits: Limits | None = None,
) -> int: ...
