from collections.abc import Iterator
from typing import Final

from typing_extensions import Buffer, disjoint_base

from rlwire.codecs.rfb.framebuffer import Framebuffer
from rlwire.codecs.rfb.pixels import PixelFormat
from rlwire.limits import Limits

@disjoint_base
class Rectangle:
    x: Final[int]
    y: Final[int]
    width: Final[int]
    height: Final[int]
    encoding: Final[int]
    payload: Final[bytes | None]
    def __init__(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        encoding: int,
        payload: bytes | None = None,
    ) -> None: ...
    def __iter__(self) -> Iterator[int]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@disjoint_base
class RectangleDecoder:
    framebuffer: Final[Framebuffer]
    inflaters: Final[tuple[str, str]]
    counted: Final[int]
    ended: Final[bool]
    painted: Final[int]
    @property
    def most(self) -> int: ...
    @property
    def pixel_format(self) -> PixelFormat: ...
    @pixel_format.setter
    def pixel_format(self, value: PixelFormat) -> None: ...
    def __init__(
        self,
        framebuffer: Framebuffer,
        pixel_format: PixelFormat,
        *,
        limits: Limits | None = None,
        inflater: str | None = None,
    ) -> None: ...
    def size(self, buffer: Buffer, start: int, end: int, most: int = 1) -> int: ...
    def paint(
        self, buffer: Buffer, offset: int, count: int, painted: int = 0
    ) -> list[Rectangle]: ...
    def decode(self, buffer: Buffer, offset: int = 0) -> Rectangle: ...
