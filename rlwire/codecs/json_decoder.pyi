from collections.abc import Mapping
from types import EllipsisType
from typing import Any, Final, Literal

from numpy.typing import DTypeLike
from typing_extensions import Buffer, disjoint_base

from rlwire.limits import Limits

__all__ = ["Decoder", "decode"]

@disjoint_base
class Decoder:
    arrays: Final[
        Literal["all"] | dict[str | tuple[str | EllipsisType, ...], DTypeLike | None] | None
    ]
    ragged: Final[Literal["refuse", "lists"]]
    repeated: Final[Literal["refuse", "first", "last"]]
    nan: Final[Literal["refuse", "null", "words"]]
    big_integers: Final[bool]
    limits: Final[Limits]
    def __init__(
        self,
        *,
        arrays: Literal["all"]
        | Mapping[str, DTypeLike | None]
        | Mapping[tuple[str | EllipsisType, ...], DTypeLike | None]
        | Mapping[str | tuple[str | EllipsisType, ...], DTypeLike | None]
        | None = None,
        ragged: Literal["refuse", "lists"] = "refuse",
        repeated: Literal["refuse", "first", "last"] = "refuse",
        nan: Literal["refuse", "null", "words"] = "refuse",
        big_integers: bool = False,
        limits: Limits | None = None,
    ) -> None: ...
    def decode(self, buffer: Buffer | str) -> Any: ...

def decode(
    buffer: Buffer | str,
    *,
    arrays: Literal["all"]
    | Mapping[str, DTypeLike | None]
    | Mapping[tuple[str | EllipsisType, ...], DTypeLike | None]
    | Mapping[str | tuple[str | EllipsisType, ...], DTypeLike | None]
    | None = None,
    ragged: Literal["refuse", "lists"] = "refuse",
    repeated: Literal["refuse", "first", "last"] = "refuse",
    nan: Literal["refuse", "null", "words"] = "refuse",
    big_integers: bool = False,
    limits: Limits | None = None,
) -> Any: ...
