from typing import Any, Literal

from rlwire.limits import Limits

__all__ = ["encode"]

def encode(
    value: Any,
    *,
    limits: Limits | None = None,
    big_integers: bool = False,
    nan: Literal["refuse", "null", "words"] = "refuse",
) -> bytes: ...
