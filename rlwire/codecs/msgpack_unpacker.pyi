from collections.abc import Callable
from typing import Any, Literal

from typing_extensions import Buffer, Self, disjoint_base

from rlwire.codecs.msgpack_decoder import _Timestamp
from rlwire.limits import Limits

__all__ = ["Unpacker"]

@disjoint_base
class Unpacker:
    @property
    def max_buffer_size(self) -> int: ...
    @property
    def buffered(self) -> int: ...
    def __init__(
        self,
        *,
        max_buffer_size: int | None = None,
        arrays: bool | Literal["bytes"] = True,
        copy: bool | None = True,
        ext_hook: Callable[[int, bytes], Any] | None = None,
        use_list: bool = True,
        raw: bool = False,
        timestamp: _Timestamp = "timestamp",
        strict_map_key: bool = True,
        object_hook: Callable[[dict[Any, Any]], Any] | None = None,
        object_pairs_hook: Callable[[list[tuple[Any, Any]]], Any] | None = None,
        list_hook: Callable[[list[Any]], Any] | None = None,
        unicode_errors: str = "strict",
        max_str_len: int | None = None,
        max_bin_len: int | None = None,
        max_array_len: int | None = None,
        max_map_len: int | None = None,
        max_ext_len: int | None = None,
        limits: Limits | None = None,
    ) -> None: ...
    def feed(self, buffer: Buffer) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def skip(self) -> bool: ...
    def read_array_header(self) -> int | None: ...
    def read_map_header(self) -> int | None: ...
    def read_bytes(self, count: int) -> bytes: ...
    def tell(self) -> int: ...
