from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
from typing_extensions import Buffer, disjoint_base

from rlwire.codecs._output import PartsEncoder
from rlwire.limits import Limits

__all__ = ["Encoder", "encode", "encode_into", "encode_parts"]

@disjoint_base
class Encoder(PartsEncoder):
    arrays: Final[Literal["msgpack_numpy", "openpi", "refuse"]]
    default: Final[Callable[[Any], Any] | None]
    array_hook: Final[Callable[[np.ndarray[Any, Any]], Any] | None]
    use_single_float: Final[bool]
    use_bin_type: Final[bool]
    strict_types: Final[bool]
    datetime: Final[bool]
    unicode_errors: Final[str]
    def __init__(
        self,
        *,
        arrays: Literal["msgpack_numpy", "openpi", "refuse"] = "msgpack_numpy",
        default: Callable[[Any], Any] | None = None,
        array_hook: Callable[[np.ndarray[Any, Any]], Any] | None = None,
        use_single_float: bool = False,
        use_bin_type: bool = True,
        strict_types: bool = False,
        datetime: bool = False,
        unicode_errors: str = "strict",
        limits: Limits | None = None,
    ) -> None: ...
    def array_header(self, count: int) -> bytes: ...
    def map_header(self, count: int) -> bytes: ...

def encode(
    value: Any,
    *,
    arrays: Literal["msgpack_numpy", "openpi", "refuse"] = "msgpack_numpy",
    default: Callable[[Any], Any] | None = None,
    array_hook: Callable[[np.ndarray[Any, Any]], Any] | None = None,
    use_single_float: bool = False,
    use_bin_type: bool = True,
    strict_types: bool = False,
    datetime: bool = False,
    unicode_errors: str = "strict",
    limits: Limits | None = None,
) -> bytes: ...
def encode_into(
    value: Any,
    buffer: Buffer,
    offset: int = 0,
    *,
    arrays: Literal["msgpack_numpy", "openpi", "refuse"] = "msgpack_numpy",
    default: Callable[[Any], Any] | None = None,
    array_hook: Callable[[np.ndarray[Any, Any]], Any] | None = None,
    use_single_float: bool = False,
    use_bin_type: bool = True,
    strict_types: bool = False,
    datetime: bool = False,
    unicode_errors: str = "strict",
    limits: Limits | None = None,
) -> int: ...
def encode_parts(
    value: Any,
    *,
    arrays: Literal["msgpack_numpy", "openpi", "refuse"] = "msgpack_numpy",
    default: Callable[[Any], Any] | None = None,
    array_hook: Callable[[np.ndarray[Any, Any]], Any] | None = None,
    use_single_float: bool = False,
    use_bin_type: bool = True,
    strict_types: bool = False,
    datetime: bool = False,
    unicode_errors: str = "strict",
    limits: Limits | None = None,
) -> list[bytes | memoryview]: ...
