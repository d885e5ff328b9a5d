from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from rlwire.codecs.dm_env_rpc.values import DataType

__all__ = ["data_type", "numpy_dtype"]

def data_type(dtype: DTypeLike) -> DataType: ...
def numpy_dtype(data_type: int) -> np.dtype[Any]: ...
