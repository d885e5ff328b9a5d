from collections.abc import Iterable, Mapping
from typing import Any, Literal

from typing_extensions import Buffer

from rlwire.codecs.dm_env_rpc.specs import SpecManager
from rlwire.codecs.dm_env_rpc.values import EnvironmentStateType

__all__ = [
    "decode_step_request",
    "decode_step_response",
    "encode_step_request",
    "encode_step_response",
]

def encode_step_request(
    manager: SpecManager,
    actions: Mapping[str, Any],
    requested: bytes | Iterable[int] = b"",
    *,
    check_bounds: bool = False,
) -> bytes: ...
def encode_step_response(
    manager: SpecManager,
    state: EnvironmentStateType | int,
    observations: Mapping[str, Any],
    requested: Iterable[int] | None = None,
    *,
    check_bounds: bool = False,
) -> bytes: ...
def decode_step_request(
    manager: SpecManager,
    buffer: Buffer,
    *,
    ignore_actions: bool = False,
    check_bounds: bool = False,
    copy: bool | None = True,
    broadcast: Literal["full", "view"] = "full",
) -> tuple[dict[str, Any], list[int]] | None: ...
def decode_step_response(
    manager: SpecManager,
    buffer: Buffer,
    *,
    check_bounds: bool = False,
    copy: bool | None = True,
    broadcast: Literal["full", "view"] = "full",
) -> tuple[EnvironmentStateType, dict[str, Any]] | None: ...
