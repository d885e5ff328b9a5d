"""What a frame was besides messages: `Http2Core.frame_event`, to which `Http2Session` reacts."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from rlwire.errors import RlwireError

Fields: TypeAlias = list[tuple[str, str]]


class Frame(NamedTuple):
    """A whole header block, a control frame, DATA that ends its stream, or a closed stream's frame.

    The payload of SETTINGS is the values, already applied to windows and frames. DATA has none.
    """

    kind: int
    flags: int
    number: int
    payload: Any


class StreamFailed(NamedTuple):
    """The peer broke a rule on one stream, which may not be open."""

    number: int
    error: RlwireError


class LayerFailed(NamedTuple):
    """The layer of a stream raised an error for a message."""

    stream: Any
    error: RlwireError
