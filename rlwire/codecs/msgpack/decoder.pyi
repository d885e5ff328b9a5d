from collections.abc import Callable
from typing import Any, Final, Literal, TypedDict

from typing_extensions import Buffer, Unpack, disjoint_base

from rlwire.limits import Limits

_Timestamp = Literal["timestamp", "float", "int", "datetime"] | Callable[[int, int], Any]

class _Options(TypedDict, total=False):
    arrays: bool | Literal["bytes"]
    copy: bool | None
    ext_hook: Callable[[int, bytes], Any] | None
    use_list: bool
    raw: bool
    timestamp: _Timestamp
    strict_map_key: bool
    object_hook: Callable[[dict[Any, Any]], Any] | None
    object_pairs_hook: Callable[[list[tuple[Any, Any]]], Any] | None
    list_hook: Callable[[list[Any]], Any] | None
    unicode_errors: str
    max_str_len: int | None
    max_bin_len: int | None
    max_array_len: int | None
    max_map_len: int | None
    max_ext_len: int | None
    limits: Limits | None

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
    def __init__(self, **options: Unpack[_Options]) -> None: ...
    def decode(self, buffer: Buffer) -> Any: ...
    def decode_first(self, buffer: Buffer, offset: int = ...) -> tuple[Any, int]: ...

def decode(buffer: Buffer, **options: Unpack[_Options]) -> Any: ...
