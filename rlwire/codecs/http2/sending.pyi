from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from typing_extensions import Buffer, disjoint_base

__all__ = [
    "ACK",
    "CANCEL",
    "CODES",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "CONTINUATION",
    "DATA",
    "ENABLE_PUSH",
    "END_HEADERS",
    "END_STREAM",
    "ENHANCE_YOUR_CALM",
    "FLOW_CONTROL_ERROR",
    "FRAME_SIZE_ERROR",
    "GOAWAY",
    "HEADERS",
    "HEADER_TABLE_SIZE",
    "HTTP_1_1_REQUIRED",
    "INADEQUATE_SECURITY",
    "INITIAL_WINDOW_SIZE",
    "INTERNAL_ERROR",
    "MAX_CONCURRENT_STREAMS",
    "MAX_FRAME_SIZE",
    "MAX_HEADER_LIST_SIZE",
    "NO_ERROR",
    "PADDED",
    "PING",
    "PREFACE",
    "PRIORITIZED",
    "PRIORITY",
    "PROTOCOL_ERROR",
    "PUSH_PROMISE",
    "REFUSED_STREAM",
    "RST_STREAM",
    "SETTINGS",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "TYPES",
    "WINDOW_UPDATE",
    "Sender",
    "Stream",
    "frame",
    "goaway",
    "ping",
    "reset",
    "settings",
    "window_update",
]

ACK: Final = 1
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
CONNECT_ERROR: Final = 10
CONTINUATION: Final = 9
DATA: Final = 0
ENABLE_PUSH: Final = 2
END_HEADERS: Final = 4
END_STREAM: Final = 1
ENHANCE_YOUR_CALM: Final = 11
FLOW_CONTROL_ERROR: Final = 3
FRAME_SIZE_ERROR: Final = 6
GOAWAY: Final = 7
HEADERS: Final = 1
HEADER_TABLE_SIZE: Final = 1
HTTP_1_1_REQUIRED: Final = 13
INADEQUATE_SECURITY: Final = 12
INITIAL_WINDOW_SIZE: Final = 4
INTERNAL_ERROR: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6
NO_ERROR: Final = 0
PADDED: Final = 8
PING: Final = 6
PRIORITIZED: Final = 32
PRIORITY: Final = 2
PROTOCOL_ERROR: Final = 1
PUSH_PROMISE: Final = 5
REFUSED_STREAM: Final = 7
RST_STREAM: Final = 3
SETTINGS: Final = 4
SETTINGS_TIMEOUT: Final = 4
STREAM_CLOSED: Final = 5
WINDOW_UPDATE: Final = 8

CODES: Final[tuple[str, ...]]
TYPES: Final[tuple[str, ...]]
PREFACE: Final[bytes]

def frame(kind: int, flags: int, stream: int, payload: Buffer = b"") -> bytes: ...
def settings(values: Mapping[int, int]) -> bytes: ...
def window_update(stream: int, more: int) -> bytes: ...
def reset(stream: int, code: int) -> bytes: ...
def ping(data: Buffer = ..., ack: bool = False) -> bytes: ...
def goaway(last: int, code: int = 0, reason: str = "") -> bytes: ...

@disjoint_base
class Stream:
    number: Final[int]
    read: Callable[[Any], list[Any]] | None
    find_data: Callable[[Any, int, int], int] | None
    receiving: bool
    sending: bool
    held: Final[bool]
    gone: Final[bool]
    promised: int
    came: Final[int]
    send_window: Final[int]
    receive_window: Final[int]
    waiting: Final[int]
    gone_out: Final[int]
    def __init__(
        self,
        number: int,
        read: Callable[[Any], list[Any]] | None = None,
        find_data: Callable[[Any, int, int], int] | None = None,
    ) -> None: ...
    @property
    def partial(self) -> int: ...

@disjoint_base
class Sender:
    mute: str | None
    streams: Final[dict[int, Any]]
    said: list[bytes | bytearray | memoryview]
    peer_frame: Final[int]
    peer_window: Final[int]
    send_window: Final[int]
    chaff: int
    max_sent: int
    unsent: Final[int]
    max_unsent: int
    def headers(self, stream: int, block: bytes, end: bool = False) -> bytes: ...
    def message(
        self, stream: Stream, parts: Buffer | Sequence[Buffer]
    ) -> list[bytes | bytearray | memoryview]: ...
    def send(self, event: Any) -> list[bytes | bytearray | memoryview]: ...
    def after(
        self, stream: Stream, then: Callable[[], list[bytes | bytearray | memoryview]]
    ) -> list[bytes | bytearray | memoryview]: ...
    def check(self, parts: Sequence[bytes | bytearray | memoryview]) -> int: ...
    def check_unsent(self) -> None: ...
    def finish(self, stream: Stream) -> list[bytes | bytearray | memoryview]: ...
    def outgoing(self) -> list[bytes | bytearray | memoryview]: ...
    def _attach(self, stream: Stream, meaning: Any, write: Callable[[Any], Any] | None) -> None: ...
    def _last_words(
        self, buffers: list[bytes | bytearray | memoryview]
    ) -> list[bytes | bytearray | memoryview]: ...
