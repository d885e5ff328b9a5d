from collections.abc import Iterable, KeysView, Mapping
from typing import Any, Final

from numpy.typing import DTypeLike
from typing_extensions import Buffer, disjoint_base

from rlwire.codecs.dm_env_rpc.nesting import *
from rlwire.codecs.dm_env_rpc.ranges import *
from rlwire.codecs.dm_env_rpc.values import *
from rlwire.limits import Limits

PROPERTY_REQUEST_URL: Final[str]
PROPERTY_RESPONSE_URL: Final[str]

def encode_request(message: Request, *, limits: Limits | None = None) -> bytes: ...
def encode_response(message: Response, *, limits: Limits | None = None) -> bytes: ...
def encode_property_request(
    message: PropertyRequest, *, limits: Limits | None = None
) -> AnyMessage: ...
def encode_property_response(
    message: PropertyResponse, *, limits: Limits | None = None
) -> AnyMessage: ...
def request_kind(buffer: Buffer, *, limits: Limits | None = None) -> str | None: ...
def decode_request(
    buffer: Buffer, *, copy: bool | None = True, limits: Limits | None = None
) -> Request | None: ...
def decode_response(
    buffer: Buffer, *, copy: bool | None = True, limits: Limits | None = None
) -> Response | None: ...
def decode_property_request(
    extension: AnyMessage, *, copy: bool | None = True, limits: Limits | None = None
) -> PropertyRequest | None: ...
def decode_property_response(
    extension: AnyMessage, *, copy: bool | None = True, limits: Limits | None = None
) -> PropertyResponse | None: ...

@disjoint_base
class SpecManager:
    specs_by_uid: Final[Mapping[int, TensorSpec]]
    specs_by_name: Final[Mapping[str, TensorSpec]]
    def __init__(
        self, specs: Mapping[int, TensorSpec], *, limits: Limits | None = None
    ) -> None: ...
    def __len__(self) -> int: ...
    def name_to_uid(self, name: str) -> int: ...
    def names(self) -> KeysView[str]: ...
    def find_outside(
        self, values: Mapping[str, Any], names: Iterable[str], most: int
    ) -> tuple[str, str] | None: ...
    def names_of(self, uids: Iterable[int]) -> tuple[str, ...]: ...
    def request(self, names: Iterable[str]) -> bytes: ...
    def request_uids(self, uids: Iterable[int]) -> bytes: ...

def data_offset(buffer: Buffer, start: int, end: int) -> int: ...
def encode_step_request(
    manager: SpecManager,
    actions: Mapping[str, Any],
    requested: bytes | Iterable[int] = b"",
    *,
    check_bounds: bool = False,
) -> bytes: ...
def encode_step_response(
    manager: SpecManager,
    state: EnvironmentStateType | int,
    observations: Mapping[str, Any],
    requested: Iterable[int] | None = None,
) -> bytes: ...
def encode_step_response_parts(
    manager: SpecManager,
    state: EnvironmentStateType | int,
    observations: Mapping[str, Any],
    requested: Iterable[int] | None = None,
) -> list[bytes | memoryview]: ...
def decode_step_request(
    manager: SpecManager,
    buffer: Buffer,
    *,
    ignore_actions: bool = False,
    check_bounds: bool = False,
    copy: bool | None = True,
    unshared: bool = False,
) -> tuple[dict[str, Any], list[int]] | None: ...
def decode_step_response(
    manager: SpecManager, buffer: Buffer, *, copy: bool | None = True, unshared: bool = False
) -> tuple[EnvironmentStateType, dict[str, Any]] | None: ...
def encode_tensor(
    value: Any,
    dtype: DTypeLike | DataType | None = None,
    *,
    try_compress: bool = False,
    limits: Limits | None = None,
) -> bytes: ...
def encode_tensor_into(
    value: Any,
    buffer: Buffer,
    offset: int = 0,
    dtype: DTypeLike | DataType | None = None,
    *,
    try_compress: bool = False,
    limits: Limits | None = None,
) -> int: ...
def encode_tensor_parts(
    value: Any,
    dtype: DTypeLike | DataType | None = None,
    *,
    try_compress: bool = False,
    limits: Limits | None = None,
) -> list[bytes | memoryview]: ...
def decode_tensor(
    buffer: Buffer, *, copy: bool | None = True, limits: Limits | None = None
) -> Any: ...
