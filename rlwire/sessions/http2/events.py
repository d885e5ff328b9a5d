"""What frames mean: events of `Http2Core` for `Http2Session`, and of that for its subclass."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from rlwire.errors import RlwireError

Fields: TypeAlias = list[tuple[str, str]]


class HeaderBlock(NamedTuple):
    number: int
    block: bytes
    end: bool  # of the stream


class ControlFrame(NamedTuple):
    """RST_STREAM, PING, GOAWAY, or the ACK of SETTINGS."""

    kind: int
    flags: int
    number: int
    payload: bytes


class Settings(NamedTuple):
    """The peer's settings, already applied to windows and frames; an ACK is due."""

    values: dict[int, int]


class FrameWithoutStream(NamedTuple):
    """DATA, HEADERS, RST_STREAM or WINDOW_UPDATE for a stream that is not open."""

    kind: int
    number: int


class StreamFailed(NamedTuple):
    """The peer broke a rule on one stream. The subclass learns only of open streams."""

    number: int
    error: RlwireError


class StreamEnded(NamedTuple):
    """DATA with END_STREAM."""

    stream: Any


class LayerFailed(NamedTuple):
    """The layer of a stream raised an error for a message."""

    stream: Any
    error: RlwireError


class Opened(NamedTuple):
    """The peer's first settings were received."""


class HeadersReceived(NamedTuple):
    """Headers or trailers."""

    stream: Any
    fields: Fields
    end: bool


class StreamReset(NamedTuple):
    """The peer has reset the stream, or ignored it (GOAWAY, with a text)."""

    stream: Any
    code: int
    text: str


class StreamLate(NamedTuple):
    """The stream's timeout has passed; or, if `blocked`, the peer opened no window in time."""

    stream: Any
    blocked: bool
    text: str


StreamEvent: TypeAlias = (
    Opened | HeadersReceived | StreamEnded | StreamReset | StreamFailed | LayerFailed
    | StreamLate
)  # fmt: skip
