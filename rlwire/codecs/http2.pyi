from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from typing_extensions import Buffer, disjoint_base

from rlwire.errors import DecodeError
from rlwire.limits import Limits

__all__ = [
    "ACK",
    "CANCEL",
    "CHAFF",
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
    "Compressed",
    "Endpoint",
    "Http2Error",
    "Stream",
    "code_name",
    "frame",
    "frame_head",
    "goaway",
    "ping",
    "reset",
    "settings",
    "window_update",
]

ACK: Final = 1
CANCEL: Final = 8
CHAFF: Final = 10000
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

class Http2Error(DecodeError):
    code: int
    stream: int
    said: str
    def __init__(self, reason: str, code: int, stream: int = 0, *, offset: int = 0) -> None: ...

class Compressed(DecodeError): ...

def code_name(code: int) -> str: ...
def frame(kind: int, flags: int, stream: int, payload: Buffer = b"") -> bytes: ...
def frame_head(buffer: Buffer, start: int = 0) -> tuple[int, int, int, int]: ...
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
    send_window: Final[int]
    receive_window: Final[int]
    waiting: Final[int]
    def __init__(
        self,
        number: int,
        read: Callable[[Any], list[Any]] | None = None,
        find_data: Callable[[Any, int, int], int] | None = None,
    ) -> None: ...
    @property
    def partial(self) -> int: ...

@disjoint_base
class Endpoint:
    client: Final[bool]
    listening: bool
    heard: bool
    mute: str | None
    streams: Final[dict[int, Any]]
    said: list[bytes | bytearray | memoryview]
    frame_limit: Final[int]
    peer_frame: Final[int]
    peer_window: Final[int]
    send_window: Final[int]
    receive_window: Final[int]
    window: Final[int]
    connection_window: Final[int]
    chaff: int
    max_sent: int
    assembling: Final[int]
    def __init__(
        self,
        client: bool,
        limits: Limits | None = None,
        window: int | None = None,
        connection_window: int | None = None,
    ) -> None: ...
    def first_words(self, others: Mapping[int, int] | None = None) -> bytes: ...
    def add(self, stream: Stream) -> None: ...
    def drop(self, stream: Stream) -> None: ...
    def hold(self, stream: Stream, held: bool = True) -> None: ...
    def frame_size(self, buffer: Buffer, start: int, end: int) -> int: ...
    def data_offset(self, buffer: Buffer, start: int, end: int) -> int: ...
    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None: ...
    def receive(self, frame: Buffer) -> list[Any]: ...
    def headers(self, stream: int, block: bytes, end: bool = False) -> bytes: ...
    def message(
        self, stream: Stream, parts: Buffer | Sequence[Buffer]
    ) -> list[bytes | bytearray | memoryview]: ...
    def send(self, event: Any) -> list[bytes | bytearray | memoryview]: ...
    def after(
        self, stream: Stream, then: Callable[[], list[bytes | bytearray | memoryview]]
    ) -> list[bytes | bytearray | memoryview]: ...
    def finish(self, stream: Stream) -> list[bytes | bytearray | memoryview]: ...
    def outgoing(self) -> list[bytes | bytearray | memoryview]: ...
    def _attach(self, stream: Stream, meaning: Any, write: Callable[[Any], Any] | None) -> None: ...
    def _last_words(
        self, buffers: list[bytes | bytearray | memoryview]
    ) -> list[bytes | bytearray | memoryview]: ...
    def _headers(self, number: int, block: bytes, end: bool) -> list[Any]: ...
    def _control(self, kind: int, flags: int, number: int, payload: bytes) -> list[Any]: ...
    def _settled(self, changes: dict[int, int]) -> list[Any]: ...
    def _ended(self, stream: Any) -> list[Any]: ...
    def _stray(self, kind: int, number: int, end: bool) -> list[Any]: ...
    def _stream_failed(self, number: int, error: Exception) -> list[Any]: ...
    def _inner_failed(self, stream: Any, error: Exception) -> list[Any]: ...
