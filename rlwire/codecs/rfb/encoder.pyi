from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.pixels import PixelFormat

_Frame: TypeAlias = npt.NDArray[np.uint8]
_Area: TypeAlias = tuple[int, int, int, int]

ENCODINGS: Final[frozenset[Encoding]]

def changed(before: _Frame, after: _Frame, tile: int = 16) -> list[_Area]: ...

@disjoint_base
class RectangleEncoder:
    @property
    def encoding(self) -> Encoding: ...
    @property
    def quality(self) -> int | None: ...
    def __init__(
        self,
        pixel_format: PixelFormat,
        *,
        encoding: int,
        quality: int | None = None,
        compression: int = 1,
    ) -> None: ...
    def encode(self, frame: _Frame, areas: Iterable[_Area]) -> tuple[int, bytes]: ...
