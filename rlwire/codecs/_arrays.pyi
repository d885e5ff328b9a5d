from typing import Any

import numpy as np

def assign(array: np.ndarray[Any, Any], place: int, value: Any) -> bool: ...
