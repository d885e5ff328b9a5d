from typing import Any, SupportsFloat, SupportsIndex

from typing_extensions import Buffer, disjoint_base

from rlwire.codecs.perlert.messages import (
    Action,
    LobbyInformation,
    LobbyMessage,
    LobbyRequest,
    Ready,
    Register,
    Registered,
    RolloutStep,
    Start,
)
from rlwire.limits import Limits

__all__ = ["StepWriter", "decode_client_message", "decode_server_message", "encode", "encode_into"]

def encode(message: Any, *, limits: Limits | None = ...) -> bytes: ...
def encode_into(
    message: Any, buffer: Buffer, offset: int = 0, *, limits: Limits | None = ...
) -> int: ...
def decode_client_message(
    buffer: Buffer, *, limits: Limits | None = ...
) -> LobbyRequest | Register | Ready | Action: ...
def decode_server_message(
    buffer: Buffer, *, limits: Limits | None = ...
) -> LobbyInformation | Registered | LobbyMessage | Start | RolloutStep: ...
def decode_step(
    buffer: Buffer, *, limits: Limits | None = ...
) -> tuple[str, int, int, int, str, float | str, bool, str | None] | None: ...

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
