# The C functions are declared in the .pxd.
from typing import Any

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class PartsEncoder:
    def encode(self, value: Any) -> bytes: ...
    def encode_into(self, value: Any, buffer: Buffer, offset: int = ...) -> int: ...
    def encode_parts(self, value: Any) -> list[bytes | memoryview]: ...
