from collections.abc import Callable
from typing import Any, Final

from typing_extensions import disjoint_base

from rlwire.codecs.rlx import Decoder, Encoder

__all__ = ["Node", "Turns"]

_Buffer = bytes | bytearray | memoryview

@disjoint_base
class Node:
    state: Final[Any]
    commands: Final[dict[str, Node]]
    replies: Final[dict[str, Node]]
    reports: Final[bool]
    def __init__(self, state: Any, reports: bool) -> None: ...

@disjoint_base
class Turns:
    _node: Node
    _encode: Final[Callable[[dict[str, Any]], list[bytes | memoryview]]]
    _received: Final[int]
    def __init__(
        self, node: Node, asks: bool, encoder: Encoder, decoder: Decoder, received: int
    ) -> None: ...
    def frame_size(self, buffer: _Buffer, start: int, end: int) -> int: ...
    def send(self, event: dict[str, Any]) -> list[bytes | memoryview]: ...
    def receive(self, message: _Buffer) -> list[dict[str, Any]]: ...
    def receive_whole(self, buffer: _Buffer, size: int) -> list[dict[str, Any]] | None: ...
