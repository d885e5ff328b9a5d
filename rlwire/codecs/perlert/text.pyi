from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray
from typing_extensions import Buffer

from rlwire.limits import Limits

__all__ = ["text_to_array", "value_to_text"]

def value_to_text(value: Any, *, decimals: int | None = None) -> str: ...
def text_to_array(
    text: str | Buffer,
    dtype: DTypeLike = np.float64,
    *,
    shape: SupportsIndex | tuple[SupportsIndex, ...] | None = None,
    limits: Limits | None = ...,
) -> NDArray[Any]: ...
