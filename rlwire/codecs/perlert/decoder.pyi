from typing import Any, SupportsIndex

from typing_extensions import Buffer, disjoint_base

from rlwire.codecs.perlert.values import (
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

__all__ = ["StepReader", "decode_client_message", "decode_server_message", "peek_header"]

def decode_client_message(
    buffer: Buffer, *, limits: Limits | None = ..., raw: bool = False
) -> LobbyRequest | Register | Ready | Action: ...
def decode_server_message(
    buffer: Buffer, *, limits: Limits | None = ..., raw: bool = False
) -> LobbyInformation | Registered | LobbyMessage | Start | RolloutStep: ...
def peek_header(buffer: Buffer) -> tuple[str, int] | None: ...

@disjoint_base
class StepReader:
    def __init__(
        self, name: str, number: SupportsIndex, *, limits: Limits | None = ..., raw: bool = False
    ) -> None: ...
    def read(self, buffer: Buffer) -> tuple[int, int, Any, float | str, bool, Any] | None: ...
