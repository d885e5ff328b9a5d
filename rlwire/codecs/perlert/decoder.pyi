from typing import SupportsIndex

from typing_extensions import Buffer, disjoint_base

from rlwire.codecs.perlert.messages import (
    LobbyInformation,
    LobbyMessage,
    LobbyRequest,
    Ready,
    Register,
    Registered,
    Start,
)
from rlwire.codecs.perlert.values import Action, RolloutStep
from rlwire.limits import Limits

__all__ = ["StepReader", "decode_client_message", "decode_server_message"]

def decode_client_message(
    buffer: Buffer, *, limits: Limits | None = ...
) -> LobbyRequest | Register | Ready | Action: ...
def decode_server_message(
    buffer: Buffer, *, limits: Limits | None = ...
) -> LobbyInformation | Registered | LobbyMessage | Start | RolloutStep: ...

@disjoint_base
class StepReader:
    def __init__(
        self, name: str, number: SupportsIndex, *, limits: Limits | None = ...
    ) -> None: ...
    def read(
        self, buffer: Buffer
    ) -> tuple[int, int, str, float | str, bool, str | None] | None: ...
