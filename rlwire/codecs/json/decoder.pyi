from collections.abc import Mapping
from types import EllipsisType
from typing import Any, Final, Literal, TypeAlias, TypedDict

from numpy.typing import DTypeLike
from typing_extensions import Buffer, Unpack, disjoint_base

from rlwire.limits import Limits

__all__ = ["Decoder", "decode"]

_Path: TypeAlias = tuple[str | EllipsisType, ...]
_Arrays: TypeAlias = (
    Literal["all"]
    | Mapping[str, DTypeLike | None]
    | Mapping[_Path, DTypeLike | None]
    | Mapping[str | _Path, DTypeLike | None]
    | None
)

class _Options(TypedDict, total=False):
    ragged: Literal["refuse", "lists"]
    repeated: Literal["refuse", "first", "last"]
    nan: Literal["refuse", "null", "words"]
    big_integers: bool
    limits: Limits | None

@disjoint_base
class Decoder:
    arrays: Final[Literal["all"] | dict[str | _Path, DTypeLike | None] | None]
    ragged: Final[Literal["refuse", "lists"]]
    repeated: Final[Literal["refuse", "first", "last"]]
    nan: Final[Literal["refuse", "null", "words"]]
    big_integers: Final[bool]
    limits: Final[Limits]
    def __init__(self, *, arrays: _Arrays = None, **options: Unpack[_Options]) -> None: ...
    def decode(self, buffer: Buffer | str) -> Any: ...

def decode(buffer: Buffer | str, *, arrays: _Arrays = None, **options: Unpack[_Options]) -> Any: ...
