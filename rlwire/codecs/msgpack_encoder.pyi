from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from typing_extensions import Buffer, disjoint_base

from rlwire.codecs._output import PartsEncoder
from rlwire.limits import Limits

__all__ = ["Encoder", "encode", "encode_into", "encode_parts"]

@disjoint_base
class Encoder(PartsEncoder):
    @property
    def arrays(self) -> Literal["msgpack_numpy", "openpi", "refuse"]: ...
    @property
    def default(self) -> Callable[[Any], Any] | None: ...
    @property
    def array_hook(self) -> Callable[[np.ndarray[Any, Any]], Any] | None: ...
    @property
    def use_single_float(self) -> bool: ...
    @property
    def use_bin_type(self) -> bool: ...
    @property
    def strict_types(self) -> bool: ...
    @property
    def datetime(self) -> bool: ...
    @property
    def unicode_errors(self) -> str: ...
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
