from collections.abc import Callable
from typing import Any, Final, Literal

from typing_extensions import Buffer, disjoint_base

from rlwire.limits import Limits

__all__ = ["Decoder", "decode"]

_Timestamp = Literal["timestamp", "float", "int", "datetime"] | Callable[[int, int], Any]

@disjoint_base
class Decoder:
    arrays: Final[bool | Literal["bytes"]]
    copy: Final[bool | None]
    ext_hook: Final[Callable[[int, bytes], Any] | None]
    use_list: Final[bool]
    raw: Final[bool]
    timestamp: Final[_Timestamp]
    strict_map_key: Final[bool]
    object_hook: Final[Callable[[dict[Any, Any]], Any] | None]
    object_pairs_hook: Final[Callable[[list[tuple[Any, Any]]], Any] | None]
    list_hook: Final[Callable[[list[Any]], Any] | None]
    unicode_errors: Final[str]
    limits: Final[Limits]
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
