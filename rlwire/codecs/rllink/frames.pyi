from typing import Any, Final, TypeVar

from typing_extensions import Buffer

from rlwire.codecs.msgpack import Encoder

_T = TypeVar("_T")

HEAD: Final = 8
FRAME_MAXIMUM: Final = 100_000_007

def frame_size(
    buffer: Buffer, start: int, end: int, maximum: int = ..., limit: str = "received"
) -> int: ...
def framed(body: bytes) -> bytes: ...

class FrameEncoder(Encoder):
    def episodes_parts(
        self, name: str, message: Any, kind: type[Any]
    ) -> list[bytes | memoryview] | None: ...

def plain_episode(given: Any, kind: type[_T], number: int | None) -> _T | None: ...
