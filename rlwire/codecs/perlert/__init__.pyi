from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray
from typing_extensions import Buffer, disjoint_base

from rlwire.codecs.perlert.mappings import *
from rlwire.codecs.perlert.messages import *
from rlwire.limits import Limits

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

def value_to_text(value: Any, *, decimals: int | None = None) -> str: ...
def text_to_array(
    text: str | Buffer,
    dtype: DTypeLike = np.float64,
    *,
    shape: SupportsIndex | tuple[SupportsIndex, ...] | None = None,
    limits: Limits | None = ...,
) -> NDArray[Any]: ...
