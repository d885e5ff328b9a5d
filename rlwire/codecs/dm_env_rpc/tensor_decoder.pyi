from typing import Any, Literal

from numpy.typing import DTypeLike
from typing_extensions import Buffer

from rlwire.codecs.dm_env_rpc.values import DataType
from rlwire.limits import Limits

__all__ = ["decode_payload", "decode_tensor"]

def decode_tensor(
    buffer: Buffer,
    *,
    copy: bool | None = True,
    broadcast: Literal["full", "view"] = "full",
    limits: Limits | None = None,
) -> Any: ...
def decode_payload(
    buffer: Buffer,
    dtype: DTypeLike | DataType,
    *,
    copy: bool | None = True,
    limits: Limits | None = None,
) -> Any: ...
