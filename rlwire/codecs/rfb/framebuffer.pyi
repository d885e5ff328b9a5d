from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from rlwire.limits import Limits

@disjoint_base
class Framebuffer:
    pixels: Final[NDArray[np.uint8]]
    width: Final[int]
    height: Final[int]
    channels: Final[int]
    def __init__(
        self, width: int, height: int, *, channels: int = 3, limits: Limits | None = None
    ) -> None: ...
    def _made(self, width: int, height: int) -> NDArray[np.uint8]: ...
    def resize(self, width: int, height: int) -> None: ...
    def snapshot(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]: ...
