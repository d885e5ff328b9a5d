from collections.abc import Callable
from typing import Any, Literal

from typing_extensions import Buffer, disjoint_base

from rlwire.limits import Limits

__all__ = ["Decoder", "decode"]

_Timestamp = Literal["timestamp", "float", "int", "datetime"] | Callable[[int, int], Any]

@disjoint_base
class Decoder:
    @property
    def arrays(self) -> bool | Literal["bytes"]: ...
    @property
    def copy(self) -> bool | None: ...
    @property
    def ext_hook(self) -> Callable[[int, bytes], Any] | None: ...
    @property
    def use_list(self) -> bool: ...
    @property
    def raw(self) -> bool: ...
    @property
    def timestamp(self) -> _Timestamp: ...
    @property
    def strict_map_key(self) -> bool: ...
    @property
    def object_hook(self) -> Callable[[dict[Any, Any]], Any] | None: ...
    @property
    def object_pairs_hook(self) -> Callable[[list[tuple[Any, Any]]], Any] | None: ...
    @property
    def list_hook(self) -> Callable[[list[Any]], Any] | None: ...
    @property
    def unicode_errors(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    def __init__(
        self,
        *,
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
    def decode(self, buffer: Buffer) -> Any: ...
    def decode_first(self, buffer: Buffer, offset: int = ...) -> tuple[Any, int]: ...

def decode(
    buffer: Buffer,
    *,
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
) -> Any: ...
