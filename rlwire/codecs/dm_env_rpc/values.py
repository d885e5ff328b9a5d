"""dm_env_rpc's messages as dataclasses, with the names of ``dm_env_rpc.proto``, version 1.

A tensor is a NumPy array or scalar, or a str. A tensor of messages is an `AnyMessage` or a
`ProtoArray`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from rlwire.errors import EncodeError

__all__ = [
    "ActionObservationSpecs", "AnyMessage", "CreateWorldRequest", "CreateWorldResponse",
    "DataType", "DestroyWorldRequest", "DestroyWorldResponse", "EnvironmentStateType",
    "JoinWorldRequest", "JoinWorldResponse", "LeaveWorldRequest", "LeaveWorldResponse",
    "ListPropertyRequest", "ListPropertyResponse", "PropertyRequest", "PropertyResponse",
    "PropertySpec", "ProtoArray", "ReadPropertyRequest", "ReadPropertyResponse", "Request",
    "ResetRequest", "ResetResponse", "ResetWorldRequest", "ResetWorldResponse", "Response",
    "Settings", "Status", "Step", "StepRequest", "StepResponse", "StepResult", "TensorSpec",
    "WritePropertyRequest", "WritePropertyResponse", "data_type", "numpy_dtype",
]  # fmt: skip

Settings: TypeAlias = dict[str, Any]
"""Settings of a world, an agent or an episode: tensors by name."""


class DataType(enum.IntEnum):
    """The data types of a tensor's payload."""

    INVALID_DATA_TYPE = 0
    FLOAT = 1
    DOUBLE = 2
    INT8 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT32 = 7
    UINT64 = 8
    BOOL = 9
    STRING = 10
    PROTO = 11


_NAMES = ("f4", "f8", "i1", "i4", "i8", "u1", "u4", "u8", "?", "U", "O")
_DTYPES: dict[int, np.dtype[Any]] = {i: np.dtype(name) for i, name in enumerate(_NAMES, 1)}
_DATA_TYPES = {dtype.str[1:]: DataType(number) for number, dtype in _DTYPES.items()}


def data_type(dtype: DTypeLike) -> DataType:
    """Return the `DataType` for a NumPy dtype, or raise EncodeError."""
    descr = np.dtype(dtype)
    found = DataType.STRING if descr.kind == "U" else _DATA_TYPES.get(descr.str[1:])
    if found is None:
        raise EncodeError(f"dm_env_rpc has no data type for dtype {descr}")
    return found


def numpy_dtype(data_type: int) -> np.dtype[Any]:
    """Return the NumPy dtype for a `DataType`: ``<U0`` for strings, ``object`` for messages."""
    if not isinstance(data_type, int):
        raise TypeError(f"expected a DataType, not {type(data_type).__qualname__}")
    found = _DTYPES.get(data_type)
    if found is None:
        raise EncodeError(f"dm_env_rpc has no data type {data_type}")
    return found


class EnvironmentStateType(enum.IntEnum):
    """The state of an agent's sequence after a step."""

    INVALID_ENVIRONMENT_STATE = 0
    RUNNING = 1
    TERMINATED = 2
    INTERRUPTED = 3


@dataclass(frozen=True, slots=True)
class AnyMessage:
    """``google.protobuf.Any``: the bytes of another message, and the URL that names its type."""

    type_url: str = ""
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class ProtoArray:
    """A row-major tensor of messages with at least one dimension. A single item fills any shape."""

    items: tuple[AnyMessage, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """A tensor's name, shape, type and range.

    Attributes:
        name: unique among the actions, or among the observations. Periods nest.
        shape: at most one dimension is negative, for a variable size.
        dtype: a `DataType`, or an int if it is unknown.
        min: inclusive bound: None, a scalar for all elements, or an array of `shape`. A peer's
            bound of another shape is a flat array, which `bounds` rejects.
        max: like `min`.
    """

    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: DataType = DataType.INVALID_DATA_TYPE
    min: Any = None
    max: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorSpec):
            return NotImplemented
        return (
            self.name == other.name
            and tuple(self.shape) == tuple(other.shape)
            and self.dtype == other.dtype
            and _same_bound(self.min, other.min)
            and _same_bound(self.max, other.max)
        )

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.shape), self.dtype))


