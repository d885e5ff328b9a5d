from typing import Any

from numpy.typing import DTypeLike, NDArray
from typing_extensions import Buffer

from rlwire.limits import Limits

__all__ = ["decode", "decode_array"]

def decode(
    buffer: Buffer | str,
    *,
    limits: Limits | None = None,
    big_integers: bool = False,
    last_wins: bool = False,
) -> Any: ...
def decode_array(
    buffer: Buffer | str, dtype: DTypeLike | None = None, *, limits: Limits | None = None
) -> NDArray[Any]: ...
