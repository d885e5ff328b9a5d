from typing import Final

from typing_extensions import Buffer, Self, disjoint_base

DEBUG: Final[bool]

def live_blocks() -> int: ...

@disjoint_base
class Block(Buffer):
    size: Final[int]
    def __new__(cls, size: int) -> Self: ...
    def __len__(self) -> int: ...

@disjoint_base
class Arena:
    keep: Final[int]
    def __new__(cls, keep: int = ...) -> Self: ...
    def take(self, size: int) -> Block: ...