def _same_bound(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    # Compares bytes, so that a bound of NaN equals itself.
    return bool(one.tobytes() == other.tobytes())


@dataclass(slots=True)
class ActionObservationSpecs:
    """The specs of a joined connection's actions and observations, by UID."""

    actions: dict[int, TensorSpec] = field(default_factory=dict)
    observations: dict[int, TensorSpec] = field(default_factory=dict)


@dataclass(slots=True)
class CreateWorldRequest:
    """Create a world with these settings."""

    settings: Settings = field(default_factory=dict)


@dataclass(slots=True)
class CreateWorldResponse:
    """The unique name of the new world."""

    world_name: str = ""


@dataclass(slots=True)
class JoinWorldRequest:
    """Join a world as an agent."""

    world_name: str = ""
    settings: Settings = field(default_factory=dict)


@dataclass(slots=True)
class JoinWorldResponse:
    """The specs of the agent's actions and observations."""

    specs: ActionObservationSpecs = field(default_factory=ActionObservationSpecs)


@dataclass(slots=True)
class StepRequest:
    """Actions, and the observations to return, by UID. `Step` has them by name."""

    actions: dict[int, Any] = field(default_factory=dict)
    requested_observations: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StepResponse:
    """The state and the requested observations, by UID. `StepResult` has them by name."""

    state: EnvironmentStateType = EnvironmentStateType.INVALID_ENVIRONMENT_STATE
    observations: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ResetRequest:
    """End the agent's sequence. The next step starts a new one."""

    settings: Settings = field(default_factory=dict)


@dataclass(slots=True)
class ResetResponse:
    """The specs, which may depend on the settings."""

    specs: ActionObservationSpecs = field(default_factory=ActionObservationSpecs)


@dataclass(slots=True)
class ResetWorldRequest:
    """End the sequence of every agent in the world."""

    world_name: str = ""
    settings: Settings = field(default_factory=dict)


@dataclass(slots=True)
class ResetWorldResponse:
    """The world was reset."""


@dataclass(slots=True)
class LeaveWorldRequest:
    """Leave the world."""


@dataclass(slots=True)
class LeaveWorldResponse:
    """The agent has left the world."""


@dataclass(slots=True)
class DestroyWorldRequest:
    """Destroy a world."""

    world_name: str = ""


@dataclass(slots=True)
class DestroyWorldResponse:
    """The world was destroyed."""


@dataclass(frozen=True, slots=True)
class Status:
    """``google.rpc.Status``: why a request failed, with one of gRPC's codes."""

    code: int = 0
    message: str = ""
    details: tuple[AnyMessage, ...] = ()


@dataclass(slots=True)
class Step:
    """A `StepRequest` by name, for sessions, which resolve names with the specs of the join."""

    actions: dict[str, Any] = field(default_factory=dict)
    requested_observations: tuple[str, ...] = ()


@dataclass(slots=True)
class StepResult:
    """A `StepResponse` by name, for sessions. UIDs in `unasked` are sent even if not requested."""

    state: EnvironmentStateType = EnvironmentStateType.INVALID_ENVIRONMENT_STATE
    observations: dict[str, Any] = field(default_factory=dict)
    unasked: tuple[int, ...] = ()


@dataclass(slots=True)
class PropertySpec:
    """A property's spec, access rights and description.

    The spec's name is the property's key. A property without a type (``INVALID_DATA_TYPE``) only
    contains other properties.
    """

    spec: TensorSpec = field(default_factory=TensorSpec)
    is_readable: bool = False
    is_writable: bool = False
    is_listable: bool = False
    description: str = ""


@dataclass(slots=True)
class ReadPropertyRequest:
    """Read a property's value."""

    key: str = ""


@dataclass(slots=True)
class ReadPropertyResponse:
    """The value, a tensor."""

    value: Any = None


@dataclass(slots=True)
class WritePropertyRequest:
    """Set a property's value, a tensor."""

    key: str = ""
    value: Any = None


@dataclass(slots=True)
class WritePropertyResponse:
    """The value was set."""


@dataclass(slots=True)
class ListPropertyRequest:
    """List the properties below a key; an empty key means the outermost ones."""

    key: str = ""


@dataclass(slots=True)
class ListPropertyResponse:
    """The properties."""

    values: tuple[PropertySpec, ...] = ()


Request: TypeAlias = (
    CreateWorldRequest
    | JoinWorldRequest
    | StepRequest
    | ResetRequest
    | ResetWorldRequest
    | LeaveWorldRequest
    | DestroyWorldRequest
    | AnyMessage
)
"""The payloads of an EnvironmentRequest. An `AnyMessage` is an extension's."""

Response: TypeAlias = (
    CreateWorldResponse
    | JoinWorldResponse
    | StepResponse
    | ResetResponse
    | ResetWorldResponse
    | LeaveWorldResponse
    | DestroyWorldResponse
    | AnyMessage
    | Status
)
"""The payloads of an EnvironmentResponse."""

PropertyRequest: TypeAlias = ReadPropertyRequest | WritePropertyRequest | ListPropertyRequest
"""The payloads of the properties extension's request."""

PropertyResponse: TypeAlias = ReadPropertyResponse | WritePropertyResponse | ListPropertyResponse
"""The payloads of the properties extension's response."""
