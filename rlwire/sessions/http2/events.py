"""What a frame was besides messages: `Http2Core.frame_event`, to which `Http2Session` reacts."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from rlwire.errors import RlwireError

Fields: TypeAlias = list[tuple[str, str]]


class Frame(NamedTuple):
    """A whole header block, a control frame, or a frame for a stream that is not open.

    The payload of SETTINGS is the values, already applied to windows and frames. It is empty if the
    stream is not open, except that of RST_STREAM.
    """

    kind: int
    flags: int
    number: int
    payload: Any


class StreamFailed(NamedTuple):
    """The peer broke a rule on one stream, which may not be open."""

    number: int
    error: RlwireError


class StreamEnded(NamedTuple):
    """DATA with END_STREAM."""

    stream: Any


class LayerFailed(NamedTuple):
    """The layer of a stream raised an error for a message."""

    stream: Any
    error: RlwireError
