from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from typing_extensions import Buffer, disjoint_base

from rlwire.errors import DecodeError
from rlwire.limits import Limits

__all__ = [
    "BINARY",
    "CLOSE",
    "CONTINUATION",
    "PING",
    "PONG",
    "TEXT",
    "Framer",
    "NotText",
    "Text",
    "WebSocketEndpoint",
    "decode_close",
    "encode_close",
    "mask",
]

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

class NotText(DecodeError): ...

@disjoint_base
class Framer:
    client: Final[bool]
    kind: Final[Literal["any", "binary", "text"]]
    def __init__(
        self,
        client: bool,
        kind: Literal["any", "binary", "text"] = "any",
        limits: Limits | None = None,
    ) -> None: ...
    def frame_size(self, buffer: Buffer, start: int, end: int, room: int | None = None) -> int: ...
    def data_offset(self, buffer: Buffer, start: int, end: int) -> int: ...
    def whole(
        self, buffer: Buffer, size: int, own: bool = False
    ) -> bytes | memoryview | str | None: ...
    def text(self, payload: Buffer) -> str: ...
    def take(self, frame: Buffer) -> tuple[int, bool, bytes | memoryview]: ...
    def message(
        self, message: str | Buffer | Sequence[Buffer]
    ) -> list[bytes | bytearray | memoryview]: ...
    def frame(self, opcode: int, payload: Buffer = b"", fin: bool = True) -> bytes: ...

@disjoint_base
class WebSocketEndpoint(Framer):
    listening: bool
    heard: bool
    mute: str | None
    def send(self, event: Any) -> list[bytes | bytearray | memoryview]: ...
    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None: ...
    def receive(self, frame: Buffer) -> list[Any]: ...
    def _take_in(self, message: Any) -> list[Any]: ...
    def _attach(
        self,
        meaning: Any,
        read: Callable[[Any], list[Any]] | None,
        write: Callable[[Any], Any] | None,
    ) -> None: ...
    def _last(
        self, buffers: list[bytes | bytearray | memoryview]
    ) -> list[bytes | bytearray | memoryview]: ...

@disjoint_base
class Text:
    def feed(self, piece: Buffer) -> None: ...
    def end(self) -> None: ...

def encode_close(code: int, reason: str = "") -> bytes: ...
def decode_close(payload: Buffer) -> tuple[int, str]: ...
def mask(data: Buffer, key: Buffer, phase: int = 0) -> bytes: ...
