from typing import Any, SupportsFloat, SupportsIndex

from typing_extensions import Buffer, disjoint_base

from rlwire.limits import Limits

__all__ = ["StepWriter", "encode", "encode_into"]

def encode(message: Any, *, limits: Limits | None = ...) -> bytes: ...
def encode_into(
    message: Any, buffer: Buffer, offset: int = 0, *, limits: Limits | None = ...
) -> int: ...

@disjoint_base
class StepWriter:
    def __init__(
        self,
        name: str,
        number: SupportsIndex,
        *,
        decimals: int | None = None,
        limits: Limits | None = ...,
    ) -> None: ...
    def write(
        self,
        timestamp: SupportsIndex,
        step: SupportsIndex,
        observation: Any,
        reward: SupportsFloat | str,
        done: bool,
        extra: Any = None,
    ) -> bytes: ...
