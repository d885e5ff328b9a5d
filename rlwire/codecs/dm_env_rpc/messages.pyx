"""dm_env_rpc's messages, as one table: which fields each has, with which number, of which kind.

`encoder` writes by it and `decoder` reads by it. Steps by name have a way of
their own, in `steps`.
"""

from libc.stdint cimport uint32_t

from rlwire.codecs.dm_env_rpc import values

__all__ = ["PROPERTY_REQUEST_URL", "PROPERTY_RESPONSE_URL"]

PROPERTY_REQUEST_URL = "type.googleapis.com/dm_env_rpc.v1.extensions.properties.PropertyRequest"
"""The type of an `AnyMessage` that holds a request of the properties extension."""

PROPERTY_RESPONSE_URL = "type.googleapis.com/dm_env_rpc.v1.extensions.properties.PropertyResponse"
"""The type of an `AnyMessage` that holds a response of the properties extension."""


cdef class _Field:
    """One field of a message."""

    def __init__(self, number, kind, name, sub=None):
        self.number = number
        self.kind = kind
        self.name = name
        self.sub = sub

    cdef bint is_in(self, int kinds) noexcept:
        return 1 << <int> self.kind & kinds != 0


cdef class _Message:
    """A message's class and its fields, in the order of the class's own."""

    def __init__(self, cls, *fields):
        self.cls = cls
        self.fields = [_Field(*field) for field in fields]
        self.by_number = [None] * MOST_NUMBERS
        for at, field in enumerate(self.fields):
            (<_Field> field).at = at
            self.by_number[(<_Field> field).number] = field


cdef class _Choice:
    """A message that is nothing but one of several members: a oneof."""

    def __init__(self, name, *members):
        self.name = name
        self.by_number = [None] * MOST_NUMBERS
        self.by_class = {}
        for number, member_name, message in members:
            field = _Field(number, MESSAGE, member_name, message)
            self.by_number[number] = field
            self.by_class[(<_Message> message).cls] = field


cdef _Message _ANY = _Message(values.AnyMessage, (1, TEXT, "type_url"), (2, DATA, "value"))
cdef _Message _STATUS = _Message(
    values.Status, (1, INT32, "code"), (2, TEXT, "message"), (3, MESSAGES, "details", _ANY)
)
cdef _Message _SPEC = _Message(
    values.TensorSpec,
    (1, TEXT, "name"),
    (2, DIMENSIONS, "shape"),
    (3, DATA_TYPE, "dtype"),
    (4, BOUND, "min"),
    (5, BOUND, "max"),
)
cdef _Message _SPECS = _Message(
    values.ActionObservationSpecs,
    (1, SPECS_BY_UID, "actions", _SPEC),
    (2, SPECS_BY_UID, "observations", _SPEC),
)
cdef tuple _NAME = (1, TEXT, "world_name")
cdef tuple _KEY = (1, TEXT, "key")

_REQUEST = _Choice(
    "EnvironmentRequest",
    (1, "create_world",
     _Message(values.CreateWorldRequest, (1, TENSORS_BY_NAME, "settings"))),
    (2, "join_world",
     _Message(values.JoinWorldRequest, _NAME, (2, TENSORS_BY_NAME, "settings"))),
    (3, "step",
     _Message(values.StepRequest, (1, TENSORS_BY_UID, "actions"),
              (2, UIDS, "requested_observations"))),
    (4, "reset", _Message(values.ResetRequest, (1, TENSORS_BY_NAME, "settings"))),
    (5, "reset_world",
     _Message(values.ResetWorldRequest, _NAME, (2, TENSORS_BY_NAME, "settings"))),
    (6, "leave_world", _Message(values.LeaveWorldRequest)),
    (7, "destroy_world", _Message(values.DestroyWorldRequest, _NAME)),
    (15, "extension", _ANY),
)
_RESPONSE = _Choice(
    "EnvironmentResponse",
    (1, "create_world", _Message(values.CreateWorldResponse, _NAME)),
    (2, "join_world", _Message(values.JoinWorldResponse, (1, MESSAGE, "specs", _SPECS))),
    (3, "step",
     _Message(values.StepResponse, (1, STATE, "state"), (2, TENSORS_BY_UID, "observations"))),
    (4, "reset", _Message(values.ResetResponse, (1, MESSAGE, "specs", _SPECS))),
    (5, "reset_world", _Message(values.ResetWorldResponse)),
    (6, "leave_world", _Message(values.LeaveWorldResponse)),
    (7, "destroy_world", _Message(values.DestroyWorldResponse)),
    (15, "extension", _ANY),
    (16, "error", _STATUS),
)
_PROPERTY_REQUEST = _Choice(
    "PropertyRequest",
    (1, "read_property", _Message(values.ReadPropertyRequest, _KEY)),
    (2, "write_property", _Message(values.WritePropertyRequest, _KEY, (2, TENSOR, "value"))),
    (3, "list_property", _Message(values.ListPropertyRequest, _KEY)),
)
_PROPERTY_RESPONSE = _Choice(
    "PropertyResponse",
    (1, "read_property", _Message(values.ReadPropertyResponse, (1, TENSOR, "value"))),
    (2, "write_property", _Message(values.WritePropertyResponse)),
    (3, "list_property",
     _Message(
         values.ListPropertyResponse,
         (1, MESSAGES, "values",
          _Message(
              values.PropertySpec,
              (1, MESSAGE, "spec", _SPEC),
              (2, FLAG, "is_readable"),
              (3, FLAG, "is_writable"),
              (4, FLAG, "is_listable"),
              (5, TEXT, "description"),
          )),
     )),
)
